"""Workloads on the disk, each in a folder of its own under its id: the arrays, and beside them how they came to be.

A workload is written beside its place and then moved there, so that it is there whole or not at all. What is saved is
never written over: an id that is taken by something else is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import TrimtabError
from trimtab.lab.workloads.workload import Workload

ARRAYS, ABOUT = "usage.npz", "workload.json"
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def usual() -> Path:
    """Where a user's workloads are kept when no folder is named."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "trimtab" / "workloads"


@dataclass(frozen=True, slots=True)
class Saved:
    """What is known of a saved workload without reading its arrays."""

    id: str
    type: str
    series: int
    steps: int
    step: float
    seed: int


class Folder:
    """Saved workloads."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or usual()

    def save(self, workload: Workload, *, id: str | None = None) -> str:  # noqa: A002 - what the seed calls it
        """Keep a workload; its id, made of what it is made of when none is given."""
        about = _about(workload)
        name = checked(id) if id is not None else _id_of(about)
        place = self.path / name
        if place.exists():
            with suppress(OSError, ValueError):  # a folder that holds no workload is taken all the same
                if self._told(name) == about:
                    return name
            raise TrimtabError(f"workload {name}: {place} holds another one already; choose another --id")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(dir=self.path, prefix=f".{name}."))
        except OSError as error:
            raise TrimtabError(f"--folder {self.path}: cannot be written: {error.strerror}") from None
        try:
            _write(partial, workload, about)
            partial.rename(place)
        except OSError as error:
            raise TrimtabError(f"workload {name}: {place}: cannot be written: {error.strerror}") from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return name

    def load(self, id: str) -> Workload:  # noqa: A002
        """The workload of this id; a clear refusal where there is none, or it is damaged."""
        place = self.path / checked(id)
        if not self._is_there(place):
            known = ", ".join(saved.id for saved in self.list()) or "none"
            raise TrimtabError(f"workload {id}: there is no such one in {self.path}; there are: {known}")
        try:
            about = self._told(id)
            with np.load(place / ARRAYS, allow_pickle=False) as arrays:
                return Workload(
                    type=about["type"],
                    step=about["step"],
                    cpu=arrays["cpu"],
                    memory=arrays["memory"],
                    requests=arrays.get("requests"),
                    start=about["start"],
                    settings=about["settings"],
                    seed=about["seed"],
                )
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise TrimtabError(f"workload {id}: {place} is damaged: {str(error).splitlines()[0]}") from None

    def list(self) -> list[Saved]:
        """Those that are there and whole, by id."""
        found = []
        for place in sorted(self.path.glob(f"*/{ABOUT}")) if self._is_there(self.path) else ():
            if place.parent.name.startswith("."):
                continue
            try:
                about = json.loads(place.read_text())
                keys = ("type", "series", "steps", "step", "seed")
                found.append(Saved(place.parent.name, *(about[key] for key in keys)))
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return found

    def _is_there(self, place: Path) -> bool:
        try:
            return place.is_dir()
        except OSError as error:
            raise TrimtabError(f"--folder {self.path}: cannot be read: {error.strerror}") from None

    def _told(self, name: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.path / name / ABOUT).read_text())
        return told


def checked(id: str) -> str:  # noqa: A002
    """An id that can be a folder's name."""
    if not ID.fullmatch(id):
        raise TrimtabError(f"workload id {id!r}: use letters, digits, dots, dashes and underscores")
    return id


def _about(workload: Workload) -> dict[str, Any]:
    return {
        "type": workload.type,
        "series": workload.series,
        "steps": workload.steps,
        "step": workload.step,
        "start": workload.start,
        "seed": workload.seed,
        "settings": dict(workload.settings),
    }


def _id_of(about: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    return f"{about['type']}-{digest[:8]}"


def _write(place: Path, workload: Workload, about: dict[str, Any]) -> None:
    arrays = {"cpu": workload.cpu, "memory": workload.memory}
    if workload.requests is not None:
        arrays["requests"] = workload.requests
    np.savez_compressed(place / ARRAYS, allow_pickle=False, **arrays)
    (place / ABOUT).write_text(json.dumps(about, indent=2) + "\n")
    place.chmod(0o755)
