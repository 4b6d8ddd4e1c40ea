"""Test the findings for a workload in a hand-made cluster state."""

import math
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from harness.builders.records import project_object, workload
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.api.quantity import MIB
from trimtab.kube.kinds.pods import pod_projection
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import PODS, STATEFUL_SETS
from trimtab.operator.cluster_state import ClusterState
from trimtab.recommender.cohort import StrategySpec
from trimtab.scan.assessor import Assessor
from trimtab.scan.cluster_snapshot import ClusterSnapshot
from trimtab.scan.model import SkippedWorkload, WorkloadFinding
from trimtab.scan.pricing import ResourcePrices
from trimtab.scan.risk import Severity
from trimtab.scan.scan import Scan, ScanRequest
from trimtab.scan.source_selection import SelectedSource
from trimtab.scan.usage_model import UsageModel
from trimtab.sizing.constraints import Constraints
from trimtab.sizing.evidence import add_headroom
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.proposal import Proposal, ResourceTarget
from trimtab.sizing.recommend import recommend_pod
from trimtab.testing import FakeInformerSet
from trimtab.usage.source import Source
from trimtab.usage.usage import Oom, PodContainer, Usage

STEP, DAY = 300.0, 86400.0
NOW = 1_800_000_000.0 // STEP * STEP
APP = {"name": "app", "image": "db:1", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
LIMITED = {
    **APP,
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
}
DB = workload("db", resource=STATEFUL_SETS, containers=(APP,))
LIMITED_DB = workload("db", resource=STATEFUL_SETS, containers=(LIMITED,))


def pod(name: str, *, app: dict[str, Any] = APP, status: Any = None, **metadata: Any) -> dict[str, Any]:
    owner = {"kind": "StatefulSet", "name": "db", "uid": DB.uid, "controller": True, "apiVersion": "apps/v1"}
    named = {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1", **metadata}
    return {
        "metadata": {**named, "ownerReferences": [owner]},
        "spec": {"containers": [app]},
        "status": {"phase": "Running", "containerStatuses": [status] if status else []},
    }


def oom_killed_status(ago: float) -> dict[str, Any]:
    """Return the status of a crash-looping container that was OOM-killed so many seconds ago."""
    at = datetime.fromtimestamp(NOW - ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": at}
    waiting = {"reason": "CrashLoopBackOff"}
    return {
        "name": "app",
        "restartCount": 9,
        "state": {"waiting": waiting},
        "lastState": {"terminated": ended},
    }


def state_with(found: Workload, *bodies: dict[str, Any]) -> ClusterState:
    informers = FakeInformerSet()
    state = ClusterState(informers)
    informers.put(STATEFUL_SETS, found)
    for body in bodies:
        informers.put(PODS, project_object(pod_projection(), body))
    return state


def assess(
    state: ClusterState,
    found: Workload,
    *,
    strategy: str = "percentile",
    memory: float = math.nan,
    days: float = 14,
    ooms: tuple[Oom, ...] = (),
) -> WorkloadFinding | SkippedWorkload:
    """Assess a workload whose first pod has used the given memory up to now."""
    sizing = StrategySpec.from_settings(strategy, {})
    model = UsageModel(state, {sizing: [found]}, now=NOW)
    steps = int(days * DAY / STEP)
    name = PodContainer("shop", "db-0", "app")
    used = np.full((steps + 1, 1), memory)
    model.observe_usage(
        Usage((name,), NOW - steps * STEP, STEP, used * 1e-9, used, ooms=ooms or None), until=NOW
    )
    return Assessor(state, model, {strategy: sizing}, ResourcePrices(), "example", NOW).assess(found)


@pytest.mark.parametrize(("hours", "stated"), [(3, 1), (10, 0), (72, 0)])
def test_scan_says_that_the_operator_learns_before_it_lowers(hours: float, stated: int) -> None:
    finding = assess(state_with(DB, pod("db-0")), DB, memory=1e6, days=hours / 24)
    assert isinstance(finding, WorkloadFinding)
    assert (
        finding.operator_obstacle.count("3 of 24 h observed; nothing is lowered in the first 4 h") == stated
    )


def test_scan_counts_the_cost_of_what_the_pods_request() -> None:
    small = {**APP, "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}}
    bodies = [pod(f"db-{number}") for number in range(3)]
    whole = assess(state_with(DB, *bodies, pod("db-3")), DB, memory=1e6)
    mixed = assess(state_with(DB, *bodies, pod("db-3", app=small)), DB, memory=1e6)
    assert isinstance(whole, WorkloadFinding)
    assert isinstance(mixed, WorkloadFinding)
    assert mixed.cost == pytest.approx(whole.cost * 3.5 / 4)
    assert mixed.cost - mixed.saving == pytest.approx(whole.cost - whole.saving)


@pytest.mark.parametrize(
    ("restarted", "hours", "stated"),
    [
        (("cpu", "memory"), 10, "learning: 10 of 24 h observed; nothing is lowered before"),
        (("memory",), 10, "memory: learning: 10 of 24 h observed; nothing is lowered before"),
        (("memory",), 3, "learning: 3 of 24 h observed; nothing is lowered in the first 4 h"),
        (("cpu", "memory"), 25, ""),
    ],
)
def test_scan_says_that_decreases_wait_a_day_where_the_resize_policy_restarts(
    restarted: tuple[str, ...], hours: float, stated: str
) -> None:
    policy = [{"resourceName": name, "restartPolicy": "RestartContainer"} for name in restarted]
    app = {**APP, "resizePolicy": policy}
    db = workload("db", resource=STATEFUL_SETS, containers=(app,))
    finding = assess(state_with(db, pod("db-0", app=app)), db, memory=1e6, days=hours / 24)
    assert isinstance(finding, WorkloadFinding)
    assert finding.operator_obstacle == stated


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ({}, "BestEffort"),
        (
            {
                "requests": {"cpu": "1", "memory": "1Gi"},
                "limits": {"cpu": "1", "memory": "1Gi"},
            },
            "Guaranteed",
        ),
        ({"requests": {"cpu": "1", "memory": "1Gi"}}, ""),
    ],
    ids=["best-effort", "guaranteed", "burstable"],
)
def test_assessor_says_why_the_operator_would_hold_back_in_its_own_words(
    resources: dict[str, Any], qos: str
) -> None:
    app = {**APP, "resources": resources}
    db = workload("db", resource=STATEFUL_SETS, containers=(app,))
    found = assess(state_with(db, pod("db-0", app=app)), db, memory=100 * MIB)
    assert isinstance(found, WorkloadFinding)
    assert found.containers[0].has_changes
    held = recommend_pod(
        db.containers,
        proposals={
            "app": Proposal(
                strategy="percentile",
                cpu=ResourceTarget(10.0, 10.0, 10.0),
                memory=ResourceTarget(1e8, 1e8, 1e8),
            )
        },
        evidence={"app": found.containers[0].evidence},
        rules=PolicyRules.from_spec(OptimizationPolicySpec()),
        constraints=Constraints(),
        now=NOW,
    )[0].no_change_reason
    assert (qos in found.operator_obstacle) if qos else not found.operator_obstacle
    assert held == (f"cpu and memory: {found.operator_obstacle}" if qos else None)


def test_assessor_ignores_pod_being_deleted() -> None:
    leaving = pod("db-2", deletionTimestamp="2026-11-16T10:00:00Z")
    state = state_with(DB, pod("db-0"), pod("db-1"), leaving)
    found = assess(state, DB, memory=100.0 * MIB)
    assert isinstance(found, WorkloadFinding)
    assert (found.replicas, found.instances) == (2, 2.0)


def test_assessor_sizes_injected_container_of_pods() -> None:
    """The operator sizes it too, in place (tests/operator/test_leader.py)."""
    pods = [pod(name) for name in ("db-0", "db-1")]
    for each in pods:
        each["spec"]["containers"] = [APP, {**APP, "name": "proxy"}]
    found = assess(state_with(DB, *pods), DB, memory=100.0 * MIB)
    assert isinstance(found, WorkloadFinding)
    assert [each.name for each in found.containers] == ["app", "proxy"]


STRATEGIES = ("percentile", "peak", "krr", "vpa", "trimtab", "seasonal", "autopilot-window", "autopilot-ml")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("reported_by", ["pod", "source", "both"])
def test_assessor_recommends_more_than_limit_of_oom_kill(strategy: str, reported_by: str) -> None:
    """The sampled peak is 297Mi and the kill at the limit of 1Gi is 25 hours old: 342Mi would be too little."""
    ago = 25 * 3600.0
    status = None if reported_by == "source" else oom_killed_status(ago)
    kill = Oom(NOW - ago + STEP, PodContainer("shop", "db-0", "app"))
    found = assess(
        state_with(LIMITED_DB, pod("db-0", app=LIMITED, status=status)),
        LIMITED_DB,
        strategy=strategy,
        memory=297.0 * MIB,
        days=3,
        ooms=() if reported_by == "pod" else (kill,),
    )
    assert isinstance(found, WorkloadFinding)
    (container,) = found.containers
    assert container.risks == ("OOM",)
    should = container.recommendation.resources
    # The default strategy gives half more after a kill that it has just learned of.
    most = 1536 if strategy == "trimtab" and reported_by == "pod" else 1280
    assert 1229 * MIB <= (should.memory_limit or 0) <= most * MIB
    assert should.memory_request == should.memory_limit
    assert sum(each.count for each in container.evidence.kills) == 1


def test_assessor_keeps_recent_memory_of_throttled_container() -> None:
    """The operator keeps the highest target of the last day; that the CPU is throttled makes no memory free."""

    def recommended_memory(throttled: float) -> int | None:
        app = {**APP, "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1"}}}
        db = workload("db", resource=STATEFUL_SETS, containers=(app,))
        state = state_with(db, pod("db-0", app=app))
        sizing = StrategySpec.from_settings("percentile", {"window": 4 * 3600.0})
        model = UsageModel(state, {sizing: [db]}, now=NOW)
        steps = int(2 * DAY / STEP)
        # The large memory usage ended ten hours ago: it is in the recent targets, but not in the window.
        memory = np.full((steps + 1, 1), 100.0 * MIB)
        memory[steps - int(12 * 3600 / STEP) : steps - int(10 * 3600 / STEP)] = 500.0 * MIB
        share = np.full_like(memory, throttled)
        usage = Usage(
            (PodContainer("shop", "db-0", "app"),), NOW - steps * STEP, STEP, memory * 1e-9, memory, share
        )
        model.observe_usage(usage, until=NOW)
        found = Assessor(state, model, {"percentile": sizing}, ResourcePrices(), "example", NOW).assess(db)
        assert isinstance(found, WorkloadFinding)
        assert found.containers[0].risks == (("throttling",) if throttled else ())
        return found.containers[0].recommended.memory_request

    assert recommended_memory(0.9) == recommended_memory(0.0)


