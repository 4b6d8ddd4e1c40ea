"""`trimtab workload`, as people use it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from trimtab.cli import run
from trimtab.docstrings import read_field_descriptions
from trimtab.lab.workloads import GENERATORS, WorkloadLibrary, generate
from trimtab.usage.files import read_trace

MAKE = ("--workload-type", "flash_crowd", "--setting", "duration=7200", "--count", "3", "--seed", "7")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return f"--folder={tmp_path / 'workloads'}"


def test_workload_command_makes_stores_and_lists(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["workload", "generate", *MAKE, "--id", "rush", folder]) == 0
    assert capsys.readouterr().out == "rush\n"
    assert run(["workload", "list", folder, "--output", "json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed == {"id": "rush", "type": "flash_crowd", "series": 3, "steps": 120, "step": 60, "seed": 7}


def test_workload_command_makes_what_the_library_makes(folder: str, tmp_path: Path) -> None:
    assert run(["workload", "generate", *MAKE, "--id", "rush", folder]) == 0
    made = generate("flash_crowd", count=3, seed=7, duration=7200.0)
    assert np.array_equal(WorkloadLibrary(tmp_path / "workloads").load("rush").cpu, made.cpu)


def test_workload_command_draws_text_page_and_picture(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["workload", "generate", *MAKE, "--id", "rush", folder])
    capsys.readouterr()
    assert run(["workload", "plot", "rush", folder]) == 0
    drawn = capsys.readouterr().out
    assert "█" in drawn
    assert max(map(len, drawn.splitlines())) <= 80
    for name, begin in (("rush.html", b"<!doctype html>"), ("rush.png", b"\x89PNG")):
        assert run(["workload", "plot", "rush", folder, "--output-file", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes().startswith(begin)


def test_workload_command_names_the_missing_extra(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["workload", "generate", *MAKE, "--id", "rush", folder])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    capsys.readouterr()
    assert run(["workload", "export", "rush", folder, "--output-file", str(tmp_path / "rush.parquet")]) == 2
    error = "trimtab: --output-file: pyarrow is not installed; run: pip install 'trimtab[parquet]'; or write .csv\n"
    assert capsys.readouterr().err == error


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_workload_command_exports_a_recording(folder: str, tmp_path: Path, ending: str) -> None:
    run(["workload", "generate", *MAKE, "--id", "rush", folder])
    path = tmp_path / f"rush.{ending}"
    assert run(["workload", "export", "rush", folder, "--output-file", str(path)]) == 0
    trace, made = read_trace(path), generate("flash_crowd", count=3, seed=7, duration=7200.0)
    assert (trace.start, trace.step) == (made.start, 60.0)
    assert np.array_equal(trace.cpu, made.cpu.T)
    assert np.array_equal(trace.memory, made.memory.T)


@pytest.mark.parametrize("name", GENERATORS.names())
def test_workload_command_documents_each_setting(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind = GENERATORS.load_type(name).settings_type
    assert read_field_descriptions(kind).keys() == kind.model_fields.keys()
    assert run(["workload", "types", "--workload-type", name]) == 0
    shown = capsys.readouterr().out
    assert all(field[:20] in shown for field in kind.model_fields)


def test_workload_command_lists_types_with_descriptions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["workload", "types"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{name} " in shown for name in GENERATORS.names())
    # Types that share a module have descriptions of their own.
    assert [name in shown for name in ("Alibaba's", "Azure's", "Google's Borg")] == [True] * 3


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["generate"], "--workload-type: give one of"),
        (["generate", "-t", "waves"], "workload type 'waves' is not known"),
        (["generate", "-t", "step", "-s", "hold"], "--setting hold: write it as name=value"),
        (["generate", "-t", "step", "-s", "hold=soon"], "workload type step: hold"),
        (["generate", "-t", "step", "--count", "0"], "count 0: must be at least 1"),
        (["generate", "-t", "step", "--seed", "-1"], "--seed -1: must not be negative"),
        (["plot"], "ID: give the workload to plot"),
        (["plot", "gone"], "workload gone: it does not exist"),
        (["export", "gone"], "workload gone: it does not exist"),
    ],
)
def test_workload_command_reports_errors_in_one_line(
    folder: str, arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["workload", *arguments, folder]) == 2
    err = capsys.readouterr().err
    assert error in err
    assert err.count("\n") == 1


def test_workload_command_rejects_an_unknown_file_suffix(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["workload", "generate", *MAKE, "--id", "rush", folder])
    assert run(["workload", "plot", "rush", folder, "--output-file", "rush.gif"]) == 2
    assert run(["workload", "plot", "rush", folder, "--series", "3"]) == 2
    assert run(["workload", "export", "rush", folder, "--output-file", "rush.xls"]) == 2
    assert run(["workload", "export", "rush", folder, "--output-file", str(tmp_path / "no" / "a.csv")]) == 2
    assert run(["workload", "plot", "rush", folder, "--output-file", str(tmp_path / "no" / "a.png")]) == 2
    error = capsys.readouterr().err
    assert "a.png: cannot be written" in error
    assert "must end in .png or .html" in error
    assert "rush has 3, from 0" in error
    assert "must end in .csv or .parquet" in error
    assert "a.csv: cannot be written" in error
