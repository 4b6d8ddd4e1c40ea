"""Test how kustomizations build the files of a repository."""

from trimtab.scan.patches.kustomize import UNBUILT, Build, KustomizationTree

FLUX = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


def flux(name: str, **spec: str) -> str:
    return FLUX.format(name=name, spec=", ".join(f"{key}: {value}" for key, value in spec.items()))


def test_kustomization_tree_leaves_unreferenced_file_unbuilt() -> None:
    assert KustomizationTree({}).find_builds("/web.yaml") == UNBUILT


def test_kustomization_tree_combines_namespace_and_prefixes() -> None:
    layout = KustomizationTree(
        {
            "/base/kustomization.yaml": "namespace: base\nnamePrefix: b-\nnameSuffix: -b\nresources: [web.yaml]\n",
            "/prod/Kustomization": "namespace: prod\nnamePrefix: p-\nnameSuffix: -p\nbases: [../base/]\n",
            "/test/kustomization.yml": "resources: [../base, https://example.com/x]\n",
        }
    )
    assert layout.find_builds("/base/web.yaml") == {
        Build("/prod", "prod", "p-b-", "-b-p"),
        Build("/test", "base", "b-", "-b"),
    }


def test_kustomization_tree_finds_patches_and_their_targets() -> None:
    layout = KustomizationTree(
        {
            "/kustomization.yaml": "patchesStrategicMerge:\n- a.yaml\n- |-\n  kind: X\npatches:\n- path: b.yaml\n"
            "- path: c.yaml\n  target: {kind: Deployment, name: web}\n"
            "- path: d.yaml\n  target: {kind: Deployment, name: web.*}\n"
            "- path: e.yaml\n  target: {name: web, labelSelector: a=b}\n- patch: '[]'\n"
        }
    )
    for file, target in {"a": None, "b": None, "c": "web", "d": "", "e": ""}.items():
        assert layout.find_builds(f"/{file}.yaml") == {Build("/", is_patch=True, target=target)}


def test_kustomization_tree_ignores_unused_components_and_invalid_yaml() -> None:
    layout = KustomizationTree(
        {
            "/part/kustomization.yaml": "kind: Component\nresources: [a.yaml]\n",
            "/odd/kustomization.yaml": "resources: {{ .x }}\n",
            "/list/kustomization.yaml": "[]\n",
            "/one/kustomization.yaml": "resources: [../two]\n",
            "/two/kustomization.yaml": "resources: [../one, b.yaml, 7]\n",
        }
    )
    assert layout.find_builds("/part/a.yaml") == layout.find_builds("/two/b.yaml") == UNBUILT


def test_kustomization_tree_prefers_namespace_of_flux() -> None:
    layout = KustomizationTree(
        {
            "/repo/apps/kustomization.yaml": "namespace: inner\nresources: [web.yaml]\n",
            "/repo/clusters/apps.yaml": flux("apps", path="./apps", targetNamespace="shop"),
        }
    )
    assert {build.namespace for build in layout.find_builds("/repo/apps/web.yaml")} == {"shop"}


def test_kustomization_tree_includes_flux_folder_without_kustomization() -> None:
    paths = ["/repo/apps/a/web.yaml", "/repo/apps/b/web.yaml", "/repo/other.yaml"]
    layout = KustomizationTree(
        {
            "/repo/clusters/apps.yaml": flux("apps", path="apps", targetNamespace="shop"),
            "/repo/apps/b/kustomization.yaml": "namespace: bank\nresources: [web.yaml]\n",
        },
        paths,
    )
    assert [{build.namespace for build in layout.find_builds(path)} for path in paths] == [
        {"shop"},
        {"shop"},
        {""},
    ]


def test_kustomization_tree_finds_every_build_of_shared_file() -> None:
    layout = KustomizationTree(
        {
            f"/repo/clusters/{name}.yaml": flux(name, path="./apps", targetNamespace=name)
            for name in ("prod", "test")
        },
        ["/repo/apps/web.yaml"],
    )
    assert {build.namespace for build in layout.find_builds("/repo/apps/web.yaml")} == {"prod", "test"}
