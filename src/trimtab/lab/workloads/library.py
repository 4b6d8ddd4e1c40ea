"""Store workloads on disk, each in a folder named by its id: the arrays, and a description of how they were made.

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
from trimtab.lab.workloads.workload import GeneratedWorkload

ARRAYS_FILE, DESCRIPTION_FILE = "usage.npz", "workload.json"
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def default_path() -> Path:
    """Return the default folder of a user's workloads."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "trimtab" / "workloads"


@dataclass(frozen=True, slots=True)
class SavedWorkload:
    """The summary of a saved workload, available without reading its arrays."""

    id: str
    type: str
    series: int
    steps: int
    step: float
    seed: int


class WorkloadLibrary:
    """Saved workloads."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()

    def save(self, workload: GeneratedWorkload, *, id: str | None = None) -> str:  # noqa: A002 - what the seed calls it
        """Save a workload and return its id, which is derived from its content unless one is given."""
        description = _describe(workload)
        name = validate_id(id) if id is not None else _derive_id(description)
        path = self.path / name
        if path.exists():
            with suppress(OSError, ValueError):  # a folder that holds no workload is taken all the same
                if self._read_description(name) == description:
                    return name
            raise TrimtabError(f"workload {name}: {path} already has another workload; choose another --id")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(dir=self.path, prefix=f".{name}."))
        except OSError as error:
            raise TrimtabError(f"--folder {self.path}: cannot be written: {error.strerror}") from None
        try:
            _write_files(partial, workload, description)
            partial.rename(path)
        except OSError as error:
            raise TrimtabError(f"workload {name}: {path}: cannot be written: {error.strerror}") from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return name

    def load(self, id: str) -> GeneratedWorkload:  # noqa: A002
        """Load a workload; a missing or damaged one raises a TrimtabError that names the id."""
        path = self.path / validate_id(id)
        if not self._is_directory(path):
            known = ", ".join(saved.id for saved in self.list_saved()) or "none"
            raise TrimtabError(f"workload {id}: it does not exist in {self.path}; there are: {known}")
        try:
            description = self._read_description(id)
            with np.load(path / ARRAYS_FILE, allow_pickle=False) as arrays:
                return GeneratedWorkload(
                    type=description["type"],
                    step=description["step"],
                    cpu=arrays["cpu"],
                    memory=arrays["memory"],
                    requests=arrays.get("requests"),
                    start=description["start"],
                    settings=description["settings"],
                    seed=description["seed"],
                )
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise TrimtabError(f"workload {id}: {path} is damaged: {str(error).splitlines()[0]}") from None

    def list_saved(self) -> list[SavedWorkload]:
        """List the workloads that exist and are complete, by id."""
        found = []
        for path in sorted(self.path.glob(f"*/{DESCRIPTION_FILE}")) if self._is_directory(self.path) else ():
            if path.parent.name.startswith("."):
                continue
            try:
                description = json.loads(path.read_text())
                keys = ("type", "series", "steps", "step", "seed")
                found.append(SavedWorkload(path.parent.name, *(description[key] for key in keys)))
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return found

    def _is_directory(self, path: Path) -> bool:
        try:
            return path.is_dir()
        except OSError as error:
            raise TrimtabError(f"--folder {self.path}: cannot be read: {error.strerror}") from None

    def _read_description(self, name: str) -> dict[str, Any]:
        description: dict[str, Any] = json.loads((self.path / name / DESCRIPTION_FILE).read_text())
        return description


def validate_id(id: str) -> str:  # noqa: A002
    """Return an id that can be the name of a folder; raise an error for any other."""
    if not ID.fullmatch(id):
        raise TrimtabError(f"workload id {id!r}: use letters, digits, dots, dashes and underscores")
    return id


def _describe(workload: GeneratedWorkload) -> dict[str, Any]:
    return {
        "type": workload.type,
        "series": workload.series,
        "steps": workload.steps,
        "step": workload.step,
        "start": workload.start,
        "seed": workload.seed,
        "settings": dict(workload.settings),
    }


def _derive_id(description: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()
    return f"{description['type']}-{digest[:8]}"


def _write_files(path: Path, workload: GeneratedWorkload, description: dict[str, Any]) -> None:
    arrays = {"cpu": workload.cpu, "memory": workload.memory}
    if workload.requests is not None:
        arrays["requests"] = workload.requests
    np.savez_compressed(path / ARRAYS_FILE, allow_pickle=False, **arrays)
    (path / DESCRIPTION_FILE).write_text(json.dumps(description, indent=2) + "\n")
    path.chmod(0o755)
