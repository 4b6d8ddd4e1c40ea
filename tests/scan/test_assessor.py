"""What is said of a workload, from a picture that is made by hand."""

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from harness.records import folded, workload
from trimtab.kube.cache.store import Cache
from trimtab.kube.kinds.ownership import OWNER_INDEX, owner_uid
from trimtab.kube.kinds.pods import pod_projection
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.resources import STATEFUL_SETS
from trimtab.recommender.cohort import StrategySpec
from trimtab.scan.assessor import Assessor
from trimtab.scan.cluster_snapshot import ClusterSnapshot
from trimtab.scan.model import SkippedWorkload, WorkloadFinding
from trimtab.scan.pricing import ResourcePrices
from trimtab.scan.risk import Severity
from trimtab.scan.usage_model import UsageModel
from trimtab.sizing.recommendation import MIB
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


def killed(ago: float) -> dict[str, Any]:
    """The status of a container that was killed so many seconds ago and waits to be started again."""
    at = datetime.fromtimestamp(NOW - ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": at}
    waiting = {"reason": "CrashLoopBackOff"}
    return {
        "name": "app",
        "restartCount": 9,
        "state": {"waiting": waiting},
        "lastState": {"terminated": ended},
    }


def picture_of(found: Workload, *bodies: dict[str, Any]) -> ClusterSnapshot:
    picture = ClusterSnapshot()
    cache: Cache[Workload] = Cache({OWNER_INDEX: owner_uid})
    cache.put(found)
    picture._ownership.add(STATEFUL_SETS, cache)
    for body in bodies:
        picture.pods.put(folded(pod_projection(), body))
    return picture


def surveyed(
    picture: ClusterSnapshot,
    found: Workload,
    *,
    strategy: str = "percentile",
    memory: float = math.nan,
    days: float = 14,
    ooms: tuple[Oom, ...] = (),
) -> WorkloadFinding | SkippedWorkload:
    """What is said of a workload whose first pod used so much memory up to now."""
    sizing = StrategySpec.from_settings(strategy, {})
    lessons = UsageModel(picture, [found], [sizing], now=NOW)
    steps = int(days * DAY / STEP)
    name = PodContainer("shop", "db-0", "app")
    used = np.full((steps + 1, 1), memory)
    lessons.observe_usage(
        Usage((name,), NOW - steps * STEP, STEP, used * 1e-9, used, ooms=ooms or None), until=NOW
    )
    return Assessor(picture, lessons, {strategy: sizing}, ResourcePrices(), "told", NOW).assess(found)


def test_assessor_ignores_pod_being_deleted() -> None:
    leaving = pod("db-2", deletionTimestamp="2026-11-16T10:00:00Z")
    picture = picture_of(DB, pod("db-0"), pod("db-1"), leaving)
    found = surveyed(picture, DB, memory=100.0 * MIB)
    assert isinstance(found, WorkloadFinding)
    assert (found.replicas, found.instances) == (2, 2.0)


STRATEGIES = ("percentile", "peak", "krr", "vpa", "trimtab", "seasonal", "autopilot-window", "autopilot-ml")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("told_by", ["pod", "source", "both"])
def test_assessor_recommends_more_than_limit_of_oom_kill(strategy: str, told_by: str) -> None:
    """Its sampled peak is 297Mi and it was killed at its limit of 1Gi 25 hours ago: it was told to shrink to 342Mi."""
    ago = 25 * 3600.0
    status = None if told_by == "source" else killed(ago)
    kill = Oom(NOW - ago + STEP, PodContainer("shop", "db-0", "app"))
    found = surveyed(
        picture_of(LIMITED_DB, pod("db-0", app=LIMITED, status=status)),
        LIMITED_DB,
        strategy=strategy,
        memory=297.0 * MIB,
        days=3,
        ooms=() if told_by == "pod" else (kill,),
    )
    assert isinstance(found, WorkloadFinding)
    (container,) = found.containers
    assert container.risks == ("OOM",)
    should = container.recommendation.resources
    assert 1229 * MIB <= (should.memory_limit or 0) <= 1280 * MIB
    assert should.memory_request == should.memory_limit
    assert sum(each.count for each in container.evidence.kills) == 1


def test_assessor_reduces_memory_again_after_history_of_oom_kill() -> None:
    ago = 8.5 * DAY
    picture = picture_of(LIMITED_DB, pod("db-0", app=LIMITED, status=killed(ago)))
    found = surveyed(picture, LIMITED_DB, memory=297.0 * MIB)
    assert isinstance(found, WorkloadFinding)
    assert found.containers[0].recommendation.resources.memory_limit == 360 * MIB


def test_assessor_lists_crash_looping_container_without_usage() -> None:
    """metrics-server knows nothing of one that is always about to start; its pod's status has the kills."""
    crashing = picture_of(LIMITED_DB, pod("db-0", app=LIMITED, status=killed(60)))
    found = surveyed(crashing, LIMITED_DB, days=0)
    assert isinstance(found, WorkloadFinding)
    (container,) = found.containers
    assert (container.risks, container.severity) == (("OOM",), Severity.CRITICAL)
    assert container.recommendation.resources.memory_limit == 1229 * MIB
    unseen = surveyed(picture_of(LIMITED_DB, pod("db-0", app=LIMITED)), LIMITED_DB, days=0)
    assert isinstance(unseen, SkippedWorkload)
