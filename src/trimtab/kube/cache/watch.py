"""Decode one watch: bytes from the server in, batches of decoded events out, errors as exceptions.

The stream is cut at newlines and each batch of whole lines is decoded in one call, directly into the projection's
wire struct. Lines have no length limit. Caching, resuming and retrying are left to `informer`.
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
    """A line of a watch that is not an error."""

    type: WatchEventType
    object: W


class _Line(msgspec.Struct, frozen=True, gc=False):
    type: WatchEventType | Literal["ERROR"]
    object: msgspec.Raw


class _MetadataOnly(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire


_METADATA_ONLY = msgspec.json.Decoder(_MetadataOnly)


class WatchEventDecoder(Generic[R]):
    """Decodes whole lines of a watch into events of one projection."""

    def __init__(self, projection: Projection[R]) -> None:
        self._events = msgspec.json.Decoder(WatchEvent[projection.wire_type])  # type: ignore[name-defined]
        self._lines = msgspec.json.Decoder(_Line)
        self._objects = msgspec.json.Decoder(projection.wire_type)

    def decode(self, lines: Lines) -> list[WatchEvent[Any]]:
        """Decode all events of these lines; an ERROR event is raised as the error it describes, and anything else
        that is invalid as KubeResponseError.
        """
        try:
            return self._events.decode_lines(lines)
        except (ValueError, RecursionError):  # it does not tell which line is invalid
            return decode_response(bytes(lines), self._decode_one_by_one, request="watch")

    def _decode_one_by_one(self, lines: bytes) -> list[WatchEvent[Any]]:
        """Decode line by line, because a line is an error or a bookmark (an almost empty object), or an object is
        malformed.

        For a deleted object the metadata is enough. An object that can no longer be decoded is reported as deleted: a
        list would skip it too, and the cached record would be outdated for ever.
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
                with suppress(ValueError):  # an object without a name was never in a cache
                    events.append(WatchEvent("DELETED", _METADATA_ONLY.decode(line.object)))
        return events


async def split_lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[Lines]:
    """Cut a stream of chunks at line ends; drop an unfinished last line.

    Only a line that spans two chunks is copied; all others are views of their chunk.
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
