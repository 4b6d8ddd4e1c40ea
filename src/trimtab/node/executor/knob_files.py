"""The files of all knobs that the agent may write: cgroups, sysctls and resctrl groups.

A resctrl group is a directory that is created when its shares are first written and removed when they are
restored; its tasks then return to the root group.
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
    """The files of a node; a DaemonSet mounts each root elsewhere."""

    hierarchy: Hierarchy
    sysctls: Path = Path("/proc/sys")
    resctrl: Path = Path("/sys/fs/resctrl")

    @property
    def version(self) -> CgroupVersion:
        return self.hierarchy.version

    def find_path(self, ref: KnobRef) -> Path | None:
        """Return the file of a knob; None if this cgroup version has no such knob."""
        file = ref.knob.file(self.version)
        if file is None:
            return None
        if file.controller == SYSCTL:
            return self.sysctls / file.name
        if file.controller == RESCTRL:
            return self.resctrl / ref.path / file.name
        return self.hierarchy.cgroup(ref.path).file(ref.knob)

    def read(self, ref: KnobRef) -> Value | None:
        """Return the value of a knob; None if it does not exist."""
        if ref.knob is THREADS:
            threads: Any = self.hierarchy.threads(ref.path)  # read-only, so no request has such a value
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
        """Write a value; raise CgroupNotFound if the knob is gone, OSError if the kernel rejects it."""
        path = self.find_path(ref)
        if path is None:
            raise CgroupNotFound(str(ref))
        if self.can_create(ref):
            # resctrl groups are directories that the kernel fills with files.
            path.parent.mkdir(exist_ok=True)
        if isinstance(value, Mapping):
            # blkio files hold one line for each device and keep those that a write does not name.
            value = self._add_removed_devices(ref, value)
        try:
            # The kernel takes one line in each write, and rejects several at once.
            for line in ref.knob.encode(value, self.version):
                self.write_line(path, line)
        except OSError as error:
            if error.errno in _NOT_FOUND_ERRNOS:
                raise CgroupNotFound(str(ref)) from None
            raise

    def normalize(self, ref: KnobRef, value: Value) -> Value:
        """Return the value as it will be read back: memory in whole pages, weights coarser than shares."""
        file = ref.knob.file(self.version)
        if file is None or isinstance(value, Mapping):
            return value
        # Encoding and decoding rounds as the kernel does. Without it, a value that the kernel rounds differs
        # from the wanted one in each round and is written for ever.
        kept: Value = file.decode("\n".join(ref.knob.encode(value, self.version)))
        return kept

    def can_create(self, ref: KnobRef) -> bool:
        """Return whether writing the knob creates it."""
        return self._is_resctrl_group(ref) and self.resctrl.is_dir()

    def remove(self, ref: KnobRef) -> None:
        """Remove a group that did not exist originally."""
        path = self.find_path(ref)
        if path is not None and self._is_resctrl_group(ref) and path.parent.is_dir():
            # rmdir, not a recursive delete: the kernel removes the files of a group by itself, and returns its
            # tasks to the root.
            path.parent.rmdir()

    def assign_tasks(self, name: str, threads: frozenset[int]) -> None:
        """Move threads into an existing group; ignore threads that ended meanwhile."""
        tasks = self.resctrl / name / "tasks"
        moved = frozenset(map(int, _read(tasks).split())) if tasks.exists() else threads
        # resctrl moves single threads, one in each write; those already in the group cost a system call each.
        for thread in sorted(threads - moved):
            with suppress(ProcessLookupError):
                self.write_line(tasks, str(thread))

    def write_line(self, path: Path, line: str) -> None:
        """Write in one call, as the kernel requires, and never create a file.

        Non-blocking: from Linux 6.16 on, the cgroup then reclaims to a lower memory.high itself instead of the
        agent.
        """
        handle = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK)
        try:
            os.write(handle, f"{line}\n".encode())
        finally:
            os.close(handle)

    def _is_resctrl_group(self, ref: KnobRef) -> bool:
        file = ref.knob.file(self.version)
        return file is not None and file.controller == RESCTRL and bool(ref.path)

    def _add_removed_devices(self, ref: KnobRef, value: Mapping[str, int]) -> Mapping[str, int]:
        """Add the devices to unthrottle, which are throttled now and missing in the value."""
        now = self.read(ref)
        gone = (
            # A resctrl group knows no unlimited amount: the kernel would reject the line.
            now.keys() - value.keys() if isinstance(now, Mapping) and not self._is_resctrl_group(ref) else ()
        )
        return {**dict.fromkeys(gone, UNLIMITED), **value}


def _read(path: Path) -> str:
    """Read without buffers, because these files are small and many are read per second."""
    handle = os.open(path, os.O_RDONLY)
    try:
        text = b""
        while piece := os.read(handle, 1 << 16):
            text += piece
        return text.decode()
    finally:
        os.close(handle)
