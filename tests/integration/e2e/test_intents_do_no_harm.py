"""Intents on the real node over workloads with a problem that no objective measures, or with one in the past.

An OOM-killed container gets more memory, whatever its objectives say, and the status reports it.
Three healthy pods whose containers restarted once are not changed, also by an operator that has just started.
"""

import json
import secrets
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from harness.builders.busybox_workloads import grows, plods, policy, size, template, workload
from harness.cluster.cluster import Cluster
from harness.e2e.e2e_env import Estate, container_status, eventually, kernel, memory_limit

MIB = 1 << 20
NEEDED = 40
"""MiB that the container allocates at once."""
GIVEN = 32
"""MiB of its memory limit."""
CYCLES = 8
"""Cycles of planning for which pods are watched."""
HEALTHY = 20
"""Seconds for which pods have been ready that count as healthy."""
RESTARTED = "/kept/restarted"

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def estate(node_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    hasty = {"interval": "1s", "coolDown": "3s", "releaseAfter": "3s", "learningInterval": "10s"}
    with Estate(
        node_cluster,
        tmp_path_factory.mktemp("estate"),
        namespace=f"harm-{secrets.token_hex(4)}",
        intents=hasty,
        replicas=1,
    ) as estate:
        estate.apply(restarts_once("calm", replicas=3))
        yield estate


# OOM kills


def test_intent_ends_and_reports_oom_kills_by_more_memory(estate: Estate) -> None:
    """A policy is about the workload too: it only recommends, and the Intent gives what it would have given."""
    takes = f"sleep 2; {grows(first=NEEDED, most=NEEDED, every=1)}"
    given = size("20m", f"{GIVEN}Mi", memory_limit=f"{GIVEN}Mi")
    estate.apply(
        policy("greedy", strategy={"name": "percentile"}),
        kpi("fast", type="latency", query="vector(0.05)"),
        intent("greedy", {"name": "p99", "value": 0.1, "measuredBy": "fast"}),
        workload("Deployment", "greedy", template(takes, app="greedy", size=given), policy="greedy"),
    )
    eventually(lambda: was_oom_killed(estate, "greedy"), what="an OOM kill", timeout=60)
    eventually(lambda: holds_what_it_needs(estate, "greedy"), what="more memory, and its use", timeout=75)
    (pod,) = estate.pods("greedy")
    kills = container_status(pod)["restartCount"]
    assert kills <= 3
    watch(estate)
    (pod,) = estate.pods("greedy")
    assert container_status(pod)["restartCount"] == kills
    assert verdicts(estate, "greedy") == {"Met"}
    message = condition_message(estate, "greedy", "Met")
    assert "container main was OOM-killed with " in message
    assert f"raised to {memory_limit(pod) // MIB}Mi" in message
    assert "OOMKilled" in warnings(estate, "greedy")


# One restart in the past


def test_intent_leaves_pods_with_one_restart_alone(estate: Estate) -> None:
    eventually(lambda: run_since_a_restart(estate, "calm", replicas=3), what="three pods that restarted")
    before = as_it_is(estate, "calm")
    estate.apply(
        kpi("up", type="availability"),
        intent("calm", {"name": "up", "value": 0.95, "measuredBy": "up"}),
    )
    watch(estate)
    assert as_it_is(estate, "calm") == before
    assert verdicts(estate, "calm") == {"Met"}


def test_intent_leaves_pods_with_one_restart_alone_after_operator_start(estate: Estate) -> None:
    """All that it knows of them is what their status says."""
    before = as_it_is(estate, "calm")
    (operator,) = estate.operators
    operator.kill()
    operator.start()
    watch(estate)
    assert as_it_is(estate, "calm") == before
    assert verdicts(estate, "calm") == {"Met"}


# What is wanted


def restarts_once(name: str, *, replicas: int) -> dict[str, Any]:
    """A workload whose containers end once soon after their start, and then run."""
    script = f"[ -e {RESTARTED} ] || {{ sleep 2; touch {RESTARTED}; exit 1; }}; {plods()}"
    kept = {"name": "kept", "mountPath": RESTARTED.rpartition("/")[0]}
    pod = template(script, app=name, size=size("20m", "32Mi"), volumeMounts=[kept])
    pod["spec"]["volumes"] = [{"name": "kept", "emptyDir": {}}]
    return workload("Deployment", name, pod, policy="none", replicas=replicas)


def kpi(name: str, **spec: str) -> dict[str, Any]:
    return {
        "apiVersion": "trimtab.io/v1alpha1",
        "kind": "KPIProfile",
        "metadata": {"name": name},
        "spec": spec,
    }


def intent(target: str, objective: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "trimtab.io/v1alpha1",
        "kind": "Intent",
        "metadata": {"name": target},
        "spec": {"targetRef": {"name": target}, "objectives": [objective]},
    }


# What is


def watch(estate: Estate) -> None:
    """Let the operator plan for a number of cycles."""
    (operator,) = estate.operators

    def plans() -> float:
        return operator.metric("trimtab_intent_cycle_duration_seconds_count")

    eventually(lambda: plans() > 0, what="a first cycle")
    enough = plans() + CYCLES
    eventually(lambda: plans() >= enough, what=f"{CYCLES} cycles")


def as_it_is(estate: Estate, name: str) -> tuple[int, set[str]]:
    """Return the generation of the workload's spec and its pods."""
    changes = estate.get("Deployment", name)["metadata"]["generation"]
    return changes, {pod["metadata"]["uid"] for pod in estate.pods(name)}


def run_since_a_restart(estate: Estate, name: str, *, replicas: int) -> bool:
    """Return whether all pods restarted once and have been ready for much longer than the restart took."""
    found = estate.pods(name)
    return len(found) == replicas and all(
        container_status(pod)["restartCount"] == 1 and ready_for(pod) > HEALTHY for pod in found
    )


def ready_for(pod: dict[str, Any]) -> float:
    """Seconds."""
    for each in pod["status"]["conditions"]:
        if each["type"] == "Ready" and each["status"] == "True":
            return time.time() - datetime.fromisoformat(each["lastTransitionTime"]).timestamp()
    return 0.0


def was_oom_killed(estate: Estate, name: str) -> bool:
    states = [container_status(pod) for pod in estate.pods(name)]
    ended = [each[when].get("terminated", {}) for each in states for when in ("state", "lastState")]
    return any(each.get("reason") == "OOMKilled" for each in ended)


def holds_what_it_needs(estate: Estate, name: str) -> bool:
    pods = estate.pods(name)
    return (
        len(pods) == 1
        and kernel(pods[0], "memory.limit_in_bytes", "memory.max") == memory_limit(pods[0]) > NEEDED * MIB
        and kernel(pods[0], "memory.usage_in_bytes", "memory.current") > NEEDED * MIB
    )


def verdicts(estate: Estate, name: str) -> set[str]:
    return {each["verdict"] for each in estate.get("Intent", name)["status"]["objectives"]}


def condition_message(estate: Estate, name: str, condition: str) -> str:
    """Return the message of a condition of an Intent."""
    found = estate.get("Intent", name).get("status", {}).get("conditions", [])
    return next((str(each["message"]) for each in found if each["type"] == condition), "")


def warnings(estate: Estate, name: str) -> set[str]:
    """The reasons of the Warnings about an Intent."""
    where = f"--namespace={estate.namespace}"
    found = json.loads(estate.cluster.kubectl("get", "events", where, "--output=json"))["items"]
    return {
        str(each["reason"])
        for each in found
        if each["type"] == "Warning"
        and (each["involvedObject"]["kind"], each["involvedObject"]["name"]) == ("Intent", name)
    }
