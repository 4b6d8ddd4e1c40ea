"""Real pods on a real node: resized, refused, put back, replaced."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from actuation.builders import MIB, desired_change
from harness.builders.busybox_workloads import grows
from harness.cluster import images
from harness.cluster.cluster import Cluster
from harness.cluster.namespaces import fresh_namespace
from harness.e2e.background import Early, early
from harness.process import wait_for
from integration.actuation.conftest import Driver, behind, hasty_client
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.executor import ReconcileResult
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import Canary, WorkloadState
from trimtab.api.quantity import parse_millicores
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.client import FIELD_MANAGER

BRIEF = Canary(percent=50, observation=Duration.from_seconds(1), evidence_timeout=Duration.from_seconds(1))
BEFORE = Resources(100, 200, 32 * MIB, 64 * MIB)
AFTER = Resources(150, 300, 48 * MIB, 96 * MIB)
NEED = {"worker": 8 * MIB}


def manifest(namespace: str, *, replicas: int, **spec: Any) -> dict[str, Any]:
    """A workload whose pods sleep."""
    container = {
        "name": "worker",
        "image": images.BUSYBOX,
        "imagePullPolicy": "Never",
        "args": ["-c", "sleep 3600"],
        "resources": {
            "requests": {"cpu": "100m", "memory": "32Mi"},
            "limits": {"cpu": "200m", "memory": "64Mi"},
        },
    }
    return {
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
            },
            **spec,
        },
    }


class Deployed:
    """A workload on the node, and what can be seen of it."""

    def __init__(
        self, cluster: Cluster, namespace: str, kind: str, body: dict[str, Any], *, runs: bool = True
    ) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.path = f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s"
        self.key = WorkloadKey(kind, namespace, "web")
        cluster.call("POST", self.path, body)
        replicas = body["spec"]["replicas"] if runs else 0
        wait_for(lambda: sum(map(_is_ready, self.pods())) == replicas, what="its pods to be ready")

    def pods(self) -> list[dict[str, Any]]:
        found = self.cluster.call("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def now(self) -> dict[str, Any]:
        return self.cluster.call("GET", f"{self.path}/web")

    def resizes(self) -> set[str]:
        """Return why resizes are not in effect."""
        return {
            each.get("reason", "")
            for pod in self.pods()
            for each in pod["status"]["conditions"]
            if each["type"].startswith("PodResize") and each["status"] == "True"
        }

    def requests(self) -> set[str]:
        return {pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in self.pods()}


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _rests_for(pod: dict[str, Any]) -> float:
    """Seconds until the kubelet starts a container that fell: 10 after the first time, then twice as long each time."""
    (status,) = pod["status"].get("containerStatuses") or [{"state": {"waiting": {}}}]
    present = status["state"]
    # For most of the pause a kubelet reports how the container ended, and only then that it waits.
    crashing = present.get("waiting", {}).get("reason") == "CrashLoopBackOff"
    exited = present.get("terminated") or (status["lastState"].get("terminated") if crashing else None)
    if not exited or not status["restartCount"]:
        return 0.0
    ended = datetime.fromisoformat(exited["finishedAt"])
    pause = min(10.0 * 2.0 ** (status["restartCount"] - 1), 300.0)
    return float(pause - (datetime.now(UTC) - ended).total_seconds())


def _container_id(pod: dict[str, Any]) -> str:
    found: str = pod["status"]["containerStatuses"][0]["containerID"]
    return found.removeprefix("containerd://")


def _memory_limit(container: str) -> int:
    return _cgroup(container, "memory.limit_in_bytes", "memory.max")


def _memory_used(container: str) -> int:
    return _cgroup(container, "memory.usage_in_bytes", "memory.current")


def _cgroup(container: str, *names: str) -> int:
    """Return the kernel's value, with either version of cgroups."""
    found = [
        file
        for top in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
        for folder in top.glob(f"kubepods/*/*/{container}")
        for name in names
        if (file := folder / name).exists()
    ]
    return int(found[0].read_text())


def is_applied(report: ReconcileResult) -> bool:
    return (
        report.state is WorkloadState.APPLIED
        and report.annotations is not None
        and report.annotations.applied is not None
    )


def is_reverted(report: ReconcileResult) -> bool:
    return report.state is WorkloadState.REVERTED


