"""Files that are read every second: opened once, then read from the start with one call.

An open descriptor of a cgroup's file outlives the cgroup and then answers ENODEV, so nobody is misled by a namesake.
Whoever opens closes: a cgroup whose files are held lingers in the kernel.
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
    """One file, read from its start again and again."""

    __slots__ = ("_fd",)

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @classmethod
    def for_knob(cls, cgroup: Cgroup, knob: Knob[Any]) -> Self:
        """OSError when the cgroup is gone."""
        path = cgroup.file(knob)
        if path is None:
            raise CgroupNotFound(f"{knob.name}: not with cgroup v{cgroup.hierarchy.version.value}")
        return cls(path)

    def read(self) -> bytes:
        return os.pread(self._fd, _READ_BYTES, 0)

    def close(self) -> None:
        os.close(self._fd)


def read_once(path: str) -> bytes:
    """A small file, in a third of the time that the usual way takes."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _READ_BYTES)
    finally:
        os.close(fd)


class Meter(Protocol):
    """Measures one cgroup, and holds its files open."""

    def close(self) -> None: ...


M = TypeVar("M", bound=Meter)


class Meters(Generic[M]):
    """One meter for each cgroup that is looked at, made when it appears and closed when it goes."""

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
        """By path and by subject: a pod that was nameless when it came gets its name while its cgroup stays."""

    def __len__(self) -> int:
        return len(self._meters)

    def measure_all(self, view: NodeView, measure: Callable[[M], None]) -> None:
        """Let each meter measure; one whose cgroup vanished is closed."""
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
"""The subject of all pods together, by the cgroup that they lie in."""


def list_cgroups(view: NodeView) -> Iterable[tuple[str, str]]:
    """Every pod and container, and what all pods lie in, each with its subject."""
    yield from list_pod_cgroups(view)
    yield from list_container_cgroups(view)


def list_pod_cgroups(view: NodeView) -> Iterable[tuple[str, str]]:
    """Every pod, and what all of them lie in."""
    yield view.pods_cgroup, PODS
    for pod in view.pods:
        yield pod.cgroup, pod_subject(pod.uid)


def list_container_cgroups(view: NodeView) -> Iterable[tuple[str, str]]:
    for pod in view.pods:
        for container in pod.containers:
            yield container.cgroup, container_subject(pod.uid, container.name)
