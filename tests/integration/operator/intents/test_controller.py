"""The controller of Intents on the real API server."""

from __future__ import annotations

from typing import Any

import pytest

from harness.e2e.informer_probe import eventually
from harness.e2e.intent_env import IntentEnv
from trimtab.actuation.change_annotations import AppliedSizes, ChangeAnnotations, encode_change_annotations
from trimtab.actuation.hold import HOLD_ANNOTATION
from trimtab.actuation.kube_cluster import KubeCluster
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.client import PatchType
from trimtab.kube.rest.resources import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    INTENTS,
    KPI_PROFILES,
    PODS,
)


@pytest.mark.parametrize(
    ("more", "annotations", "cpu"),
    [
        ({}, {}, "600m"),
        ({"dryRun": True}, {}, "500m"),
        ({}, {HOLD_ANNOTATION: "until the sale is over"}, "600m"),
        ({}, {HOLD_ANNOTATION: '{"who": "ann", "why": "", "sizes": {"web": {"cpu_request": 900}}}'}, "600m"),
    ],
)
async def test_controller_syncs_new_pods_unless_protected(
    env: IntentEnv,
    monkeypatch: pytest.MonkeyPatch,
    more: dict[str, Any],
    annotations: dict[str, str],
    cpu: str,
) -> None:
    env.extra_config = more
    env.kpis.answers["p99"] = 0.14
    await env.write_intent()
    found = await env.client.get(DEPLOYMENTS, "web", namespace=env.namespace)
    had, has = Resources(500, 500, 64 << 20), Resources(600, 600, 64 << 20)
    applied = AppliedSizes(id="c", at=int(env.now) - 600, sizes={"web": has}, template={"web": had})
    change = encode_change_annotations(ChangeAnnotations(applied=applied), uid=found["metadata"]["uid"])
    body = {"metadata": {"annotations": {**change, **annotations}}}
    await env.client.patch(DEPLOYMENTS, "web", body, type=PatchType.MERGE, namespace=env.namespace)
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        await env.run_cycles(loop)
        (pod,) = await env.client.list_objects(PODS, namespace=env.namespace)
        await env.make_pods_ready()
        await eventually(
            lambda: (
                (seen := env.cluster_state.pods.get(pod["metadata"]["name"], env.namespace)) is not None
                and f"{seen.containers[0].resources.cpu_request}m" == cpu
            ),
            what="its size is known",
        )
        asked: list[object] = []
        for request in ("get_workload", "resize", "annotate"):
            monkeypatch.setattr(KubeCluster, request, lambda *given, **_: asked.append(given))
        await env.run_cycles(loop)
    assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == cpu
    assert not asked, "what has its size costs no request"


async def test_controller_tries_other_action_when_disruption_budget_blocks_eviction(
    env: IntentEnv,
) -> None:
    """Else the best plan would be the one that is refused, turn after turn."""
    env.settings |= {"actuators": {"rmPod": {"min_pods": 0}, "scaleOut": {}}}
    await env.deploy(replicas=2)
    chosen = {"matchLabels": {"app": "web"}}
    await env.write(DISRUPTION_BUDGETS, "web", minAvailable=2, selector=chosen)
    await env.write(KPI_PROFILES, "up", type="availability")
    wanted = {"name": "up", "value": 0.9, "measuredBy": "up"}
    await env.write(INTENTS, "web", targetRef={"name": "web"}, objectives=[wanted])
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        await env.run_cycles(loop)
        for pod in await env.client.list_objects(PODS, namespace=env.namespace):
            body = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
            await env.client.patch(
                PODS,
                pod["metadata"]["name"],
                body,
                type=PatchType.STRATEGIC,
                namespace=env.namespace,
                subresource="status",
            )
        await eventually(
            lambda: not any(pod.ready for pod in env.cluster_state.pods.in_namespace(env.namespace)),
            what="the pods are known to be away",
        )
        status = await env.run_cycles(loop, 2)
        assert "disruption budget" in status["plan"]["blockedReason"]
        status = await env.run_cycles(loop)
    assert [each["actuator"] for each in status["plan"]["actions"]] == ["scaleOut"]
    assert await env.replicas() > 2
