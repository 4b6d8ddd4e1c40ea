"""The production intent loop against situations that hurt users, in fast time."""

from __future__ import annotations

import asyncio
from math import cos, inf, pi
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import pytest

from actuation.builders import MIB
from actuation.world import KilledError
from harness.e2e.intent_loop import ScalableWorld, Value, bed, intent, profile
from trimtab.actuation.change_annotations import ChangeAnnotations, RevertRecord, encode_change_annotations
from trimtab.kube.kinds.custom import IntentRecord
from trimtab.kube.kinds.hpas import AutoscalerTarget, HorizontalPodAutoscaler, UtilizationTarget
from trimtab.kube.kinds.pods import ContainerTermination, Resources
from trimtab.kube.kinds.vpas import VerticalPodAutoscaler
from trimtab.kube.rest.resources import (
    DEPLOYMENTS,
    HPAS,
    INTENTS,
    LIMIT_RANGES,
    RESOURCE_QUOTAS,
    VPAS,
    Resource,
)
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.safe_sizes import SafeSize

P99 = {"name": "p99", "value": 0.1, "measuredBy": "p99"}
LATENCY = profile("p99", type="latency", query='max(max_over_time(latency{app="$name"}[1m]))')


SMALL = Resources(500, 500, 512 * MIB, 512 * MIB)


def world(cpu: int = 500, memory: int = 512, replicas: int = 2) -> ScalableWorld:
    size = Resources(cpu, cpu, memory * MIB, memory * MIB)
    return ScalableWorld(template={"web": size}, replicas=replicas)


async def test_controller_serves_other_intents_when_one_profile_has_backticks(tmp_path: Path) -> None:
    query = "sum(rate(seconds_sum{pod=~`$pods`}[1m])) / sum(rate(seconds_count{pod=~`$pods`}[1m]))"
    theirs = profile("avg", namespace="team-b", type="latency", query=query)
    other = intent("cart", namespace="team-b", target="cart-api", objectives=[{**P99, "measuredBy": "avg"}])
    answers: dict[str, Value] = {"latency{": 0.2, "count(rate": 2, "cpu_usage": 0.8, "working_set": 200 * MIB}
    async with bed(
        world(), [intent(objectives=[P99]), other], [LATENCY, theirs], answers, folder=tmp_path
    ) as found:
        await found.run_cycles(8)
        assert min(filter(None, found.cpu_limits)) > 500
        assert (
            found.conditions("cart")["Ready"] == "False"
        )  # its target is not there, and nothing else is wrong


