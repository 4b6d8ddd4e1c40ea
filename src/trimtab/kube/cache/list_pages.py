"""Lists as compact records, one page at a time: for single reads, and for informers whose server cannot stream lists.

A malformed object (a custom kind may accept anything) is logged and skipped, so that it does not block the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from trimtab.kube.cache.projection import MetadataWire, Projection, R
from trimtab.kube.errors import Gone, decode_deep, decode_response, describe, excerpt
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import Resource

W = TypeVar("W")

log = structlog.get_logger(__name__)

_MAX_LIST_ATTEMPTS = 3
"""The number of attempts at a list that expires."""


class _Page(msgspec.Struct, Generic[W], frozen=True, gc=False):
    items: tuple[W, ...] | None  # null if the list is empty
    metadata: MetadataWire


_RAW_PAGE = msgspec.json.Decoder(_Page[msgspec.Raw])


class PageDecoder(Generic[R]):
    """Decodes the pages of one resource into records."""

    def __init__(self, resource: Resource, projection: Projection[R]) -> None:
        self._resource = str(resource)
        self._project = projection.project
        self._pages = msgspec.json.Decoder(_Page[projection.wire_type])  # type: ignore[name-defined]
        self._objects = msgspec.json.Decoder(projection.wire_type)

    def decode(self, raw: bytes) -> tuple[list[R], str]:
        """Return the records of a page and the resource version of its list."""
        try:
            page = decode_deep(raw, self._pages.decode)
            return list(self._project_all(page.items or ())), page.metadata.resource_version
        except ValueError:  # one object is malformed, or the whole page
            raw_page = decode_response(raw, _RAW_PAGE.decode, request=f"list of {self._resource}")
            return list(
                self._project_all(self._decode_valid(raw_page.items or ()))
            ), raw_page.metadata.resource_version

    def _project_all(self, wires: Iterable[Any]) -> Iterator[R]:
        for wire in wires:
            try:
                yield self._project(wire)
            except (ValueError, RecursionError) as error:
                log_ignored(self._resource, wire, error)

    def _decode_valid(self, items: Iterable[msgspec.Raw]) -> Iterator[Any]:
        for item in items:
            try:
                yield self._objects.decode(item)
            except ValueError as error:
                found = excerpt(bytes(item))
                log.warning("object.ignored", resource=self._resource, object=found, reason=describe(error))


def log_ignored(resource: str, wire: Any, error: Exception) -> None:
    """Log that an object is skipped."""
    found: MetadataWire = wire.metadata
    name = f"{found.namespace}/{found.name}"
    log.warning("object.ignored", resource=resource, object=name, reason=describe(error))


async def list_records(
    client: Client,
    resource: Resource,
    projection: Projection[R],
    *,
    namespace: str | None = None,
    labels: str = "",
    fields: str = "",
) -> AsyncIterator[R]:
    """Iterate over all objects of a resource as compact records, each once.

    If a list expires and the server cannot continue it, the list starts over.
    """
    decoder = PageDecoder(resource, projection)
    known: set[str] = set()
    for attempt in range(1, _MAX_LIST_ATTEMPTS + 1):
        try:
            async for raw in client.list_pages(
                resource, namespace=namespace, labels=labels, fields=fields, accept=projection.accept_list
            ):
                for record in decoder.decode(raw)[0]:
                    # A caller that counts or sums would otherwise count the pages before the restart twice.
                    if attempt == 1 or record.uid not in known:
                        known.add(record.uid)
                        yield record
        except Gone as error:
            if not known or attempt == _MAX_LIST_ATTEMPTS:
                raise
            log.info("list.restarted", resource=str(resource), reason=describe(error))
        else:
            return
