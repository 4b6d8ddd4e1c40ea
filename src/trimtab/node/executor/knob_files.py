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
from trimtab.node.arbiter.requests import KnobRef, Value
from trimtab.node.cgroups import UNLIMITED, CgroupNotFound, CgroupVersion, Hierarchy
from trimtab.node.cgroups.knobs import THREADS

_NOT_FOUND_ERRNOS = {errno.ENOENT, errno.ENODEV, errno.ENOTDIR}


@dataclass(frozen=True)
class KnobFiles:
    """One node's files. Each root is given, since a DaemonSet mounts them where it likes."""

    hierarchy: Hierarchy
    sysctls: Path = Path("/proc/sys")
    resctrl: Path = Path("/sys/fs/resctrl")

    @property
    def version(self) -> CgroupVersion:
        return self.hierarchy.version

    def find_path(self, ref: KnobRef) -> Path | None:
        """Where it lies; None where this version of cgroups has no such knob."""
        file = ref.knob.file(self.version)
        if file is None:
            return None
        if file.controller == SYSCTL:
            return self.sysctls / file.name
        if file.controller == RESCTRL:
            return self.resctrl / ref.path / file.name
        return self.hierarchy.cgroup(ref.path).file(ref.knob)

    def read(self, ref: KnobRef) -> Value | None:
        """What it holds; None where there is no such thing, or no longer."""
        if ref.knob is THREADS:
            threads: Any = self.hierarchy.threads(ref.path)  # a reading, which nobody can wish for as a value
            return threads if self.hierarchy.cgroup(ref.path).exists else None
        path, file = self.find_path(ref), ref.knob.file(self.version)
        if path is None or file is None:
            return None
        try:
            value: Value = file.decode(_read(path))
        except OSError as error:
            if error.errno in _NOT_FOUND_ERRNOS:
                return None
            raise
        return value

    def write(self, ref: KnobRef, value: Value) -> None:
        """Vanished where there is no such thing any more; OSError where the kernel refuses."""
        path = self.find_path(ref)
        if path is None:
            raise CgroupNotFound(str(ref))
        if self.can_create(ref):
            path.parent.mkdir(exist_ok=True)
        if isinstance(value, Mapping):
            value = self._add_removed_devices(ref, value)
        try:
            for line in ref.knob.encode(value, self.version):
                _write(path, line)
        except OSError as error:
            if error.errno in _NOT_FOUND_ERRNOS:
                raise CgroupNotFound(str(ref)) from None
            raise

    def normalize(self, ref: KnobRef, value: Value) -> Value:
        """The value as it will be read back: memory comes in whole pages, weights are coarser than shares."""
        file = ref.knob.file(self.version)
        if file is None or isinstance(value, Mapping):
            return value
        kept: Value = file.decode("\n".join(ref.knob.encode(value, self.version)))
        return kept

    def can_create(self, ref: KnobRef) -> bool:
        """Whether it is there as soon as it is written."""
        return self._is_resctrl_group(ref) and self.resctrl.is_dir()

    def remove(self, ref: KnobRef) -> None:
        """Take away what was not there before us."""
        path = self.find_path(ref)
        if path is not None and self._is_resctrl_group(ref) and path.parent.is_dir():
            path.parent.rmdir()

    def assign_tasks(self, name: str, threads: frozenset[int]) -> None:
        """Put threads into a class, where there is one; a thread that ended meanwhile needs none."""
        tasks = self.resctrl / name / "tasks"
        there = frozenset(map(int, _read(tasks).split())) if tasks.exists() else threads
        for thread in sorted(threads - there):
            with suppress(ProcessLookupError):
                _write(tasks, str(thread))

    def _is_resctrl_group(self, ref: KnobRef) -> bool:
        file = ref.knob.file(self.version)
        return file is not None and file.controller == RESCTRL and bool(ref.path)

    def _add_removed_devices(self, ref: KnobRef, value: Mapping[str, int]) -> Mapping[str, int]:
        """A device that is throttled now and not named any more has to be told so."""
        now = self.read(ref)
        gone = (
            now.keys() - value.keys() if isinstance(now, Mapping) and not self._is_resctrl_group(ref) else ()
        )
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
