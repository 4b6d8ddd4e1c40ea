"""Files that are read every second: opened once, then read with one call.

The descriptor of a removed cgroup's file returns ENODEV, so a new cgroup of the same name cannot be confused
with it. Files must be closed, because an open one keeps the cgroup in the kernel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from trimtab.node.cgroups import Cgroup, CgroupNotFound, Hierarchy, Knob
from trimtab.node.model import NodeView, container_subject, pod_subject

_READ_BYTES = 8192


class OpenFile:
    """A file that is read repeatedly from its start."""

    __slots__ = ("_fd",)

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @classmethod
    def for_knob(cls, cgroup: Cgroup, knob: Knob[Any]) -> Self:
        """Open a knob's file; raise OSError if the cgroup is gone."""
        path = cgroup.file(knob)
        if path is None:
            raise CgroupNotFound(f"{knob.name}: cgroup v{cgroup.hierarchy.version.value} has no such file")
        return cls(path)

    def read(self) -> bytes:
        return os.pread(self._fd, _READ_BYTES, 0)

    def close(self) -> None:
        os.close(self._fd)


def read_once(path: str) -> bytes:
    """Read a small file in a third of the time of `Path.read_bytes`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _READ_BYTES)
    finally:
        os.close(fd)


class Meter(Protocol):
    """Measures one cgroup and keeps its files open."""

    def close(self) -> None: ...


M = TypeVar("M", bound=Meter)


class Meters(Generic[M]):
    """One meter per measured cgroup, created when it appears and closed when it is removed."""

    def __init__(
        self,
        hierarchy: Hierarchy,
        make: Callable[[Cgroup, str], M],
        subjects: Callable[[NodeView], Iterable[tuple[str, str]]],
    ) -> None:
        self._hierarchy = hierarchy
        self._make = make
        self._subjects = subjects
        self._view: NodeView | None = None
        self._meters: dict[tuple[str, str], M] = {}
        """The meters by path and subject: an unknown pod gets its name while its cgroup stays."""

    def __len__(self) -> int:
        return len(self._meters)

    def measure_all(self, view: NodeView, measure: Callable[[M], None]) -> None:
        """Measure with each meter; close those whose cgroup was removed."""
        if view is not self._view:
            self._update_meters(view)
        gone = []
        for key, meter in self._meters.items():
            try:
                measure(meter)
            except OSError:
                gone.append(key)
        for key in gone:
            self._meters.pop(key).close()

    def close(self) -> None:
        for meter in self._meters.values():
            meter.close()
        self._meters.clear()
        self._view = None

    def _update_meters(self, view: NodeView) -> None:
        wanted = set(self._subjects(view))
        for key in self._meters.keys() - wanted:
            self._meters.pop(key).close()
        for path, subject in wanted:
            if (path, subject) not in self._meters:
                try:
                    self._meters[path, subject] = self._make(self._hierarchy.cgroup(path), subject)
                except (OSError, CgroupNotFound):
                    continue  # it ended meanwhile, or has no such controller; the next view may have it
        self._view = view


PODS = "pods"
"""The subject of all pods together, measured by their common cgroup."""


def list_cgroups(view: NodeView) -> Iterable[tuple[str, str]]:
    """Yield every pod and container and the cgroup of all pods, each with its subject."""
    yield from list_pod_cgroups(view)
    yield from list_container_cgroups(view)


def list_pod_cgroups(view: NodeView) -> Iterable[tuple[str, str]]:
    """Yield every pod and the cgroup of all pods."""
    yield view.pods_cgroup, PODS
    for pod in view.pods:
        yield pod.cgroup, pod_subject(pod.uid)


def list_container_cgroups(view: NodeView) -> Iterable[tuple[str, str]]:
    for pod in view.pods:
        for container in pod.containers:
            yield container.cgroup, container_subject(pod.uid, container.name)
