"""VPAs that name us, and policies beside them, on the real API server with VPA's real CRDs."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.builders.vpa_checkpoints import export_checkpoint
from harness.e2e.informer_probe import eventually
from harness.e2e.leader import Office, deployment, office
from harness.faults.faultproxy import FaultProxy
from harness.faults.faults import Fault, Kind
from trimtab.api.quantity import Quantity
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import DEPLOYMENTS, VPA_CHECKPOINTS, VPAS
from trimtab.kube.rest.retry import RateLimiter, RetryPolicy
from trimtab.sizing.strategies.vpa import VpaSettings, VpaStrategy

DAY = 86400.0


@pytest.fixture
def work(client: Client, kinds: None, vpa_kinds: None, namespace: str, tmp_path: Path) -> Office:
    """An office whose workloads are sized by a strategy that answers at once, by default."""
    made = office(client, namespace, tmp_path)
    nowhere = {"namespaces": {"allow": ["nowhere"]}}
    easy = {"name": "percentile", "settings": {"min_samples": 1}}
    made.configure(defaultPolicy={"strategy": easy, "selector": nowhere})
    return made


async def ask(work: Office, *, mode: str = "Off", **more: Any) -> None:
    spec = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "recommenders": [{"name": "trimtab"}],
        "updatePolicy": {"updateMode": mode},
        **more,
    }
    body = {"metadata": {"name": "web", "namespace": work.namespace}, "spec": spec}
    await work.client.apply(VPAS, body, manager="test", force=True)


async def wait_status(work: Office, true: Callable[[Object], bool], *, what: str) -> Object:
    found: Object = {}
    try:
        async with asyncio.timeout(60):
            while True:
                found = (await work.client.get(VPAS, "web", namespace=work.namespace)).get("status") or {}
                if true(found):
                    return found
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"never: {what}; {found}") from None


def proxied(fault_proxy: FaultProxy) -> Client:
    """A client that every fault reaches."""
    return Client(
        load_connection(kubeconfig=fault_proxy.kubeconfig),
        rate=RateLimiter(per_second=1000, burst=1000),
        retry=RetryPolicy(attempts=1),
    )


def says(words: str) -> Callable[[Object], bool]:
    return lambda status: words in (status.get("workloads") or [{}])[0].get("reason", "")


def target(status: Object) -> Object:
    found = (status.get("recommendation") or {}).get("containerRecommendations") or [{}]
    return dict(found[0].get("target") or {})


def cpu(status: Object) -> int:
    return Quantity.parse(target(status).get("cpu", "0")).millicores


async def test_vpa_without_a_policy_is_recommended_even_if_its_target_comes_later(
    work: Office,
) -> None:
    await ask(work)
    async with work.leading():
        orphan = await wait_status(
            work, lambda status: "conditions" in status, what="a missing target is reported"
        )
        assert {"ConfigUnsupported", "RecommendationProvided"} == {
            each["type"] for each in orphan["conditions"]
        }
        await work.client.create(DEPLOYMENTS, deployment(), namespace=work.namespace)
        status = await wait_status(work, lambda status: bool(target(status)), what="it has a recommendation")
        assert cpu(status) == pytest.approx(240, rel=0.1)
        bounded = [{"containerName": "web", "maxAllowed": {"cpu": "100m"}}]
        await ask(work, resourcePolicy={"containerPolicies": bounded})
        await wait_status(work, lambda status: cpu(status) == 100, what="its own bounds hold")
        web = await work.client.get(DEPLOYMENTS, "web", namespace=work.namespace)
        assert not [name for name in web["metadata"].get("annotations", {}) if name.startswith("trimtab.io")]
        await work.client.delete(DEPLOYMENTS, "web", namespace=work.namespace)
        gone = await wait_status(
            work,
            lambda status: any(each["type"] == "ConfigUnsupported" for each in status["conditions"]),
            what="its target is gone",
        )
        assert cpu(gone) == 100, "what was recommended stays"


async def test_vpa_in_effect_keeps_a_policy_off_its_workload(work: Office) -> None:
    await work.client.create(DEPLOYMENTS, deployment(), namespace=work.namespace)
    await ask(work, mode="Recreate")
    await work.write_policy(mode="Auto")
    async with work.leading():
        status = await work.until(
            lambda status: (
                bool(status.get("workloads")) and status["workloads"][0]["status"] == "Recommended"
            ),
            what="it is only recommended",
        )
        assert "VerticalPodAutoscaler web changes its pods" in status["workloads"][0]["reason"]
        assert (
            cpu(
                await wait_status(
                    work, lambda status: bool(target(status)), what="the VPA has a recommendation"
                )
            )
            > 0
        )
        await ask(work, mode="Off")
        await work.until(
            lambda status: "no running pods" in status["workloads"][0].get("reason", ""),
            what="now it is ours",
        )


async def test_leader_changes_nothing_while_vpas_are_unreadable(
    work: Office, fault_proxy: FaultProxy
) -> None:
    """Or pods would have two masters where one is in effect that the operator was refused at its start."""
    await work.client.create(DEPLOYMENTS, deployment(), namespace=work.namespace)
    await ask(work, mode="Recreate")
    await work.write_policy(mode="Auto")
    grant = fault_proxy.forbid("/verticalpodautoscalers")
    async with proxied(fault_proxy) as client:
        work.client = client
        async with work.leading():
            await work.until(
                says("because objects of kind VerticalPodAutoscaler may control it"), what="it is not known"
            )
            await work.until(says("grant list and watch on it"), what="and what to do about it")
            grant()
            await work.until(says("VerticalPodAutoscaler web changes its pods"), what="it is left to the VPA")


async def test_vpa_in_dry_run_gets_no_effective_recommendation(work: Office) -> None:
    await work.client.create(DEPLOYMENTS, deployment(), namespace=work.namespace)
    await ask(work, mode="Recreate")
    work.configure(dryRun=True)
    async with work.leading() as term:
        await work.wait_cycles()
        term.enqueue(work.web)
        await work.wait_cycles()
        found = await work.client.get(VPAS, "web", namespace=work.namespace)
        assert not target(found.get("status") or {})
        await ask(work, mode="Off")
        await wait_status(
            work, lambda status: bool(target(status)), what="a VPA with updateMode Off has a recommendation"
        )


async def test_vpa_gets_the_recommendation_of_its_checkpoint_at_first(work: Office) -> None:
    now = time.time()
    sizer = VpaStrategy(1, VpaSettings())
    for minute in range(0, 3 * 1440, 30):
        sizer.observe(now - 3 * DAY + minute * 60, np.array([0.6]), np.array([3e8]))
    checkpoint = export_checkpoint(sizer, 0, now=now, vpa_name="web", container_name="web")
    await work.client.create(VPA_CHECKPOINTS, checkpoint, namespace=work.namespace)
    await work.client.create(DEPLOYMENTS, deployment(), namespace=work.namespace)
    await ask(work)
    work.source.script = lambda _, t: (0.2, 2e8) if t > now else (math.nan, math.nan)
    async with work.leading():
        status = await wait_status(work, lambda status: bool(target(status)), what="a recommendation at once")
        await work.wait_cycles()
        assert cpu(status) == pytest.approx(1000 * sizer.recommend(now).cpu.target[0], rel=0.06)


async def test_vpa_status_rejection_is_counted_and_retried(work: Office, fault_proxy: FaultProxy) -> None:
    await work.client.create(DEPLOYMENTS, deployment(), namespace=work.namespace)
    await ask(work)
    path = f"/namespaces/{work.namespace}/verticalpodautoscalers/web/status"
    fault_proxy.fail_next(Fault(kind=Kind.STATUS, status=403), match=lambda asked: asked.path.endswith(path))
    async with proxied(fault_proxy) as client:
        work.client = client
        async with work.leading():
            await wait_status(work, lambda status: bool(target(status)), what="a recommendation in the end")
    await eventually(
        lambda: work.sample("reconciliation_errors_total", policy="", error_type="Forbidden") == 1,
        what="the refusal is counted",
    )
