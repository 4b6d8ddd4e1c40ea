"""Hears at once when a cgroup comes or goes, by inotify; without it the next look finds out.

Only that something changed is told, never what: whoever hears it looks at all there is.
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
    """Folders in which a folder may be made or removed; `fd` is readable when one was, and negative where none is heard of."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self.fd: int = self._library.inotify_init1(_NON_BLOCKING | _CLOSE_ON_EXEC)
        if self.fd < 0:  # the node's others may have taken all that root has
            why = os.strerror(ctypes.get_errno())
            log.warning("cgroups.not_watched", error=why, fix="raise fs.inotify.max_user_instances")
        self._watched: dict[Path, int] = {}
        self._is_limit_reached = False

    def watch(self, folders: Iterable[Path]) -> None:
        """Watch exactly these from now on; one that is not there is left out."""
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
                log.warning("cgroups.watch_is_full", fix="raise fs.inotify.max_user_watches")

    def drain(self) -> bool:
        """Whether anything changed since the last call."""
        heard = False
        try:
            while self.fd >= 0 and os.read(self.fd, 65536):
                heard = True
        except BlockingIOError:
            return heard
        return heard

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
