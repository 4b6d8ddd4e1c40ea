"""Cache class and power profile of a workload on the real API server: applied by its rollout, or reverted."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from harness.builders.objects import pod_status
from harness.e2e.informer_probe import eventually
from harness.e2e.intent_env import IntentEnv
from trimtab.actuation.kube_cluster import KubeCluster
from trimtab.actuation.pod_options import (
    PROGRESS_DEADLINE,
    PROGRESS_INTERVAL,
    OptionsAnnotation,
    OptionsPhase,
    read_options_annotation,
)
from trimtab.api.nodeqospolicy import CACHE_CLASS
from trimtab.kube.errors import NotFound
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.client import Object, PatchType
from trimtab.kube.rest.resources import DEPLOYMENTS, INTENTS, PODS
from trimtab.operator.intents.controller import IntentController

RESOURCE = "power.intel.com/performance"


async def template(env: IntentEnv) -> Object:
    found = await env.client.get(DEPLOYMENTS, "web", namespace=env.namespace)
    return dict(found["spec"]["template"])


def phase(env: IntentEnv) -> OptionsPhase | None:
    """As the loop sees it."""
    found = env.cluster_state.get(env.web)
    mark = read_options_annotation(found) if found else None
    return mark.phase if mark else None


async def rolled_out(env: IntentEnv) -> None:
    """The part of the kubelet in a rollout: new pods are ready; and wait until the loop sees its end."""

    async def all_new() -> bool:
        for pod in await env.client.list_objects(PODS, namespace=env.namespace):
            name, kind, body = pod["metadata"]["name"], PatchType.STRATEGIC, {"status": pod_status(pod)}
            if not pod["metadata"].get("deletionTimestamp"):
                with suppress(NotFound):  # an old one goes at any moment
                    await env.client.patch(
                        PODS, name, body, type=kind, namespace=env.namespace, subresource="status"
                    )
        seen = env.cluster_state.get(env.web)
        return bool(
            seen
            and seen.is_spec_observed
            and not seen.is_rolling_out
            and seen.updated_replicas == seen.ready_replicas == 1
        )

    async with asyncio.timeout(60):
        while not await all_new():
            await asyncio.sleep(0.1)


async def test_cache_class_is_rolled_out_observed_and_settles(env: IntentEnv) -> None:
    env.settings |= {"actuators": {"cacheClass": {}}}
    await env.write_intent(value=0.19)
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        status = await env.run_cycles(loop)
        assert "executedAt" in status["plan"]
        chosen = (await template(env))["metadata"]["annotations"][CACHE_CLASS]
        assert chosen in {"burstable", "guaranteed"}
        await eventually(lambda: phase(env) is OptionsPhase.ROLLING, what="the mark is seen")
        await rolled_out(env)
        await env.run_cycles(loop)
        await eventually(lambda: phase(env) is OptionsPhase.SETTLED, what="the rollout is known to be over")

        def seen() -> bool:
            found = env.cluster_state.get(env.web)
            pods = [pod for pod in env.cluster_state.list_pods(found) if not pod.deleting] if found else []
            return bool(pods) and all(dict(pod.annotations).get(CACHE_CLASS) == chosen for pod in pods)

        await eventually(seen, what="the pods have the class")


async def stands_still(env: IntentEnv, loop: IntentController) -> None:
    """The rollout replaces a first pod, and then none for longer than it may."""
    await eventually(lambda: env.get_web().updated_replicas == 1, what="a new pod is made")
    await loop.run_once(env.now + PROGRESS_INTERVAL + 1)
    await eventually(lambda: noted(env) == 1, what="progress is noted")
    env.now += PROGRESS_INTERVAL + PROGRESS_DEADLINE + 2
    async with asyncio.timeout(60):
        while phase(env) is OptionsPhase.ROLLING:  # the cache may be a moment behind
            await loop.run_once(env.now)
            await asyncio.sleep(0.1)


def noted(env: IntentEnv) -> int:
    """Return the number of replaced pods in the annotation of the rollout."""
    mark = read_options_annotation(env.get_web())
    return mark.updated if mark else 0


async def test_unavailable_power_profile_is_reverted_and_not_retried_at_once(env: IntentEnv) -> None:
    env.settings |= {"actuators": {"powerProfile": {"options": ["None", "performance"]}}}
    await env.write_intent(value=0.19)
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        await env.run_cycles(loop)
        (container,) = (await template(env))["spec"]["containers"]
        assert container["resources"]["limits"][RESOURCE] == "1"
        await eventually(lambda: phase(env) is OptionsPhase.ROLLING, what="the mark is seen")

        # The new pod never becomes ready: no kubelet runs here.
        await eventually(lambda: env.get_web().is_rolling_out, what="the rollout has begun")
        await stands_still(env, loop)
        (container,) = (await template(env))["spec"]["containers"]
        assert RESOURCE not in container["resources"]["limits"]
        await eventually(lambda: phase(env) is OptionsPhase.REVERTED, what="it is reverted")
        await rolled_out(env)
        await env.run_cycles(loop, 2, every=120.0)
        (container,) = (await template(env))["spec"]["containers"]
        assert RESOURCE not in container["resources"]["limits"]


async def test_options_rollout_is_reverted_after_intent_was_deleted(env: IntentEnv) -> None:
    env.settings |= {"actuators": {"powerProfile": {"options": ["None", "performance"]}}}
    await env.write_intent(value=0.19)
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        await env.run_cycles(loop)
        await eventually(lambda: phase(env) is OptionsPhase.ROLLING, what="the mark is seen")
        await eventually(lambda: env.get_web().is_rolling_out, what="the rollout has begun")
        await env.client.delete(INTENTS, "web", namespace=env.namespace)
        await eventually(
            lambda: not env.intent_index.intents.in_namespace(env.namespace), what="the intent is gone"
        )
        await stands_still(env, loop)
        await eventually(lambda: phase(env) is OptionsPhase.REVERTED, what="it is reverted")
        (container,) = (await template(env))["spec"]["containers"]
        assert RESOURCE not in container["resources"].get("limits", {})


async def test_cache_class_of_another_owner_is_not_changed(
    env: IntentEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.settings |= {"actuators": {"cacheClass": {}}}
    found = await env.client.get(DEPLOYMENTS, "web", namespace=env.namespace)
    spec = {name: found["spec"][name] for name in ("replicas", "selector", "template")}
    spec["template"]["metadata"] = {
        **spec["template"]["metadata"],
        "annotations": {CACHE_CLASS: "besteffort"},
    }
    await env.write(DEPLOYMENTS, "web", **spec)
    await env.write_intent(value=0.19)
    asked: list[str] = []
    patch_options = KubeCluster.patch_options

    async def counted(self: KubeCluster, workload: Workload, mark: OptionsAnnotation) -> None:
        asked.append(workload.name)
        await patch_options(self, workload, mark)

    monkeypatch.setattr(KubeCluster, "patch_options", counted)
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await rolled_out(env)
        await eventually(lambda: options(env) == {"besteffort"}, what="the pods have their class")
        status = await env.run_cycles(loop)
        assert "conflict" in status["plan"]["blockedReason"]
        await env.run_cycles(loop, 2)
    assert len(asked) == 1
    assert (await template(env))["metadata"]["annotations"][CACHE_CLASS] == "besteffort"


def options(env: IntentEnv) -> set[str | None]:
    found = env.cluster_state.get(env.web)
    pods = [pod for pod in env.cluster_state.list_pods(found) if not pod.deleting] if found else []
    return {dict(pod.annotations).get(CACHE_CLASS) for pod in pods}
