"""The loop of intents on the real API server, turn by turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harness.informer_probe import eventually
from trimtab.actuation.change_annotations import AppliedSizes, ChangeAnnotations, encode_change_annotations
from trimtab.actuation.executor import ChangeExecutor
from trimtab.actuation.hold import HOLD_ANNOTATION
from trimtab.api.fields import format_time
from trimtab.intents.plugins.registry import PluginRegistry
from trimtab.kube.errors import Conflict, Forbidden, KubeError, Status, Unreachable
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.client import Object, PatchType
from trimtab.kube.rest.resources import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    HPAS,
    INTENTS,
    KPI_PROFILES,
    NODES,
    PODS,
)
from trimtab.operator.intents.status import objectives_met_since, plan_executed_at
from trimtab.store import Store

Shop = Any
"""See conftest."""


def condition(status: Object, kind: str) -> Object:
    return next((dict(each) for each in status.get("conditions", ()) if each["type"] == kind), {})


def objective(status: Object) -> Object:
    found: Object = status["objectives"][0]
    return found


async def test_what_is_missed_is_planned_for_done_judged_and_given_back(shop: Shop) -> None:
    await shop.write_intent()
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        status = await shop.take(loop)
        assert objective(status)["verdict"] == "Missed"
        assert (objective(status)["current"], objective(status)["wanted"]) == (0.2, 0.15)
        plan = status["plan"]
        assert plan["purpose"] == "Reach"
        assert "executedAt" in plan
        assert plan["effects"][0]["before"] == 0.2
        assert plan["effects"][0]["expected"] < 0.15
        assert plan["why"]
        more = await shop.replicas()
        assert more > 1

        # Until it can be judged, nothing more is done, though it is still missed.
        await shop.pods_run()
        status = await shop.take(loop, 2)
        assert await shop.replicas() == more
        assert "evaluatedAt" not in status["plan"]

        shop.told.says["p99"] = 0.05
        status = await shop.take(loop, 5)  # the KPI averages over a minute, and has to be scraped
        assert objective(status)["verdict"] == "Met"
        assert status["plan"]["effects"][0]["observed"] == 0.05
        assert condition(status, "Met")["status"] == "True"
        assert {"ObjectiveMissed", "ObjectiveMet", "Reach"} <= {reason for reason, _ in await shop.told_of()}

        # The load is gone: what is not needed is given back, after a while of all being well.
        shop.told.says |= {"p99": 0.004, "container_cpu_usage": 0.01, "request_total": 1.0}
        for _ in range(12):
            await shop.pods_run()
            status = await shop.take(loop, 2)
            if await shop.replicas() < more:
                break
        assert await shop.replicas() < more
        assert status["plan"]["purpose"] == "Release"
    async with Store.open(shop.folder / "trimtab.db") as store:
        kept = await store.events.find(name=f"{shop.namespace}/web")
        assert [each.plan for each in kept if each.plan]
        assert await store.effects.find(cluster="prod", name=f"{shop.namespace}/web")


@pytest.mark.parametrize("says", [{}, {"p99": float("nan")}])
async def test_on_what_is_unknown_nothing_is_done(shop: Shop, says: dict[str, float]) -> None:
    await shop.write_intent()
    shop.told.says = says
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        status = await shop.take(loop, 3)
    assert objective(status)["verdict"] == "Unknown"
    assert objective(status)["reason"]
    assert condition(status, "Met")["status"] == "Unknown"
    assert await shop.replicas() == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"dryRun": True}, "dryRun"),
        ({"intents": {"guardrails": [{"freeze": "peak season"}]}}, "peak season"),
        ({"intents": {"guardrails": [{"forbidden": ["scaleOut"]}]}}, ""),
        ({"intents": {"guardrails": [{"capPods": 1}]}}, ""),
    ],
)
async def test_guardrails_hold(shop: Shop, more: dict[str, Any], words: str) -> None:
    shop.settings |= more.pop("intents", {})
    shop.more = more
    await shop.write_intent()
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        status = await shop.take(loop, 3)
    assert await shop.replicas() == 1
    assert words in condition(status, "Acting")["message"]


async def test_beside_an_autoscaler_the_number_of_pods_is_left_to_it(shop: Shop) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    await shop.write(HPAS, "web", scaleTargetRef=target, maxReplicas=3)
    await shop.write_intent()
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        await eventually(
            lambda: len(shop.catalog.hpas.in_namespace(shop.namespace)) == 1, what="the HPA is known"
        )
        status = await shop.take(loop, 2)
    assert await shop.replicas() == 1
    assert "left to HorizontalPodAutoscaler web" in condition(status, "Acting")["message"]


async def test_of_two_intents_about_one_workload_the_more_important_has_the_say(shop: Shop) -> None:
    await shop.write_intent(priority=0.5)
    await shop.write_intent("other", value=0.001, priority=0.1)
    async with shop.looked_after() as loop:
        await shop.intents_known(2)
        await shop.pods_run()
        await shop.take(loop)
    assert "comes first" in condition(await shop.status("other"), "Acting")["message"]
    assert "plan" not in await shop.status("other")
    assert "executedAt" in (await shop.status("web"))["plan"]


async def test_a_node_whose_taint_the_pods_do_not_tolerate_is_no_room_for_more_of_them(shop: Shop) -> None:
    body = {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}
    await shop.client.patch(NODES, f"machine-{shop.namespace}", body, type=PatchType.MERGE)
    await shop.write_intent()
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        status = await shop.take(loop)
    assert "plan" not in status
    assert "it waits for capacity on its nodes" in condition(status, "Acting")["message"]


async def test_an_inactive_intent_only_reports(shop: Shop) -> None:
    await shop.write_intent(active=False)
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        status = await shop.take(loop, 2)
        assert shop.roll.controlling_intent(shop.web) is None
    assert objective(status)["verdict"] == "Missed"
    assert "plan" not in status
    assert await shop.replicas() == 1


def test_what_a_clock_ahead_has_written_into_a_status_is_not_waited_for() -> None:
    now = 1_800_000_000.0
    ahead = format_time(now + 86_400)
    status = {
        "plan": {"executedAt": ahead},
        "objectives": [{"name": "p99", "verdict": "Met", "since": ahead}],
    }
    assert plan_executed_at(status, now=now) is None
    assert objectives_met_since(status, now=now) == now


async def test_a_restart_goes_on_from_the_status(shop: Shop) -> None:
    await shop.write_intent()
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        since = objective(await shop.take(loop))["since"]
        more = await shop.replicas()
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        status = await shop.take(loop)
        assert await shop.replicas() == more, "what was done before the restart is still to be judged"
        assert objective(status)["since"] == since


async def test_what_cannot_be_measured_by_is_told_on_profile_and_intent(shop: Shop) -> None:
    await shop.write_intent()
    await shop.write(KPI_PROFILES, "p99", type="latency", query="up{")
    async with shop.looked_after() as loop:
        await shop.intents_known()
        status = await shop.take(loop)
    assert "is no PromQL" in objective(status)["reason"]
    profile = await shop.client.get(KPI_PROFILES, "p99", namespace=shop.namespace)
    assert profile["status"]["resolved"] is False
    assert "is no PromQL" in profile["status"]["reason"]


async def test_a_load_that_cannot_be_asked_for_is_told_on_its_profile_and_the_rest_measured(
    shop: Shop,
) -> None:
    await shop.write_intent()
    profile = await shop.client.get(KPI_PROFILES, "p99", namespace=shop.namespace)
    await shop.write(KPI_PROFILES, "p99", **profile["spec"], props={"load": "up{"})
    async with shop.looked_after() as loop:
        await shop.intents_known()
        status = await shop.take(loop)
    assert objective(status)["verdict"] == "Missed"
    profile = await shop.client.get(KPI_PROFILES, "p99", namespace=shop.namespace)
    assert profile["status"]["reason"].startswith("props.load: is no PromQL")


async def test_a_target_that_is_not_there_is_told(shop: Shop) -> None:
    objective_ = {"name": "p99", "value": 1.0, "measuredBy": "p99"}
    await shop.write(INTENTS, "web", targetRef={"name": "nobody"}, objectives=[objective_])
    async with shop.looked_after() as loop:
        await shop.intents_known()
        status = await shop.take(loop)
    assert condition(status, "Ready")["reason"] == "TargetNotFound"


async def test_one_that_may_not_write_changes_nothing(shop: Shop) -> None:
    shop.may_write = lambda: False
    shop.registry = PluginRegistry()
    await shop.write_intent()
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        assert await shop.take(loop, 2) == {}
    assert await shop.replicas() == 1


async def test_a_server_that_takes_no_status_neither_stops_the_turn_nor_has_anything_done_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.write_intent()
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        with monkeypatch.context() as patched:

            async def refused(*_: object, **__: object) -> None:
                raise Unreachable("it is away for those who write", sent=True)

            patched.setattr(shop.client, "apply", refused)
            await shop.take(loop)
            more = await shop.replicas()
            assert more > 1
            await shop.pods_run()
            assert await shop.take(loop) == {}
            assert await shop.replicas() == more
        status = await shop.take(loop)
        assert "executedAt" in status["plan"]
    assert await shop.replicas() == more


async def test_a_pod_that_a_disruption_budget_keeps_is_left_alone_for_a_while_and_something_else_done(
    shop: Shop,
) -> None:
    """Else the best plan would be the one that is refused, turn after turn."""
    shop.settings |= {"actuators": {"rmPod": {"min_pods": 0}, "scaleOut": {}}}
    await shop.deploy(replicas=2)
    chosen = {"matchLabels": {"app": "web"}}
    await shop.write(DISRUPTION_BUDGETS, "web", minAvailable=2, selector=chosen)
    await shop.write(KPI_PROFILES, "up", type="availability")
    wanted = {"name": "up", "value": 0.9, "measuredBy": "up"}
    await shop.write(INTENTS, "web", targetRef={"name": "web"}, objectives=[wanted])
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        await shop.take(loop)
        for pod in await shop.client.list_objects(PODS, namespace=shop.namespace):
            body = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
            where = {"namespace": shop.namespace, "subresource": "status"}
            await shop.client.patch(PODS, pod["metadata"]["name"], body, type=PatchType.STRATEGIC, **where)
        await eventually(
            lambda: not any(pod.ready for pod in shop.catalog.pods.in_namespace(shop.namespace)),
            what="the pods are known to be away",
        )
        status = await shop.take(loop, 2)
        assert "disruption budget" in status["plan"]["blockedReason"]
        status = await shop.take(loop)
    assert [each["actuator"] for each in status["plan"]["actions"]] == ["scaleOut"]
    assert await shop.replicas() > 2


async def test_a_turn_that_fails_is_followed_by_the_next(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.settings["interval"] = "1s"
    await shop.write_intent(active=False)
    async with shop.looked_after() as loop:
        await shop.intents_known()
        taken: list[float] = []

        async def turn(now: float) -> None:
            taken.append(now)
            raise RuntimeError("whatever it is")

        monkeypatch.setattr(loop, "run_once", turn)
        running = asyncio.create_task(loop.run())
        await eventually(lambda: len(taken) >= 2, what="a turn after the one that failed")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("refusal", "tries"),
    [
        (Forbidden(Status(message="pods may be no more")), 1),
        (Conflict(Status(message="somebody wrote first, pods may be no more")), 4),
    ],
)
async def test_a_deed_that_the_server_refuses_is_tried_again_after_a_while_unless_that_may_pass_at_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, refusal: KubeError, tries: int
) -> None:
    asked: list[int] = []

    async def refused(resource: Any, name: str, replicas: int, **_: Any) -> None:
        asked.append(replicas)
        raise refusal

    monkeypatch.setattr(shop.client, "scale", refused)
    await shop.write_intent()
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        status = await shop.take(loop)
        assert "pods may be no more" in status["plan"]["blockedReason"]
        await shop.take(loop, 3)
        assert len(asked) == tries
        await shop.take(loop)
    assert len(asked) == tries + 1


async def test_pods_are_added_once_though_the_answer_is_lost_and_it_is_asked_for_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale = shop.client.scale

    async def asked_twice(*how: Any, **named: Any) -> Any:
        await scale(*how, **named)
        return await scale(*how, **named)

    monkeypatch.setattr(shop.client, "scale", asked_twice)
    await shop.write_intent()
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        status = await shop.take(loop)
        more = await shop.replicas()
        assert "executedAt" in status["plan"], status["plan"]
        await shop.take(loop)
    assert await shop.replicas() == more, "it rests until that can be judged"


async def test_cpu_and_memory_are_given_back_by_one_change(shop: Shop) -> None:
    shop.settings |= {"actuators": {"resizeCPU": {}, "resizeMemory": {"disruption": 0.0}}}
    shop.told.says |= {
        "p99": 0.004,
        "container_cpu_usage": 0.01,
        "container_memory": 8 << 20,
        "request_total": 1.0,
    }
    await shop.write_intent()
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        status = await shop.take(loop, 6)
        assert [each["actuator"] for each in status["plan"]["actions"]] == ["resizeCPU", "resizeMemory"]
        assert "blockedReason" not in status["plan"]
        (pod,) = await shop.client.list_objects(PODS, namespace=shop.namespace)
    asks = pod["spec"]["containers"][0]["resources"]["requests"]
    assert asks["cpu"] != "500m"
    assert asks["memory"] != "64Mi"


@pytest.mark.parametrize(
    ("more", "annotations", "cpu"),
    [
        ({}, {}, "600m"),
        ({"dryRun": True}, {}, "500m"),
        ({}, {HOLD_ANNOTATION: "until the sale is over"}, "600m"),
        ({}, {HOLD_ANNOTATION: '{"who": "ann", "why": "", "sizes": {"web": {"cpu_request": 900}}}'}, "600m"),
    ],
)
async def test_intent_loop_syncs_new_pods_unless_they_are_not_to_be_touched(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], annotations: dict[str, str], cpu: str
) -> None:
    shop.more = more
    shop.told.says["p99"] = 0.14
    await shop.write_intent()
    found = await shop.client.get(DEPLOYMENTS, "web", namespace=shop.namespace)
    had, has = Resources(500, 500, 64 << 20), Resources(600, 600, 64 << 20)
    applied = AppliedSizes(id="c", at=int(shop.now) - 600, sizes={"web": has}, template={"web": had})
    marks = encode_change_annotations(ChangeAnnotations(applied=applied), uid=found["metadata"]["uid"])
    body = {"metadata": {"annotations": {**marks, **annotations}}}
    await shop.client.patch(DEPLOYMENTS, "web", body, type=PatchType.MERGE, namespace=shop.namespace)
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        await shop.take(loop)
        (pod,) = await shop.client.list_objects(PODS, namespace=shop.namespace)
        await shop.pods_run()
        await eventually(
            lambda: (
                str(
                    shop.catalog.pods.get(pod["metadata"]["name"], shop.namespace)
                    .containers[0]
                    .resources.cpu_request
                )
                + "m"
                == cpu
            ),
            what="its size is known",
        )
        asked: list[object] = []
        monkeypatch.setattr(ChangeExecutor, "reconcile", lambda *_, **__: asked.append(_))
        await shop.take(loop)
    assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == cpu
    assert not asked, "what has its size costs no request"
