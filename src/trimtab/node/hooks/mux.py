"""Several byte streams over one socket, as NRI has it: each frame says whose it is and how long it is.

Left out: what the streams carry (`ttrpc`), and opening and closing of single streams, which NRI has not either.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from contextlib import suppress

FRAME = struct.Struct(">II")
MAX_WRITE_BYTES = 4096
"""The runtime reads a frame into a buffer of this size, and hangs up on a longer one."""
MAX_READ_BYTES = (4 << 20) + 64


def split_frames(connection: int, content: bytes) -> Iterator[bytes]:
    """The content cut into frames that the other side takes."""
    for start in range(0, len(content), MAX_WRITE_BYTES):
        piece = content[start : start + MAX_WRITE_BYTES]
        yield FRAME.pack(connection, len(piece)) + piece


class Mux:
    """Both directions of all streams of one socket. Open the streams first, then run."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._streams: dict[int, asyncio.StreamReader] = {}

    def open_stream(self, connection: int) -> asyncio.StreamReader:
        """What comes in on this connection."""
        return self._streams.setdefault(connection, asyncio.StreamReader())

    async def write(self, connection: int, content: bytes) -> None:
        """Send; in one piece, so that messages of several tasks don't mix."""
        self._writer.write(b"".join(split_frames(connection, content)))
        await self._writer.drain()

    async def run(self) -> None:
        """Share out what comes in, until the other side hangs up; then every stream is at its end."""
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
            raise ConnectionError(f"a frame of {length} bytes is no frame")
        return connection, await self._reader.readexactly(length)

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
