"""A workload in a line, from what a leader knows of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harness.builders.objects import node
from harness.builders.records import project_object, workload
from trimtab.actuation.change_annotations import (
    AppliedSizes,
    ChangeAnnotations,
    encode_change_annotations,
)
from trimtab.api.optimizationpolicy import OptimizationPolicySpec, PolicyMode
from trimtab.kube.kinds.nodes import node_projection
from trimtab.kube.kinds.pods import pod_projection
from trimtab.kube.rest.resources import DEPLOYMENTS, JOBS, Resource
from trimtab.operator.paid_pods import count_paid_pods
from trimtab.operator.views import PolicyView, WorkloadView
from trimtab.scan.pricing import ResourcePrices
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.web.model import WorkloadRow
from trimtab.web.views.rows import build_node_summary, build_row

NOW = 277_777 * 3600.0
CORE = {"name": "app", "resources": {"requests": {"cpu": "1"}}}


def row(
    resource: Resource, *, ran: float, now: float = NOW, last: float = 0.0, at_once: int = 1
) -> WorkloadRow:
    """Return the row of a workload without pods, with evidence since ten hours before."""
    found = replace(workload("report", resource=resource, containers=(CORE,)), replicas=at_once)
    evidence = Evidence(
        total_run_seconds=ran,
        first_sample_at=NOW - 36_000,
        last_sample_at=last,
        is_long_running=found.is_long_running,
    )
    view = WorkloadView(
        workload=found,
        containers=found.containers,
        policy=PolicyView(
            name="p", spec=OptimizationPolicySpec(mode=PolicyMode.AUTO), rules=PolicyRules(), source=""
        ),
        evidence={"app": evidence},
    )
    return build_row(view, {}, prices=ResourcePrices(), now=now)


def test_finished_job_costs_nothing() -> None:
    found = replace(workload("report", resource=JOBS, containers=(CORE,)), finished=True)
    assert count_paid_pods(found, 1, running=0.5) == 0.0
    evidence = Evidence(total_run_seconds=3600, first_sample_at=NOW - 7200, last_sample_at=NOW - 3600)
    view = WorkloadView(workload=found, containers=found.containers, evidence={"app": evidence})
    assert build_row(view, {}, prices=ResourcePrices(), now=NOW).cost == 0.0


@pytest.mark.parametrize("applied", [True, False])
def test_workload_of_an_intent_has_the_state_of_its_change(*, applied: bool) -> None:
    found = workload("api", containers=(CORE,))
    sizes = {"app": found.containers[0].resources}
    done = AppliedSizes(id="a", at=int(NOW) - 60, sizes=sizes, template=sizes)
    annotations = encode_change_annotations(
        ChangeAnnotations(applied=done if applied else None), uid=found.uid
    )
    view = WorkloadView(
        workload=replace(found, annotations=tuple(annotations.items())), intent="shop/fast-api"
    )
    shown = build_row(view, {}, prices=ResourcePrices(), now=NOW)
    expected = ("Applied", NOW - 60) if applied else ("Pending", None)
    assert (shown.intent, (shown.state, shown.changed)) == ("shop/fast-api", expected)


@pytest.mark.parametrize(
    ("resource", "ran", "at_once", "cores"),
    [
        (JOBS, 0, 1, 0.0),
        (JOBS, 3600, 1, 0.1),
        (JOBS, 3600, 20, 2.0),
        (JOBS, 72_000, 1, 1.0),
        (DEPLOYMENTS, 3600, 1, 0.0),
    ],
)
def test_cron_job_cost_is_its_average_running_time(
    resource: Resource, ran: float, at_once: int, cores: float
) -> None:
    """A Deployment without pods costs nothing, whatever ran before."""
    assert row(resource, ran=ran, at_once=at_once).cost == pytest.approx(
        cores * ResourcePrices().price_cpu(1000)
    )


def test_node_view_counts_pod_level_requests_and_overhead() -> None:
    """A pod of 2 cores as a whole, of which its container names half a core, was shown as half a core."""
    spec = {
        "nodeName": "n1",
        "containers": [{"name": "app", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
        "initContainers": [{"name": "load", "resources": {"requests": {"memory": "4Gi"}}}],
        "resources": {"requests": {"cpu": "2"}},
        "overhead": {"cpu": "250m", "memory": "128Mi"},
    }
    status = {"phase": "Running", "qosClass": "Burstable"}
    manifest = {"metadata": {"name": "web-0", "namespace": "shop"}, "spec": spec, "status": status}
    card = build_node_summary(
        project_object(node_projection(), node("n1")),
        [project_object(pod_projection(), manifest)],
        {},
        None,
        last_sample=None,
        now=NOW,
    )
    assert (card.cpu_requested, card.memory_requested) == (2.25, 4 * 2**30 + 128 * 2**20)
    (tier,) = card.tiers
    assert (tier.cpu_requested, tier.memory_requested) == (card.cpu_requested, card.memory_requested)


def test_idle_cluster_produces_no_updates() -> None:
    """Otherwise every open page would be rendered again every other second."""
    resting = row(JOBS, ran=3600, now=NOW + 10)
    assert row(JOBS, ran=3600, now=NOW + 3000) == resting
    assert row(JOBS, ran=3600, now=NOW + 36_000).cost == pytest.approx(resting.cost / 2)
    assert row(JOBS, ran=3660, last=NOW + 20, now=NOW + 20) != resting