async def test_controller_serves_other_intents_when_one_cannot_be_observed(tmp_path: Path) -> None:
    broken = intent("broken", namespace="team-b", target="cart", objectives=[P99])
    answers: dict[str, Value] = {"latency{": 0.2, "count(rate": 2, "cpu_usage": 0.8, "working_set": 200 * MIB}
    async with bed(world(), [broken, intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        good = found.operator.cluster_state.get

        def get(key: object) -> object:
            if getattr(key, "namespace", "") == "team-b":
                raise RuntimeError("no observation of this one")
            return good(key)  # type: ignore[arg-type]

        found.operator.cluster_state.get = get  # type: ignore[method-assign,assignment]
        await found.run_cycles(8)
        assert min(filter(None, found.cpu_limits)) > 500


def cores(one: ScalableWorld) -> float:
    """Return the CPU limits of all pods together."""
    limits = [each.cpu_limit or 0 for live in one.pods_by_name.values() for each in live.applied.values()]
    return sum(limits) / 1000


async def test_controller_ignores_single_restart_in_the_past(tmp_path: Path) -> None:
    up = {"name": "up", "value": 0.99, "measuredBy": "up"}
    one = world(replicas=3)
    for live in one.pods_by_name.values():
        live.created = one.now - 30 * 86_400
        live.exits["web"] = ContainerTermination("Error", 1, one.now - 20 * 86_400)
    answers: dict[str, Value] = {"cpu_usage": 0.3, "working_set": 200 * MIB}
    async with bed(
        one, [intent(objectives=[up])], [profile("up", type="availability")], answers, folder=tmp_path
    ) as found:
        await found.run_cycles(60)
        assert found.conditions()["Met"] == "True"
        assert not [each for each in one.written if each == "evict" or each.startswith("scale")]


async def test_controller_keeps_redundancy_for_availability_objective(tmp_path: Path) -> None:
    up = {"name": "up", "value": 0.9999, "measuredBy": "up"}
    answers: dict[str, Value] = {"cpu_usage": 0.1, "working_set": 200 * MIB}
    one = world(replicas=5)
    async with bed(
        one, [intent(objectives=[up])], [profile("up", type="availability")], answers, folder=tmp_path
    ) as found:
        await found.run_cycles(120)
        assert len(one.pods_by_name) >= 2


async def test_controller_scales_out_single_pod_for_four_nines(tmp_path: Path) -> None:
    up = {"name": "up", "value": 0.9999, "measuredBy": "up"}
    answers: dict[str, Value] = {"cpu_usage": 0.1, "working_set": 200 * MIB}
    one = world(replicas=1)
    async with bed(
        one, [intent(objectives=[up])], [profile("up", type="availability")], answers, folder=tmp_path
    ) as found:
        await found.run_cycles(20)
        assert len(one.pods_by_name) >= 2


@pytest.mark.parametrize("resource", [HPAS, LIMIT_RANGES, RESOURCE_QUOTAS, VPAS, INTENTS], ids=str)
async def test_nothing_competes_unseen_where_a_resource_cannot_be_read(
    tmp_path: Path, resource: Resource
) -> None:
    async with bed(world(), [], [], {}, folder=tmp_path) as found:
        found.informers.forbid(resource, "lab")
        unsynced_reason = found.operator.competitors.unsynced_reason
        assert f"{resource} is forbidden in lab; grant list and watch" in unsynced_reason("lab")
        assert unsynced_reason("shop") == ""


@pytest.mark.parametrize("resource", [HPAS, LIMIT_RANGES, RESOURCE_QUOTAS], ids=str)
async def test_controller_changes_nothing_where_bounds_cannot_be_read(
    tmp_path: Path, resource: Resource
) -> None:
    """An HPA that is not seen would scale the same workload."""
    answers: dict[str, Value] = {"latency{": 0.2, "count(rate": 2, "cpu_usage": 0.8, "working_set": 200 * MIB}
    one = world()
    async with bed(one, [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        found.informers.forbid(resource, "shop")
        await found.run_cycles(8)
        assert (found.cpu_limits, len(one.pods_by_name)) == ({500}, 2)
        assert f"{resource} is forbidden in shop" in str(found.status())


async def test_controller_does_not_scale_by_what_is_outdated(tmp_path: Path) -> None:
    """Scaling was the only action that went on, here for a namespace whose Role was taken away."""
    up = {"name": "up", "value": 0.9999, "measuredBy": "up"}
    answers: dict[str, Value] = {"cpu_usage": 0.1, "working_set": 200 * MIB}
    one, profiles = world(replicas=1), [profile("up", type="availability")]
    async with bed(one, [intent(objectives=[up])], profiles, answers, folder=tmp_path) as found:
        found.informers.forbid(DEPLOYMENTS, "shop")
        await found.run_cycles(20)
        assert len(one.pods_by_name) == 1
        assert "deployments.apps in namespace shop cannot be watched" in str(found.status())


@pytest.mark.parametrize("resource", [HPAS, LIMIT_RANGES, VPAS, INTENTS], ids=str)
async def test_new_pods_keep_their_size_where_a_resource_cannot_be_read(
    tmp_path: Path, resource: Resource
) -> None:
    answers: dict[str, Value] = {"latency{": 0.2, "count(rate": 2, "cpu_usage": 0.8, "working_set": 200 * MIB}
    one = world()
    async with bed(one, [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        await found.run_cycles(8)
        pod, size_pod = (await one.list_pods())[0], found.operator.pod_sizer.size_pod
        pod = msgspec.structs.replace(
            pod, containers=tuple(msgspec.structs.replace(each, resources=SMALL) for each in pod.containers)
        )
        running = asyncio.create_task(found.operator.cluster_state.run())
        await found.operator.cluster_state.wait_synced()
        assert size_pod(pod)
        found.informers.forbid(resource, "shop")
        assert size_pod(pod) == {}
        running.cancel()
        await asyncio.wait([running])


@pytest.mark.parametrize("kind", ["availability", "throughput"])
async def test_controller_releases_nothing_without_capacity_objective(tmp_path: Path, kind: str) -> None:
    """A service that is idle at night keeps what it needs by day."""
    one = world(cpu=2000, replicas=3)
    start = one.now

    def demand_at(at: float) -> float:
        return 0.12 + 1.94 * (1 - cos(2 * pi * (at - start) / 86_400))

    def usage_at(at: float) -> float:
        return min(demand_at(at), cores(one))

    query = {} if kind == "availability" else {"query": 'sum(rate(requests{app="$name"}[1m]))'}
    value = 0.99 if kind == "availability" else 1.0
    objective = {"name": "kpi", "value": value, "measuredBy": "kpi"}
    answers: dict[str, Value] = {
        "requests": lambda at: 100 * usage_at(at),
        "count(rate": 3,
        "cpu_usage": usage_at,
        "working_set": 200 * MIB,
    }
    profiles = [profile("kpi", type=kind, **query)]
    async with bed(one, [intent(objectives=[objective])], profiles, answers, folder=tmp_path) as found:
        for _ in range(48):
            await found.run_cycles(1, seconds=900)
            assert cores(one) >= demand_at(one.now)


async def test_controller_raises_cpu_of_saturated_pods_without_capacity_objective(tmp_path: Path) -> None:
    one = world(cpu=200, replicas=2)
    up = {"name": "up", "value": 0.99, "measuredBy": "up"}
    answers: dict[str, Value] = {
        "count(rate": 2,
        "cpu_usage": lambda _: min(1.5, cores(one)),
        "working_set": 200 * MIB,
    }
    async with bed(
        one, [intent(objectives=[up])], [profile("up", type="availability")], answers, folder=tmp_path
    ) as found:
        await found.run_cycles(60)
        assert cores(one) > 1.5


async def test_controller_waits_until_kpi_includes_last_action(tmp_path: Path) -> None:
    """A KPI that averages over longer than the cool-down is not answered twice."""
    assert await _peak_cores(300, tmp_path) <= 1.5 * await _peak_cores(30, tmp_path)


async def _peak_cores(window: int, folder: Path) -> float:
    """Return the most CPU that a service ever has after its load doubled, with a KPI that averages over `window` seconds."""
    one, load, peak = world(cpu=1000, replicas=4), 200.0, 0.0
    seen: list[tuple[float, float]] = []
    answers: dict[str, Value] = {
        "latency": lambda at: fmean(value for when, value in seen if when > at - window),
        "request_total": lambda _: load,
        "count(rate": lambda _: float(len(one.pods_by_name)),
        "cpu_usage": lambda _: min(load * 0.01, cores(one)),
        "working_set": 200 * MIB,
    }
    query = f'histogram_quantile(0.99, sum(rate(latency_bucket{{app="$name"}}[{window}s])) by (le))'
    wants = intent(objectives=[{"name": "p99", "value": 0.12, "measuredBy": "p99", "tolerance": 0.1}])
    (folder := folder / str(window)).mkdir()
    async with bed(
        one, [wants], [profile("p99", type="latency", query=query)], answers, folder=folder
    ) as found:
        for cycle in range(200):
            load = 200.0 if cycle < 40 else 400.0
            busy = load * 0.01 / cores(one)
            seen.append((one.now, 0.02 + (0.03 / (1 - busy) if busy < 0.95 else 0.6)))
            await found.run_cycles(1)
            peak = max(peak, cores(one) if cycle >= 40 else 0.0)
    return peak


@pytest.mark.parametrize("active", [True, False])
async def test_capacity_counts_workload_of_several_intents_once(tmp_path: Path, *, active: bool) -> None:
    one = world(cpu=1000, replicas=4)
    second = intent("second", objectives=[P99], active=active, priority=0.01, created=1)
    answers: dict[str, Value] = {"latency": 0.2, "count(rate": 4, "cpu_usage": 3.5, "working_set": 200 * MIB}
    async with bed(
        one,
        [intent(objectives=[P99], priority=0.5), second],
        [LATENCY],
        answers,
        folder=tmp_path,
        settings={"guardrails": [{"maxTotalCpu": "8"}]},
    ) as found:
        await found.run_cycles(40)
        assert cores(one) == pytest.approx(8, abs=0.5)


async def test_controller_treats_cpu_as_unknown_while_pods_are_not_scraped(tmp_path: Path) -> None:
    one = world(cpu=1000, replicas=4)
    answers: dict[str, Value] = {
        "latency": 0.02,
        "request_total": 100.0,
        "count(rate": 1,
        "cpu_usage": 0.5,
        "working_set": 200 * MIB,
    }
    async with bed(one, [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        await found.run_cycles(60)
        assert cores(one) == 4


async def test_controller_raises_memory_during_retry_delay_after_revert(tmp_path: Path) -> None:
    one = world()
    reverted = RevertRecord(id="x", at=one.now, why="a container ended", times=4, until=one.now + 8 * 3600)
    one.annotations = encode_change_annotations(ChangeAnnotations(reverted=reverted), uid="uid-web")
    answers: dict[str, Value] = {"latency": 0.05, "count(rate": 2, "cpu_usage": 0.5, "working_set": 497 * MIB}
    async with bed(one, [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        await found.run_cycles(20)
        assert min(filter(None, found.memory_limits)) > 512 * MIB


async def test_controller_records_changes_of_a_plan(tmp_path: Path) -> None:
    one = world()
    answers: dict[str, Value] = {"latency": 0.2, "count(rate": 2, "cpu_usage": 0.8, "working_set": 200 * MIB}
    settings: dict[str, Any] = {"actuators": {"resizeCPU": {}}}
    async with bed(
        one, [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path, settings=settings
    ) as found:
        await found.run_cycles(12)
        started, applied = (await found.history())[:2]
        assert [(each.what, each.transition) for each in (started, applied)] == [
            ("applying", "Started"),
            ("applied", "Applied"),
        ]
        assert {each.who for each in (started, applied)} == {"Intent shop/web"}
        assert "p99" in started.why
        assert started.after
        assert started.after["web"]["requests"]["cpu"] != "500m"
        labels = {"from": "Idle", "to": "Promoting", "reason": "Started"}
        assert found.metrics.registry.get_sample_value("trimtab_change_transitions_total", labels)


async def test_controller_records_relief_of_oom_kills_and_counts_its_revert(tmp_path: Path) -> None:
    one = world()
    one.full = "Infeasible"
    answers: dict[str, Value] = {"latency": 0.05, "count(rate": 2, "cpu_usage": 0.5, "working_set": 200 * MIB}
    async with bed(one, [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        larger = Resources(500, 500, 640 * MIB, 640 * MIB)
        found.safe_sizes.answer = SafeSize(640 * MIB, "OOM-killed", {"web": larger})
        await found.run_cycles(1)
        found.safe_sizes.answer = SafeSize(0.0)
        await found.run_cycles(60)
        history = await found.history()
        assert [each.what for each in history] == ["applying", "reverted"]
        assert {each.who for each in history} == {"Intent shop/web"}
        assert history[0].why == "an OOM kill: more memory"
        labels = {"policy": "", "intent": "shop/web", "reason": "worse"}
        assert found.metrics.registry.get_sample_value("trimtab_reverts_total", labels) == 1


async def test_controller_resizes_new_pods_under_a_hold(tmp_path: Path) -> None:
    one = world()
    one.apply_size_earlier({"web": Resources(1500, 1500, 512 * MIB, 512 * MIB)})
    one.annotations["trimtab.io/hold"] = "true"
    one.replace_pod("web-0")
    answers: dict[str, Value] = {"latency": 0.05, "count(rate": 2, "cpu_usage": 0.5, "working_set": 200 * MIB}
    async with bed(one, [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        await found.run_cycles(4)
        assert found.cpu_limits == {1500}


async def test_controller_does_not_trade_pods_for_size_with_hpa(tmp_path: Path) -> None:
    """An HPA that holds CPU to a share of requests removes pods when requests grow."""
    one = world(cpu=1000, replicas=6)
    hpa = HorizontalPodAutoscaler(
        "shop",
        "web",
        "u",
        1,
        AutoscalerTarget("Deployment", "apps", "web"),
        2,
        20,
        (UtilizationTarget("cpu", 50),),
    )
    answers: dict[str, Value] = {
        "latency": lambda _: 0.2,
        "request_total": 250.0,
        "count(rate": lambda _: float(len(one.pods_by_name)),
        "cpu_usage": 2.5,
        "working_set": 200 * MIB,
    }
    async with bed(one, [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        found.informers.put(HPAS, hpa)
        await found.run_cycles(60)
        assert max(filter(None, found.cpu_limits)) <= 1100


async def test_controller_does_not_repeat_action_after_crash_before_status_write(tmp_path: Path) -> None:
    answers: dict[str, Value] = {"latency": 0.2, "count(rate": 2, "cpu_usage": 0.8, "working_set": 200 * MIB}
    settings: dict[str, Any] = {"actuators": {"scaleOut": {}}}
    one = world()
    wants = intent(objectives=[P99])
    async with bed(one, [wants], [LATENCY], answers, folder=tmp_path, settings=settings) as found:
        observed = found.loop._status_writer.write_observed

        async def crash(*args: Any, **kwargs: Any) -> None:
            if any(each.startswith("scale") for each in one.written):
                raise KilledError
            await observed(*args, **kwargs)

        found.loop._status_writer.write_observed = crash  # type: ignore[method-assign]
        with pytest.raises(KilledError):
            await found.run_cycles(10)
        status = msgspec.json.encode(found.status())
    replicas = one.replicas
    again = IntentRecord("shop", "web", "uid-web", 1, 1, 0, wants.spec, "", status)
    async with bed(one, [again], [LATENCY], answers, folder=tmp_path, settings=settings) as found:
        await found.run_cycles(2)
        assert one.replicas == replicas


async def test_controller_cools_down_after_action_of_another_intent(tmp_path: Path) -> None:
    answers: dict[str, Value] = {"latency": 0.2, "count(rate": 2, "cpu_usage": 0.8, "working_set": 200 * MIB}
    settings: dict[str, Any] = {"actuators": {"scaleOut": {}}}
    one = world()
    async with bed(
        one, [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path, settings=settings
    ) as found:
        await found.run_cycles(1)
        replicas = one.replicas
        assert replicas > 2
        found.informers.put(INTENTS, intent("urgent", objectives=[P99], priority=0.9))
        await found.run_cycles(2)
        assert one.replicas == replicas


async def test_controller_keeps_memory_above_safe_minimum(tmp_path: Path) -> None:
    """The last hour does not show what a nightly job needs."""
    one = world(cpu=1000, memory=1024, replicas=3)
    answers: dict[str, Value] = {
        "latency": 0.004,
        "request_total": 1.0,
        "count(rate": 3,
        "cpu_usage": 0.05,
        "working_set": 100 * MIB,
    }
    for least in (800.0 * MIB, inf):
        folder = tmp_path / str(least)
        folder.mkdir()
        async with bed(one, [intent(objectives=[P99])], [LATENCY], answers, folder=folder) as found:
            found.safe_sizes.answer = SafeSize(least, "peak of a week")
            await found.run_cycles(120)
            assert min(filter(None, found.memory_limits)) >= min(least, 800 * MIB)
            assert cores(one) < 3


async def test_controller_raises_memory_after_oom_kill_regardless_of_objectives(tmp_path: Path) -> None:
    one = world(memory=512)
    answers: dict[str, Value] = {"latency": 0.05, "count(rate": 2, "cpu_usage": 0.5, "working_set": 200 * MIB}
    async with bed(one, [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        found.safe_sizes.answer = SafeSize(0.0, "", {"web": Resources(500, 500, 768 * MIB, 768 * MIB)})
        await found.run_cycles(4)
        assert found.memory_limits == {768 * MIB}
        assert found.cpu_limits == {500}


async def test_controller_resizes_crashed_container_as_soon_as_it_runs(tmp_path: Path) -> None:
    """One that is killed seconds after each start is down whenever its turn comes."""
    one = world(memory=512)
    answers: dict[str, Value] = {"latency": 0.05, "count(rate": 2, "cpu_usage": 0.5, "working_set": 200 * MIB}
    async with bed(one, [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        found.safe_sizes.answer = SafeSize(0.0, "", {"web": Resources(500, 500, 768 * MIB, 768 * MIB)})
        for _ in range(3):
            for live in one.pods_by_name.values():
                live.crashes = True
            await found.loop.run_once(float(one.now))
            await found.loop.resume_crashed_changes(float(one.now))
            one.now += 15
        assert found.memory_limits == {512 * MIB}
        for live in one.pods_by_name.values():
            live.crashes = False
        await found.loop.resume_crashed_changes(float(one.now))
        one.pass_time(2)
        assert found.memory_limits == {768 * MIB}


def resizing_vpa() -> VerticalPodAutoscaler:
    return VerticalPodAutoscaler(
        namespace="shop",
        name="web",
        uid="uid-vpa",
        version=1,
        generation=1,
        created=0,
        target=AutoscalerTarget("Deployment", "apps", "web"),
        recommenders=(),
        container_policies=(),
        status=b"{}",
    )


@pytest.mark.parametrize("way", ["all", "inactive", "deleted", "vpa"])
async def test_controller_leaves_crashed_container_of_a_disabled_intent(tmp_path: Path, way: str) -> None:
    """Sizing continues the change, by other settings: both would resize the same pods twice a second."""
    one = world(memory=512)
    answers: dict[str, Value] = {"latency": 0.05, "count(rate": 2, "cpu_usage": 0.5, "working_set": 200 * MIB}
    wants = intent(objectives=[P99])
    async with bed(one, [wants], [LATENCY], answers, folder=tmp_path) as found:
        found.safe_sizes.answer = SafeSize(0.0, "", {"web": Resources(500, 500, 768 * MIB, 768 * MIB)})
        for live in one.pods_by_name.values():
            live.crashes = True
        await found.loop.run_once(float(one.now))
        match way:
            case "all":
                config = OperatorConfig.model_validate({"intents": {"enabled": False}})
                found.operator.ports.config.current = config  # type: ignore[misc]
            case "inactive":
                off = intent(objectives=[P99], active=False)
                found.informers.put(INTENTS, msgspec.structs.replace(off, version=2))
            case "deleted":
                found.informers.remove(INTENTS, wants)
            case "vpa":
                found.informers.put(VPAS, resizing_vpa())
        for live in one.pods_by_name.values():
            live.crashes = False
        await found.loop.resume_crashed_changes(float(one.now))
        one.pass_time(2)
        assert found.memory_limits == {512 * MIB}


async def test_controller_reports_no_availability_of_pods_that_never_were_ready(tmp_path: Path) -> None:
    one = world(replicas=3)
    for live in one.pods_by_name.values():
        live.unschedulable = True
    one.fitting_size = {}
    up = {"name": "up", "value": 0.99, "measuredBy": "up"}
    async with bed(
        one, [intent(objectives=[up])], [profile("up", type="availability")], {}, folder=tmp_path
    ) as found:
        await found.run_cycles(1)
        assert found.conditions()["Met"] == "Unknown"
        assert "pods that are starting" in str(found.status())
        await found.run_cycles(25)
        assert found.conditions()["Met"] == "False"
        assert one.written == []


@pytest.mark.parametrize("is_protected", [False, True])
async def test_new_pods_of_an_intent_are_admitted_with_its_size(
    tmp_path: Path, *, is_protected: bool
) -> None:
    """No policy selects the workload: they would be scheduled by their template, and resized afterwards."""
    one = world(cpu=500)
    answers: dict[str, Value] = {"latency{": 0.2, "count(rate": 2, "cpu_usage": 0.8, "working_set": 200 * MIB}
    async with bed(one, [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        await found.run_cycles(40)
        assert one.change_annotations.applied is not None
        (size,) = one.change_annotations.applied.sizes.values()
        assert size.cpu_request != 500
        if is_protected:
            config = OperatorConfig.model_validate({"dryRun": True})
            found.operator.ports.config.current = config  # type: ignore[misc]
        one.add_pod("new")
        state = found.operator.cluster_state
        state._synced.set()
        (workload,) = state.list_workloads()
        (new,) = (pod for pod in state.list_pods(workload) if pod.name == "new")
        assert new.containers[0].resources.cpu_request == 500
        assert found.operator.pod_sizer.size_pod(new) == ({} if is_protected else {"web": size})


KILLED = "container web was OOM-killed with 512Mi at 12:00 UTC, and its memory is raised to 768Mi"


@pytest.mark.parametrize("latency", [0.05, 0.2, None])
async def test_controller_reports_oom_kills_regardless_of_objectives(
    tmp_path: Path, latency: float | None
) -> None:
    answers: dict[str, Value] = {"latency": latency, "count(rate": 2, "cpu_usage": 0.5}
    async with bed(world(), [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        await found.run_cycles(1)
        assert KILLED not in found.message("Met")
        relief = {"web": Resources(500, 500, 768 * MIB, 768 * MIB)}
        found.safe_sizes.answer = SafeSize(0.0, "", relief, KILLED)
        await found.run_cycles(4)
        assert KILLED in found.message("Met")
        assert [each for each in found.events.events if each[1] == "OOMKilled"] == [
            ("Warning", "OOMKilled", KILLED)
        ]
        found.safe_sizes.answer = SafeSize(0.0, "")
        await found.run_cycles(1)
        assert "OOM-killed" not in found.message("Met")


async def test_controller_explains_why_killed_container_gets_no_more_memory(tmp_path: Path) -> None:
    answers: dict[str, Value] = {"latency": 0.05, "count(rate": 2, "cpu_usage": 0.5}
    async with bed(
        world(), [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path, dryRun=True
    ) as found:
        relief = {"web": Resources(500, 500, 768 * MIB, 768 * MIB)}
        found.safe_sizes.answer = SafeSize(0.0, "", relief, KILLED)
        await found.run_cycles(2)
        assert found.memory_limits == {512 * MIB}
        assert f"{KILLED}; not done: the operator runs with dryRun" in found.message("Met")


async def test_controller_does_not_feed_leak_of_one_pod(tmp_path: Path) -> None:
    one = world(memory=512, replicas=10)
    start = one.now

    def leaking(at: float) -> float:
        limit = min(
            each.memory_limit or 0 for live in one.pods_by_name.values() for each in live.applied.values()
        )
        return min(limit, 400 * MIB + (at - start) * 0.1 * MIB)

    answers: dict[str, Value] = {
        "latency": 0.05,
        "count(rate": 10,
        "cpu_usage": 3.0,
        "quantile": 200 * MIB,
        "working_set": leaking,
    }
    async with bed(one, [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        await found.run_cycles(240, seconds=60)
        assert found.memory_limits == {512 * MIB}


async def test_controller_stops_feeding_leak_of_all_pods(tmp_path: Path) -> None:
    one = world(memory=512, replicas=2)

    def leaking(_: float) -> float:
        return float(
            min(
                each.memory_limit or 0 for live in one.pods_by_name.values() for each in live.applied.values()
            )
        )

    answers: dict[str, Value] = {"latency": 0.05, "count(rate": 2, "cpu_usage": 0.5, "working_set": leaking}
    async with bed(one, [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        await found.run_cycles(240, seconds=60)
        assert max(filter(None, found.memory_limits)) <= 1024 * MIB


@pytest.mark.parametrize("replaced", [1, 2, 3])
async def test_controller_plans_from_effective_size_after_pods_are_replaced(
    tmp_path: Path, replaced: int
) -> None:
    """A latency that rose while new pods started was answered by a cut from 2 cores to 0.6, a step from the template's."""
    one = world(cpu=500, replicas=3)
    one.apply_size_earlier({"web": Resources(2000, 2000, 512 * MIB, 512 * MIB)})
    slow = [0.08]
    answers: dict[str, Value] = {
        "latency{": lambda _: slow[0],
        "count(rate": 3,
        "cpu_usage": 3.0,
        "working_set": 200 * MIB,
    }
    async with bed(one, [intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        await found.run_cycles(40)
        for name in list(one.pods_by_name)[:replaced]:
            one.replace_pod(name)
        slow[0] = 0.13
        for _ in range(6):
            await found.run_cycles(1)
            assert min(filter(None, found.cpu_limits)) >= 2000
