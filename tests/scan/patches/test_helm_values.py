"""Edits of users' Helm values."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.examples import limit_examples
from scan.patches.changes import change, container
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.resources import STATEFUL_SETS
from trimtab.scan.patches.change import ResourceChange
from trimtab.scan.patches.documents import FileEdits
from trimtab.scan.patches.helm_values import edit_values, parse_helm_path
from trimtab.scan.patches.kustomize import KustomizationTree

SIZE = "requests: {cpu: 1, memory: 1Gi}, limits: {memory: 2Gi}"
SMALL = "requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 128Mi}"
FLUX = "helm.toolkit.fluxcd.io"


def release(name: str, namespace: str = "shop", *, values: str = "", spec: str = "", size: str = SIZE) -> str:
    """A HelmRelease of Flux."""
    place = f", namespace: {namespace}" if namespace else ""
    inner = values or f"controllers: {{{name}: {{containers: {{app: {{resources: {{{size}}}}}}}}}}}"
    return (
        f"apiVersion: {FLUX}/v2\nkind: HelmRelease\nmetadata: {{name: {name}{place}}}\nspec:\n{spec}"
        f"  values: # ours\n    {inner}\n"
    )


def application(name: str, namespace: str = "shop", *, helm: str) -> str:
    """An Application of Argo CD; `helm` is indented by six."""
    return (
        f"apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {{name: {name}, namespace: argocd}}\n"
        f"spec:\n  destination: {{namespace: {namespace}}}\n  source:\n    chart: {name}\n    helm:\n{helm}"
    )


def app(name: str = "web", namespace: str = "shop", **labels: str) -> ResourceChange:
    """A change of a workload with one container, `app`."""
    return change(name, container("app"), namespace=namespace, labels=labels)


def by_flux(name: str, namespace: str = "shop", *, of: str) -> ResourceChange:
    return app(name, namespace, **{f"{FLUX}/name": of, f"{FLUX}/namespace": namespace})


def values(
    text: str,
    *changes: ResourceChange,
    paths: Sequence[str] = (),
    named: bool = True,
    others: Mapping[str, str] | None = None,
) -> FileEdits:
    given = {"values.yaml": text, **(others or {})}
    return edit_values(
        given, changes, paths=[parse_helm_path(each) for each in paths], named=given if named else ()
    )


def test_edit_values_edits_only_the_release_of_the_workload() -> None:
    files = {
        "network.yaml": release("web", "network"),
        "default.yaml": release("atuin", "default"),
        "namesake.yaml": release("web", "default"),
        "team-b.yaml": f"web: {{resources: {{{SIZE}}}}}\n",
    }
    found = edit_values(files, [app(namespace="network")], named=files)
    assert found.files == {"network.yaml": files["network.yaml"].replace(SIZE, SMALL)}
    assert not found.ambiguous
    again = edit_values({**files, **found.files}, [app(namespace="network")], named=files)
    assert (again.files, again.ambiguous, again.not_found) == ({}, [], [])


def test_edit_values_does_not_match_by_equal_amounts() -> None:
    text = f"web:\n  resources: {{{SIZE}}}\nteamb:\n  resources: {{requests: {{cpu: 7}}}}\n"
    found = values(text, change())
    assert not found.files
    assert found.ambiguous == [
        (
            "Deployment shop/web web: skipped: values.yaml does not name the release of its values; give its path: "
            "--helm-path web/web=web.resources, or its --chart"
        )
    ]


def test_edit_values_uses_given_path() -> None:
    text = f"a:\n  resources: {{{SIZE}}}\nb:\n  resources: {{{SIZE}}}\n"
    found = values(text, change(), paths=["web=b.resources"])
    assert found.files == {
        "values.yaml": text.replace(f"b:\n  resources: {{{SIZE}}}", f"b:\n  resources: {{{SMALL}}}")
    }
    again = values(found.files["values.yaml"], change(), paths=["web=b.resources"])
    assert not again.files
    assert not again.ambiguous
    after = values("front:\n  image: x\n", change(), paths=["web=front.resources"]).files["values.yaml"]
    assert after.startswith("front:\n  image: x\n  resources:\n    requests:\n      cpu: 100m\n")
    nowhere = values("a: 1\n", change(), paths=["web=a.b.resources"])
    assert not nowhere.files
    assert "--helm-path a.b.resources: values.yaml, line 1 has no a.b" in nowhere.ambiguous[0]


def test_edit_values_prefers_most_specific_path() -> None:
    text = f"a: {{resources: {{{SIZE}}}}}\nb: {{resources: {{{SIZE}}}}}\nc: {{resources: {{{SIZE}}}}}\n"
    paths = ["web=a.resources", "web/web=b.resources", "bank/web/web=c.resources"]
    assert yaml.safe_load(values(text, change(), paths=paths).files["values.yaml"])["b"]["resources"][
        "requests"
    ] == {
        "cpu": "100m",
        "memory": "64Mi",
    }


def test_edit_values_reports_a_path_that_no_container_has() -> None:
    """`--helm-path web=…` for the workload web, whose container has another name, would else be passed over in silence."""
    found = values(f"web: {{resources: {{{SIZE}}}}}\n", app("web"), paths=["web=web.resources"])
    assert found.not_found == ["--helm-path web=web.resources: not used: no container web changes"]
    assert "--helm-path web/app=web.resources" in found.ambiguous[0]


def test_edit_values_asks_for_the_file_of_a_path_that_several_files_may_have() -> None:
    text = f"resources: {{{SIZE}}}\n"
    found = values(text, change(), paths=["web=resources"], others={"b.yaml": text})
    assert not found.files
    assert (
        "may be in values.yaml, line 1 and b.yaml, line 1; name the file: --helm-path web=FILE:resources"
        in (found.ambiguous[0])
    )
    said = values(text, change(), paths=["web=./b.yaml:resources"], others={"b.yaml": text})
    assert said.files.keys() == {"b.yaml"}


@pytest.mark.parametrize("text", ["web", "web=", "=a.b", "a/b/c/d=x", "web=a..b", "/web=a"])
def test_parse_helm_path_rejects_invalid_path(text: str) -> None:
    with pytest.raises(
        TrimtabError, match=r"^--helm-path .*: write it as CONTAINER=path.to.resources, or as"
    ):
        parse_helm_path(text)


def test_parse_helm_path_accepts_dots_in_keys() -> None:
    assert parse_helm_path(r"web=a\.b.resources").keys == ("a.b", "resources")


def test_edit_values_edits_shared_path_once_if_targets_agree() -> None:
    text = f"resources: {{{SIZE}}}\n"
    both = [change(namespace="staging"), change(namespace="live")]
    assert values(text, *both, paths=["web=resources"]).files == {"values.yaml": text.replace(SIZE, SMALL)}
    other = change(namespace="live", after={"web": Resources(200, None, 2**27, 2**28)})
    differing = values(text, both[0], other, paths=["web=resources"])
    assert not differing.files
    assert "which have different recommendations; see --helm-path and --namespace" in differing.ambiguous[0]


@pytest.mark.parametrize(
    ("text", "workload"),
    [
        (release("web"), app()),
        (release("web"), by_flux("web", of="web")),
        (release("web", values=f"resources: {{{SIZE}}}"), app()),
        (release("web", values=f"api: {{resources: {{{SIZE}}}}}"), by_flux("web-api", of="web")),
        (release("web", values=f"fullnameOverride: x\n    resources: {{{SIZE}}}"), by_flux("x", of="web")),
        (release("web", spec="  releaseName: front\n", values=f"resources: {{{SIZE}}}"), app("front")),
        (
            release("web", "flux", spec="  targetNamespace: shop\n", values=f"resources: {{{SIZE}}}"),
            app("shop-web"),
        ),
        (
            release("w", spec="  chart: {spec: {chart: shop}}\n", values=f"resources: {{{SIZE}}}"),
            by_flux("w-shop", of="w"),
        ),
        (release("web", namespace=""), app()),
        (application("web", helm=f"      valuesObject:\n        resources: {{{SIZE}}}\n"), app()),
        (
            application("web", helm=f"      values: |\n        # ours\n        resources: {{{SIZE}}}\n\n        a: 1\n"),
            app("web", **{"argocd.argoproj.io/instance": "web"}),
        ),
        (
            application("web", helm=f"      releaseName: x\n      values: |\n        resources: {{{SIZE}}}\n"),
            app("x-web", **{"app.kubernetes.io/instance": "web"}),
        ),
    ],
)  # fmt: skip
def test_edit_values_finds_release_of_workload(text: str, workload: ResourceChange) -> None:
    found = values(text, workload)
    assert (found.ambiguous, found.not_found) == ([], [])
    assert found.files == {"values.yaml": text.replace(SIZE, SMALL)}
    again = values(found.files["values.yaml"], workload)
    assert (again.files, again.ambiguous) == ({}, [])


@pytest.mark.parametrize(
    ("text", "workload"),
    [
        (release("web"), app(namespace="bank")),
        (release("web"), app("api")),
        (release("web"), by_flux("web", of="other")),
        (release("web"), app("web", **{"app.kubernetes.io/instance": "other"})),
        (release("web"), app("web", **{"argocd.argoproj.io/instance": "web"})),
        (release("web", spec="  targetNamespace: bank\n"), app()),
        (release("web", spec="  releaseName: front\n"), app()),
        (application("web", "bank", helm=f"      valuesObject: {{resources: {{{SIZE}}}}}\n"), app()),
        (
            application("web", helm=f"      valuesObject: {{resources: {{{SIZE}}}}}\n"),
            by_flux("web", of="web"),
        ),
    ],
)
def test_edit_values_leaves_other_releases_alone(text: str, workload: ResourceChange) -> None:
    found = values(text, workload)
    assert not found.files
    assert "no file has the values of its release; add it with --file" in found.not_found[0]


def test_edit_values_accepts_release_without_namespace_only_from_named_file() -> None:
    text = release("web", namespace="")
    assert values(text, app()).files
    assert not values(text, app(), named=False).files


def test_edit_values_takes_namespace_from_kustomizations() -> None:
    layout = KustomizationTree(
        {
            "/apps/network/web/ks.yaml": "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\n"
            "metadata: {name: web}\nspec: {path: ./apps/network/web/app, targetNamespace: network}\n"
        },
        ["/apps/network/web/app/helmrelease.yaml"],
    )
    files = {"/apps/network/web/app/helmrelease.yaml": release("web", namespace="")}
    assert (
        edit_values(files, [app(namespace="network")], builds=layout.find_builds).files.keys() == files.keys()
    )
    assert not edit_values(files, [app()], builds=layout.find_builds, named=files).files


@pytest.mark.parametrize(
    ("inner", "workload"),
    [
        (f"redis: {{resources: {{{SIZE}}}}}", by_flux("web", of="web")),
        (f"worker: {{app: {{resources: {{{SIZE}}}}}}}", by_flux("web", of="web")),
        (f"app: {{resources: {{{SIZE}}}}}", by_flux("web", of="web")),  # it may be that of a workload web-app
        (f"resources: {{{SIZE}}}", by_flux("web-worker", of="web")),
        (f"sizes: {{{SIZE}}}", by_flux("web", of="web")),
        (
            f"resources: {{{SIZE}}}",
            change("web", container("app"), container("log"), labels={f"{FLUX}/name": "web", f"{FLUX}/namespace": "shop"}),
        ),
    ],
)  # fmt: skip
def test_edit_values_skips_path_not_named_after_container(inner: str, workload: ResourceChange) -> None:
    found = values(release("web", values=inner), workload)
    assert not found.files
    assert (
        "no path in values.yaml, line 1 is named after it; give its path: --helm-path" in found.ambiguous[0]
    )


def test_edit_values_keeps_undeployed_edits() -> None:
    edited_by_hand = release("web", size="requests: {cpu: 3, memory: 3Gi}")
    found = values(edited_by_hand, app())
    assert not found.files
    assert "differs from the cluster: the file was edited but not deployed yet" in found.ambiguous[0]


def test_edit_values_skips_path_that_fits_two_workloads() -> None:
    other = change("web", container("app"), resource=STATEFUL_SETS)
    found = values(release("web"), app(), other)
    assert not found.files
    assert len(found.ambiguous) == 2


def test_edit_values_prefers_the_patch_of_an_overlay_to_the_shared_release() -> None:
    layout = KustomizationTree(
        {
            "/base/kustomization.yaml": "resources: [web.yaml]\n",
            "/prod/kustomization.yaml": "namespace: prod\nresources: [../base]\npatches: [{path: web.yaml}]\n",
            "/test/kustomization.yaml": "namespace: test\nresources: [../base]\n",
        }
    )
    files = {"/base/web.yaml": release("web", ""), "/prod/web.yaml": release("web", "")}
    found = edit_values(files, [app(namespace="prod")], builds=layout.find_builds)
    assert found.files.keys() == {"/prod/web.yaml"}
    base_alone = edit_values(files, [app(namespace="test")], builds=layout.find_builds)
    assert not base_alone.files
    assert "/base/web.yaml, line 1 is used by /prod too" in base_alone.ambiguous[0]


def test_edit_values_skips_a_broken_file_and_edits_the_others() -> None:
    broken = application("api", helm="      values: |\n        a: [\n")
    found = values(
        release("web"),
        app(),
        others={"broken.yaml": "a: [\n", "empty.yaml": "\n", "other.yaml": broken, "x.yaml": "[]\n"},
    )
    assert found.files.keys() == {"values.yaml"}
    assert [line.split(".yaml")[0] for line in found.ambiguous] == ["broken", "other", "empty", "x"]
    assert "empty.yaml: this file has no Helm values; name a values file" in "\n".join(found.ambiguous)


class Templates:
    """A chart in Python: which values size which container."""

    def __init__(self, sized: Mapping[tuple[str, str, str], str], defaults: Mapping[str, Any] = {}) -> None:
        self.defaults = defaults
        self._sized = sized

    def render(
        self, release: str, namespace: str, layers: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        objects = []
        for (kind, name, each), path in self._sized.items():
            found: Any = None
            for layer in layers:
                value: Any = layer
                for key in path.split("."):
                    value = value.get(key) if isinstance(value, dict) else None
                found = value or found
            spec = {"template": {"spec": {"containers": [{"name": each, "resources": found}]}}}
            objects.append({"kind": kind, "metadata": {"name": f"{release}{name}"}, "spec": spec})
        return objects


def rendered(chart: Templates, changes: Sequence[ResourceChange], **files: str) -> FileEdits:
    return edit_values(files, changes, charts=dict.fromkeys(files, chart), named=files)


def test_edit_values_uses_path_found_in_rendered_chart() -> None:
    text = f"odd: {{sizes: {{{SIZE}}}}}\nweb: {{resources: {{{SIZE}}}}}\n"
    found = rendered(Templates({("Deployment", "", "web"): "odd.sizes"}), [change()], values=text)
    assert found.files == {"values": text.replace(SIZE, SMALL, 1)}
    missing = rendered(Templates({("Deployment", "-x", "web"): "odd.sizes"}), [change()], values=text)
    assert not missing.files
    assert "the chart's release web sizes it by none of its values" in missing.ambiguous[0]


def test_edit_values_skips_path_shared_by_chart() -> None:
    shared = Templates({("Deployment", "", "web"): "resources", ("Deployment", "-api", "api"): "resources"})
    text = f"resources: {{{SIZE}}}\n"
    found = rendered(shared, [change()], values=text)
    assert not found.files
    assert "resources also sizes Deployment shop/web-api api" in found.ambiguous[0]
    api = change("web-api", container("api"), labels={"app.kubernetes.io/instance": "web"})
    assert rendered(shared, [change(), api], values=text).files


def test_edit_values_adds_chart_default_to_last_values_file() -> None:
    defaults: dict[str, Any] = {"web": {"a": {"resources": {}}, "b": {"resources": {}}}}
    chart = Templates(
        {("Deployment", "", "a"): "web.a.resources", ("Deployment", "-b", "b"): "web.b.resources"}, defaults
    )
    both = [
        change("web", container("a")),
        change("web-b", container("b"), labels={"app.kubernetes.io/instance": "web"}),
    ]
    (text,) = rendered(chart, both, values="image: x\n").files.values()
    assert yaml.safe_load(text)["web"].keys() == {"a", "b"}
    assert text.startswith("image: x\nweb:\n")
    own = "web: {a: {resources: {requests: {cpu: 1}}}}\n"
    assert rendered(chart, both[:1], first=own, second=own).files.keys() == {"second"}


NAMES = st.sampled_from(["web", "api", "web-api"])
NAMESPACES = st.sampled_from(["shop", "bank"])


@settings(max_examples=limit_examples(200))
@given(
    releases=st.lists(st.tuples(NAMESPACES | st.just(""), NAMES), max_size=6),
    plain=st.lists(st.sampled_from(["web", "api", "resources"]), max_size=2),
    selected=st.sets(st.tuples(NAMESPACES, NAMES), max_size=4),
    named=st.booleans(),
)
def test_edit_values_changes_only_releases_of_selected_workloads_and_once(
    *, releases: list[tuple[str, str]], plain: list[str], selected: set[tuple[str, str]], named: bool
) -> None:
    files = {f"{number}.yaml": release(name, place) for number, (place, name) in enumerate(releases)}
    files |= {
        f"plain-{number}.yaml": f"{key}: {{resources: {{{SIZE}}}}}\n" for number, key in enumerate(plain)
    }
    changes = [app(name, place) for place, name in sorted(selected)]
    found = edit_values(files, changes, named=files if named else ())
    for path, text in found.files.items():
        place, name = releases[int(path.removesuffix(".yaml"))]
        assert any(key[1] == name and place in {"", key[0]} for key in selected)
        assert named or place
        assert text == release(name, place).replace(SIZE, SMALL)
    again = edit_values({**files, **found.files}, changes, named=files if named else ())
    assert not again.files
    assert again.ambiguous == found.ambiguous
    for key in selected:
        if releases.count(key) == 1:
            assert found.files.get(f"{releases.index(key)}.yaml")
