"""Patches in a folder, and the kustomization that lists them."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.examples import limit_examples
from scan.patches.changes import change, container
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.resources import CRON_JOBS
from trimtab.scan.patches.change import ResourceChange
from trimtab.scan.patches.patch_folder import build_file_name, update_folder
from trimtab.scan.patches.render import render_manifest

WEB = "shop.deployment.web.yaml"
BOTH = (container("web"), container("log"))
SMALL = Resources(50, None, 2**25, None)


def kustomization(
    changes: list[ResourceChange], existing: str | None = None, name: str = "kustomization.yaml"
) -> str:
    before = {} if existing is None else {name: existing}
    return {**before, **update_folder(changes, before, is_kustomize=True).files}[name]


def sizes(text: str) -> dict[str, Any]:
    body = yaml.safe_load(text)["spec"]
    spec = (body.get("jobTemplate") or {"spec": body})["spec"]["template"]["spec"]
    return {each["name"]: each["resources"] for each in spec["containers"]}


def test_update_folder_keeps_the_containers_of_earlier_runs() -> None:
    first = update_folder([change("web", *BOTH)], {}).files
    later = change("web", *BOTH, after={"web": SMALL})
    second = update_folder([later], first)
    assert second.files.keys() == {WEB}
    found = sizes(second.files[WEB])
    assert found["log"] == sizes(first[WEB])["log"]
    assert found["web"]["requests"] == {"cpu": "50m", "memory": "32Mi"}
    assert found["web"]["limits"] == {"memory": None}, "a merge takes away what the base has"


def test_update_folder_adds_a_container_to_the_patch_that_is_there() -> None:
    alone = update_folder([change("web", *BOTH, after={"web": SMALL})], {}).files
    annotated = {WEB: f"# ours\n{alone[WEB]}# the end\n"}
    added = update_folder([change("web", *BOTH, after={"log": SMALL})], annotated).files[WEB]
    assert added.startswith("# ours\n")
    assert added.endswith("# the end\n")
    assert sizes(added).keys() == {"web", "log"}


def test_update_folder_updates_a_cron_job() -> None:
    nightly = change("nightly", {"name": "run"}, {"name": "log"}, resource=CRON_JOBS)
    first = update_folder([nightly], {}).files
    (text,) = update_folder(
        [change("nightly", {"name": "run"}, {"name": "log"}, resource=CRON_JOBS, after={"run": SMALL})], first
    ).files.values()
    assert sizes(text).keys() == {"run", "log"}


def test_update_folder_changes_nothing_on_a_second_run() -> None:
    changes = [change("web", *BOTH, after={"web": SMALL}), change("api"), change(namespace="bank")]
    first = update_folder(changes, {}, is_kustomize=True)
    again = update_folder(changes, first.files, is_kustomize=True)
    assert (again.files, again.ambiguous) == ({}, [])


def test_update_folder_keeps_a_null_of_an_earlier_run() -> None:
    first = update_folder([change(after={"web": SMALL})], {}).files
    deployed = {"name": "web", "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}}}
    later = change("web", deployed, after={"web": Resources(60, None, 2**25, None)})
    found = sizes(update_folder([later], first).files[WEB])["web"]
    assert found == {"requests": {"cpu": "60m", "memory": "32Mi"}, "limits": {"memory": None}}


def test_file_name_differs_for_any_two_workloads() -> None:
    one, other = change("b", namespace="a-deployment"), change("deployment-b", namespace="a")
    assert build_file_name(one.workload) == "a-deployment.deployment.b.yaml"
    assert build_file_name(other.workload) == "a.deployment.deployment-b.yaml"


def test_update_folder_continues_file_with_old_name() -> None:
    former = "a-deployment-deployment-b.yaml"
    one, other = change("b", namespace="a-deployment"), change("deployment-b", namespace="a")
    before = {former: render_manifest(one), "kustomization.yaml": f"patches:\n- path: {former}\n"}
    resized = change("b", namespace="a-deployment", after={"web": SMALL})
    found = update_folder([resized, other], before, is_kustomize=True).files
    assert found.keys() == {former, build_file_name(other.workload), "kustomization.yaml"}
    assert [each["path"] for each in yaml.safe_load(found["kustomization.yaml"])["patches"]] == [
        former,
        build_file_name(other.workload),
    ]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "a: [\n",
        "kind: Deployment\n",
        render_manifest(change("api")),
        render_manifest(change(namespace="bank")),
    ],
)
def test_update_folder_skips_a_file_that_is_not_its_patch_and_writes_the_others(content: str) -> None:
    found = update_folder([change(), change("api")], {WEB: content}, is_kustomize=True)
    assert found.files.keys() == {"shop.deployment.api.yaml", "kustomization.yaml"}
    assert found.ambiguous == [
        f"Deployment shop/web: skipped: {WEB} is not its patch; move that file away, or name another --directory"
    ]


def test_update_folder_reports_container_missing_from_workload() -> None:
    first = update_folder([change("web", *BOTH)], {}).files
    found = update_folder([change("web", container("web"), after={"web": SMALL})], first)
    assert "log" in sizes(found.files[WEB])
    assert found.ambiguous == [
        f"{WEB}: Deployment shop/web has no container log; remove it from the file, or deploy the workload that has it"
    ]


def test_kustomization_distinguishes_equal_names_by_namespace() -> None:
    both = [change(), change(namespace="bank"), change("api")]
    entries = yaml.safe_load(kustomization(both))["patches"]
    assert [entry["target"].get("namespace") for entry in entries] == ["shop", "bank", None]


def test_kustomization_distinguishes_equal_names_of_earlier_run() -> None:
    first = update_folder([change()], {}, is_kustomize=True).files
    second = update_folder([change(namespace="bank")], first, is_kustomize=True).files
    entries = yaml.safe_load(second["kustomization.yaml"])["patches"]
    assert [entry["target"].get("namespace") for entry in entries] == ["shop", "bank"]


def test_kustomization_gets_only_missing_entries() -> None:
    mine = "# ours\nresources: [../base]\npatches:\n  - path: own.yaml # keep\n\n# the end\nnamespace: shop\n"
    first = kustomization([change()], mine)
    assert (
        first.replace(
            f"\n  - path: {WEB}\n    target:\n      group: apps\n      version: v1\n"
            "      kind: Deployment\n      name: web",
            "",
        )
        == mine
    )
    assert kustomization([change()], first) == first
    for empty in ("a: 1\npatches: []\n", "a: 1\n"):
        assert len(yaml.safe_load(kustomization([change()], empty))["patches"]) == 1
    listed = f"patchesStrategicMerge: [{WEB}]\n"
    assert kustomization([change()], listed) == listed
    with pytest.raises(TrimtabError, match=r"^Kustomization: this is not a kustomization"):
        kustomization([change()], "[]\n", "Kustomization")
    for braces in ("{}", '{"resources": ["../base"]}'):
        with pytest.raises(TrimtabError, match=r"^Kustomization: patches cannot be added between braces"):
            kustomization([change()], braces, "Kustomization")


AMOUNT = st.none() | st.sampled_from([2**26, 2**27])
SIZE = st.builds(Resources, st.sampled_from([100, 200]), st.none() | st.just(500), AMOUNT, AMOUNT)
RUN = st.dictionaries(st.sampled_from(["web", "log", "side"]), SIZE, min_size=1)


@settings(max_examples=limit_examples(150))
@given(runs=st.lists(RUN, min_size=1, max_size=4))
def test_update_folder_keeps_last_size_of_each_container_over_runs(
    runs: list[dict[str, Resources]],
) -> None:
    folder: dict[str, str] = {}
    last: dict[str, Resources] = {}
    three = [container(name) for name in ("web", "log", "side")]
    for after in runs:
        run = change("web", *three, after=after)
        folder |= update_folder([run], folder).files
        assert not update_folder([run], folder).files
        last |= after
    found = sizes(folder[WEB])
    assert found.keys() == last.keys()
    for name, size in last.items():
        kept = {
            kind: {key: each for key, each in amounts.items() if each}
            for kind, amounts in found[name].items()
        }
        expected = sizes(render_manifest(change("web", container(name), after={name: size})))[name]
        for kind, amounts in expected.items():
            assert {key: each for key, each in amounts.items() if each} == {
                key: kept[kind][key] for key in amounts if amounts[key]
            }
            assert all(kept[kind].get(key) is None for key in amounts if amounts[key] is None)
