"""Hardware performance counters of one cgroup on one CPU, by the perf_event_open system call.

The events form a group, so that they are counted over the same time; kernel multiplexing cancels out in their
ratios.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from typing import Final


class CollectorUnsupported(Exception):
    """The kernel or CPU does not support this measurement; a retry cannot succeed."""


PerfEvent = tuple[int, int]
"""The type and config of an event, as in perf_event_open(2)."""

CYCLES: Final[PerfEvent] = (0, 0)
INSTRUCTIONS: Final[PerfEvent] = (0, 1)

# The C library has no function for this system call, and its number depends on the architecture.
_SYSCALL_NUMBERS = {"x86_64": 298, "aarch64": 241}
_IN_CGROUP, _CLOSE_ON_EXEC = 4, 8
_TIMES_AND_GROUP = 1 | 2 | 8
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
_UNSUPPORTED_ERRNOS = {errno.ENOENT, errno.ENOSYS, errno.EACCES, errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL}
"""The errors that are permanent. ENODEV is not: it means that a CPU is offline."""


class CounterGroup:
    """Events of a cgroup on one CPU, counted from now on."""

    __slots__ = ("_fds",)

    def __init__(self, folder: int, cpu: int, events: Sequence[PerfEvent]) -> None:
        self._fds: list[int] = []
        try:
            for event in events:
                self._fds.append(_open_counter(folder, cpu, event, self._fds[0] if self._fds else -1))
        # If the second event fails, the first one must not stay open.
        except BaseException:
            self.close()
            raise

    def read_counts(self) -> tuple[int, ...] | None:
        """Return the counts; None if the group was never scheduled or its CPU is offline."""
        size = 8 * (3 + len(self._fds))
        data = os.read(self._fds[0], size)
        if len(data) < size:  # the group is dissolved when its CPU goes offline
            return None
        _, _, running, *counted = struct.unpack(f"={size // 8}Q", data)
        # More groups than hardware counters: a group that never had its turn counted 0, which is no
        # measurement.
        return tuple(counted) if running else None

    def close(self) -> None:
        for fd in reversed(self._fds):
            os.close(fd)
        self._fds.clear()


def _open_counter(folder: int, cpu: int, event: PerfEvent, leader: int) -> int:
    number = _SYSCALL_NUMBERS.get(platform.machine())
    if number is None:
        raise CollectorUnsupported(f"perf_event_open on {platform.machine()}")
    kind, config = event
    attributes = ctypes.create_string_buffer(
        _ATTRIBUTES.pack(kind, _ATTRIBUTES.size, config, 0, 0, _TIMES_AND_GROUP, 0, 0, 0, 0), _ATTRIBUTES.size
    )
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    fd: int = call(
        ctypes.c_long(number),
        attributes,
        ctypes.c_int(folder),
        ctypes.c_int(cpu),
        ctypes.c_int(leader),
        ctypes.c_ulong(_IN_CGROUP | _CLOSE_ON_EXEC),
    )
    if fd >= 0:
        return fd
    code = ctypes.get_errno()
    if code in _UNSUPPORTED_ERRNOS:
        raise CollectorUnsupported(f"perf_event_open: {os.strerror(code)}")
    raise OSError(code, os.strerror(code))
