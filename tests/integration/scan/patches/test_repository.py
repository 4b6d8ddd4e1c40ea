"""Edits of repositories, verified by building their kustomizations with the real kustomize."""

import json
from pathlib import Path

import pytest
import yaml

from harness import UnavailableError, build
from scan.patches.changes import change
from trimtab.cli.patch import _edit_manifests, _write_patches
from trimtab.kube.kinds.pods import Resources

MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  template:
    spec:
      containers:
      - name: web
        resources: {requests: {cpu: 1, memory: 1Gi}, limits: {memory: 2Gi}}
"""
SIZE_PATCH = """\
resources: [../base]
namespace: shop
patches:
- target: {kind: Deployment, name: web}
  patch: |-
    - op: replace
      path: /spec/template/spec/containers/0/resources/requests/cpu
      value: "1"
    - op: replace
      path: /spec/template/spec/containers/0/resources/requests/memory
      value: 1Gi
    - op: replace
      path: /spec/template/spec/containers/0/resources/limits/memory
      value: 2Gi
"""
CHANGE = change()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    try:
        monkeypatch.setenv("PATH", str(build.KUBE.built()), prepend=":")
    except UnavailableError as why:
        pytest.skip(str(why))
    (tmp_path / ".git").mkdir()
    _write(
        tmp_path,
        {
            "base/web.yaml": MANIFEST.replace("NAME", "web"),
            "base/api.yaml": MANIFEST.replace("NAME", "api"),
            "base/kustomization.yaml": "resources: [web.yaml, api.yaml]\n",
        },
    )
    return tmp_path


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _requests(text: str) -> object:
    return yaml.safe_load(text)["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]


def test_patch_skips_a_base_whose_size_an_overlay_decides(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(repository, {"prod/kustomization.yaml": SIZE_PATCH})
    before = (repository / "base/web.yaml").read_text()
    changes = [CHANGE, change("api")]
    assert _edit_manifests([repository], changes, write=True) == 1
    assert (repository / "base/web.yaml").read_text() == before
    assert _requests((repository / "base/api.yaml").read_text()) == {"cpu": "100m", "memory": "64Mi"}
    err = capsys.readouterr().err
    assert (
        "Deployment shop/web: skipped: an edit of its manifest changes nothing in what kustomize builds from "
        f"{repository}/prod"
    ) in err


def test_patch_edits_a_base_that_the_overlay_takes_over(repository: Path) -> None:
    _write(repository, {"prod/kustomization.yaml": "resources: [../base]\nnamespace: shop\n"})
    assert _edit_manifests([repository], [CHANGE], write=True) == 0
    assert _requests((repository / "base/web.yaml").read_text()) == {"cpu": "100m", "memory": "64Mi"}
    assert _edit_manifests([repository], [CHANGE], write=True) == 0


def test_patch_says_which_kustomization_it_could_not_build(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(repository, {"prod/kustomization.yaml": "resources: [../base, gone.yaml]\nnamespace: shop\n"})
    assert _edit_manifests([repository], [CHANGE], write=True) == 0
    assert f"{repository}/prod: kustomize could not build it" in capsys.readouterr().err


def test_patch_component_explains_where_to_list_it(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overlay = "resources: [../base]\nnamespace: shop\n"
    _write(repository, {"prod/kustomization.yaml": overlay})
    sized = repository / "sized"
    assert _write_patches([CHANGE], "kustomize", sized) == 0
    assert f"list it under `components:` of {repository}/prod" in capsys.readouterr().err
    _write(repository, {"prod/kustomization.yaml": f"{overlay}components: [../sized]\n"})
    larger = change(after={"web": Resources(200, None, 2**27, 2**28)})
    assert _write_patches([larger], "kustomize", sized) == 0
    assert not capsys.readouterr().err
    assert _requests((sized / "shop.deployment.web.yaml").read_text()) == {"cpu": "200m", "memory": "128Mi"}


def test_component_under_a_shared_root_names_the_namespace(repository: Path) -> None:
    _write(
        repository,
        {
            "shop/kustomization.yaml": "resources: [../base]\nnamespace: shop\n",
            "bank/kustomization.yaml": "resources: [../base]\nnamespace: bank\n",
            "all/kustomization.yaml": "resources: [../shop, ../bank]\n",
        },
    )
    sized = repository / "sized"
    assert _write_patches([CHANGE], "kustomize", sized) == 0
    (entry,) = yaml.safe_load((sized / "kustomization.yaml").read_text())["patches"]
    assert entry["target"]["namespace"] == "shop"


def test_patch_component_is_rejected_if_it_would_change_others(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sized = repository / "sized"
    _write(
        repository,
        {
            "prod/kustomization.yaml": "resources: [../base]\nnamespace: bank\n",
            "shop/kustomization.yaml": "resources: [../base]\nnamespace: shop\n",
            "all/kustomization.yaml": "resources: [../shop, ../prod]\ncomponents: [../sized]\n",
            "sized/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
            "patches:\n- path: shop.deployment.web.yaml\n"
            "  target: {group: apps, version: v1, kind: Deployment, name: web}\n",
            "sized/shop.deployment.web.yaml": MANIFEST.replace("NAME", "web, namespace: shop"),
        },
    )
    before = (sized / "shop.deployment.web.yaml").read_text()
    assert _write_patches([CHANGE], "kustomize", sized) == 1
    assert "would change Deployment bank/web web too" in capsys.readouterr().err
    assert (sized / "shop.deployment.web.yaml").read_text() == before


def test_component_is_refused_where_the_overlays_own_patch_decides(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sized = repository / "sized"
    _write(repository, {"prod/kustomization.yaml": f"{SIZE_PATCH}components: [../sized]\n"})
    _write(
        repository,
        {
            "sized/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches: []\n"
        },
    )
    assert _write_patches([CHANGE], "kustomize", sized) == 1
    assert f"Deployment shop/web: {repository}/prod builds it as before" in capsys.readouterr().err
    assert not (sized / "shop.deployment.web.yaml").exists()


def test_patch_edits_json_files_of_a_folder(repository: Path) -> None:
    (repository / "base/web.yaml").rename(repository / "base/web.json")
    body = yaml.safe_load((repository / "base/web.json").read_text())
    (repository / "base/web.json").write_text(json.dumps(body, indent=2))
    _write(repository, {"base/kustomization.yaml": "resources: [web.json]\nnamespace: shop\n"})
    assert _edit_manifests([repository], [CHANGE], write=True) == 0
    assert _requests((repository / "base/web.json").read_text()) == {"cpu": "100m", "memory": "64Mi"}
    assert json.loads((repository / "base/web.json").read_text())