@pytest.mark.parametrize("strategy", ["trimtab", "vpa", "percentile"])
def test_assessor_raises_memory_near_its_limit_by_the_rule_of_the_operator(strategy: str) -> None:
    peak = 0.99 * (1 << 30)
    found = assess(
        state_with(LIMITED_DB, pod("db-0", app=LIMITED)), LIMITED_DB, strategy=strategy, memory=peak
    )
    assert isinstance(found, WorkloadFinding)
    (container,) = found.containers
    assert "OOM" in container.risks
    limit = container.recommendation.resources.memory_limit
    assert limit is not None
    assert limit >= add_headroom(round(peak))
    details = [each.detail for each in container.recommendation.explanation if each.name == "OOM risk"]
    assert all("by its peak and OOM kills" in each for each in details)


def test_assessor_reduces_memory_again_after_history_of_oom_kill() -> None:
    ago = 8.5 * DAY
    state = state_with(LIMITED_DB, pod("db-0", app=LIMITED, status=oom_killed_status(ago)))
    found = assess(state, LIMITED_DB, memory=297.0 * MIB)
    assert isinstance(found, WorkloadFinding)
    assert found.containers[0].recommendation.resources.memory_limit == 360 * MIB


def test_assessor_lists_crash_looping_container_without_usage() -> None:
    """A crash-looping container has no usage in metrics-server, but OOM kills in the pod status."""
    crashing = state_with(LIMITED_DB, pod("db-0", app=LIMITED, status=oom_killed_status(60)))
    found = assess(crashing, LIMITED_DB, days=0)
    assert isinstance(found, WorkloadFinding)
    (container,) = found.containers
    assert (container.risks, container.severity) == (("OOM",), Severity.CRITICAL)
    assert container.recommendation.resources.memory_limit == 1229 * MIB
    unseen = assess(state_with(LIMITED_DB, pod("db-0", app=LIMITED)), LIMITED_DB, days=0)
    assert isinstance(unseen, SkippedWorkload)


