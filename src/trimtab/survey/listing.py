"""Everything of one resource at one moment, as the compact records that informers keep, without watching it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

from trimtab.errors import TrimtabError
from trimtab.kube.cache import Cache
from trimtab.kube.client import Client
from trimtab.kube.errors import BadRequest, Forbidden, NotFound
from trimtab.kube.informer import Scope
from trimtab.kube.metadata import metadata
from trimtab.kube.records import R, Shape
from trimtab.kube.resources import Resource

W = TypeVar("W")

EVERYWHERE = (None,)
"""All namespaces, in one request."""


class _Page(msgspec.Struct, Generic[W], frozen=True, gc=False):
    items: tuple[W, ...] | None = None


async def records(client: Client, resource: Resource, shape: Shape[R], scope: Scope) -> AsyncIterator[R]:
    """All objects of a resource as compact records; one that makes no sense is passed over."""
    decoder = msgspec.json.Decoder(_Page[shape.wire])  # type: ignore[name-defined]
    async for raw in client.pages(
        resource,
        namespace=scope.namespace,
        labels=scope.labels,
        fields=scope.fields,
        accept=shape.accept_list,
    ):
        for wire in decoder.decode(raw).items or ():
            try:
                yield shape.fold(wire)
            except ValueError:
                continue


class Listing:
    """Fills caches from the namespaces that we may read, and notes what is refused."""

    def __init__(self, client: Client, scopes: Sequence[str | None], troubles: dict[str, str]) -> None:
        self._client = client
        self._scopes = scopes
        self._troubles = troubles

    async def fill(self, cache: Cache[R], resource: Resource, shape: Shape[R], *, labels: str = "") -> None:
        for namespace in self._scopes if resource.namespaced else EVERYWHERE:
            try:
                async for record in records(self._client, resource, shape, Scope(namespace, labels=labels)):
                    cache.put(record)
            except (Forbidden, NotFound) as error:
                self._troubles[str(resource)] = error.message


async def selected(client: Client, kinds: Iterable[Resource], *, labels: str) -> set[str]:
    """The uids of the workloads with these labels: the server reads the selector, so it means what kubectl's does."""
    shape = metadata()
    found: set[str] = set()
    for resource in kinds:
        try:
            async for record in records(client, resource, shape, Scope(labels=labels)):
                found.add(record.uid)
        except BadRequest as error:
            raise TrimtabError(f"--selector {labels}: {error.message}") from None
    return found
