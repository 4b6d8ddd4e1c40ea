"""The cgroup file system of a node: which version it has, and where a cgroup's files are.

The root is given and not assumed: a DaemonSet mounts it where it likes, and a test has a tree of its own. A cgroup is
named by its path below that root, which is the same for all controllers of v1. A mixed system (v1 with an empty v2
beside it) counts as v1, since that is where its controllers are.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from trimtab.errors import TrimtabError
from trimtab.node.cgroups.knobs import THREADS, CgroupVersion, Knob

V = TypeVar("V")

# A cgroup that is removed between opening and reading its file answers ENODEV instead of ENOENT.
_NOT_FOUND_ERRNOS = {errno.ENOENT, errno.ENODEV, errno.ENOTDIR}


class CgroupNotFound(Exception):
    """The cgroup was removed because its pod ended, or this kernel has no such file."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """All cgroups of a node, below the folder where they are mounted."""

    root: Path
    version: CgroupVersion

    @classmethod
    def detect(cls, root: Path) -> Self:
        """Detect the cgroup version that is mounted at a path."""
        if (root / "cgroup.controllers").exists():
            return cls(root, CgroupVersion.V2)
        if (root / "cpu").is_dir() and (root / "memory").is_dir():
            return cls(root, CgroupVersion.V1)
        raise TrimtabError(
            f"cgroups {root}: there is no cgroup file system; mount the node's /sys/fs/cgroup there"
        )

    def cgroup(self, path: str) -> Cgroup:
        return Cgroup(self, path.strip("/"))

    def folder(self, path: str, controller: str) -> Path:
        return self.root / controller / path if self.version is CgroupVersion.V1 else self.root / path

    def children(self, path: str) -> Iterator[str]:
        """Yield the names of the child cgroups."""
        try:
            with os.scandir(self.folder(path, "cpu")) as entries:
                for entry in entries:
                    if entry.is_dir():
                        yield entry.name
        except OSError as error:
            if error.errno not in _NOT_FOUND_ERRNOS:
                raise

    def walk(self, path: str) -> Iterator[str]:
        """Yield this cgroup and all of its descendants."""
        yield path
        for name in self.children(path):
            yield from self.walk(f"{path}/{name}")

    def threads(self, path: str) -> tuple[int, ...]:
        """Return the threads of a cgroup and all of its descendants.

        A container's own cgroup may have none: crun keeps its processes in a child called `container`, and
        containers with systemd create a tree of their own.
        """
        found: list[int] = []
        for each in self.walk(path):
            # One that ends meanwhile, or that is threaded under another cgroup, has none.
            with suppress(CgroupNotFound, OSError):
                threads = self.cgroup(each).read(THREADS)
                found.extend(threads)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One cgroup, which may be removed at any moment."""

    hierarchy: Hierarchy
    path: str

    def file(self, knob: Knob[V]) -> Path | None:
        """Return the file of a knob, existing or not; None if this version has no such knob."""
        file = knob.file(self.hierarchy.version)
        return None if file is None else self.hierarchy.folder(self.path, file.controller) / file.name

    def has(self, knob: Knob[V]) -> bool:
        """Return whether a knob is readable; an older kernel or a disabled controller has no such file."""
        path = self.file(knob)
        return path is not None and path.exists()

    def read_text(self, knob: Knob[V]) -> str:
        """Return the text of the file."""
        path = self.file(knob)
        if path is None:
            raise CgroupNotFound(f"{knob.name}: cgroup v{self.hierarchy.version.value} has no such file")
        try:
            return path.read_text()
        except OSError as error:
            if error.errno in _NOT_FOUND_ERRNOS:
                raise CgroupNotFound(f"{self.path}: {knob.name}") from None
            raise

    def read(self, knob: Knob[V]) -> V:
        text = self.read_text(knob)
        file = knob.file(self.hierarchy.version)
        assert file is not None  # or there would be no text
        return file.decode(text)

    @property
    def exists(self) -> bool:
        return self.hierarchy.folder(self.path, "cpu").is_dir()

    def __str__(self) -> str:
        return "/" + self.path
