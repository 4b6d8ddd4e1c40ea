"""Measure the progress of clients in reading what was sent to them, so that only those without any lose their connection."""

from __future__ import annotations

import asyncio
import termios
from contextlib import suppress
from fcntl import ioctl


class ClientProgress:
    """The progress of one client."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._time = asyncio.get_running_loop().time
        self._unread = _count_unread(transport)
        self._changed_at = self._time()
        self._read = 0

    def measure_idle(self) -> float:
        """Return the seconds since the client was last seen to have read something, or was sent something; 0 if it has read
        everything.
        """
        unread, now = _count_unread(self._transport), self._time()
        if unread != self._unread:
            self._read += max(self._unread - unread, 0)
            self._unread, self._changed_at = unread, now
        return now - self._changed_at if unread else 0.0

    def measure_rank(self) -> tuple[float, int]:
        """Return what is largest for the client with the least progress: its idle time, then by the bytes that it read."""
        return self.measure_idle(), -self._read


def _count_unread(transport: asyncio.WriteTransport) -> int:
    """Count the bytes that wait here and in the kernel, which takes new ones only when a large part of its own were read."""
    in_kernel = bytearray(4)
    # A closed socket has no number.
    with suppress(OSError, ValueError):
        ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, in_kernel)
    return transport.get_write_buffer_size() + int.from_bytes(in_kernel, "little")
