"""Cache class and power profile, chosen for a workload on the real API server: brought by its rollout, or taken back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from harness.informer_probe import eventually
from harness.objects import pod_status
from trimtab.actuation.kube_cluster import KubeCluster
from trimtab.actuation.pod_options import (
    PROGRESS_DEADLINE,
    PROGRESS_INTERVAL,
    OptionsAnnotation,
    OptionsPhase,
    read_options_annotation,
)
from trimtab.api.pod_annotations import CACHE_CLASS
from trimtab.kube.errors import NotFound
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.client import Object, PatchType
from trimtab.kube.rest.resources import DEPLOYMENTS, INTENTS, PODS
from trimtab.operator.intents.controller import IntentController

Shop = Any
"""See conftest."""
RESOURCE = "power.intel.com/performance"


async def template(shop: Shop) -> Object:
    found = await shop.client.get(DEPLOYMENTS, "web", namespace=shop.namespace)
    return dict(found["spec"]["template"])


def phase(shop: Shop) -> OptionsPhase | None:
    """As the loop sees it."""
    found = shop.catalog.get(shop.web)
    mark = read_options_annotation(found) if found else None
    return mark.phase if mark else None


async def rolled_out(shop: Shop) -> None:
    """The part of the kubelet in a rollout: new pods are ready; and wait until the loop sees its end."""

    async def all_new() -> bool:
        for pod in await shop.client.list_objects(PODS, namespace=shop.namespace):
            name, kind, body = pod["metadata"]["name"], PatchType.STRATEGIC, {"status": pod_status(pod)}
            if not pod["metadata"].get("deletionTimestamp"):
                with suppress(NotFound):  # an old one goes at any moment
                    await shop.client.patch(
                        PODS, name, body, type=kind, namespace=shop.namespace, subresource="status"
                    )
        seen = shop.catalog.get(shop.web)
        return bool(
            seen
            and seen.is_spec_observed
            and not seen.is_rolling_out
            and seen.updated_replicas == seen.ready_replicas == 1
        )

    async with asyncio.timeout(60):
        while not await all_new():
            await asyncio.sleep(0.1)


async def test_a_cache_class_comes_by_a_rollout_is_seen_on_pods_and_settles(shop: Shop) -> None:
    shop.settings |= {"actuators": {"cacheClass": {}}}
    await shop.write_intent(value=0.19)
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        status = await shop.take(loop)
        assert "executedAt" in status["plan"]
        chosen = (await template(shop))["metadata"]["annotations"][CACHE_CLASS]
        assert chosen in {"burstable", "guaranteed"}
        await eventually(lambda: phase(shop) is OptionsPhase.ROLLING, what="the mark is seen")
        await rolled_out(shop)
        await shop.take(loop)
        await eventually(lambda: phase(shop) is OptionsPhase.SETTLED, what="the rollout is known to be over")

        def seen() -> bool:
            found = shop.catalog.get(shop.web)
            pods = [pod for pod in shop.catalog.list_pods(found) if not pod.deleting] if found else []
            return bool(pods) and all(dict(pod.annotations).get(CACHE_CLASS) == chosen for pod in pods)

        await eventually(seen, what="the pods have the class")


async def stands_still(shop: Shop, loop: IntentController) -> None:
    """The rollout replaces a first pod, and then none for longer than it may."""
    await eventually(lambda: shop.catalog.get(shop.web).updated_replicas == 1, what="a new pod is made")
    await loop.run_once(shop.now + PROGRESS_INTERVAL + 1)
    await eventually(lambda: noted(shop) == 1, what="progress is noted")
    shop.now += PROGRESS_INTERVAL + PROGRESS_DEADLINE + 2
    async with asyncio.timeout(60):
        while phase(shop) is OptionsPhase.ROLLING:  # the cache may be a moment behind
            await loop.run_once(shop.now)
            await asyncio.sleep(0.1)


def noted(shop: Shop) -> int:
    """How many pods the mark says that the rollout has replaced."""
    mark = read_options_annotation(shop.catalog.get(shop.web))
    return mark.updated if mark else 0


async def test_a_power_profile_that_no_node_has_is_taken_back_and_not_tried_again_at_once(shop: Shop) -> None:
    shop.settings |= {"actuators": {"powerProfile": {"options": ["None", "performance"]}}}
    await shop.write_intent(value=0.19)
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        await shop.take(loop)
        (container,) = (await template(shop))["spec"]["containers"]
        assert container["resources"]["limits"][RESOURCE] == "1"
        await eventually(lambda: phase(shop) is OptionsPhase.ROLLING, what="the mark is seen")

        # The new pod never becomes ready: nobody here reports that it does.
        await eventually(lambda: shop.catalog.get(shop.web).is_rolling_out, what="the rollout has begun")
        await stands_still(shop, loop)
        (container,) = (await template(shop))["spec"]["containers"]
        assert RESOURCE not in container["resources"]["limits"]
        await eventually(lambda: phase(shop) is OptionsPhase.REVERTED, what="it is taken back")
        await rolled_out(shop)
        await shop.take(loop, 2, every=120.0)
        (container,) = (await template(shop))["spec"]["containers"]
        assert RESOURCE not in container["resources"]["limits"]


async def test_what_was_begun_is_taken_back_though_its_intent_is_gone(shop: Shop) -> None:
    shop.settings |= {"actuators": {"powerProfile": {"options": ["None", "performance"]}}}
    await shop.write_intent(value=0.19)
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        await shop.take(loop)
        await eventually(lambda: phase(shop) is OptionsPhase.ROLLING, what="the mark is seen")
        await eventually(lambda: shop.catalog.get(shop.web).is_rolling_out, what="the rollout has begun")
        await shop.client.delete(INTENTS, "web", namespace=shop.namespace)
        await eventually(
            lambda: not shop.roll.intents.in_namespace(shop.namespace), what="the intent is gone"
        )
        await stands_still(shop, loop)
        await eventually(lambda: phase(shop) is OptionsPhase.REVERTED, what="it is taken back")
        (container,) = (await template(shop))["spec"]["containers"]
        assert RESOURCE not in container["resources"].get("limits", {})


async def test_a_class_that_somebody_else_has_set_is_left_alone_and_not_asked_for_every_turn(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.settings |= {"actuators": {"cacheClass": {}}}
    found = await shop.client.get(DEPLOYMENTS, "web", namespace=shop.namespace)
    spec = {name: found["spec"][name] for name in ("replicas", "selector", "template")}
    spec["template"]["metadata"] = {
        **spec["template"]["metadata"],
        "annotations": {CACHE_CLASS: "besteffort"},
    }
    await shop.write(DEPLOYMENTS, "web", **spec)
    await shop.write_intent(value=0.19)
    asked: list[str] = []
    patch_options = KubeCluster.patch_options

    async def counted(self: KubeCluster, workload: Workload, mark: OptionsAnnotation) -> None:
        asked.append(workload.name)
        await patch_options(self, workload, mark)

    monkeypatch.setattr(KubeCluster, "patch_options", counted)
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await rolled_out(shop)
        await eventually(lambda: options(shop) == {"besteffort"}, what="the pods have their class")
        status = await shop.take(loop)
        assert "conflict" in status["plan"]["blockedReason"]
        await shop.take(loop, 2)
    assert len(asked) == 1
    assert (await template(shop))["metadata"]["annotations"][CACHE_CLASS] == "besteffort"


def options(shop: Shop) -> set[str | None]:
    found = shop.catalog.get(shop.web)
    pods = [pod for pod in shop.catalog.list_pods(found) if not pod.deleting] if found else []
    return {dict(pod.annotations).get(CACHE_CLASS) for pod in pods}
