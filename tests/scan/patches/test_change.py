"""Test how a recommendation becomes a change of the pod template."""

from dataclasses import replace

from harness.builders.records import workload
from scan.scans import container, workload_finding
from trimtab.kube.kinds.pods import Resources
from trimtab.scan.patches.change import build_change, missing_containers_reason

MIB = 2**20


def test_build_change_leaves_limit_range_defaults_unset() -> None:
    filled_in = Resources(100, 200, 64 * MIB, 128 * MIB)
    change = build_change(
        workload_finding(
            "web", container(current=filled_in, recommended=Resources(100, 200, 96 * MIB, 128 * MIB))
        )
    )
    assert change
    assert change.before == {"app": Resources()}
    assert change.after == {"app": Resources(memory_request=96 * MIB)}


def test_build_change_returns_none_if_sizes_are_right() -> None:
    same = Resources(100, None, 64 * MIB, None)
    assert build_change(workload_finding("web", container(current=same, recommended=same))) is None


def test_missing_containers_reason_names_injected_container() -> None:
    small, large = Resources(100, None, 64 * MIB, None), Resources(200, None, 64 * MIB, None)
    both = workload_finding(
        "web",
        container(current=large, recommended=small),
        container("mesh", current=large, recommended=small),
    )
    own = workload("web", containers=({"name": "app"},))
    assert not missing_containers_reason(both)
    injected = replace(both, workload=own)
    assert missing_containers_reason(injected) == (
        "container mesh: not in the template, but injected into the pods; change what injects it"
    )
    content = workload_finding(
        "web",
        container(current=large, recommended=small),
        container("mesh", current=small, recommended=small),
    )
    assert not missing_containers_reason(replace(content, workload=own))
