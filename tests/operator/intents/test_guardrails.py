"""The controller of a workload: an Intent, a policy, an autoscaler or a person."""

from __future__ import annotations

import dataclasses
from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from actuation.builders import pod
from trimtab.actuation.change_annotations import (
    ChangeAnnotations,
    OngoingChange,
    Phase,
    PodHealth,
    RevertRecord,
    UpdateMethod,
    encode_change_annotations,
)
from trimtab.actuation.executor import ReconcileResult
from trimtab.actuation.hold import HOLD_ANNOTATION
from trimtab.api.intent import IntentSpec, ObjectiveSpec, TargetRef
from trimtab.api.kpiprofile import KPIType
from trimtab.api.optimizationpolicy import OptimizationPolicySpec, PolicyMode, WorkloadState
from trimtab.intents.actuator import IntentAction
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.kpi.availability import PodHistory
from trimtab.intents.objective import Goal
from trimtab.intents.objective import Objective as PlannedObjective
from trimtab.intents.planner import Plan, Purpose
from trimtab.intents.state import ContainerSize, TargetState
from trimtab.kube.kinds.custom import IntentRecord
from trimtab.kube.kinds.hpas import AutoscalerTarget, HorizontalPodAutoscaler, UtilizationTarget
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.resources import DEPLOYMENTS, JOBS
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intent_index import IntentIndex
from trimtab.operator.intents.executor import PlanExecutor
from trimtab.operator.intents.guardrails import (
    RESIZING_ACTUATORS,
    SCALING_ACTUATORS,
    AutoscalerConstraints,
    build_constraints,
    explain_no_release,
)
from trimtab.operator.intents.observer import IntentObservation
from trimtab.operator.intents.safe_sizes import SafeSize
from trimtab.operator.intents.state_builder import build_state
from trimtab.operator.policy.resolver import build_default_policy


class Nobody:
    """Follows nothing: what is in the caches, a test has put there."""

    def watch_resource(self, resource: Any, shape: Any, **options: Any) -> Any:
        from trimtab.kube.cache.store import Cache

        return Cache(options.get("indexes"))


def workload(**changed: Any) -> Workload:
    said = {
        "resource": DEPLOYMENTS,
        "namespace": "shop",
        "name": "web",
        "uid": "u",
        "version": 1,
        "generation": 1,
        "created": 0,
        "deleting": False,
        "owner": None,
        "labels": (),
        "annotations": (),
        "containers": (Container("web", "main", Resources(100, 100, 1 << 26, 1 << 26)),),
        "selector": "app=web",
        "replicas": 1,
        "updated_replicas": 1,
        "ready_replicas": 1,
        "update_strategy": "",
        "is_spec_observed": True,
        "is_rolling_out": False,
        "paused": False,
        "finished": False,
        "heap_flags": (),
    }
    return Workload(**{**said, **changed})


def intent(name: str, *, priority: float = 0.5, active: bool = True, created: int = 0) -> IntentRecord:
    spec = IntentSpec(
        target_ref=TargetRef(name="web"),
        priority=priority,
        active=active,
        objectives=(ObjectiveSpec(name="p99", value=1.0, measured_by="p99"),),
    )
    return IntentRecord("shop", name, f"uid-{name}", 1, 1, created, spec, "", b"{}")


def owner(*intents: IntentRecord) -> str:
    index = IntentIndex(Nobody())  # type: ignore[arg-type]
    for each in intents:
        index.intents.put(each)
    found = index.controlling_intent(workload().key)
    return found.name if found else ""


def test_controlling_intent_has_highest_priority_then_is_oldest() -> None:
    assert owner(intent("low", priority=0.1), intent("high", priority=0.9)) == "high"
    assert owner(intent("young", created=5), intent("old", created=3)) == "old"


def test_controlling_intent_is_active() -> None:
    assert owner(intent("idle", priority=1.0, active=False), intent("low", priority=0.1)) == "low"
    assert owner(intent("idle", active=False)) == ""


def test_policy_yields_to_intent_and_reports_it() -> None:
    config = OperatorConfig(default_policy=OptimizationPolicySpec(mode=PolicyMode.AUTO))
    default_policy = build_default_policy(config)
    assert default_policy is not None
    assert default_policy.blocked_reason(workload(), config) == ""
    assert "Intent shop/web controls the size of this workload" in default_policy.blocked_reason(
        workload(), config, intent="shop/web"
    )


