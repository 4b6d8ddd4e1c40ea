"""Lists as compact records, a page at a time: for who looks once, and for informers where a server cannot stream.

An object that makes no sense (a custom kind may let in anything) is told in the log and passed over: it must not cost
the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from trimtab.kube.cache.projection import MetadataWire, R, Shape
from trimtab.kube.errors import Gone, describe, excerpt, understood
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import Resource

W = TypeVar("W")

log = structlog.get_logger(__name__)

_ATTEMPTS = 3
"""How often a list that expires is begun."""


class _Page(msgspec.Struct, Generic[W], frozen=True, gc=False):
    items: tuple[W, ...] | None  # null where there is nothing
    metadata: MetadataWire


_UNREAD = msgspec.json.Decoder(_Page[msgspec.Raw])


class PageDecoder(Generic[R]):
    """Turns pages of a resource into records of one shape."""

    def __init__(self, resource: Resource, shape: Shape[R]) -> None:
        self._resource = str(resource)
        self._fold = shape.fold
        self._pages = msgspec.json.Decoder(_Page[shape.wire])  # type: ignore[name-defined]
        self._wire = msgspec.json.Decoder(shape.wire)

    def decode(self, raw: bytes) -> tuple[list[R], str]:
        """The records of a page, and which version of the list it is of."""
        try:
            page = self._pages.decode(raw)
            return list(self._folded(page.items or ())), page.metadata.resource_version
        except ValueError:  # one is misshapen, or all is
            unread = understood(raw, _UNREAD.decode, request=f"list of {self._resource}")
            return list(self._folded(self._shapely(unread.items or ()))), unread.metadata.resource_version

    def _folded(self, wires: Iterable[Any]) -> Iterator[R]:
        for wire in wires:
            try:
                yield self._fold(wire)
            except ValueError as error:
                ignore(self._resource, wire, error)

    def _shapely(self, items: Iterable[msgspec.Raw]) -> Iterator[Any]:
        for item in items:
            try:
                yield self._wire.decode(item)
            except ValueError as error:
                found = excerpt(bytes(item))
                log.warning("object.ignored", resource=self._resource, object=found, reason=describe(error))


def ignore(resource: str, wire: Any, error: ValueError) -> None:
    """Tell that an object is passed over."""
    found: MetadataWire = wire.metadata
    name = f"{found.namespace}/{found.name}"
    log.warning("object.ignored", resource=resource, object=name, reason=describe(error))


async def records(
    client: Client,
    resource: Resource,
    shape: Shape[R],
    *,
    namespace: str | None = None,
    labels: str = "",
    fields: str = "",
) -> AsyncIterator[R]:
    """All objects of a resource as compact records, each once.

    A list that expires, and of which the server cannot give the rest, begins anew.
    """
    decoder = PageDecoder(resource, shape)
    known: set[str] = set()
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            async for raw in client.pages(
                resource, namespace=namespace, labels=labels, fields=fields, accept=shape.accept_list
            ):
                for record in decoder.decode(raw)[0]:
                    if attempt == 1 or record.uid not in known:
                        known.add(record.uid)
                        yield record
        except Gone as error:
            if not known or attempt == _ATTEMPTS:
                raise
            log.info("list.begins_anew", resource=str(resource), reason=describe(error))
        else:
            return
