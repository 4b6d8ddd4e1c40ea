"""Nodes on which pods may run, by the constraints of nodes and templates."""

from typing import Any

import pytest

from harness.builders.records import project_object
from trimtab.kube.kinds.nodes import node_projection
from trimtab.kube.kinds.workloads import workload_projection
from trimtab.kube.rest.resources import CRON_JOBS, DEPLOYMENTS

GPU = {"key": "gpu", "value": "a100", "effect": "NoSchedule"}


def admits(template: dict[str, Any], *taints: dict[str, str], **labels: str) -> bool:
    """Return whether the pod fits the node, by the records of informers."""
    found = project_object(
        workload_projection(DEPLOYMENTS), {"spec": {"template": {"spec": {"containers": [], **template}}}}
    )
    node = project_object(
        node_projection(), {"metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints}}
    )
    return found.scheduling.allows_node(node.taints, node.labels)


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"key": "gpu", "value": "a100"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "a100", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "h200"}, False),
        ({"key": "gpu"}, False),
        ({"key": "spot", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_taint_keeps_off_pods_that_do_not_tolerate_it(
    toleration: dict[str, str],
    tolerates: bool,  # noqa: FBT001 - as parametrized
) -> None:
    assert admits({"tolerations": [toleration]}, GPU) is tolerates
    assert admits({"tolerations": [toleration]})
    both = {"tolerations": [toleration]}, GPU, {"key": "leaving", "effect": "NoExecute"}
    assert admits(*both) is (toleration == {"operator": "Exists"})


def test_taint_that_only_prefers_keeps_no_pod_off() -> None:
    assert admits({}, {**GPU, "effect": "PreferNoSchedule"})


def test_node_selector_requires_all_its_labels() -> None:
    wanted = {"nodeSelector": {"disk": "ssd", "zone": "a"}}
    assert admits(wanted, disk="ssd", zone="a", arch="arm64")
    assert not admits(wanted, disk="ssd", zone="b")
    assert not admits(wanted)


def test_scheduling_constraints_are_read_from_cron_job_templates() -> None:
    pod = {"spec": {"containers": [], "nodeSelector": {"disk": "ssd"}}}
    job = {"spec": {"jobTemplate": {"spec": {"template": pod}}}}
    assert not project_object(workload_projection(CRON_JOBS), job).scheduling.allows_node((), ())
