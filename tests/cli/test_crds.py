"""`trimtab crds` prints, writes and checks the CRDs."""

import json
from pathlib import Path

import pytest
import yaml

from trimtab.api import KINDS, build_crd
from trimtab.cli import run

ROOT = Path(__file__).parents[2]


def test_crds_prints_all_kinds_as_one_yaml_stream(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crds"]) == 0
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == [build_crd(kind) for kind in KINDS]


def test_crds_prints_all_kinds_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crds", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == [build_crd(kind) for kind in KINDS]


def test_crds_table_names_each_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crds", "--output", "table"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["KIND", "NAME", "SHORT", "SCOPE"]
    assert [row.split()[0] for row in rows] == [kind.__name__ for kind in KINDS]


def test_crd_files_of_the_repository_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crds", "--check", "--directory", str(ROOT / "deploy" / "crds")]) == 0
    assert capsys.readouterr().out == ""


def test_crds_check_accepts_written_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "crds"
    assert run(["crds", "--directory", str(folder)]) == 0
    assert sorted(capsys.readouterr().out.split()) == sorted(str(path) for path in folder.iterdir())
    assert run(["crds", "--directory", str(folder), "--check"]) == 0


def test_crds_check_names_each_outdated_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["crds", "--directory", str(tmp_path)])
    (tmp_path / "intents.yaml").unlink()
    (tmp_path / "nodemetrics.yaml").write_bytes(b"kind: \xff\n")
    (tmp_path / "pods.yaml").write_text("")
    capsys.readouterr()
    assert run(["crds", "--check", "--directory", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}/intents.yaml: is missing",
        f"{tmp_path}/nodemetrics.yaml: differs from this version's definitions",
        f"{tmp_path}/pods.yaml: defines none of Trimtab's kinds",
    ]


def test_crds_reports_an_unwritable_folder_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert run(["crds", "--directory", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == f"trimtab: {tmp_path}/file/optimizationpolicies.yaml: File exists\n"
