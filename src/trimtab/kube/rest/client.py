"""The client of one API server: read, write, apply, resize, evict, scale, watch.

Objects are plain JSON dictionaries, or any type that msgspec can decode (`into=`), so that a caller decodes only the
fields that it names. `transport` sends the requests; `cache.informer` keeps a local copy of objects.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, Self, TypeVar, overload

import msgspec

from trimtab.kube.auth import Connection
from trimtab.kube.errors import Conflict, Gone, NotFound, ResponseTooLarge, decode_response
from trimtab.kube.rest.resources import JSON, PODS, Resource
from trimtab.kube.rest.retry import RateLimiter, RetryPolicy
from trimtab.kube.rest.transport import MAX_RESPONSE_BYTES, Transport, is_remote
from trimtab.kube.rest.watched_namespaces import WatchedNamespaces

T = TypeVar("T")

Object = dict[str, Any]
"""A Kubernetes object as JSON."""

FIELD_MANAGER = "trimtab.io"
MAX_CONFLICT_ATTEMPTS = 5


class _PageMetadata(msgspec.Struct, rename={"continue_": "continue"}, frozen=True, gc=False):
    continue_: str = ""


class _Page(msgspec.Struct, frozen=True, gc=False):
    items: msgspec.Raw  # decoded by the caller; a body without items is not a list
    metadata: _PageMetadata = _PageMetadata()


class _List(msgspec.Struct, frozen=True, gc=False):
    items: list[Object] | None


_OBJECT = msgspec.json.Decoder(Object)
MAX_PAGE_BYTES = 32 << 20
"""The size of a page of a list above which smaller pages are requested."""
MAX_LIST_BYTES = 1 << 30
"""The maximum size of a list that is requested in a single page."""
_PAGE = msgspec.json.Decoder(_Page)
_LIST = msgspec.json.Decoder(_List)


class PatchType(StrEnum):
    """The media type that tells the server how to merge a patch into the object."""

    APPLY = "application/apply-patch+yaml"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


class Client:
    """A client of one API server, used as an async context manager."""

    def __init__(
        self,
        connection: Connection,
        *,
        rate: RateLimiter | None = None,
        retry: RetryPolicy | None = None,
        timeout: float = 30.0,
        compress: bool | None = None,
        rng: random.Random | None = None,
        scope: WatchedNamespaces | None = None,
    ) -> None:
        """Create a client; `timeout` is the longest silence of the server in seconds, `compress` defaults to True for
        a remote server. With a `scope`, a list of all namespaces is one of each namespace in it.
        """
        self.scope = scope
        retry = retry or RetryPolicy()
        self._backoff = retry.backoff
        self._rng = rng or random.Random()  # noqa: S311 - jitter
        self._transport = Transport(
            connection,
            rate=rate or RateLimiter(),
            retry=retry,
            timeout=timeout,
            compress=is_remote(connection) if compress is None else compress,
            rng=self._rng,
        )

    @property
    def connection(self) -> Connection:
        return self._transport.connection

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.__aexit__()

    # Reading

    @overload
    async def get(
        self, resource: Resource, name: str, *, namespace: str | None = ..., subresource: str | None = ...
    ) -> Object: ...
    @overload
    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        into: type[T],
        namespace: str | None = ...,
        subresource: str | None = ...,
    ) -> T: ...
    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        into: Any = Object,
    ) -> Any:
        """Get one object."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self._transport.request("GET", path, read=msgspec.json.Decoder(into).decode)

    async def list_pages(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        accept: str = JSON,
        limit: int = 500,
        consistent: bool = False,
    ) -> AsyncIterator[bytes]:
        """Iterate over the raw pages of a list; a `limit` of 0 returns one page.

        The server drops its snapshot after some minutes. If a list takes longer, the remaining pages show the objects
        that exist by then; every object that existed all the time is on one of the pages. A `consistent` list, as a
        watch needs to resume from it, raises `Gone` instead.
        """
        if namespace is None and self.scope and resource.namespaced:
            for each in self.scope.namespaces_of(resource):
                async for page in self.list_pages(
                    resource,
                    namespace=each,
                    labels=labels,
                    fields=fields,
                    accept=accept,
                    limit=limit,
                    consistent=consistent,
                ):
                    yield page
            return
        params = selector_params(labels, fields)
        size = limit
        while True:
            try:
                page, following = await self._transport.request(
                    "GET",
                    resource.path(namespace=namespace),
                    params={"limit": str(size), **params},
                    accept=accept,
                    max_bytes=MAX_PAGE_BYTES if size else MAX_LIST_BYTES,
                    read=_split_page,
                )
            except ResponseTooLarge:
                # Objects of a megabyte each, of which a tenant may create hundreds, would fill the memory.
                if size <= 1:
                    raise
                size //= 2
                continue
            except Gone as error:
                if consistent or error.continue_token in {"", params.get("continue")}:
                    raise
                params["continue"] = error.continue_token
                continue
            yield page
            if not following:
                return
            params["continue"] = following
            size = _choose_page_size(size, len(page), limit=limit)

    async def list_objects(
        self, resource: Resource, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """List all objects of a resource in a namespace, or in all namespaces. For many objects, prefer an
        informer.
        """
        found: list[Object] = []
        async for page in self.list_pages(resource, namespace=namespace, labels=labels, fields=fields):
            found += decode_response(page, _LIST.decode, request=f"list of {resource}").items or ()
        return found

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None,
        params: Mapping[str, str],
        accept: str,
        idle_timeout: float,
        batch_window: float = 0.0,
    ) -> AsyncIterator[AsyncIterable[bytes]]:
        """Yield the bytes of a watch as they arrive; see `Transport.stream` for the timeouts."""
        async with self._transport.stream(
            resource.path(namespace=namespace),
            params={"watch": "1", **params},
            accept=accept,
            idle_timeout=idle_timeout,
            batch_window=batch_window,
        ) as chunks:
            yield chunks

    async def get_version(self) -> Object:
        """Return the server's response at /version."""
        return await self._transport.request("GET", "/version", read=_OBJECT.decode)

    # Writing

    async def create(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Create an object."""
        path = resource.path(namespace=namespace)
        return await self._write("POST", path, body, dry_run=dry_run)

    async def replace(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Replace a whole object; if it has a resourceVersion, only that version is replaced."""
        metadata = body["metadata"]
        path = resource.path(
            namespace=metadata.get("namespace"), name=metadata["name"], subresource=subresource
        )
        return await self._write("PUT", path, body, dry_run=dry_run)

    async def update(
        self,
        resource: Resource,
        name: str,
        change: Callable[[Object], Object | None],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Object:
        """Read, change and write an object; start over if another client wrote in between.

        `change` gets the current object and returns the desired one, or None to leave it unchanged.
        """
        for attempt in range(1, MAX_CONFLICT_ATTEMPTS + 1):
            now = await self.get(resource, name, namespace=namespace, subresource=subresource)
            desired = change(now)
            if desired is None:
                return now
            try:
                return await self.replace(resource, desired, subresource=subresource)
            except Conflict:
                if attempt == MAX_CONFLICT_ATTEMPTS:
                    raise
                await asyncio.sleep(self._backoff.delay(attempt, rng=self._rng))
        raise AssertionError("unreachable")

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        type: PatchType,  # noqa: A002 - the Kubernetes term
        namespace: str | None = None,
        subresource: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        manager: str = FIELD_MANAGER,
    ) -> Object:
        """Change part of an object; `force` takes over fields that another manager applied."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self._write(
            "PATCH", path, body, content_type=type, force=force, dry_run=dry_run, manager=manager
        )

    async def apply(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        subresource: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        manager: str = FIELD_MANAGER,
    ) -> Object:
        """Apply an object server-side: we own the fields in `body`, and give up those that we no longer name.

        Two features that apply to the same object need two managers; with one, each would remove the fields of the
        other.
        """
        named = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        metadata = named["metadata"]
        return await self.patch(
            resource,
            metadata["name"],
            named,
            type=PatchType.APPLY,
            namespace=metadata.get("namespace"),
            subresource=subresource,
            force=force,
            dry_run=dry_run,
            manager=manager,
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        dry_run: bool = False,
    ) -> bool:
        """Delete an object, with `uid` only that instance; return False if it did not exist."""
        options: Object = {"preconditions": {"uid": uid}} if uid else {}
        if dry_run:
            options["dryRun"] = ["All"]  # the server ignores the query of a deletion that has a body
        try:
            await self._write("DELETE", resource.path(namespace=namespace, name=name), options)
        except NotFound:
            return False
        return True

    async def resize(
        self,
        pod: str,
        containers: list[Object],
        *,
        namespace: str,
        sidecars: list[Object] | None = None,
        version: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Change the resources of a running pod in place; `containers` and `sidecars` hold names and resources.

        With a resource version, only that version of the pod is changed.
        """
        spec = {"containers": containers} | ({"initContainers": sidecars} if sidecars else {})
        return await self.patch(
            PODS,
            pod,
            {"spec": spec} | ({"metadata": {"resourceVersion": version}} if version else {}),
            type=PatchType.STRATEGIC,
            namespace=namespace,
            subresource="resize",
            dry_run=dry_run,
        )

    async def evict(
        self,
        pod: str,
        *,
        namespace: str,
        uid: str | None = None,
        version: str | None = None,
        labels: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> bool:
        """Evict a pod; raise DisruptionBlocked if a disruption budget does not allow it, and Conflict if the pod has
        another uid or version; return False if the pod did not exist. Admission sees the `labels` of the eviction.
        """
        body: Object = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace, "labels": dict(labels or {})},
        }
        expected = {"uid": uid, "resourceVersion": version}
        if preconditions := {name: value for name, value in expected.items() if value}:
            body["deleteOptions"] = {"preconditions": preconditions}
        try:
            # Evicting a pod twice has the same effect as evicting it once, so an unanswered request may be repeated.
            path = PODS.path(namespace=namespace, name=pod, subresource="eviction")
            await self._write("POST", path, body, dry_run=dry_run, repeatable=True)
        except NotFound:
            return False
        return True

    async def scale(
        self,
        resource: Resource,
        name: str,
        replicas: int,
        *,
        namespace: str,
        version: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Set the number of replicas through the scale subresource, which any scalable kind has.

        With a resource version, only that version of the object is changed.
        """
        return await self.patch(
            resource,
            name,
            {"spec": {"replicas": replicas}}
            | ({"metadata": {"resourceVersion": version}} if version else {}),
            type=PatchType.MERGE,
            namespace=namespace,
            subresource="scale",
            dry_run=dry_run,
        )

    async def review(self, resource: Resource, body: Mapping[str, Any]) -> Object:
        """Send a review: a POST that returns a result and stores nothing."""
        named = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return await self._write("POST", resource.path(), named, repeatable=True)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = JSON,
        max_bytes: int = MAX_RESPONSE_BYTES,
        read: Callable[[bytes], T],
    ) -> T:
        """Request a path that is not a resource, such as discovery or an aggregated API, and decode the response."""
        return await self._transport.request(
            method, path, params=params, accept=accept, max_bytes=max_bytes, read=read
        )

    async def _write(
        self,
        method: str,
        path: str,
        body: Any,
        *,
        content_type: str = JSON,
        force: bool = False,
        dry_run: bool = False,
        repeatable: bool | None = None,
        manager: str = FIELD_MANAGER,
    ) -> Object:
        params: dict[str, str] = {} if method == "DELETE" else {"fieldManager": manager}
        if force:
            params["force"] = "true"
        if dry_run:
            params["dryRun"] = "All"
        encoded = msgspec.json.encode(body)
        repeat = method != "POST" if repeatable is None else repeatable
        return await self._transport.request(
            method,
            path,
            params=params,
            body=encoded,
            content_type=content_type,
            repeatable=repeat,
            read=_OBJECT.decode,
        )


def selector_params(labels: str, fields: str) -> dict[str, str]:
    return {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}


def _choose_page_size(size: int, bytes_read: int, *, limit: int) -> int:
    """Return the size of the next page, after one of this size and so many bytes."""
    # A larger page of such objects would be refused, and so downloaded for nothing.
    return min(limit, 2 * size) if 2 * bytes_read <= MAX_PAGE_BYTES else size


def _split_page(body: bytes) -> tuple[bytes, str]:
    """Return a page unchanged, with the token of the next page."""
    return body, _PAGE.decode(body).metadata.continue_