@pytest.fixture(scope="module", autouse=True)
def falling(node_cluster: Cluster) -> Iterator[Deployed]:
    """It is killed for memory within a second of each start; from the beginning, so that at its test it rests for long."""
    with fresh_namespace(node_cluster) as namespace:
        body = manifest(namespace, replicas=1)
        (container,) = body["spec"]["template"]["spec"]["containers"]
        container["args"] = ["-c", grows(first=70, most=70, every=1)]
        yield Deployed(node_cluster, namespace, "Deployment", body, runs=False)


class RejectedResize(NamedTuple):
    """The result of a resize that the runtime rejects."""

    report: ReconcileResult
    memory_limit: int
    restarts: int


@pytest.fixture(scope="module", autouse=True)
def rejected_resize(node_cluster: Cluster) -> Iterator[Early[RejectedResize]]:
    """Start with the first test: after a rejection by the runtime a kubelet waits ten seconds."""

    def run() -> RejectedResize:
        with fresh_namespace(node_cluster) as namespace:
            return asyncio.run(_resize_below_what_is_used(node_cluster, namespace))

    with early(run) as begun:
        yield begun


async def _resize_below_what_is_used(cluster: Cluster, namespace: str) -> RejectedResize:
    body = manifest(namespace, replicas=1)
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["args"] = ["-c", "x=$(head -c 12000000 /dev/zero | tr '\\0' x); while :; do sleep 1; done"]
    web = Deployed(cluster, namespace, "Deployment", body)
    (pod,) = web.pods()
    wait_for(lambda: _memory_used(_container_id(pod)) > 12_000_000, what="the memory to be used")
    less = Resources(100, 200, 8 * MIB, 10 * MIB)
    wanted = desired_change({"worker": less}, needed_memory={"worker": MIB}, canary=BRIEF)
    async with hasty_client(cluster) as client:
        driver = Driver(behind(client))
        await driver.until(web.key, wanted, lambda _: web.resizes() == {"Error"})
        driver.ahead += DEADLINES.deferred + 1
        report = await driver.until(web.key, wanted, is_reverted)
    (after,) = web.pods()
    restarts = after["status"]["containerStatuses"][0]["restartCount"]
    return RejectedResize(report, _memory_limit(_container_id(pod)), restarts)


