"""Edits of users' own manifests."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.examples import limit_examples
from scan.patches.changes import change, container
from trimtab.api.quantity import parse_millicores
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.resources import CRON_JOBS
from trimtab.scan.patches.documents import FileEdits
from trimtab.scan.patches.kustomize import KustomizationTree
from trimtab.scan.patches.manifests import edit_manifests

MANIFESTS = """\
# the shop
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    spec:
      containers:
        - name: web   # serves
          image: web:1
          resources:
            requests: {cpu: 1, memory: 1Gi}
            limits:
              memory: 2Gi # twice
---
apiVersion: batch/v1
kind: CronJob
metadata:
  name: nightly
spec:
  jobTemplate:
    spec:
      template:
        spec:
          containers:
          - name: run
            image: run:1
"""
WITHOUT_NAMESPACE = MANIFESTS.replace(", namespace: shop", "").partition("---")[0]
NAMED = "name the right file with --file"


def test_edit_manifests_changes_only_the_amounts() -> None:
    nightly = change("nightly", {"name": "run"}, resource=CRON_JOBS)
    elsewhere = change(namespace="bank")
    found = edit_manifests({"shop.yaml": MANIFESTS, "empty.yaml": "\n"}, [change(), nightly, elsewhere])
    expected = MANIFESTS.replace("{cpu: 1, memory: 1Gi}", "{cpu: 100m, memory: 64Mi}").replace(
        "2Gi #", "128Mi #"
    )
    indent = " " * 12
    assert found.files == {
        "shop.yaml": expected
        + f"{indent}resources:\n{indent}  requests:\n{indent}    cpu: 100m\n{indent}    memory: 64Mi\n"
        f"{indent}  limits:\n{indent}    memory: 128Mi\n"
    }
    assert found.not_found == ["Deployment bank/web: skipped: no file has its manifest; add it with --file"]
    assert not found.ambiguous


def test_edit_manifests_reports_a_missing_container_and_edits_the_others() -> None:
    found = edit_manifests({"shop.yaml": MANIFESTS}, [change("web", container("web"), container("side"))])
    assert "cpu: 100m" in found.files["shop.yaml"]
    (line,) = found.ambiguous
    assert line.startswith(
        "Deployment shop/web side: skipped: shop.yaml, line 2 has no container side; update the file"
    )


def test_edit_manifests_edits_shared_manifest_once_if_targets_agree() -> None:
    staging, live = change(namespace="staging"), change(namespace="live")
    files = {"web.yaml": WITHOUT_NAMESPACE}
    once = edit_manifests(files, [live])
    assert once.files
    assert edit_manifests(files, [staging, live]) == once
    other = change(namespace="live", after={"web": Resources(200, None, 2**27, 2**28)})
    differing = edit_manifests(files, [staging, other])
    assert not differing.files
    assert len(differing.ambiguous) == 2
    assert "sizes staging/web and live/web, which have different recommendations" in differing.ambiguous[0]


def test_edit_manifests_skips_a_workload_with_two_manifests_and_edits_the_others() -> None:
    other = WITHOUT_NAMESPACE.replace("web", "api")
    files = {"live/web.yaml": WITHOUT_NAMESPACE, "staging/web.yaml": WITHOUT_NAMESPACE, "api.yaml": other}
    found = edit_manifests(files, [change(), change("api", container("api"))])
    assert found.files.keys() == {"api.yaml"}
    assert found.ambiguous == [
        f"Deployment shop/web web: skipped: its resources are in live/web.yaml, line 2 and in staging/web.yaml, line 2; {NAMED}"
    ]
    certain = {**files, "live/web.yaml": MANIFESTS}
    assert edit_manifests(certain, [change()]).files.keys() == {"live/web.yaml"}


def test_edit_manifests_skips_a_broken_file_and_edits_the_others() -> None:
    files = {"broken.yaml": "a: [web\n", "twice.yaml": "a: 1\na: 2\n", "web.yaml": MANIFESTS}
    found = edit_manifests(files, [change()])
    assert found.files.keys() == {"web.yaml"}
    assert [line.partition(",")[0] for line in found.ambiguous] == ["broken.yaml", "twice.yaml"]


def test_edit_manifests_skips_amounts_shared_by_anchor() -> None:
    shared = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api, namespace: shop}\nspec:\n  template:\n"
        "    spec:\n      containers:\n      - name: api\n        resources: &size {requests: {cpu: 1}}\n"
        "      - name: side\n        resources: *size\n"
    )
    found = edit_manifests(
        {"all.yaml": f"{MANIFESTS}---\n{shared}"}, [change(), change("api", container("api"))]
    )
    assert "cpu: 100m" in found.files["all.yaml"]
    assert shared in found.files["all.yaml"]
    assert "resources is shared through an anchor" in found.ambiguous[0]


@pytest.mark.parametrize("is_named", [False, True])
def test_edit_manifests_leaves_templates_of_charts_alone(*, is_named: bool) -> None:
    template = WITHOUT_NAMESPACE.replace("cpu: 1", "cpu: {{ .Values.cpu }}")
    found = edit_manifests({"web.yaml": template}, [change()], named={"web.yaml"} if is_named else set())
    assert not found.files
    said = found.ambiguous if is_named else found.not_found
    assert "template" in said[0]


def test_edit_manifests_does_not_mistake_braces_in_text_for_template() -> None:
    text = MANIFESTS.replace("image: web:1", "args: ['{{ .Name }}']")
    assert "cpu: 100m" in edit_manifests({"web.yaml": text}, [change()]).files["web.yaml"]


PATCH = (
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n"
    "      containers:\n      - name: web\n"
)
SIZED = f"{PATCH}        resources: {{requests: {{cpu: 1, memory: 1Gi}}, limits: {{memory: 2Gi}}}}\n"


def overlays(**kustomizations: str) -> KustomizationTree:
    return KustomizationTree(
        {f"/{folder}/kustomization.yaml": text for folder, text in kustomizations.items()}
    )


def test_edit_manifests_prefers_an_overlays_own_patch_to_the_base_of_all_overlays() -> None:
    layout = overlays(
        base="resources: [web.yaml]\n",
        prod="namespace: prod\nresources: [../base]\npatches: [{path: web.yaml}]\n",
        test="namespace: test\nresources: [../base]\n",
    )
    files = {"/base/web.yaml": WITHOUT_NAMESPACE, "/prod/web.yaml": SIZED}
    found = edit_manifests(files, [change(namespace="prod")], builds=layout.find_builds)
    assert found.files.keys() == {"/prod/web.yaml"}
    assert not found.ambiguous
    base_alone = edit_manifests(files, [change(namespace="test")], builds=layout.find_builds)
    assert not base_alone.files
    assert "/base/web.yaml, line 2 is used by /prod too; write a patch" in base_alone.ambiguous[0]
    named = edit_manifests(
        files, [change(namespace="test")], builds=layout.find_builds, named={"/base/web.yaml"}
    )
    assert named.files.keys() == {"/base/web.yaml"}


def test_edit_manifests_edits_a_shared_base_if_all_its_workloads_want_the_same() -> None:
    layout = overlays(
        base="resources: [web.yaml]\n",
        prod="namespace: prod\nresources: [../base]\n",
        test="namespace: test\nnamePrefix: t-\nresources: [../base]\n",
    )
    both = [change(namespace="prod"), change("t-web", namespace="test")]
    found = edit_manifests({"/base/web.yaml": WITHOUT_NAMESPACE}, both, builds=layout.find_builds)
    assert found.files.keys() == {"/base/web.yaml"}
    one = edit_manifests({"/base/web.yaml": WITHOUT_NAMESPACE}, both[:1], builds=layout.find_builds)
    assert not one.files


def test_edit_manifests_removes_an_amount_from_a_patch_by_null() -> None:
    layout = overlays(
        base="resources: [web.yaml]\n", prod="resources: [../base]\npatchesStrategicMerge: [web.yaml]\n"
    )
    files = {
        "/base/web.yaml": WITHOUT_NAMESPACE,
        "/prod/web.yaml": PATCH + "        resources: {requests: {cpu: 1}}\n",
    }
    found = edit_manifests(
        files, [change(after={"web": Resources(100, None, 2**26, None)})], builds=layout.find_builds
    )
    (edited,) = found.files.values()
    (web,) = yaml.safe_load(edited)["spec"]["template"]["spec"]["containers"]
    assert web["resources"] == {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": None}}


def test_edit_manifests_skips_overlay_without_the_container() -> None:
    overlay = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 3}\n"
    files = {"a-overlay.yaml": overlay, "base.yaml": WITHOUT_NAMESPACE}
    assert edit_manifests(files, [change()]).files.keys() == {"base.yaml"}


NAMES = st.sampled_from(["web", "api", "db"])
NAMESPACES = st.sampled_from(["shop", "bank"])
OBJECT = st.tuples(NAMESPACES | st.just(""), NAMES)
FILES = st.dictionaries(
    st.sampled_from([f"{number}.yaml" for number in range(5)]), st.lists(OBJECT, max_size=3), max_size=5
)
SIZES = st.sampled_from([Resources(100, None, 2**26, 2**27), Resources(200, None, 2**27, None)])


def written(namespace: str, name: str) -> str:
    place = f", namespace: {namespace}" if namespace else ""
    return WITHOUT_NAMESPACE.replace("{name: web}", f"{{name: {name}{place}}}")


@settings(max_examples=limit_examples(200))
@given(
    files=FILES,
    selected=st.dictionaries(st.tuples(NAMESPACES, NAMES), SIZES),
    broken=st.booleans(),
)
def test_edit_manifests_changes_only_selected_workloads_and_once(
    *, files: dict[str, list[tuple[str, str]]], selected: dict[tuple[str, str], Resources], broken: bool
) -> None:
    texts = {path: "---\n".join(written(*each) for each in objects) for path, objects in files.items()}
    if broken:
        texts["broken.yaml"] = "web: [\n"
    changes = [change(name, namespace=place, after={"web": size}) for (place, name), size in selected.items()]
    found = edit_manifests(texts, changes)
    for path, text in found.files.items():
        for before, after in zip(yaml.safe_load_all(texts[path]), yaml.safe_load_all(text), strict=True):
            if before == after:
                continue
            place, name = before["metadata"].get("namespace"), before["metadata"]["name"]
            assert any(key[1] == name and place in {None, key[0]} for key in selected)
            (old,), (new,) = (each["spec"]["template"]["spec"]["containers"] for each in (before, after))
            assert {**new, "resources": old["resources"]} == old
    assert not edit_manifests({**texts, **found.files}, changes).files
    sure = [key for key in selected if sum(objects.count(key) for objects in files.values()) == 1]
    for place, name in sure:  # neither a broken file nor another workload's trouble stops a clear one
        assert not any(f"{place}/{name} " in line for line in [*found.ambiguous, *found.not_found])


def _edit_one(
    written: str, deployed: str = "1", recommended: int = 100, min_change: float = 0.2
) -> FileEdits:
    """Edit a manifest that requests CPU as `written`, where the cluster has `deployed`."""
    text = WITHOUT_NAMESPACE.replace("cpu: 1", f"cpu: {written}")
    found = change(
        "web",
        container("web", cpu=deployed),
        after={"web": Resources(recommended, None, 2**30, 2**31)},
        min_change=min_change,
    )
    return edit_manifests({"web.yaml": text}, [found])


def test_edit_manifests_leaves_a_flux_variable_and_names_what_to_set() -> None:
    found = _edit_one("'${WEB_CPU:=1}'")
    assert not found.files
    assert found.ambiguous == [
        (
            "Deployment shop/web web: skipped: web.yaml, line 2: requests.cpu is the variable ${WEB_CPU:=1}; "
            "set WEB_CPU to 100m"
        )
    ]


def test_edit_manifests_edits_the_amounts_beside_a_variable() -> None:
    text = WITHOUT_NAMESPACE.replace("cpu: 1", "cpu: '${WEB_CPU}'")
    found = edit_manifests({"web.yaml": text}, [change()])
    assert "cpu: '${WEB_CPU}', memory: 64Mi" in found.files["web.yaml"]
    assert "set WEB_CPU to 100m" in found.ambiguous[0]


def test_edit_manifests_says_nothing_of_a_variable_whose_amount_does_not_change() -> None:
    text = WITHOUT_NAMESPACE.replace("cpu: 1", "cpu: '${WEB_CPU}'")
    found = edit_manifests(
        {"web.yaml": text}, [change(after={"web": Resources(1000, None, 64 * 2**20, 2**31)})]
    )
    assert "cpu: '${WEB_CPU}', memory: 64Mi" in found.files["web.yaml"]
    assert not found.ambiguous


@pytest.mark.parametrize("at", ["resources", "requests"])
def test_edit_manifests_does_not_replace_a_variable_of_all_resources(at: str) -> None:
    text = WITHOUT_NAMESPACE.replace("requests: {cpu: 1, memory: 1Gi}", "requests: ${SIZE}")
    if at == "resources":
        text = text.partition("          resources:")[0] + "          resources: ${SIZE}\n"
    found = edit_manifests({"web.yaml": text}, [change()])
    assert not found.files
    assert f"{at} is ${{SIZE}}, which is set elsewhere" in found.ambiguous[0]


def test_edit_manifests_warns_if_the_file_differs_from_the_cluster() -> None:
    found = _edit_one("500m")
    assert "cpu: 100m" in found.files["web.yaml"]
    assert found.notices == [
        (
            "Deployment shop/web web: web.yaml, line 2: requests.cpu is 500m in the file and 1 in the cluster; "
            "check that nothing else sets it"
        )
    ]
    assert not _edit_one("1000m").notices  # the same amount in other words


@settings(max_examples=limit_examples(200), deadline=None)
@given(written=st.integers(1, 4000), recommended=st.integers(10, 4000))
def test_edit_manifests_leaves_what_is_near_enough_and_is_done_after_one_edit(
    written: int, recommended: int
) -> None:
    found = _edit_one(f"{written}m", recommended=recommended)
    assert bool(found.files) == (abs(written - recommended) >= max(5, 0.2 * recommended))
    if found.files:
        body = yaml.safe_load(found.files["web.yaml"])
        cpu = body["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        assert parse_millicores(str(cpu)) == recommended
    # A container at risk gets every change.
    assert bool(_edit_one(f"{written}m", recommended=recommended, min_change=0.0).files) == (
        written != recommended
    )


def test_edit_manifests_reads_tabs_between_key_and_value_as_kubectl_does() -> None:
    text = WITHOUT_NAMESPACE.replace("kind: Deployment", "kind:\tDeployment\t# said twice").replace(
        "image: web:1", "args: ['{{ .Name }}']"
    )
    found = edit_manifests({"web.yaml": text}, [change()])
    assert "kind:\tDeployment\t# said twice" in found.files["web.yaml"]
    assert "cpu: 100m" in found.files["web.yaml"]


def test_edit_manifests_reports_the_real_problem_of_a_file_with_braces() -> None:
    text = WITHOUT_NAMESPACE.replace("image: web:1", "args: ['{{ .Name }}']") + "\nmore: [\n"
    (line,) = edit_manifests({"web.yaml": text}, [change()]).ambiguous
    assert "this is not valid YAML" in line
    assert "template" not in line
