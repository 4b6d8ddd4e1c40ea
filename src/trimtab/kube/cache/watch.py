"""One watch: bytes from the server in, batches of decoded events out, errors as exceptions.

The stream is cut at newlines and each batch of whole lines is decoded in one call, straight into the
shape's wire struct. Lines have no length limit. What a watch does not know: caches, resuming, retrying.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import suppress
from typing import Any, Generic, Literal, TypeVar

import msgspec
import structlog

from trimtab.kube.cache.projection import MetadataWire, Projection, R
from trimtab.kube.errors import Status, decode_response, describe, error_from_status, excerpt

W = TypeVar("W")

log = structlog.get_logger(__name__)

Lines = bytes | memoryview
"""Some lines of a watch, each with its newline."""

WatchEventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


class WatchEvent(msgspec.Struct, Generic[W], gc=False):
    """A line of a watch, but for an error."""

    type: WatchEventType
    object: W


class _Line(msgspec.Struct, frozen=True, gc=False):
    type: WatchEventType | Literal["ERROR"]
    object: msgspec.Raw


class _MetadataOnly(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire


_METADATA_ONLY = msgspec.json.Decoder(_MetadataOnly)


class WatchEventDecoder(Generic[R]):
    """Turns whole lines of a watch into events of one shape."""

    def __init__(self, projection: Projection[R]) -> None:
        self._events = msgspec.json.Decoder(WatchEvent[projection.wire_type])  # type: ignore[name-defined]
        self._lines = msgspec.json.Decoder(_Line)
        self._objects = msgspec.json.Decoder(projection.wire_type)

    def decode(self, lines: Lines) -> list[WatchEvent[Any]]:
        """All events of these lines; an ERROR event is raised as what it stands for, and what is no event as Garbled."""
        try:
            return self._events.decode_lines(lines)
        except ValueError:  # which says the same of all that comes
            return decode_response(bytes(lines), self._decode_one_by_one, request="watch")

    def _decode_one_by_one(self, lines: bytes) -> list[WatchEvent[Any]]:
        """The slow way, when a line is an error or a bookmark (a hollow object), or an object is misshapen.

        Of a deleted object the metadata is enough. An object that can no longer be read is reported as deleted: a list
        would pass it over too, and what a cache kept of it from before would be outdated for ever.
        """
        events: list[WatchEvent[Any]] = []
        for line in self._lines.decode_lines(lines):
            if line.type == "ERROR":
                raise error_from_status(msgspec.json.decode(line.object, type=Status), request="watch")
            decoder = self._objects if line.type in {"ADDED", "MODIFIED"} else _METADATA_ONLY
            try:
                events.append(WatchEvent(line.type, decoder.decode(line.object)))
            except ValueError as error:
                log.warning("object.ignored", object=excerpt(bytes(line.object)), reason=describe(error))
                with suppress(ValueError):  # one without a name was never in a cache
                    events.append(WatchEvent("DELETED", _METADATA_ONLY.decode(line.object)))
        return events


async def split_lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[Lines]:
    """Cut a stream of chunks where lines end; an unfinished last line is dropped.

    Only a line that two chunks share is put together; all others are views of their chunk.
    """
    unfinished: list[bytes] = []
    async for chunk in chunks:
        start = chunk.find(b"\n") + 1 if unfinished else 0
        end = chunk.rfind(b"\n") + 1
        if start:
            yield b"".join([*unfinished, chunk[:start]])
            unfinished.clear()
        if start < end:
            yield memoryview(chunk)[start:end]
        if end < len(chunk):
            unfinished.append(chunk[end:])
