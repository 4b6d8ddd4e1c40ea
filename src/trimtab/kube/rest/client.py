"""What can be asked of an API server: read, write, apply, resize, evict, scale, watch.

Objects go in and come out as plain JSON dictionaries, or as any type msgspec can decode (`into=`), so
that a caller reads only the fields that it names. How a request travels is the affair of `wire`; keeping
a copy of what is there, of `informer`.
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
from trimtab.kube.cache.projection import JSON
from trimtab.kube.errors import Conflict, Gone, NotFound, decode_response
from trimtab.kube.rest.resources import PODS, Resource
from trimtab.kube.rest.retry import RateLimiter, RetryPolicy
from trimtab.kube.rest.transport import Transport, is_remote

T = TypeVar("T")

Object = dict[str, Any]
"""A Kubernetes object as JSON."""

FIELD_MANAGER = "trimtab.io"
MAX_CONFLICT_ATTEMPTS = 5


class _PageMetadata(msgspec.Struct, rename={"continue_": "continue"}, frozen=True, gc=False):
    continue_: str = ""


class _Page(msgspec.Struct, frozen=True, gc=False):
    items: msgspec.Raw  # for its reader; without it, it is no list
    metadata: _PageMetadata = _PageMetadata()


class _List(msgspec.Struct, frozen=True, gc=False):
    items: list[Object] | None


_OBJECT = msgspec.json.Decoder(Object)
_PAGE = msgspec.json.Decoder(_Page)
_LIST = msgspec.json.Decoder(_List)


class PatchType(StrEnum):
    """How the server merges a patch into the object."""

    APPLY = "application/apply-patch+yaml"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


class Client:
    """One API server, used as an async context manager."""

    def __init__(
        self,
        connection: Connection,
        *,
        rate: RateLimiter | None = None,
        retry: RetryPolicy | None = None,
        timeout: float = 30.0,
        compress: bool | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`timeout` is how many seconds a server may be silent; answers are compressed by how far away it is, or as told."""
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
        """One object."""
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
        """The raw pages of a list, one after the other; with a `limit` of 0 all on one.

        A server forgets a snapshot after some minutes. Of a list that takes longer, the remaining pages show what is there
        by then: whatever was there all the time is on one of them. Where the list has to be `consistent`, as for a watch
        that goes on from it, that is `Gone` instead.
        """
        params = {"limit": str(limit)} | selector_params(labels, fields)
        while True:
            try:
                page, following = await self._transport.request(
                    "GET", resource.path(namespace=namespace), params=params, accept=accept, read=_split_page
                )
            except Gone as error:
                if consistent or error.continue_token in {"", params.get("continue")}:
                    raise
                params["continue"] = error.continue_token
                continue
            yield page
            if not following:
                return
            params["continue"] = following

    async def list_objects(
        self, resource: Resource, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """All objects of a resource in a namespace, or in all of them. For many, prefer an informer."""
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
        """The bytes of a watch as they come; see `Wire.stream` for silence and gathering."""
        async with self._transport.stream(
            resource.path(namespace=namespace),
            params={"watch": "1", **params},
            accept=accept,
            idle_timeout=idle_timeout,
            batch_window=batch_window,
        ) as chunks:
            yield chunks

    async def get_version(self) -> Object:
        """What the server says of itself at /version."""
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
        """Make a new object."""
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
        """Write a whole object over what is there; with a resourceVersion in it, only over that version."""
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
        """Read, change, write; from the start again when somebody else wrote in between.

        `change` is given the object as it is and returns it as it should be, or None to leave it alone.
        """
        for attempt in range(1, MAX_CONFLICT_ATTEMPTS + 1):
            now = await self.get(resource, name, namespace=namespace, subresource=subresource)
            wanted = change(now)
            if wanted is None:
                return now
            try:
                return await self.replace(resource, wanted, subresource=subresource)
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
        type: PatchType,  # noqa: A002 - Kubernetes' own word for it
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
        """Server-side apply: we own the fields in `body`, and those that we no longer name are given up.

        Two concerns that apply to the same object go by two managers, or each gives up what the other named.
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
        """Delete an object, with `uid` only that very one; False when it was gone already."""
        options: Object = {"preconditions": {"uid": uid}} if uid else {}
        if dry_run:
            options["dryRun"] = ["All"]  # where a deletion has a body, the server does not look at the query
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

        With a resource version, only of that version of the pod.
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

    async def evict(self, pod: str, *, namespace: str, uid: str | None = None, dry_run: bool = False) -> bool:
        """Evict a pod if its disruption budgets allow (else DisruptionBlocked); False when it was gone already."""
        body: Object = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        if uid:
            body["deleteOptions"] = {"preconditions": {"uid": uid}}
        try:
            # Evicting a pod twice is evicting it once, so an unanswered request may be repeated.
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

        With a resource version, only of that version of the object.
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
        """Ask the server a question that is put as a POST and stores nothing."""
        named = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return await self._write("POST", resource.path(), named, repeatable=True)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = JSON,
        read: Callable[[bytes], T],
    ) -> T:
        """What is read in the answer at a path, for what is no resource: discovery, aggregated APIs."""
        return await self._transport.request(method, path, params=params, accept=accept, read=read)

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


def _split_page(body: bytes) -> tuple[bytes, str]:
    """A page as it is, and where the next begins."""
    return body, _PAGE.decode(body).metadata.continue_
