"""What `trimtab patch` writes into a folder, without a cluster."""

import io
import sys
from pathlib import Path

import pytest

from survey.patches.changes import change
from trimtab.cli import run
from trimtab.cli.patch import _edited, _manifests, _patches


@pytest.mark.parametrize("name", ["kustomization.yaml", "kustomization.yml", "Kustomization"])
def test_a_kustomization_of_any_name_gets_the_entries_and_none_is_put_beside_it(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("resources: [web.yaml]\n")
    _patches([change()], "kustomize", tmp_path)
    assert "path: shop-deployment-web.yaml" in (tmp_path / name).read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "shop-deployment-web.yaml"])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--format", "helm", "--file", "gone.yaml"], "--file gone.yaml: No such file or directory"),
        (["--format", "helm", "--file", 300 * "x"], "File name too long"),
        (["--helm-path", "web=resources"], "--helm-path: is about --format helm; this is kubectl"),
        (["--directory", "x"], "--directory: takes patches; this is kubectl"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_cluster_is_looked_at(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["patch", *arguments]) == 2
    assert line in capsys.readouterr().err


def test_a_template_of_a_chart_is_left_out_and_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, template = (tmp_path / name for name in ("plain.yaml", "template.yaml"))
    plain.write_text("name: web\ncontainers: []\n")
    template.write_text("name: web\ncontainers: {{ .Values.containers }}\n")
    (tmp_path / "other.yaml").write_text("name: {{ .Values.name }}\n")
    assert list(_manifests([tmp_path], [change()])) == [plain]
    assert capsys.readouterr().err == (
        f"trimtab: {template}: left out: it is a template and no plain YAML; edit its values with --format helm\n"
    )


def test_an_edit_can_be_applied_whatever_the_terminal_can_show(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii", errors="replace"))
    _edited({Path("a"): "cpu: 1 # für alle\n"}, {Path("a"): "cpu: 2 # für alle\n"}, write=False)
    assert "-cpu: 1 # für alle\n+cpu: 2 # für alle\n" in shown.getvalue().decode()
