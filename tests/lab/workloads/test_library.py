"""Workloads under their ids: kept, had back, and refused clearly."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.errors import TrimtabError
from trimtab.lab.workloads import WorkloadLibrary, generate
from trimtab.lab.workloads.library import default_path

BRIEF: dict[str, Any] = {"step": 60.0, "duration": 3600.0}


def test_library_returns_a_workload_as_saved(tmp_path: Path) -> None:
    folder, made = WorkloadLibrary(tmp_path / "new"), generate("flash_crowd", count=3, seed=7, **BRIEF)
    assert folder.save(made, id="rush") == "rush"
    back = folder.load("rush")
    for field in ("cpu", "memory", "requests"):
        assert np.array_equal(getattr(back, field), getattr(made, field))
    assert (back.type, back.step, back.start, back.seed) == (made.type, made.step, made.start, 7)
    assert back.settings == made.settings
    (saved,) = folder.list_saved()
    assert (saved.id, saved.type, saved.series, saved.steps) == ("rush", "flash_crowd", 3, 60)


def test_library_names_a_workload_by_its_settings(tmp_path: Path) -> None:
    folder = WorkloadLibrary(tmp_path)
    first = folder.save(generate("step", seed=1, **BRIEF))
    assert first == folder.save(generate("step", seed=1, **BRIEF))
    assert first != folder.save(generate("step", seed=2, **BRIEF))
    assert len(folder.list_saved()) == 2


def test_library_never_reuses_an_id(tmp_path: Path) -> None:
    folder = WorkloadLibrary(tmp_path)
    folder.save(generate("step", seed=1, **BRIEF), id="mine")
    (tmp_path / "theirs").mkdir()
    for taken in ("mine", "theirs"):
        with pytest.raises(TrimtabError, match=rf"workload {taken}: .* already has another workload"):
            folder.save(generate("step", seed=2, **BRIEF), id=taken)


def test_library_ignores_a_truncated_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, made = WorkloadLibrary(tmp_path), generate("step", **BRIEF)

    def broken(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(json, "dumps", broken)
    with pytest.raises(KeyboardInterrupt):
        folder.save(made, id="cut")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("id_", ["", "../up", "a b", ".hidden", "a/b"])
def test_library_rejects_an_invalid_id(tmp_path: Path, id_: str) -> None:
    with pytest.raises(TrimtabError, match=r"workload id .*: use letters"):
        WorkloadLibrary(tmp_path).load(id_)


def test_library_lists_workloads_if_one_is_missing(tmp_path: Path) -> None:
    folder = WorkloadLibrary(tmp_path)
    folder.save(generate("step", **BRIEF), id="mine")
    with pytest.raises(TrimtabError, match=r"workload other: it does not exist in .*; there are: mine"):
        folder.load("other")


@pytest.mark.parametrize("file", ["usage.npz", "workload.json"])
def test_library_reports_a_damaged_workload(tmp_path: Path, file: str) -> None:
    folder = WorkloadLibrary(tmp_path)
    folder.save(generate("step", **BRIEF), id="mine")
    (tmp_path / "mine" / file).write_bytes(b"{")
    with pytest.raises(TrimtabError, match=r"workload mine: .* is damaged"):
        folder.load("mine")


def test_library_names_an_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrimtabError, match=r"--folder .*file.*: cannot be written"):
        WorkloadLibrary(tmp_path / "file").save(generate("step", **BRIEF))


def test_library_names_an_unreadable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "is_dir", refused)  # root may enter every folder
    with pytest.raises(TrimtabError, match=r"--folder .*: cannot be read: Permission denied"):
        WorkloadLibrary(tmp_path).list_saved()


def test_library_defaults_to_the_data_folder_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == tmp_path / "trimtab" / "workloads"
