"""The controller of Intents on an API server, cycle by cycle."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harness.e2e.informer_probe import eventually
from harness.e2e.intent_env import IntentEnv
from trimtab.intents.plugins.registry import PluginRegistry
from trimtab.kube.errors import Conflict, Forbidden, KubeError, Status, Unreachable
from trimtab.kube.rest.client import Object, PatchType
from trimtab.kube.rest.resources import (
    HPAS,
    INTENTS,
    KPI_PROFILES,
    NODES,
    PODS,
)
from trimtab.store import Store


def condition(status: Object, kind: str) -> Object:
    return next((dict(each) for each in status.get("conditions", ()) if each["type"] == kind), {})


def objective(status: Object) -> Object:
    found: Object = status["objectives"][0]
    return found


async def test_controller_plans_executes_evaluates_and_releases(env: IntentEnv) -> None:
    await env.write_intent()
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        status = await env.run_cycles(loop)
        assert objective(status)["verdict"] == "Missed"
        assert (objective(status)["current"], objective(status)["target"]) == (0.2, 0.15)
        plan = status["plan"]
        assert plan["purpose"] == "Reach"
        assert "executedAt" in plan
        assert plan["effects"][0]["before"] == 0.2
        assert plan["effects"][0]["expected"] < 0.15
        assert plan["reasons"]
        more = await env.replicas()
        assert more > 1

        # Until it can be judged, nothing more is done, though it is still missed.
        await env.make_pods_ready()
        status = await env.run_cycles(loop, 2)
        assert await env.replicas() == more
        assert "evaluatedAt" not in status["plan"]

        env.kpis.answers["p99"] = 0.05
        status = await env.run_cycles(loop, 5)  # the KPI averages over a minute, and has to be scraped
        assert objective(status)["verdict"] == "Met"
        assert status["plan"]["effects"][0]["observed"] == 0.05
        assert condition(status, "Met")["status"] == "True"
        assert {"ObjectiveMissed", "ObjectiveMet", "Reach"} <= {
            reason for reason, _ in await env.list_events()
        }

        # The load is gone: what is not needed is given back, after a while of all being well.
        env.kpis.answers |= {"p99": 0.004, "container_cpu_usage": 0.01, "request_total": 1.0}
        for _ in range(12):
            await env.make_pods_ready()
            status = await env.run_cycles(loop, 2)
            if await env.replicas() < more:
                break
        assert await env.replicas() < more
        assert status["plan"]["purpose"] == "Release"
    async with Store.open(env.folder / "trimtab.db") as store:
        kept = await store.events.find(name=f"{env.namespace}/web")
        assert [each.plan for each in kept if each.plan]
        assert await store.effects.find(cluster=env.cluster_state.cluster_name, name=f"{env.namespace}/web")


async def test_controller_waits_longer_after_a_release_that_was_reversed(env: IntentEnv) -> None:
    """Where a KPI is noisy, releases and raises would alternate without an end."""
    idle = {"p99": 0.004, "container_cpu_usage": 0.01, "request_total": 1.0}
    busy, raises = dict(env.kpis.answers), {"Reach", "Compromise"}
    env.settings["releaseAfter"] = "3m"
    await env.write_intent()
    waits = []
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        for answers, purposes in ((busy, raises), (idle, {"Release"}), (busy, raises), (idle, {"Release"})):
            env.kpis.answers |= answers
            began = env.now
            plan: Object = {}
            while plan.get("purpose") not in purposes or "executedAt" not in plan:
                assert env.now < began + 1800
                await env.make_pods_ready()
                plan = (await env.run_cycles(loop, 2)).get("plan", {})
            waits.append(env.now - began)
    _, first, _, second = waits
    assert first < 360 <= second


@pytest.mark.parametrize("says", [{}, {"p99": float("nan")}])
async def test_controller_does_nothing_on_unknown_objectives(env: IntentEnv, says: dict[str, float]) -> None:
    await env.write_intent()
    env.kpis.answers = says
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        status = await env.run_cycles(loop, 3)
    assert objective(status)["verdict"] == "Unknown"
    assert objective(status)["reason"]
    assert condition(status, "Met")["status"] == "Unknown"
    assert await env.replicas() == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"dryRun": True}, "frozen: the operator runs with dryRun"),
        ({"intents": {"guardrails": [{"freeze": "peak season"}]}}, "frozen: peak season"),
        (
            {"intents": {"guardrails": [{"forbidden": ["scaleOut"]}]}},
            "no allowed action improves the objectives",
        ),
        ({"intents": {"guardrails": [{"maxTotalPods": 1}]}}, "the Intent waits for capacity"),
    ],
)
async def test_controller_respects_guardrails(env: IntentEnv, more: dict[str, Any], words: str) -> None:
    env.settings |= more.pop("intents", {})
    env.extra_config = more
    await env.write_intent()
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        status = await env.run_cycles(loop, 3)
    assert await env.replicas() == 1
    assert words in condition(status, "Acting")["message"]


async def test_controller_leaves_replicas_to_hpa(env: IntentEnv) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    await env.write(HPAS, "web", scaleTargetRef=target, maxReplicas=3)
    await env.write_intent()
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        await eventually(
            lambda: len(env.cluster_state.hpas.in_namespace(env.namespace)) == 1, what="the HPA is known"
        )
        status = await env.run_cycles(loop, 2)
    assert await env.replicas() == 1
    assert "left to HorizontalPodAutoscaler web" in condition(status, "Acting")["message"]


async def test_controller_follows_intent_with_higher_priority(env: IntentEnv) -> None:
    await env.write_intent(priority=0.5)
    await env.write_intent("other", value=0.001, priority=0.1)
    async with env.start_controller() as loop:
        await env.wait_for_intents(2)
        await env.make_pods_ready()
        await env.run_cycles(loop)
    assert "comes first" in condition(await env.status("other"), "Acting")["message"]
    assert "plan" not in await env.status("other")
    assert "executedAt" in (await env.status("web"))["plan"]


async def test_controller_excludes_nodes_with_untolerated_taint(env: IntentEnv) -> None:
    body = {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}
    await env.client.patch(NODES, f"machine-{env.namespace}", body, type=PatchType.MERGE)
    await env.write_intent()
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        status = await env.run_cycles(loop)
    assert "plan" not in status
    assert "the Intent waits for capacity on its nodes" in condition(status, "Acting")["message"]


async def test_controller_only_reports_inactive_intent(env: IntentEnv) -> None:
    await env.write_intent(active=False)
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        status = await env.run_cycles(loop, 2)
        assert env.intent_index.controlling_intent(env.web) is None
    assert objective(status)["verdict"] == "Missed"
    assert "plan" not in status
    assert await env.replicas() == 1


async def test_controller_continues_from_status_after_restart(env: IntentEnv) -> None:
    await env.write_intent()
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        since = objective(await env.run_cycles(loop))["since"]
        more = await env.replicas()
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        status = await env.run_cycles(loop)
        assert await env.replicas() == more, "what was done before the restart is still to be judged"
        assert objective(status)["since"] == since


async def test_controller_reports_unusable_profile_on_profile_and_intent(env: IntentEnv) -> None:
    await env.write_intent()
    await env.write(KPI_PROFILES, "p99", type="latency", query="up{")
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        status = await env.run_cycles(loop)
    assert "is not valid PromQL" in objective(status)["reason"]
    profile = await env.client.get(KPI_PROFILES, "p99", namespace=env.namespace)
    assert profile["status"]["resolved"] is False
    assert "is not valid PromQL" in profile["status"]["reason"]


async def test_controller_reports_invalid_load_query_and_measures_the_rest(
    env: IntentEnv,
) -> None:
    await env.write_intent()
    profile = await env.client.get(KPI_PROFILES, "p99", namespace=env.namespace)
    await env.write(KPI_PROFILES, "p99", **profile["spec"], props={"load": "up{"})
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        status = await env.run_cycles(loop)
    assert objective(status)["verdict"] == "Missed"
    profile = await env.client.get(KPI_PROFILES, "p99", namespace=env.namespace)
    assert profile["status"]["reason"].startswith("props.load: is not valid PromQL")


async def test_controller_reports_missing_target(env: IntentEnv) -> None:
    objective_ = {"name": "p99", "value": 1.0, "measuredBy": "p99"}
    await env.write(INTENTS, "web", targetRef={"name": "nobody"}, objectives=[objective_])
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        status = await env.run_cycles(loop)
    assert condition(status, "Ready")["reason"] == "TargetNotFound"


async def test_controller_changes_nothing_without_leadership(env: IntentEnv) -> None:
    env.may_write = lambda: False
    env.registry = PluginRegistry()
    await env.write_intent()
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        assert await env.run_cycles(loop, 2) == {}
    assert await env.replicas() == 1


async def test_controller_does_not_repeat_action_when_status_write_fails(
    env: IntentEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    await env.write_intent()
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        with monkeypatch.context() as patched:

            async def refused(*_: object, **__: object) -> None:
                raise Unreachable("it is away for those who write", sent=True)

            patched.setattr(env.client, "apply", refused)
            await env.run_cycles(loop)
            more = await env.replicas()
            assert more > 1
            await env.make_pods_ready()
            assert await env.run_cycles(loop) == {}
            assert await env.replicas() == more
        status = await env.run_cycles(loop)
        assert "executedAt" in status["plan"]
    assert await env.replicas() == more


async def test_controller_continues_after_failed_cycle(
    env: IntentEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.settings["interval"] = "1s"
    await env.write_intent(active=False)
    async with env.start_controller() as loop:
        await env.wait_for_intents()
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
async def test_controller_delays_retry_of_rejected_action_unless_transient(
    env: IntentEnv, monkeypatch: pytest.MonkeyPatch, refusal: KubeError, tries: int
) -> None:
    asked: list[int] = []

    async def refused(resource: Any, name: str, replicas: int, **_: Any) -> None:
        asked.append(replicas)
        raise refusal

    monkeypatch.setattr(env.client, "scale", refused)
    await env.write_intent()
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        status = await env.run_cycles(loop)
        assert "pods may be no more" in status["plan"]["blockedReason"]
        await env.run_cycles(loop, 3)
        assert len(asked) == tries
        await env.run_cycles(loop)
    assert len(asked) == tries + 1


async def test_executor_scales_once_when_response_is_lost(
    env: IntentEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    scale = env.client.scale

    async def asked_twice(*how: Any, **named: Any) -> Any:
        await scale(*how, **named)
        return await scale(*how, **named)

    monkeypatch.setattr(env.client, "scale", asked_twice)
    await env.write_intent()
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        status = await env.run_cycles(loop)
        more = await env.replicas()
        assert "executedAt" in status["plan"], status["plan"]
        await env.run_cycles(loop)
    assert await env.replicas() == more, "it rests until that can be judged"


async def test_executor_resizes_cpu_and_memory_in_one_change(env: IntentEnv) -> None:
    env.settings |= {"actuators": {"resizeCPU": {}, "resizeMemory": {"disruption": 0.0}}}
    env.kpis.answers |= {
        "p99": 0.004,
        "container_cpu_usage": 0.01,
        "container_memory": 8 << 20,
        "request_total": 1.0,
    }
    await env.write_intent()
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        status = await env.run_cycles(loop, 6)
        assert [each["actuator"] for each in status["plan"]["actions"]] == ["resizeCPU", "resizeMemory"]
        assert "blockedReason" not in status["plan"]
        (pod,) = await env.client.list_objects(PODS, namespace=env.namespace)
    asks = pod["spec"]["containers"][0]["resources"]["requests"]
    assert asks["cpu"] != "500m"
    assert asks["memory"] != "64Mi"
