"""All that the agent may write on a node, as spots: files of cgroups, sysctls, and resctrl's classes.

A class of resctrl is a folder that is made when its shares are first written and removed when they are restored; its
tasks then fall back to the root class by themselves.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.node.arbiter.host_knobs import RESCTRL, SYSCTL
from trimtab.node.arbiter.requests import Spot, Value
from trimtab.node.cgroups import UNLIMITED, Hierarchy, Vanished, Version
from trimtab.node.cgroups.knobs import THREADS

_VANISHED = {errno.ENOENT, errno.ENODEV, errno.ENOTDIR}


@dataclass(frozen=True)
class Surface:
    """One node's files. Each root is given, since a DaemonSet mounts them where it likes."""

    hierarchy: Hierarchy
    sysctls: Path = Path("/proc/sys")
    resctrl: Path = Path("/sys/fs/resctrl")

    @property
    def version(self) -> Version:
        return self.hierarchy.version

    def file(self, spot: Spot) -> Path | None:
        """Where it lies; None where this version of cgroups has no such knob."""
        file = spot.knob.file(self.version)
        if file is None:
            return None
        if file.controller == SYSCTL:
            return self.sysctls / file.name
        if file.controller == RESCTRL:
            return self.resctrl / spot.path / file.name
        return self.hierarchy.cgroup(spot.path).file(spot.knob)

    def read(self, spot: Spot) -> Value | None:
        """What it holds; None where there is no such thing, or no longer."""
        if spot.knob is THREADS:
            threads: Any = self.hierarchy.threads(
                spot.path
            )  # a reading, which nobody can wish for as a value
            return threads if self.hierarchy.cgroup(spot.path).exists else None
        path, file = self.file(spot), spot.knob.file(self.version)
        if path is None or file is None:
            return None
        try:
            value: Value = file.decode(_read(path))
        except OSError as error:
            if error.errno in _VANISHED:
                return None
            raise
        return value

    def write(self, spot: Spot, value: Value) -> None:
        """Vanished where there is no such thing any more; OSError where the kernel refuses."""
        path = self.file(spot)
        if path is None:
            raise Vanished(str(spot))
        if self.can_make(spot):
            path.parent.mkdir(exist_ok=True)
        if isinstance(value, Mapping):
            value = self._whole(spot, value)
        try:
            for line in spot.knob.encode(value, self.version):
                _write(path, line)
        except OSError as error:
            if error.errno in _VANISHED:
                raise Vanished(str(spot)) from None
            raise

    def normal(self, spot: Spot, value: Value) -> Value:
        """The value as it will be read back: memory comes in whole pages, weights are coarser than shares."""
        file = spot.knob.file(self.version)
        if file is None or isinstance(value, Mapping):
            return value
        kept: Value = file.decode("\n".join(spot.knob.encode(value, self.version)))
        return kept

    def can_make(self, spot: Spot) -> bool:
        """Whether it is there as soon as it is written."""
        return self._is_class(spot) and self.resctrl.is_dir()

    def remove(self, spot: Spot) -> None:
        """Take away what was not there before us."""
        path = self.file(spot)
        if path is not None and self._is_class(spot) and path.parent.is_dir():
            path.parent.rmdir()

    def enlist(self, name: str, threads: frozenset[int]) -> None:
        """Put threads into a class, where there is one; a thread that ended meanwhile needs none."""
        tasks = self.resctrl / name / "tasks"
        there = frozenset(map(int, _read(tasks).split())) if tasks.exists() else threads
        for thread in sorted(threads - there):
            with suppress(ProcessLookupError):
                _write(tasks, str(thread))

    def _is_class(self, spot: Spot) -> bool:
        file = spot.knob.file(self.version)
        return file is not None and file.controller == RESCTRL and bool(spot.path)

    def _whole(self, spot: Spot, value: Mapping[str, int]) -> Mapping[str, int]:
        """A device that is throttled now and not named any more has to be told so."""
        now = self.read(spot)
        gone = now.keys() - value.keys() if isinstance(now, Mapping) and not self._is_class(spot) else ()
        return {**dict.fromkeys(gone, UNLIMITED), **value}


def _read(path: Path) -> str:
    """Without buffers: these files are small, and many are read a second."""
    handle = os.open(path, os.O_RDONLY)
    try:
        text = b""
        while piece := os.read(handle, 1 << 16):
            text += piece
        return text.decode()
    finally:
        os.close(handle)


def _write(path: Path, line: str) -> None:
    """In one piece, as the kernel wants it. A file is never made: what is not there is gone.

    Without blocking: from Linux 6.16 on, who goes beyond a lower memory.high then has to reclaim by himself, and not we.
    """
    handle = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)