def hpa(*shares: UtilizationTarget) -> HorizontalPodAutoscaler:
    return HorizontalPodAutoscaler(
        "shop", "web", "uid-hpa", 1, AutoscalerTarget("Deployment", "apps", "web"), 1, 10, shares
    )


@pytest.mark.parametrize(
    ("who", "forbidden"),
    [
        ({"hpas": [hpa()], "vpa": "", "can_resize_in_place": True}, SCALING_ACTUATORS),
        ({"hpas": [], "vpa": "web", "can_resize_in_place": True}, RESIZING_ACTUATORS),
        ({"hpas": [], "vpa": "", "can_resize_in_place": False}, RESIZING_ACTUATORS),
        (
            {"hpas": [], "vpa": "", "vpas_unsynced_reason": "forbidden", "can_resize_in_place": True},
            RESIZING_ACTUATORS,
        ),
        (
            {"hpas": [], "vpa": "", "bounds_unsynced_reason": "forbidden", "can_resize_in_place": True},
            SCALING_ACTUATORS | RESIZING_ACTUATORS,
        ),
        ({"hpas": [], "vpa": "", "can_resize_in_place": True}, frozenset()),
    ],
)
def test_constraints_forbid_fields_of_autoscalers(who: Any, forbidden: frozenset[str]) -> None:
    others = AutoscalerConstraints(workload(), **who)
    assert others.forbidden_actuators() == forbidden
    assert bool(others.explain()) is bool(forbidden)


def observe(found: Workload, *, cpu_used: float | None = None) -> IntentObservation:
    target = intent("web")
    assert target.spec is not None
    size = ContainerSize(container="web", cpu_request=0.1, cpu_limit=0.1)
    state = TargetState(objectives={}, replicas=4, sizes=(size,), cpu_used=cpu_used)
    latency = PlannedObjective(name="p99", value=0.1, kind=KPIType.LATENCY)
    goal = Goal(intent="shop/web", objectives=(latency,))
    return IntentObservation(target, target.spec, goal, {}, found, (), state)


def test_constraints_keep_cpu_above_usage() -> None:
    others = AutoscalerConstraints(workload(), hpas=[], vpa="", can_resize_in_place=True)
    limits = build_constraints(
        observe(workload(), cpu_used=0.25),
        config=OperatorConfig(),
        autoscalers=others,
        safe=SafeSize(0.0),
        cooldown_until=0.0,
    )
    assert limits.min_replicas == 3
    assert limits.min_cpu == pytest.approx(0.25 * 1.1 / 4)
    assert limits.min_total_cpu == pytest.approx(0.25 * 1.1)


def test_constraints_allow_release_of_unplaced_pods() -> None:
    others = AutoscalerConstraints(workload(), hpas=[], vpa="", can_resize_in_place=True)
    for used, cpu in ((0.18, 0.18 * 1.1 / 2), (None, inf)):
        found = observe(workload(), cpu_used=used)
        assert found.state is not None
        state = replace(found.state, unplaced=2)
        found = dataclasses.replace(found, state=state)
        limits = build_constraints(
            found, config=OperatorConfig(), autoscalers=others, safe=SafeSize(0.0), cooldown_until=0.0
        )
        assert limits.min_replicas == 2
        assert limits.min_cpu == pytest.approx(cpu)
        assert limits.find_violation(state, replace(state, replicas=2, unplaced=0)) is None


def test_build_state_counts_uncreated_pods_as_unplaced() -> None:
    """As where a quota refuses them, some or all."""
    for pods, unplaced in (([], 3), ([pod("a")], 2), ([pod("a"), pod("b", node="", ready=False)], 2)):
        state = build_state(workload(replicas=3), pods, PodHistory({}), {}, {}, main="web")
        assert state.unplaced == unplaced
    surge = [pod(name) for name in "abcd"]
    assert build_state(workload(replicas=3), surge, PodHistory({}), {}, {}, main="web").unplaced == 0
    ended = workload(replicas=3, resource=JOBS)
    assert build_state(ended, [pod("a")], PodHistory({}), {}, {}, main="web").unplaced == 0


