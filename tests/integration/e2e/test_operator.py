"""The whole operator on the real node: what it sizes, how it fares when it is killed, and when others lie.

Two replicas of `trimtab operator`, with the rights of deploy/, look after real containers; Prometheus and
metrics-server measure them. All tests share them, in this order: while a minute of history gathers, without which
nothing is made smaller, operators are killed, twice or as often as TEST_KILLS says. How it fares when others are away
is in tests/operator/test_soak.py, on paper.
"""

import os
import random
from collections.abc import Iterator
from itertools import cycle

import pytest

from harness.builders.busybox_workloads import (
    autoscaler,
    burns,
    cron_job,
    grows,
    plods,
    policy,
    size,
    template,
    workload,
)
from harness.cluster.cluster import Cluster
from harness.e2e.e2e_env import Estate, container_status, eventually, kernel, memory_limit, millicores, shares
from harness.e2e.rollout_scenario import Rollouts

KILLS = int(os.environ.get("TEST_KILLS", "2"))
MIB = 1 << 20

pytestmark = pytest.mark.timeout(600 + 60 * KILLS)


@pytest.fixture(scope="module")
def estate(node_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    """All workloads, and the operators; the kills begin at once."""
    folder = tmp_path_factory.mktemp("estate")
    with Estate(node_cluster, folder, namespace=f"estate-{random.randrange(1 << 32):x}") as estate:
        usual = {"name": "percentile"}
        highest = {"name": "percentile", "settings": {"quantile": 1.0}}
        held = size("20m", "40Mi", memory_limit="64Mi")
        slowly = grows(first=20, most=80, every=2)  # any leader between two kills is in time
        poison = {"name": "file", "settings": {"file": estate.recommend_size(cpu=10, by="poison")}}
        limited = size("100m", "32Mi", cpu_limit="100m", memory_limit="32Mi")
        estate.apply(
            policy("usual", strategy=usual),
            workload(
                "Deployment",
                "web",
                template(burns(0.08), app="web", size=size("500m", "64Mi")),
                policy="usual",
            ),
            workload(
                "StatefulSet", "db", template(burns(0.01), app="db", size=size("50m", "64Mi")), policy="usual"
            ),
            workload(
                "DaemonSet",
                "agent",
                template(burns(0.01), app="agent", size=size("50m", "64Mi")),
                policy="usual",
            ),
            cron_job(
                "report",
                template(burns(0.01), app="report", size=size("50m", "64Mi"), restart="Never"),
                policy="usual",
            ),
            workload(
                "Deployment",
                "api",
                template(burns(0.03), app="api", size=size("100m", "32Mi")),
                policy="usual",
                replicas=2,
            ),
            autoscaler("api", utilization=60, least=2, most=4),
            policy("growing", strategy=highest, update={"updateRequestsOnly": False}, observation="10s"),
            workload("Deployment", "cache", template(slowly, app="cache", size=held), policy="growing"),
            policy(
                "poisoned",
                strategy=poison,
                # Or its limit would stay above its peak, and nothing could harm it.
                update={"updateRequestsOnly": False},
                limitPolicy={"cpu": {"allowBelowPeak": True}},
                observation="15s",
                mode="Recommend",
            ),
            workload(
                "Deployment",
                "poisoned",
                template(plods(3000, rest=0.12), app="poisoned", size=limited),
                policy="poisoned",
                replicas=2,
            ),
        )
        estate.run_now("report")
        yield estate


@pytest.fixture(scope="module", autouse=True)
def rollouts(estate: Estate) -> Rollouts:
    """Start the workloads with changing recommendations beside them, as early."""
    return Rollouts(estate, patience=150)


# Killed at any moment


def test_operator_replica_takes_over_when_the_leader_is_killed(estate: Estate) -> None:
    eventually(lambda: estate.leader is not None, what="a leader")
    leader = estate.leader
    assert leader
    leader.kill()
    (other,) = [each for each in estate.operators if each is not leader]
    eventually(lambda: estate.leader is other, what="the other one as the leader")
    leader.start()


def test_operator_killed_at_random_moments_applies_every_change_once(rollouts: Rollouts) -> None:
    changes = rollouts.apply_every_change_once(kills=KILLS, within=10)
    print(f"{KILLS} kills of leaders, {changes} changes")


# Sized


@pytest.fixture(scope="module")
def poisoned_estate(estate: Estate) -> Estate:
    """Enable the harmful recommendation, after the kills are over."""
    estate.patch("OptimizationPolicy", "poisoned", {"spec": {"mode": "Auto"}})
    return estate


def test_operator_resizes_an_idle_deployment_in_place_down_to_its_cgroup(poisoned_estate: Estate) -> None:
    eventually(lambda: poisoned_estate.status("usual", "web").get("status") == "Applied", what="web applied")
    eventually(
        lambda: len(poisoned_estate.sizes("web")) == 1 and poisoned_estate.sizes("web")[0] < 250,
        what="a smaller web",
    )
    (pod,) = poisoned_estate.pods("web")
    assert container_status(pod)["restartCount"] == 0
    assert kernel(pod, "cpu.shares", "cpu.weight") in shares(millicores(pod["spec"]["containers"][0]))


@pytest.mark.parametrize(("kind", "name"), [("StatefulSet", "db"), ("DaemonSet", "agent")])
def test_operator_resizes_other_kinds_in_place(poisoned_estate: Estate, kind: str, name: str) -> None:
    eventually(lambda: bool(poisoned_estate.mark(kind, name, "applied")), what=f"{name} applied")
    (pod,) = poisoned_estate.pods(name)
    assert millicores(pod["spec"]["containers"][0]) < 50
    assert container_status(pod)["restartCount"] == 0


def test_operator_sizes_a_cron_job_by_its_template(poisoned_estate: Estate) -> None:
    eventually(lambda: bool(poisoned_estate.mark("CronJob", "report", "applied")), what="the report applied")
    job = poisoned_estate.get("CronJob", "report")["spec"]["jobTemplate"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert millicores(container) < 50
    assert poisoned_estate.sizes("report") == [50]  # the run under way is not changed


def test_operator_leaves_replicas_to_an_autoscaler(poisoned_estate: Estate) -> None:
    """It would be made smaller yet, if the autoscaler did not answer that with replicas."""
    eventually(lambda: bool(poisoned_estate.mark("Deployment", "api", "applied")), what="the API applied")
    assert max(poisoned_estate.sizes("api")) < 100
    seen = poisoned_estate.get("HorizontalPodAutoscaler", "api")["status"]
    assert seen["currentReplicas"] == seen["desiredReplicas"] == 2


def test_memory_that_grows_is_raised_in_time(poisoned_estate: Estate) -> None:
    """Before it is killed, or within one reconcile after: more than one kill there never is."""

    def holds_more() -> bool:
        pods = poisoned_estate.pods("cache")
        return bool(
            len(pods) == 1
            and poisoned_estate.mark("Deployment", "cache", "applied")
            and kernel(pods[0], "memory.limit_in_bytes", "memory.max") == memory_limit(pods[0]) > 80 * MIB
            and kernel(pods[0], "memory.usage_in_bytes", "memory.current") > 65 * MIB
        )

    eventually(holds_more, what="more memory, and its use")
    (pod,) = poisoned_estate.pods("cache")
    assert container_status(pod)["restartCount"] <= 1


def test_operator_reverts_a_harmful_recommendation(poisoned_estate: Estate) -> None:
    """Ten millicores starve it. One pod of two gets there, and is back at what it had."""
    eventually(
        lambda: bool(poisoned_estate.mark("Deployment", "poisoned", "reverted")),
        what="the revert of the harmful change",
    )
    mark = poisoned_estate.mark("Deployment", "poisoned", "reverted")
    assert "throttled" in mark["why"]
    assert mark["until"] - mark["at"] >= 3600
    assert poisoned_estate.sizes("poisoned") == [100, 100]
    touched = sorted(pod["metadata"]["generation"] for pod in poisoned_estate.pods("poisoned"))
    assert touched == [1, 3]  # there and back
    eventually(
        lambda: poisoned_estate.status("poisoned", "poisoned")["status"] == "Reverted",
        what="a status that says so",
    )
    assert "throttled" in poisoned_estate.status("poisoned", "poisoned")["reason"]


# Others lie


def test_operator_changes_nothing_for_implausible_usage(estate: Estate) -> None:
    names = ("db", "agent")
    before = {name: estate.sizes(name) for name in names}
    nonsense = cycle(("NaN", "-1e9", "1e300", "1e14", "+Inf"))
    falsified = estate.liar.falsified
    estate.liar.lie = lambda _: next(nonsense)
    eventually(lambda: estate.liar.falsified > falsified + 150, what="many lies")
    estate.liar.lie = None
    assert {name: estate.sizes(name) for name in names} == before
    for name in names:
        eventually(lambda: estate.status("usual", name)["status"] == "Applied", what=f"{name} as it was")  # noqa: B023
