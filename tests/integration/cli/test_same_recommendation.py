"""Every place that shows a recommendation shows the same one, for one cluster, one Prometheus and a running operator.

The places are `trimtab scan`, the policy's status, the workload's annotation, the dashboard's JSON and the VPA's status.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scan.scene import PATHS, WORKLOADS, RunCommand, ScannedCluster
from trimtab.api.quantity import format_short, parse_memory_bytes, parse_millicores
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client
from trimtab.operator.app import OperatorApp
from trimtab.operator.config.reloader import ConfigReloader
from trimtab.operator.views import OperatorViews
from trimtab.web.backends.live import LiveBackend
from trimtab.web.backends.snapshot import take_snapshot

Object = dict[str, Any]

KINDS = {each.name: each.kind for each in WORKLOADS}
POLICIES: dict[str, tuple[list[str], Object]] = {
    "forecast": (["idle", "nightly", "right", "scaled", "throttled", "web"], {}),
    "shares": (["logs", "starved", "web-api"], {"percentile": "P90"}),
}
"""The workloads that each policy selects, and its metricsConfig."""
GOVERNED = sorted(name for selected, _ in POLICIES.values() for name in selected)
IN_ONE_CHANGE = {"right", "starved"}
"""The workloads whose target is near their requests; all others need several changes."""
WITH_VPA = {"logs", "web-api", "scaled"}
"""Those with a VPA that only recommends; the targets of all of them are far from their requests."""
VPAS = "/apis/autoscaling.k8s.io/v1/namespaces/{}/verticalpodautoscalers"
OWN_POLICIES = "/apis/trimtab.io/v1alpha1/namespaces/{}/optimizationpolicies"


class Recommended(NamedTuple):
    """A recommendation in millicores and bytes."""

    target: tuple[int, int]
    next_step: tuple[int, int] | None


@pytest.fixture(scope="module")
def governed(lightly_used_cluster: ScannedCluster, vpa_kinds: None) -> ScannedCluster:
    """The sample workloads under two policies, and some with a VPA."""
    cluster, namespace = lightly_used_cluster.cluster, lightly_used_cluster.namespace
    cluster.learn()
    for name, (selected, evidence) in POLICIES.items():
        policy = {
            "apiVersion": "trimtab.io/v1alpha1",
            "kind": "OptimizationPolicy",
            "metadata": {"name": name},
            "spec": {
                "mode": "Recommend",
                "reconciliationInterval": "10s",
                "selector": {
                    "workloadSelector": {
                        "matchExpressions": [{"key": "app", "operator": "In", "values": selected}]
                    }
                },
                "metricsConfig": {"minimumHistory": "1h", **evidence},
            },
        }
        cluster.call("POST", OWN_POLICIES.format(namespace), policy)
    for name in WITH_VPA:
        vpa = {
            "apiVersion": "autoscaling.k8s.io/v1",
            "kind": "VerticalPodAutoscaler",
            "metadata": {"name": name},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": KINDS[name], "name": name},
                "updatePolicy": {"updateMode": "Off"},
                "recommenders": [{"name": "trimtab"}],
            },
        }
        cluster.call("POST", VPAS.format(namespace), vpa)
    return lightly_used_cluster


async def test_all_places_show_the_same_target_and_next_step(
    governed: ScannedCluster, ask: RunCommand, tmp_path: Path
) -> None:
    async with _operator(governed, tmp_path) as board:
        async with asyncio.timeout(240):
            while not await asyncio.to_thread(_is_recommended, governed):
                await asyncio.sleep(1)
        await board.refresh()
        rows = json.loads((await take_snapshot(board)).encode())["workloads"]
        code, out, _ = await asyncio.to_thread(
            ask, "scan", "-n", governed.namespace, "--home", governed.namespace, "--output", "json"
        )
        status, annotated, of_vpas = await asyncio.to_thread(_read_cluster, governed)
        _, explained, _ = await asyncio.to_thread(
            ask, "explain", f"{governed.namespace}/deploy/web", "--home", governed.namespace
        )
    assert code == 0
    # The operator in this process writes its log to the same place.
    (scan,) = json.loads(out[out.index("{\n") :])["clusters"]
    scanned = {
        each["name"]: _read(
            each["containers"][0]["recommended"]["requests"],
            (each["containers"][0]["nextStep"] or {}).get("requests"),
        )
        for each in scan["workloads"]
        if each["policy"]
    }
    shown = {each["name"]: _read_row(each) for each in rows if each.get("should")}
    assert sorted(status) == GOVERNED
    assert scanned == status
    assert annotated == status
    assert shown == status
    assert of_vpas == {name: status[name].target for name in WITH_VPA}
    step = status["web"].next_step
    assert step
    assert _format_step(step) in " ".join(explained.split())
    # None of them is at a bound that all places would agree on without any data.
    assert len({each.target for each in status.values()}) == len(GOVERNED)
    assert {name for name, each in status.items() if not each.next_step} == IN_ONE_CHANGE


@asynccontextmanager
async def _operator(governed: ScannedCluster, folder: Path) -> AsyncIterator[LiveBackend]:
    """Run the operator of the namespace, and yield what its dashboard reads."""
    boards: list[LiveBackend] = []

    @asynccontextmanager
    async def board(_: Client, views: Callable[[], OperatorViews | None]) -> AsyncIterator[None]:
        boards.append(LiveBackend(views, name="test"))
        yield

    flags = [
        f"namespace={governed.namespace}",
        f'watchNamespaces=["{governed.namespace}"]',
        "leaderElection.enabled=false",
        f"metricsSource.settings.url={governed.prometheus}",
        "address=127.0.0.1:0",
        f"store.url={folder / 'trimtab.db'}",
    ]
    config = ConfigReloader(None, environment={}, flags=flags)
    connection = load_connection(kubeconfig=governed.cluster.kubeconfig)
    running = asyncio.create_task(OperatorApp(connection, config, embedded=[board]).run())
    try:
        async with asyncio.timeout(120):
            while not boards:
                await asyncio.sleep(0.1)
        yield boards[0]
    finally:
        running.cancel()
        await asyncio.wait([running])


def _is_recommended(governed: ScannedCluster) -> bool:
    status, annotated, of_vpas = _read_cluster(governed)
    return sorted(status) == sorted(annotated) == GOVERNED and of_vpas.keys() == WITH_VPA


def _read_cluster(
    governed: ScannedCluster,
) -> tuple[dict[str, Recommended], dict[str, Recommended], dict[str, tuple[int, int]]]:
    """Read the recommendations of the policies' statuses and of the annotations, and the targets of the VPAs."""
    cluster, namespace = governed.cluster, governed.namespace
    policies = cluster.call("GET", OWN_POLICIES.format(namespace))["items"]
    status = {
        entry["name"]: _read(each, each.get("nextStep"))
        for policy in policies
        for entry in policy.get("status", {}).get("workloads", ())
        for each in entry.get("recommendations", ())
        if "cpu" in each
    }
    annotated = {}
    for name in GOVERNED:
        found = cluster.call("GET", f"{PATHS[KINDS[name]].format(namespace)}/{name}")["metadata"]
        if text := found.get("annotations", {}).get("trimtab.io/recommendation"):
            container = json.loads(text)["app"]
            annotated[name] = _read(container["requests"], container.get("nextStep", {}).get("requests"))
    of_vpas = {
        vpa["metadata"]["name"]: _read(each["target"], None).target
        for vpa in cluster.call("GET", VPAS.format(namespace))["items"]
        for each in vpa.get("status", {}).get("recommendation", {}).get("containerRecommendations", ())
    }
    return status, annotated, of_vpas


def _read(requests: Mapping[str, str], step: Mapping[str, str] | None) -> Recommended:
    return Recommended(_parse(requests), _parse(step) if step else None)


def _parse(requests: Mapping[str, str]) -> tuple[int, int]:
    return parse_millicores(requests["cpu"]), parse_memory_bytes(requests["memory"])


def _read_row(row: Object) -> Recommended:
    target, step = (
        (round(size["cpu"] * 1000), round(size["memory"])) if size else None
        for size in (row["should"], row.get("step"))
    )
    assert target
    return Recommended(target, step)


def _format_step(step: tuple[int, int]) -> str:
    """Return how `trimtab explain` names a next step."""
    cpu, memory = format_short("cpu", step[0]), format_short("memory", step[1])
    return f"the next sets CPU to {cpu} and memory to {memory}"