def test_constraints_prevent_scale_out_by_hpa() -> None:
    """It holds CPU to half of the request: pods would get smaller and more, turn by turn."""
    found = observe(workload(), cpu_used=0.12)
    for shares, least in (
        ((), 0.12 * 1.1 / 4),
        ((UtilizationTarget("cpu", 50),), 0.06),
        ((UtilizationTarget("cpu", 50, "web"), UtilizationTarget("cpu", 80)), 0.06),
        ((UtilizationTarget("cpu", 50, "sidecar"), UtilizationTarget("memory", 50)), 0.12 * 1.1 / 4),
    ):
        others = AutoscalerConstraints(workload(), hpas=[hpa(*shares)], vpa="", can_resize_in_place=True)
        limits = build_constraints(
            found, config=OperatorConfig(), autoscalers=others, safe=SafeSize(0.0), cooldown_until=0.0
        )
        assert limits.min_cpu == pytest.approx(least)


def test_constraints_forbid_release_when_usage_is_unknown() -> None:
    others = AutoscalerConstraints(workload(), hpas=[], vpa="", can_resize_in_place=True)
    found = observe(workload(), cpu_used=None)
    limits = build_constraints(
        found, config=OperatorConfig(), autoscalers=others, safe=SafeSize(0.0), cooldown_until=0.0
    )
    state = found.state
    assert state is not None
    smaller = replace(state, sizes=(ContainerSize(container="web", cpu_request=0.05, cpu_limit=0.05),))
    assert limits.find_violation(state, replace(state, replicas=3))
    assert limits.find_violation(state, smaller)
    assert "is unknown" in explain_no_release(state, found.goal)[0]
    assert explain_no_release(replace(state, cpu_used=0.1), found.goal) == []


def test_constraints_block_reverted_sizes_but_not_other_actions() -> None:
    """Otherwise the best plan would be blocked in every cycle."""
    reverted = RevertRecord(id="c", at=1000, why="it was slower", times=1, until=5000)
    annotations = encode_change_annotations(ChangeAnnotations(reverted=reverted), uid=workload().uid)
    found = workload(annotations=tuple(annotations.items()))
    others = AutoscalerConstraints(found, hpas=[], vpa="", can_resize_in_place=True)
    limits = build_constraints(
        observe(found), config=OperatorConfig(), autoscalers=others, safe=SafeSize(0.0), cooldown_until=0.0
    )
    every = SCALING_ACTUATORS | RESIZING_ACTUATORS
    assert {name for name in every if limits.allows(name, now=2000.0)} == SCALING_ACTUATORS
    assert {name for name in every if limits.allows(name, now=5000.0)} == every


def under_change() -> Workload:
    change = OngoingChange(
        id="c",
        started=1,
        method=UpdateMethod.IN_PLACE,
        phase=Phase.CANARY,
        since=1,
        before={},
        after={"web": Resources(200, 200)},
        template={},
        health=PodHealth(pods=1),
    )
    annotations = encode_change_annotations(ChangeAnnotations(change=change), uid=workload().uid)
    return workload(annotations=tuple(annotations.items()))


def test_constraints_do_not_freeze_for_change_that_cannot_continue() -> None:
    """As where a VerticalPodAutoscaler came while sizes were being changed."""
    found = under_change()
    for vpa, words in (("", "a resize is in progress"), ("web", "")):
        others = AutoscalerConstraints(found, hpas=[], vpa=vpa, can_resize_in_place=True)
        limits = build_constraints(
            observe(found),
            config=OperatorConfig(),
            autoscalers=others,
            safe=SafeSize(0.0),
            cooldown_until=0.0,
        )
        assert limits.freeze == words


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"annotations": ((HOLD_ANNOTATION, "until the sale is over"),)}, "until the sale is over"),
        ({"is_rolling_out": True}, "rollout"),
        ({"paused": True}, "paused"),
        ({"replicas": 0}, "scaled to zero"),
        ({"namespace": "kube-system"}, "excludedNamespaces"),
        ({}, ""),
    ],
)
def test_constraints_freeze_during_rollout_pause_and_zero_replicas(
    changed: dict[str, Any], words: str
) -> None:
    found = workload(**changed)
    observation = observe(found)
    others = AutoscalerConstraints(found, hpas=[], vpa="", can_resize_in_place=True)
    limits = build_constraints(
        observation, config=OperatorConfig(), autoscalers=others, safe=SafeSize(0.0), cooldown_until=0.0
    )
    assert words in limits.freeze
    assert bool(limits.freeze) is bool(words)


