"""One watch: bytes from the server in, batches of decoded events out, errors as exceptions.

The stream is cut at newlines and each batch of whole lines is decoded in one call, straight into the
shape's wire struct. Lines have no length limit. What a watch does not know: caches, resuming, retrying.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Generic, Literal, TypeVar

import msgspec
import structlog

from trimtab.kube.errors import Status, error_from_status
from trimtab.kube.records import MetadataWire, R, Shape

W = TypeVar("W")

log = structlog.get_logger(__name__)

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


class Event(msgspec.Struct, Generic[W], gc=False):
    """A line of a watch."""

    type: EventType
    object: W


class _BookmarkWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire


_BOOKMARK = msgspec.json.Decoder(_BookmarkWire)


class EventDecoder(Generic[R]):
    """Turns whole lines of a watch into events of one shape."""

    def __init__(self, shape: Shape[R]) -> None:
        self._events = msgspec.json.Decoder(Event[shape.wire])  # type: ignore[name-defined]
        self._raw = msgspec.json.Decoder(Event[msgspec.Raw])
        self._wire = msgspec.json.Decoder(shape.wire)

    def decode(self, lines: bytes) -> list[Event[Any]]:
        """All events of these lines; an ERROR event is raised as what it stands for."""
        try:
            events: list[Event[Any]] = self._events.decode_lines(lines)
        except msgspec.ValidationError:
            return self._decode_one_by_one(lines)
        if any(event.type == "ERROR" for event in events):
            return self._decode_one_by_one(lines)
        return events

    def _decode_one_by_one(self, lines: bytes) -> list[Event[Any]]:
        """The slow way, when a line is an error or a bookmark (a hollow object), or an object is misshapen."""
        events: list[Event[Any]] = []
        for event in self._raw.decode_lines(lines):
            if event.type == "ERROR":
                raise error_from_status(msgspec.json.decode(event.object, type=Status), request="watch")
            decoder = _BOOKMARK if event.type == "BOOKMARK" else self._wire
            try:
                events.append(Event(event.type, decoder.decode(event.object)))
            except msgspec.ValidationError as error:
                excerpt = bytes(event.object)[:200].decode("utf-8", "replace")
                log.warning("watch.object_ignored", reason=str(error), object=excerpt)
        return events


async def whole_lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Regroup a stream of chunks so that each ends with a newline; an unfinished last line is dropped."""
    unfinished: list[bytes] = []
    async for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if not end:
            unfinished.append(chunk)
            continue
        if unfinished:
            unfinished.append(chunk[:end])
            yield b"".join(unfinished)
            unfinished.clear()
        else:
            yield chunk[:end]
        if end < len(chunk):
            unfinished.append(chunk[end:])
