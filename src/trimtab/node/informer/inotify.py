"""Detect new and removed cgroups at once, by inotify; without it the next poll finds them.

Only the fact of a change is reported, and the caller lists everything.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

_CREATE, _DELETE, _ONLY_FOLDERS = 0x100, 0x200, 0x01000000
_NON_BLOCKING, _CLOSE_ON_EXEC = 0o4000, 0o2000000


class InotifyWatch:
    """Watches directories for new and removed subdirectories; `fd` is negative if inotify is unavailable."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self.fd: int = self._library.inotify_init1(_NON_BLOCKING | _CLOSE_ON_EXEC)
        if self.fd < 0:  # other processes may have used up root's instances
            error = os.strerror(ctypes.get_errno())
            log.warning("cgroups.watch_failed", error=error, remedy="raise fs.inotify.max_user_instances")
        self._watched: dict[Path, int] = {}
        self._is_limit_reached = False

    def watch(self, folders: Iterable[Path]) -> None:
        """Watch exactly these directories from now on; missing ones are skipped."""
        wanted = set(folders) if self.fd >= 0 else set()
        for path in self._watched.keys() - wanted:
            self._library.inotify_rm_watch(self.fd, self._watched.pop(path))
        for path in wanted - self._watched.keys():
            watch = self._library.inotify_add_watch(
                self.fd, os.fsencode(path), _CREATE | _DELETE | _ONLY_FOLDERS
            )
            if watch >= 0:
                self._watched[path] = watch
            elif ctypes.get_errno() == errno.ENOSPC and not self._is_limit_reached:
                self._is_limit_reached = True
                log.warning("cgroups.watch_limit_reached", remedy="raise fs.inotify.max_user_watches")

    def drain(self) -> bool:
        """Return whether anything changed since the last call."""
        received = False
        try:
            while self.fd >= 0 and os.read(self.fd, 65536):
                received = True
        except BlockingIOError:
            return received
        return received

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
