"""Files and folders that `trimtab patch` writes, without a cluster."""

import io
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scan.patches.changes import change, container
from trimtab.cli import run
from trimtab.cli.patch import _edit_helm, _edit_manifests, _write_edits, _write_patches
from trimtab.scan.patches import repository
from trimtab.scan.patches.helm_values import parse_helm_path

MANIFEST = (
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n"
    "      containers:\n      - name: web\n        resources: {requests: {cpu: 1, memory: 1Gi}, limits: {memory: 2Gi}}\n"
)
RELEASE = (
    "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: web}\nspec:\n  values:\n"
    "    resources: {requests: {cpu: 1, memory: 1Gi}, limits: {memory: 2Gi}}\n"
)
FLUX = (
    "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: web}\n"
    "spec: {path: ./apps/%s, targetNamespace: %s}\n"
)


@pytest.fixture(autouse=True)
def _without_kustomize(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the kustomize of this machine; tests/integration/cli/test_patch.py repeats these tests with a real one."""
    monkeypatch.setattr(repository, "find_kustomize", lambda: None)


@pytest.mark.parametrize("name", ["kustomization.yaml", "kustomization.yml", "Kustomization"])
def test_patch_adds_entries_to_a_kustomization_of_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("resources: [web.yaml]\n")
    assert _write_patches([change()], "kustomize", tmp_path) == 0
    assert "path: shop.deployment.web.yaml" in (tmp_path / name).read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "shop.deployment.web.yaml"])


@pytest.mark.parametrize("form", ["kustomize", "strategic"])
def test_patch_writes_nothing_into_a_folder_the_second_time(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = [change("web", container("web"), container("log")), change("api")]
    assert _write_patches(changes, form, tmp_path) == 0  # type: ignore[arg-type]
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    capsys.readouterr()
    assert _write_patches(changes, form, tmp_path) == 0  # type: ignore[arg-type]
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert capsys.readouterr().out == ""


def test_patch_keeps_a_binary_file_of_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shop.deployment.web.yaml").write_bytes(b"\xff\xfe")
    assert _write_patches([change(), change("api")], "strategic", tmp_path) == 1
    assert (tmp_path / "shop.deployment.web.yaml").read_bytes() == b"\xff\xfe"
    assert (tmp_path / "shop.deployment.api.yaml").exists()
    assert "shop.deployment.web.yaml is not its patch" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--format", "helm", "--file", "gone.yaml"], "--file gone.yaml: No such file or directory"),
        (["--format", "helm", "--file", 300 * "x"], "File name too long"),
        (["--helm-path", "web=resources"], "--helm-path: only for --format helm; this is kubectl"),
        (
            ["--format", "helm", "--file", ".", "--helm-path", "web"],
            "--helm-path web: write it as CONTAINER=",
        ),
        (["--chart", "x"], "--chart: only for --format helm; this is kubectl"),
        (["--directory", "x"], "--directory: only for patches; this is kubectl"),
    ],
)
def test_patch_rejects_wrong_usage_before_it_reads_the_cluster(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["patch", *arguments]) == 2
    assert line in capsys.readouterr().err


def test_patch_needs_helm_for_a_chart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert run(["patch", "--format", "helm", "--file", ".", "--chart", "x"]) == 2
    assert "--chart: helm is not on the PATH; install it" in capsys.readouterr().err


def test_patch_reports_the_unclear_files_of_a_folder_and_edits_the_clear_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "web.yaml": MANIFEST,
        "template.yaml": "name: web\ncontainers: {{ .Values.containers }}\n",
        "broken.yaml": "containers: [web\n",
        "other.yaml": "name: {{ .Values.name }}\n",
        "node_modules/web.yaml": MANIFEST,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "latin.yaml").write_bytes("containers: web # für\n".encode("latin-1"))
    assert _edit_manifests([tmp_path], [change()], write=True) == 1
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'web.yaml'}\n"
    assert "cpu: 100m" in (tmp_path / "web.yaml").read_text()
    template, latin, broken = err.splitlines()
    assert template.endswith("template.yaml: skipped: the file is a template, not plain YAML")
    assert latin.endswith("latin.yaml: the file is not text; name a YAML file")
    assert "broken.yaml, line 2: " in broken
    assert (tmp_path / "node_modules" / "web.yaml").read_text() == MANIFEST


def test_patch_edits_the_helm_release_of_the_namespace_in_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for namespace in ("network", "default"):
        folder = tmp_path / "apps" / namespace
        folder.mkdir(parents=True)
        (folder / "helmrelease.yaml").write_text(RELEASE)
        (tmp_path / f"{namespace}.yaml").write_text(FLUX % (namespace, namespace))
    (tmp_path / "values.yaml").write_text(RELEASE.partition("values:\n")[2])
    changes = [change(namespace="network")]
    assert _edit_helm([tmp_path], changes, [], None, write=True) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'apps/network/helmrelease.yaml'}\n"
    assert (tmp_path / "apps/default/helmrelease.yaml").read_text() == RELEASE
    assert _edit_helm([tmp_path], changes, [], None, write=True) == 0
    assert capsys.readouterr().out == ""


def test_patch_reads_a_file_once_however_it_is_spelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "web.yaml").write_text(MANIFEST)
    (tmp_path / "link.yaml").symlink_to("web.yaml")
    given = [tmp_path / "web.yaml", tmp_path / ".." / tmp_path.name / "web.yaml", tmp_path, tmp_path / "."]
    assert _edit_manifests(given, [change()], write=True) == 0
    assert capsys.readouterr() == (f"{tmp_path / 'web.yaml'}\n", "")


def test_patch_learns_namespaces_from_the_whole_repository(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "apps" / "default"
    folder.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / "default.yaml").write_text(FLUX % ("default", "default"))
    (folder / "helmrelease.yaml").write_text(RELEASE)
    given = [folder / "helmrelease.yaml"]
    assert _edit_helm(given, [change(namespace="network")], [], None, write=True) == 0
    assert (folder / "helmrelease.yaml").read_text() == RELEASE
    assert "no file has the values of its release; add it with --file" in capsys.readouterr().err
    assert _edit_helm(given, [change(namespace="default")], [], None, write=True) == 0
    assert (folder / "helmrelease.yaml").read_text() != RELEASE


@pytest.mark.parametrize("verbose", [False, True])
def test_patch_combines_the_workloads_that_no_file_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, verbose: bool
) -> None:
    (tmp_path / "web.yaml").write_text(MANIFEST)
    changes = [change(), *(change(f"api-{number}") for number in range(1200))]
    assert _edit_manifests([tmp_path], changes, write=True, verbose=verbose) == 0
    lines = capsys.readouterr().err.splitlines()
    if verbose:
        assert len(lines) == 1200
        assert "Deployment shop/api-1199: skipped: no file has its manifest; add it with --file" in lines[-1]
    else:
        (line,) = lines
        assert "1,200 skipped: no file has its manifest; add it with --file: Deployment shop/api-0, " in line
        assert line.endswith("Deployment shop/api-2 and 1,197 more; --verbose names all")


def test_patch_exits_with_one_for_ambiguous_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("resources: {requests: {cpu: 1, memory: 1Gi}, limits: {memory: 2Gi}}\n")
    before = values.read_text()
    assert _edit_helm([values], [change()], [], None, write=True) == 1
    assert values.read_text() == before
    assert "give its path: --helm-path web/web=resources" in capsys.readouterr().err
    assert _edit_helm([values], [change()], [parse_helm_path("web/web=resources")], None, write=True) == 0
    assert "cpu: 100m" in (edited := values.read_text())
    assert _edit_helm([values], [change()], [parse_helm_path("web/web=resources")], None, write=True) == 0
    assert values.read_text() == edited


PLACES = st.sampled_from(["base", "prod", "test", "."])
NAMESPACED = st.sampled_from(["prod", "test"])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    manifests=st.sets(PLACES),
    overlays=st.dictionaries(NAMESPACED, st.booleans()),
    selected=st.sets(NAMESPACED, min_size=1),
)
def test_patch_skips_files_that_also_define_unselected_workloads(
    *,
    tmp_path_factory: pytest.TempPathFactory,
    manifests: set[str],
    overlays: dict[str, bool],
    selected: set[str],
) -> None:
    root = tmp_path_factory.mktemp("repository")
    for place in {*manifests, "base", *overlays}:
        (root / place).mkdir(exist_ok=True)
    for place in manifests:
        (root / place / "web.yaml").write_text(MANIFEST)
    (root / "base" / "kustomization.yaml").write_text("resources: [web.yaml]\n")
    for name, patches in overlays.items():
        own = "patches: [{path: web.yaml}]\n" if patches else "commonLabels: {a: b}\n"
        (root / name / "kustomization.yaml").write_text(f"namespace: {name}\nresources: [../base]\n{own}")
    changes = [change(namespace=name) for name in sorted(selected)]
    _edit_manifests([root], changes, write=True)
    edited = {place for place in manifests if (root / place / "web.yaml").read_text() != MANIFEST}
    assert not edited & {name for name, patches in overlays.items() if patches and name not in selected}
    if "base" in edited:
        assert overlays.keys() <= selected
    before = {path: path.read_bytes() for path in root.rglob("*.yaml")}
    _edit_manifests([root], changes, write=True)
    assert {path: path.read_bytes() for path in root.rglob("*.yaml")} == before


def test_patch_output_is_applicable_in_any_terminal_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii", errors="replace"))
    _write_edits({Path("a"): "cpu: 1 # für alle\n"}, {Path("a"): "cpu: 2 # für alle\n"}, write=False)
    assert "-cpu: 1 # für alle\n+cpu: 2 # für alle\n" in shown.getvalue().decode()