def test_assessor_learns_oom_kill_that_only_a_failed_pod_reports() -> None:
    """With restartPolicy Never, the pod that was killed is Failed and gone from the running ones."""
    killed = {"name": "app", "state": oom_killed_status(3600.0)["lastState"]}
    state = state_with(LIMITED_DB, pod("db-0", app=LIMITED))
    state._failed_pods.put(project_object(pod_projection(), pod("db-1", app=LIMITED, status=killed)))
    found = assess(state, LIMITED_DB, memory=297.0 * MIB)
    assert isinstance(found, WorkloadFinding)
    assert found.containers[0].risks == ("OOM",)


async def test_scan_says_why_a_replication_controller_is_not_sized() -> None:
    old = pod("old-0")
    old["metadata"]["ownerReferences"][0] |= {"kind": "ReplicationController", "name": "old", "uid": "rc"}
    request = ScanRequest(now=NOW)
    source = SelectedSource(cast("Source[Any]", SimpleNamespace(name="none")), "example", has_history=True)
    client = cast("Client", SimpleNamespace(connection=None))
    snapshot = ClusterSnapshot(state_with(DB, pod("db-0"), old), [None], {}, {})
    skipped = (await Scan(client, source, request).select(snapshot)).skipped
    assert {one.key.name: one.reason for one in skipped} == {
        "old": "is obsolete and not sized; replace it by a Deployment"
    }
