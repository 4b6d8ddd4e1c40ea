"""Invariants see each violation, and only violations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from trimtab.actuation.change_annotations import (
    ChangeAnnotations,
    OngoingChange,
    Phase,
    PodHealth,
    UpdateMethod,
    encode_change_annotations,
)
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import VPAS
from trimtab.lab.faults.change_invariants import MAX_REVERT, OthersWritesKept, RevertsEnd
from trimtab.lab.faults.companions import VpaDraw
from trimtab.lab.faults.intent_invariants import CoolDownRespected, GuardrailsKept, VpaBoundsKept
from trimtab.lab.faults.invariant import RunState
from trimtab.lab.faults.plan import Fault, FaultInjector, FaultPlan
from trimtab.lab.faults.records import CheckLog, Write
from trimtab.lab.faults.run_invariants import MAX_CHANGE_AGE, NothingHalfDone
from trimtab.lab.faults.size_invariants import OomKilledNotShrunk
from trimtab.lab.faults.trace import RunTrace
from trimtab.lab.faults.worlds import draw_world
from trimtab.lab.simulator.physics import KILLED_BY_LIMIT
from trimtab.lab.simulator.simulation import build_policy_records
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.operator.config.model import OperatorConfig

WEB = WorkloadKey("Deployment", "shop", "web")
SMALL, LARGE = {"main": Resources(100)}, {"main": Resources(200)}


def make_state(objects: dict[Any, Any] | None = None) -> RunState:
    """Make the state of a run in which no process lives."""
    spec = draw_world(0)
    world = SimulatedWorld(spec.build_scenario(), seed=spec.seed, start=spec.start)
    trace = RunTrace(lambda: 0.0)
    config = OperatorConfig.model_validate(
        {"intents": {"coolDown": "10m", "guardrails": [{"minReplicas": 2, "maxReplicas": 4}]}}
    )
    return RunState(
        spec=spec,
        world=world,
        injector=FaultInjector(FaultPlan(), elapsed=lambda: 0.0, trace=trace),
        replicas=list,
        config=lambda: config,
        hides_usage=lambda: False,
        objects=objects or {},
        store_path=Path("trimtab.db"),
        log=CheckLog(now=lambda: 0.0),
    )


def write(verb: str, *, at: float = 0.0, **changes: Any) -> Write:
    known: dict[str, Any] = {"pod": None, "before": {}, "after": {}, "old": None, "new": None}
    return Write(at=at, process="operator-1", verb=verb, workload=WEB, **{**known, **changes})


@pytest.mark.parametrize(("present", "violations"), [(SMALL, 0), (LARGE, 1)])
def test_others_writes_kept_compares_what_was_read_with_what_is_there(
    present: dict[str, Resources], violations: int
) -> None:
    state = make_state()
    OthersWritesKept(state).on_write(write("resize", before=SMALL, after=LARGE, present=present))
    assert len(state.log.violations) == violations
    assert state.log.evaluations == {"others-writes-kept": 1}


@pytest.mark.parametrize(
    ("replicas", "violations"), [((3, 4), 0), ((3, 5), 1), ((3, 1), 1), ((6, 5), 0), ((1, 1), 0)]
)
def test_guardrails_kept_allows_steps_towards_the_guardrails(
    replicas: tuple[int, int], violations: int
) -> None:
    state = make_state()
    GuardrailsKept(state).on_write(write("scale", replicas=replicas))
    assert len(state.log.violations) == violations


def test_cool_down_respected_counts_from_one_plan_to_the_next() -> None:
    state = make_state()
    invariant = CoolDownRespected(state)
    for at in (0.0, 0.5, 700.0):
        invariant.on_write(write("scale", at=at, replicas=(1, 2)))
    assert not state.log.violations
    invariant.on_write(write("scale", at=1200.0, replicas=(2, 3)))
    assert len(state.log.violations) == 1
    state.injector.record(Fault(kind="api-conflict", start=0.0, end=1.0), "scale")
    invariant.on_write(write("scale", at=1500.0, replicas=(2, 3)))
    assert len(state.log.violations) == 1, "a scaling that failed is repeated"


@pytest.mark.parametrize(("kind", "violations"), [("node-full", 1), ("api-forbidden", 0)])
def test_reverts_end_counts_only_time_in_which_the_operator_can_act(kind: str, violations: int) -> None:
    state = make_state()
    fault = Fault(kind=kind, start=0.0, end=1e9)
    injector = FaultInjector(FaultPlan(faults=(fault,)), elapsed=lambda: 1.0, trace=RunTrace(lambda: 0.0))
    leader = cast(Any, SimpleNamespace(is_leading=True))
    state = replace(state, injector=injector, replicas=lambda: [leader])
    workload = next(iter(state.world.workloads.values()))
    workload.annotations["trimtab"] = {"trimtab.io/change": Phase.REVERTING}
    invariant = RevertsEnd(state)
    steps = int(MAX_REVERT / state.spec.step)
    for _ in range(steps):
        invariant.on_step()
    assert not state.log.violations
    invariant.on_step()
    assert len(state.log.violations) == violations


@pytest.mark.parametrize(("cpu", "violations"), [("100m", 0), ("900m", 1), ("5m", 1)])
def test_vpa_bounds_kept_reads_each_status_once(cpu: str, violations: int) -> None:
    target = {"containerName": "main", "target": {"cpu": cpu, "memory": "128Mi"}}
    status = msgspec.json.encode({"recommendation": {"containerRecommendations": [target]}})
    vpa = VpaDraw(target=WEB, min_allowed=(20, 1 << 26), max_allowed=(500, 1 << 29)).build()
    state = make_state({(VPAS, "shop", "web"): msgspec.structs.replace(vpa, status=status)})
    invariant = VpaBoundsKept(state)
    invariant.on_step()
    invariant.on_step()
    assert len(state.log.violations) == violations
    assert state.log.evaluations == {"vpa-bounds-kept": 2}


@pytest.mark.parametrize(
    ("in_effect", "requested", "new", "violations"),
    [(100, 100, 100, 0), (100, 200, 100, 0), (200, 200, 100, 1), (200, 200, 150, 0), (200, 100, 90, 1)],
)
def test_oom_killed_not_shrunk_compares_with_the_limits_at_the_kill_and_in_effect(
    in_effect: int, requested: int, new: int, violations: int
) -> None:
    state = make_state()
    world, invariant = state.world, OomKilledNotShrunk(state)
    key, workload = next(iter(world.workloads.items()))
    pod = next(iter(workload.pods.values()))
    name, row = pod.containers[0].name, pod.rows[0]
    containers = world.container_arrays.containers
    # A resize came into effect after the kill, in the same step.
    containers.killed[row], containers.memory[row] = KILLED_BY_LIMIT, 100.0
    pod.applied[0] = Resources(memory_limit=in_effect)
    invariant.on_step()
    world.now += 3 * state.spec.step
    invariant.on_write(
        Write(
            at=world.now,
            process="operator-1",
            verb="resize",
            workload=key,
            pod=pod.to_record("node-0"),
            before={name: Resources(memory_limit=requested)},
            after={name: Resources(memory_limit=new)},
            old=None,
            new=None,
        )
    )
    assert len(state.log.violations) == violations
    assert state.log.evaluations == {"oom-killed-not-shrunk": 1}


def make_replica(world: SimulatedWorld, policies: dict[str, Any], *, intent: str) -> Any:
    """Make a process that knows these policies, and an Intent that controls all workloads."""
    specs = {name: OptimizationPolicySpec.model_validate(spec) for name, spec in policies.items()}
    known = {key: workload.to_record() for key, workload in world.workloads.items()}
    state = SimpleNamespace(
        get=known.get, namespaces={}, policies=build_policy_records(specs, home="trimtab-system")
    )
    competitors = SimpleNamespace(controlling_intent_name=lambda _: intent)
    operator = SimpleNamespace(cluster_state=state, competitors=competitors)
    return SimpleNamespace(name="operator-1", process=SimpleNamespace(operator=operator))


@pytest.mark.parametrize(
    ("policies", "intent", "violations"),
    [
        ({}, "", 0),
        ({"all": {"mode": "Auto"}}, "", 1),
        ({"all": {"mode": "Recommend"}}, "", 0),
        ({"all": {"mode": "Auto", "metricsConfig": {"safetyFactor": 3}}}, "", 0),
        ({}, "all", 1),
    ],
)
def test_nothing_half_done_expects_an_end_of_changes_that_someone_continues(
    policies: dict[str, Any], intent: str, violations: int
) -> None:
    state = make_state()
    world, config = state.world, OperatorConfig.model_validate({"limits": {"maxSafetyFactor": 2}})
    workload = next(iter(world.workloads.values()))
    change = OngoingChange(
        id="1",
        started=int(world.control_time - MAX_CHANGE_AGE - 1),
        method=UpdateMethod.IN_PLACE,
        phase=Phase.PROMOTING,
        since=0,
        before=SMALL,
        after=LARGE,
        template=SMALL,
        health=PodHealth(pods=1),
    )
    workload.annotations["operator"] = encode_change_annotations(
        ChangeAnnotations(change=change), uid=workload.uid
    )
    replica = make_replica(world, policies, intent=intent)
    state = replace(state, replicas=lambda: [replica], config=lambda: config)
    NothingHalfDone(state).at_end()
    assert len(state.log.violations) == violations
