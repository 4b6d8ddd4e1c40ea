"""Multiplex byte streams over one socket, as NRI does: each frame has a stream number and a length."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from contextlib import suppress

FRAME = struct.Struct(">II")
MAX_WRITE_BYTES = 4096
"""The maximum frame to write; the runtime disconnects on a longer one."""
MAX_READ_BYTES = (4 << 20) + 64


def split_frames(connection: int, content: bytes) -> Iterator[bytes]:
    """Yield the content in frames that the runtime accepts."""
    for start in range(0, len(content), MAX_WRITE_BYTES):
        piece = content[start : start + MAX_WRITE_BYTES]
        yield FRAME.pack(connection, len(piece)) + piece


class Mux:
    """All streams of one socket in both directions. Open the streams first, then run."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._streams: dict[int, asyncio.StreamReader] = {}

    def open_stream(self, connection: int) -> asyncio.StreamReader:
        """Return the incoming stream of a connection."""
        return self._streams.setdefault(connection, asyncio.StreamReader())

    async def write(self, connection: int, content: bytes) -> None:
        """Send content at once, so that messages of several tasks do not mix."""
        self._writer.write(b"".join(split_frames(connection, content)))
        await self._writer.drain()

    async def run(self) -> None:
        """Dispatch incoming frames until the peer disconnects, then end every stream."""
        try:
            while True:
                connection, content = await self._read_frame()
                if connection in self._streams:
                    self._streams[connection].feed_data(content)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for stream in self._streams.values():
                stream.feed_eof()

    async def _read_frame(self) -> tuple[int, bytes]:
        connection, length = FRAME.unpack(await self._reader.readexactly(FRAME.size))
        if length > MAX_READ_BYTES:
            raise ConnectionError(f"invalid frame of {length} bytes")
        return connection, await self._reader.readexactly(length)

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