@pytest.mark.parametrize(("again", "passes"), [(1005, True), (1060, False), (None, False)])
async def test_executor_reports_rate_limited_resize_as_transient(
    again: int | None,
    passes: bool,  # noqa: FBT001 - as parametrized
) -> None:
    """And one that waits for pods to be well rests, so that something else is done for them."""

    class Busy:
        async def reconcile(self, *_: Any, **__: Any) -> ReconcileResult:
            return ReconcileResult(state=WorkloadState.PENDING, reason="wait", requeue_at=again)

    class NoRecorder:
        def record_result(self, *_: Any, **__: Any) -> None:
            """Record nothing."""

    class Records:
        def get(self, _: object) -> Workload:
            return workload()

    performer = PlanExecutor(
        None,  # type: ignore[arg-type]
        Records(),  # type: ignore[arg-type]
        Busy(),  # type: ignore[arg-type]
        recorder=NoRecorder(),
        may_write=lambda: True,
        can_resize_in_place=lambda: True,
        observation_period=lambda: 1.0,
    )
    found = observe(workload())
    assert found.state is not None
    larger = replace(found.state, sizes=(ContainerSize(container="web", cpu_request=0.2, cpu_limit=0.2),))
    action = IntentAction(actuator="resizeCPU", parameters={}, after=larger)
    performed = await performer.execute(
        Plan(intent="shop/web", purpose=Purpose.REACH, actions=(action,)),
        found,
        limits=PlanConstraints(),
        plugins={},
        now=1000.0,
    )
    assert performed.blocked_reason == "resizeCPU: wait"
    assert performed.is_transient is passes


OTHER_ACTUATORS = ["rmPod", "shedLoad", "scaleOut", "cacheClass"]


@pytest.mark.parametrize("actuator", OTHER_ACTUATORS)
@pytest.mark.parametrize("outdated", ["pods cannot be watched", ""])
async def test_executor_takes_no_action_by_what_is_outdated(actuator: str, outdated: str) -> None:
    """Evictions and plugins went on where Deployments or pods could no longer be watched."""
    reason = f"{actuator}: {outdated}" if outdated else ""
    assert await perform(actuator, workload(replicas=4), outdated=outdated) == (not outdated, reason)


@pytest.mark.parametrize("actuator", [*OTHER_ACTUATORS, "resizeCPU"])
async def test_executor_takes_no_action_on_a_workload_that_was_held_since_the_plan(actuator: str) -> None:
    """Queries and the plan lie between the observation and an action, and take seconds to minutes."""
    held = workload(replicas=4, annotations=((HOLD_ANNOTATION, "until Monday"),))
    reason = f"{actuator}: the workload is held by an annotation: until Monday"
    assert await perform(actuator, held) == (False, reason)


async def perform(actuator: str, present: Workload, *, outdated: str = "") -> tuple[bool, str]:
    """Execute one action where the record of the workload is another one meanwhile.

    Return whether it was executed, and the reason if not, which may be gone in the next cycle.
    """
    acted: list[str] = []

    class Records:
        def get(self, _: object) -> Workload:
            return present

        def outdated_reason(self, _: object) -> str:
            return outdated

    class Writer:
        async def write(self, *_: Any) -> None:
            acted.append(actuator)

        async def reconcile(self, *_: Any, **__: Any) -> None:
            acted.append(actuator)

    class Plugin:
        def execute(self, *_: Any, **__: Any) -> str:
            acted.append(actuator)
            return ""

    executor = PlanExecutor(
        None,  # type: ignore[arg-type]
        Records(),  # type: ignore[arg-type]
        Writer(),  # type: ignore[arg-type]
        recorder=None,  # type: ignore[arg-type]
        may_write=lambda: True,
        can_resize_in_place=lambda: True,
        observation_period=lambda: 1.0,
    )
    found = dataclasses.replace(observe(workload(replicas=4)), pods=[pod("web-1")])
    assert found.state is not None
    action = IntentAction(actuator=actuator, parameters={"name": "web-1"}, after=found.state)
    result = await executor.execute(
        Plan(intent="shop/web", purpose=Purpose.REACH, actions=(action,)),
        found,
        limits=PlanConstraints(),
        plugins={"shedLoad": Plugin()},  # type: ignore[dict-item]
        now=1000.0,
    )
    assert result.is_transient is bool(result.blocked_reason)
    assert len(acted) <= 1
    return bool(acted), result.blocked_reason