async def test_executor_resizes_pods_in_place_and_their_cgroups_follow(
    node_cluster: Cluster, namespace: str, driver: Driver
) -> None:
    web = Deployed(node_cluster, namespace, "Deployment", manifest(namespace, replicas=2))
    before = {_container_id(pod) for pod in web.pods()}
    report = await driver.until(
        web.key, desired_change({"worker": AFTER}, needed_memory=NEED, canary=BRIEF), is_applied
    )
    assert report.annotations
    assert report.annotations.applied
    assert report.annotations.applied.sizes == {"worker": AFTER}
    assert {_container_id(pod) for pod in web.pods()} == before
    assert {pod["status"]["containerStatuses"][0]["restartCount"] for pod in web.pods()} == {0}
    assert {_memory_limit(container) for container in before} == {96 * MIB}

    # A later pod gets the same size, and only the user owns the template.
    node_cluster.kubectl("scale", "deployment", "web", f"--namespace={namespace}", "--replicas=3")
    wait_for(lambda: sum(map(_is_ready, web.pods())) == 3, what="a third pod")
    await driver.until(
        web.key,
        desired_change({"worker": AFTER}, needed_memory=NEED, canary=BRIEF),
        lambda report: is_applied(report) and web.requests() == {"150m"},
    )
    template = web.now()["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert template["requests"]["cpu"] == "100m"


async def test_resize_that_no_node_can_hold_is_reverted_with_the_servers_words(
    node_cluster: Cluster, namespace: str, driver: Driver
) -> None:
    web = Deployed(node_cluster, namespace, "Deployment", manifest(namespace, replicas=2))
    huge = Resources(900_000, 900_000, 48 * MIB, 96 * MIB)
    report = await driver.until(
        web.key, desired_change({"worker": huge}, needed_memory=NEED, canary=BRIEF), is_reverted
    )
    assert report.annotations
    assert report.annotations.reverted
    assert "allocatable" in report.annotations.reverted.why
    assert report.annotations.reverted.until > time.time()
    assert web.requests() == {"100m"}


async def test_resize_without_node_capacity_waits_and_is_reverted(
    node_cluster: Cluster, namespace: str, driver: Driver
) -> None:
    web = Deployed(node_cluster, namespace, "Deployment", manifest(namespace, replicas=2))
    free_memory = parse_millicores(
        node_cluster.call("GET", "/api/v1/nodes/localhost")["status"]["allocatable"]["cpu"]
    )
    # One pod of this size fits, and two do not.
    large = Resources(free_memory * 6 // 10, free_memory, 48 * MIB, 96 * MIB)
    wanted = desired_change({"worker": large}, needed_memory=NEED, canary=Canary(percent=100))
    await driver.until(web.key, wanted, lambda _: "Deferred" in web.resizes())
    driver.ahead += DEADLINES.deferred + 1
    report = await driver.until(web.key, wanted, is_reverted)
    assert report.annotations
    assert report.annotations.reverted
    assert "has no capacity to resize it" in report.annotations.reverted.why
    assert web.requests() == {"100m"}
    assert web.resizes() == set()


async def test_executor_lowers_memory_in_place_to_the_needed_amount(
    node_cluster: Cluster, namespace: str, driver: Driver
) -> None:
    web = Deployed(node_cluster, namespace, "Deployment", manifest(namespace, replicas=1))
    (container,) = {_container_id(pod) for pod in web.pods()}
    less = Resources(100, 200, 16 * MIB, 24 * MIB)
    await driver.until(
        web.key, desired_change({"worker": less}, needed_memory=NEED, canary=BRIEF), is_applied
    )
    assert _memory_limit(container) == 24 * MIB


async def test_eviction_waits_for_the_disruption_budget(
    node_cluster: Cluster, namespace: str, driver: Driver
) -> None:
    body = manifest(namespace, replicas=1, updateStrategy={"type": "OnDelete"})
    web = Deployed(node_cluster, namespace, "StatefulSet", body)
    (before,) = web.pods()
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    node_cluster.call("POST", budgets, {"metadata": {"name": "web"}, "spec": budget})
    wait_for(
        lambda: node_cluster.call("GET", f"{budgets}/web").get("status", {}).get("currentHealthy") == 1,
        what="the budget to be reckoned",
    )
    wanted = desired_change(
        {"worker": AFTER},
        needed_memory=NEED,
        canary=BRIEF,
        allow_in_place_resize=False,
        allow_recreate=True,
        take_ownership=True,
    )
    await driver.until(web.key, wanted, lambda report: "disruption budget" in report.reason)
    assert [pod["metadata"]["uid"] for pod in web.pods()] == [before["metadata"]["uid"]]
    owners = {entry["manager"]: str(entry["fieldsV1"]) for entry in web.now()["metadata"]["managedFields"]}
    assert "f:resources" in owners[FIELD_MANAGER]
    assert "trimtab.io/change" in owners["trimtab.io-marks"]

    node_cluster.call("DELETE", f"{budgets}/web")
    await driver.until(web.key, wanted, is_applied)
    assert web.requests() == {"150m"}
    assert web.pods()[0]["metadata"]["uid"] != before["metadata"]["uid"]


def test_resize_that_the_runtime_rejects_is_reverted(rejected_resize: Early[RejectedResize]) -> None:
    """A limit below the usage: the reported need was wrong."""
    report, memory_limit, restarts = rejected_resize.outcome()
    assert report.annotations
    assert report.annotations.reverted
    assert "container runtime rejected it" in report.annotations.reverted.why
    assert memory_limit == 64 * MIB
    assert restarts == 0


async def test_crash_looping_pod_is_replaced_instead_of_resized(falling: Deployed, driver: Driver) -> None:
    """We observe it only between two attempts, and miss the attempts themselves."""
    more = Resources(100, 200, 200 * MIB, 400 * MIB)
    wanted = desired_change(
        {"worker": more}, is_urgent=True, canary=BRIEF, allow_recreate=True, take_ownership=True
    )

    def rest(_: ReconcileResult | None = None) -> bool:
        wait_for(lambda: any(_rests_for(pod) > 8 for pod in falling.pods()), what="a pause", timeout=120)
        return True

    rest()
    (crashed,) = falling.pods()
    await driver.until(falling.key, wanted, lambda report: rest() and "is not in effect yet" in report.reason)
    driver.ahead += DEADLINES.crash_loop
    report = await driver.until(falling.key, wanted, is_applied)
    assert report.annotations
    (pod,) = falling.pods()
    assert pod["metadata"]["name"] != crashed["metadata"]["name"]
    assert _memory_limit(_container_id(pod)) == 400 * MIB
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
