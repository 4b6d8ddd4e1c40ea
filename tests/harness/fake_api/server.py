"""The HTTP of the fake API server: TLS, authentication, paths, lists in pages, and watches."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import uvloop
import yaml
from aiohttp import web

from harness.cluster.credentials import Credentials
from harness.fake_api import patches, subresources
from harness.fake_api.access import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    Attributes,
    User,
    default_roles,
    impersonate,
    is_allowed,
)
from harness.fake_api.controllers import Controllers
from harness.fake_api.discovery import VERSION, aggregated_discovery, resource_list
from harness.fake_api.kinds import CRDS, PODS, ServedKind
from harness.fake_api.objects import Change, Object, ObjectStore
from harness.fake_api.reviews import REVIEWS, review
from harness.fake_api.selectors import Matches, match_fields, match_labels
from harness.fake_api.status import ApiFailure, bad_request, expired, not_implemented, unknown_path
from harness.process import free_port

T = TypeVar("T")

MAX_BODY = 3 << 20
OUR_KINDS = Path(__file__).parents[3] / "deploy" / "crds"
_PARTIAL = "as=PartialObjectMetadata"


class RequestRefusedError(OSError):
    """What `call` asked was refused."""

    def __init__(self, failure: ApiFailure) -> None:
        super().__init__(str(failure))
        self.code = failure.code


@dataclass(frozen=True)
class Request:
    """A request to a resource."""

    method: str
    kind: ServedKind
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, str]
    body: bytes = b""
    media_type: str = "application/json"
    accept: str = "application/json"
    manager: str = "unknown"
    user: User = ANONYMOUS

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in {"1", "true"}

    @property
    def is_dry_run(self) -> bool:
        return "dryRun" in self.query

    @property
    def verb(self) -> str:
        if self.method == "GET":
            return "watch" if self.is_watch else "get" if self.name else "list"
        return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[self.method]

    def matches(self) -> Matches:
        labels = match_labels(self.query.get("labelSelector", ""))
        fields = match_fields(self.query.get("fieldSelector", ""))
        namespace = self.namespace
        return lambda body: (
            (not namespace or body["metadata"].get("namespace") == namespace)
            and labels(body)
            and fields(body)
        )

    def decode(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            pass
        try:
            return yaml.safe_load(self.body)
        except yaml.YAMLError as error:
            raise bad_request(f"the body cannot be read: {error}") from None

    def decode_object(self) -> Object:
        body = self.decode()
        if not isinstance(body, dict):
            raise bad_request("the body is no object")
        return body


_NOT_ALLOWED = ApiFailure(
    405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
)


@dataclass
class FakeApiServer:
    """`with FakeApiServer(folder) as cluster:`; it has the attributes of a real `Cluster` that clients need."""

    directory: Path
    store: ObjectStore = field(default_factory=ObjectStore)
    credentials: Credentials = field(init=False)
    node: None = None

    def __post_init__(self) -> None:
        (self.directory / "certificates").mkdir(parents=True, exist_ok=True)
        self.credentials = Credentials(self.directory / "certificates")
        self._port = free_port()
        self.server = f"https://127.0.0.1:{self._port}"
        self.kubeconfig = self.directory / "kubeconfig"
        self.credentials.write_kubeconfig(self.kubeconfig, server=self.server)
        self._users = {self.credentials.token: User("admin", (MASTERS, AUTHENTICATED))}
        self._controllers = Controllers(self.store)
        self._watches: set[asyncio.Queue[Change | None]] = set()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.ServerRunner | None = None
        for plural, body in default_roles():
            self.store.create(self.store.kind_named(plural), "", body)
        self.store.on_change.append(self._tell)

    @property
    def ca(self) -> Path:
        return self.credentials.authority.cert

    @property
    def token(self) -> str:
        return self.credentials.token

    @property
    def client_cert(self) -> Path:
        return self.credentials.client.cert

    @property
    def client_key(self) -> Path:
        return self.credentials.client.key

    def __enter__(self) -> Self:
        self._thread.start()
        self.start_apiserver()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_apiserver()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start_apiserver(self) -> None:
        self._run(self._listen())

    def kill_apiserver(self) -> None:
        """End all connections at once, and accept none."""
        self._run(self._close())

    def call(self, method: str, path: str, body: Object | None = None) -> Object:
        """Ask as the administrator, without a connection."""
        parts = urlsplit(path)

        async def ask() -> Object:
            admin = User("admin", (MASTERS, AUTHENTICATED))
            content = b"" if body is None else json.dumps(body).encode()
            query = dict(parse_qsl(parts.query))
            request = self._parse(method, parts.path, query, content, user=admin)
            return json.loads(msgspec.json.encode(self._answer(request)[1]))  # type: ignore[no-any-return]

        try:
            return self._run(ask())
        except ApiFailure as failure:
            raise RequestRefusedError(failure) from None

    def has(self, path: str) -> bool:
        try:
            self.call("GET", path)
        except RequestRefusedError:
            return False
        return True

    def learn(self, kinds: Path = OUR_KINDS) -> None:
        """Serve the kinds that these manifests define."""
        files = sorted(kinds.glob("*.yaml")) if kinds.is_dir() else [kinds]
        for file in files:
            for definition in yaml.safe_load_all(file.read_text()):
                if definition and not self.has(
                    f"/apis/{CRDS.api_version}/{CRDS.plural}/{definition['metadata']['name']}"
                ):
                    self.call("POST", f"/apis/{CRDS.api_version}/{CRDS.plural}", definition)

    def make_token(self, namespace: str, account: str) -> str:
        """Return a token of a service account."""
        token = secrets.token_urlsafe()
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
        self._users[token] = User(f"system:serviceaccount:{namespace}:{account}", groups)
        return token

    def compact(self) -> None:
        """Forget all versions but the present one."""

        async def compact() -> None:
            self.store.compact()

        self._run(compact())

    # Inside

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=60)

    async def _listen(self) -> None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca))
        tls.load_cert_chain(self.credentials.serving.cert, self.credentials.serving.key)
        tls.verify_mode = ssl.CERT_OPTIONAL
        self._server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=tls, reuse_address=True).start()

    async def _close(self) -> None:
        if self._runner is not None:
            for connection in self._server.connections:
                if connection.transport:
                    connection.transport.abort()
            await self._runner.cleanup()
            self._runner = None

    def _tell(self, change: Change) -> None:
        for queue in self._watches:
            queue.put_nowait(change)

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._respond(http)
        except ApiFailure as failure:
            return _json(failure.code, failure.status)

    async def _respond(self, http: web.BaseRequest) -> web.StreamResponse:
        user = impersonate(self._authenticate(http), http.headers)
        body = await http.read()
        if len(body) > MAX_BODY:
            raise ApiFailure(413, "RequestEntityTooLarge", f"limit is {MAX_BODY}")
        if http.path in {"/readyz", "/livez", "/healthz"}:
            return web.Response(text="ok")
        accept = http.headers.get("Accept", "application/json")
        if "json" not in accept and "*/*" not in accept:
            raise ApiFailure(406, "NotAcceptable", "only JSON is served")
        if found := self._discover(http.path, user, accept):
            return _json(200, found)
        request = self._parse(
            http.method,
            http.raw_path.partition("?")[0],
            dict(http.query),
            body,
            media_type=http.content_type,
            accept=accept,
            manager=http.headers.get("User-Agent", "unknown").partition("/")[0],
            user=user,
        )
        if request.is_watch:
            return await self._watch(http, request)
        return _json(*self._answer(request))

    def _authenticate(self, http: web.BaseRequest) -> User:
        header = http.headers.get("Authorization", "")
        if header.startswith("Bearer "):
            found = self._users.get(header.removeprefix("Bearer "))
            if found is None:
                raise ApiFailure(401, "Unauthorized", "Unauthorized")
            return found
        peer = http.transport.get_extra_info("peercert") if http.transport else None
        if peer:
            names = dict(pair for part in peer["subject"] for pair in part)
            groups = [names["organizationName"]] if "organizationName" in names else []
            return User(names["commonName"], (*groups, AUTHENTICATED))
        return ANONYMOUS

    def _discover(self, path: str, user: User, accept: str) -> Object | None:
        if path == "/version":
            return VERSION
        if path in {"/api", "/apis"}:
            if AUTHENTICATED not in user.groups and MASTERS not in user.groups:
                raise ApiFailure(403, "Forbidden", f'forbidden: User "{user.name}" cannot get path "{path}"')
            if "APIGroupDiscoveryList" not in accept:
                raise not_implemented("discovery that is not aggregated")
            return aggregated_discovery(self.store, core=path == "/api")
        return resource_list(self.store, path)

    def _parse(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, *, user: User, **more: str
    ) -> Request:
        words = [unquote(each) for each in path.strip("/").split("/")]
        match words:
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                raise unknown_path()
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
            _, namespace, *rest = rest
        if not rest:
            raise unknown_path()
        plural, name, subresource, *_ = [*rest, "", ""]
        if (group, plural) in REVIEWS:
            kind = ServedKind(group, version, plural, REVIEWS[group, plural], namespaced=False)
        else:
            kind = self.store.find_kind(group, version, plural)
            if subresource and subresource not in kind.subresources:
                raise unknown_path()
        return Request(method, kind, namespace, name, subresource, query, body, user=user, **more)

    def _authorize(self, request: Request) -> None:
        resource = request.kind.plural + (f"/{request.subresource}" if request.subresource else "")
        wanted = Attributes(request.verb, request.kind.group, resource, request.namespace, request.name)
        if request.kind.plural == "namespaces" and request.name:
            wanted = Attributes(request.verb, "", resource, request.name, request.name)
        if not is_allowed(self.store, request.user, wanted):
            what = request.kind.full_name + (f' "{request.name}"' if request.name else "")
            raise ApiFailure(
                403, "Forbidden", f'{what} is forbidden: User "{request.user.name}" {wanted.text}'
            )

    def _answer(self, request: Request) -> tuple[int, Object]:
        self._authorize(request)
        is_review = (request.kind.group, request.kind.plural) in REVIEWS
        answers: Mapping[tuple[str, bool], Callable[[Request], tuple[int, Object]]] = {
            ("GET", True): self._get,
            ("GET", False): self._list,
            ("POST", True): self._post_subresource,
            ("POST", False): self._create,
            ("PUT", True): self._put,
            ("PATCH", True): self._patch,
            ("DELETE", True): self._delete,
        }
        if is_review:
            answers = {("POST", False): self._review}
        if answer := answers.get((request.method, bool(request.name))):
            return answer(request)
        raise _NOT_ALLOWED

    def _review(self, request: Request) -> tuple[int, Object]:
        return 201, review(self.store, request.kind, request.user, request.decode())

    def _get(self, request: Request) -> tuple[int, Object]:
        found = self.store.get(request.kind, request.namespace, request.name)
        if request.subresource == "scale":
            found = subresources.scale_of(found)
        return 200, _shape(found, request.accept)

    def _list(self, request: Request) -> tuple[int, Object]:
        kind, limit = request.kind, int(request.query.get("limit", "0") or "0")
        version, bodies, start = self._page(request)
        end = start + limit if limit else len(bodies)
        page, metadata = bodies[start:end], {"resourceVersion": str(version)}
        if end < len(bodies):
            self.store.snapshot(version, bodies)
            metadata["continue"] = _token(version, end, after=_key(page[-1]))
        items = [_shape(each, request.accept, in_list=not kind.is_custom) for each in page]
        is_partial = _PARTIAL in request.accept
        return 200, {
            "kind": "PartialObjectMetadataList" if is_partial else f"{kind.kind}List",
            "apiVersion": "meta.k8s.io/v1" if is_partial else kind.api_version,
            "metadata": metadata,
            "items": items,
        }

    def _page(self, request: Request) -> tuple[int, list[Object], int]:
        """Return the version of a list, its objects, and where the page begins."""
        matches = request.matches()
        present = [each for each in self.store.select(request.kind) if matches(each)]
        token = request.query.get("continue")
        if not token:
            return self.store.version, present, 0
        place = json.loads(base64.urlsafe_b64decode(token))
        version, after = place["version"], place["after"]
        if not version:  # go on with the objects that exist now
            return self.store.version, [each for each in present if _key(each) > after], 0
        bodies = self.store.find_snapshot(version)
        if bodies is None:
            message = "The provided continue parameter is too old to display a consistent list result."
            raise expired(message, token=_token(0, 0, after=after))
        return version, bodies, place["start"]

    def _create(self, request: Request) -> tuple[int, Object]:
        return 201, self.store.create(
            request.kind,
            request.namespace,
            request.decode_object(),
            manager=request.query.get("fieldManager", request.manager),
            dry_run=request.is_dry_run,
        )

    def _post_subresource(self, request: Request) -> tuple[int, Object]:
        body = request.decode_object()
        if request.subresource == "eviction":
            dry_run = request.is_dry_run
            return 201, subresources.evict(self.store, request.namespace, request.name, body, dry_run=dry_run)
        if request.subresource == "token":
            status = {"token": self.make_token(request.namespace, request.name)}
            return 201, {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "status": status}
        raise _NOT_ALLOWED

    def _put(self, request: Request) -> tuple[int, Object]:
        body = request.decode_object()
        if body["metadata"]["name"] != request.name:
            raise bad_request("the name of the object does not match the name on the URL")
        return 200, self.store.update(
            request.kind,
            request.namespace,
            body,
            subresource=request.subresource,
            manager=request.query.get("fieldManager", request.manager),
            dry_run=request.is_dry_run,
        )

    def _patch(self, request: Request) -> tuple[int, Object]:
        kind, manager = request.kind, request.query.get("fieldManager", request.manager)
        change = _PATCHES.get(request.media_type)
        if request.media_type != patches.APPLY and change is None:
            raise ApiFailure(
                415,
                "UnsupportedMediaType",
                f"the body of the request was in an unknown format: {request.media_type}",
            )
        patch, dry_run = request.decode(), request.is_dry_run
        if request.subresource == "scale":
            live = self.store.get(kind, request.namespace, request.name)
            return 200, subresources.set_scale(self.store, kind, live, patch, dry_run=dry_run)
        if change is None:
            return self._apply(request, patch)
        live = self.store.get(kind, request.namespace, request.name)
        if kind.is_custom and request.media_type == "application/strategic-merge-patch+json":
            raise ApiFailure(415, "UnsupportedMediaType", "custom resources have no strategic merge patch")
        changed = change(live, patch)
        if not isinstance(patch, dict) or "resourceVersion" not in patch.get("metadata", {}):
            changed["metadata"] = {
                **changed["metadata"],
                "resourceVersion": live["metadata"]["resourceVersion"],
            }
        return 200, self.store.update(
            kind,
            request.namespace,
            changed,
            subresource="" if request.subresource == "resize" else request.subresource,
            manager=manager,
            dry_run=dry_run,
        )

    def _apply(self, request: Request, patch: Object) -> tuple[int, Object]:
        kind, query = request.kind, request.query
        if "fieldManager" not in query:
            raise bad_request(
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            )
        live = self.store.find(kind, request.namespace, request.name)
        applied = patches.apply_configuration(
            kind,
            live,
            patch,
            manager=query["fieldManager"],
            force=query.get("force") in {"1", "true"},
            subresource=request.subresource,
        )
        if live is None:
            if request.subresource:
                self.store.get(kind, request.namespace, request.name)
            return 201, self.store.create(kind, request.namespace, applied, dry_run=request.is_dry_run)
        version = patch["metadata"].get("resourceVersion")
        applied["metadata"]["resourceVersion"] = version or live["metadata"]["resourceVersion"]
        return 200, self.store.update(
            kind,
            request.namespace,
            applied,
            subresource=request.subresource,
            dry_run=request.is_dry_run,
            managed=True,
        )

    def _delete(self, request: Request) -> tuple[int, Object]:
        options = request.decode() if request.body else {}
        policy = options.get("propagationPolicy") or request.query.get("propagationPolicy", "")
        return 200, self.store.delete(
            request.kind,
            request.namespace,
            request.name,
            preconditions=options.get("preconditions"),
            orphan=policy == "Orphan",
            dry_run=bool(options.get("dryRun")) or (not request.body and request.is_dry_run),
        )

    async def _watch(self, http: web.BaseRequest, request: Request) -> web.StreamResponse:
        self._authorize(request)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        matches, version = request.matches(), request.query.get("resourceVersion", "")
        is_list = request.query.get("sendInitialEvents") == "true"
        if is_list and request.query.get("resourceVersionMatch") != "NotOlderThan":
            raise ApiFailure(422, "Invalid", "sendInitialEvents: resourceVersionMatch is required")
        queue: asyncio.Queue[Change | None] = asyncio.Queue()
        events: list[Object] = []
        try:
            if is_list or version in {"", "0"}:
                events += [
                    {"type": "ADDED", "object": _shape(each, request.accept)}
                    for each in self.store.select(request.kind)
                    if matches(each)
                ]
                if is_list:
                    events.append(self._bookmark(request.kind, is_end=True))
            else:
                for change in self.store.changes_since(int(version)):
                    events += _events(change, request, matches)
        except ApiFailure as failure:
            events = [{"type": "ERROR", "object": failure.status}]
            queue.put_nowait(None)
        self._watches.add(queue)
        deadline = asyncio.get_running_loop().time() + float(request.query.get("timeoutSeconds", "1800"))
        floor = int(version) if version not in {"", "0"} else 0
        try:
            await response.prepare(http)
            await response.write(_lines(events))
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    while (latest := await queue.get()) is not None:
                        if latest.version > floor:
                            await response.write(_lines(_events(latest, request, matches)))
        finally:
            self._watches.discard(queue)
        await response.write_eof()
        return response

    def _bookmark(self, kind: ServedKind, *, is_end: bool) -> Object:
        annotations = {"k8s.io/initial-events-end": "true"} if is_end else {}
        metadata = {"resourceVersion": str(self.store.version), "annotations": annotations}
        body = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return {"type": "BOOKMARK", "object": body}


_PATCHES: Mapping[str, Callable[[Object, Any], Object]] = {
    "application/merge-patch+json": patches.merge,
    "application/strategic-merge-patch+json": patches.merge_strategically,
    "application/json-patch+json": patches.apply_json_patch,
}


def _events(change: Change, request: Request, matches: Matches) -> list[Object]:
    """Return the event of a change as this watch sees it: an object that leaves its selection is deleted for it."""
    kind = request.kind
    if (change.kind.group, change.kind.plural) != (kind.group, kind.plural):
        return []
    is_in, was_in = (
        change.type != "DELETED" and matches(change.new),
        change.old is not None and matches(change.old),
    )
    if not is_in and not was_in:
        return []
    type_ = "DELETED" if not is_in else "MODIFIED" if was_in else "ADDED"
    body = change.new
    if type_ == "DELETED" and change.type != "DELETED":
        assert change.old is not None
        metadata = {**change.old["metadata"], "resourceVersion": change.new["metadata"]["resourceVersion"]}
        body = {**change.old, "metadata": metadata}
    return [{"type": type_, "object": _shape(body, request.accept)}]


def _shape(body: Object, accept: str, *, in_list: bool = False) -> Object:
    """Return an object in the form that was asked for; those in lists of built-in kinds do not repeat their kind."""
    if _PARTIAL in accept:
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": body["metadata"]}
    if in_list:
        return {name: value for name, value in body.items() if name not in {"kind", "apiVersion"}}
    return body


def _lines(events: list[Object]) -> bytes:
    return b"".join(msgspec.json.encode(each) + b"\n" for each in events)


def _json(status: int, body: Object) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")


def _key(body: Object) -> list[str]:
    return [body["metadata"].get("namespace", ""), body["metadata"]["name"]]


def _token(version: int, start: int, *, after: list[str]) -> str:
    text = json.dumps({"version": version, "start": start, "after": after})
    return base64.urlsafe_b64encode(text.encode()).decode()


__all__ = ["PODS", "FakeApiServer", "RequestRefusedError"]
