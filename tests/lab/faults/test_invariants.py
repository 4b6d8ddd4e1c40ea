"""Invariants see each violation, and only violations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from trimtab.actuation.change_annotations import (
    AppliedSizes,
    ChangeAnnotations,
    OngoingChange,
    Phase,
    PodHealth,
    UpdateMethod,
    encode_change_annotations,
)
from trimtab.actuation.hold import HOLD_ANNOTATION, HOLD_MANAGER
from trimtab.actuation.port import ANNOTATIONS_MANAGER
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.api.quantity import MIB
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import VPAS
from trimtab.lab.faults.change_invariants import (
    MAX_REVERT,
    PROGRESS_PERIOD,
    ChangeRecordedFirst,
    OthersWritesKept,
    RevertsEnd,
)
from trimtab.lab.faults.companions import VpaDraw
from trimtab.lab.faults.intent_invariants import CoolDownRespected, GuardrailsKept, VpaBoundsKept
from trimtab.lab.faults.invariant import RunState
from trimtab.lab.faults.plan import Fault, FaultInjector, FaultPlan
from trimtab.lab.faults.record_invariants import EventsAgree, MetricsAgree
from trimtab.lab.faults.records import CheckLog, EmittedEvent, Write
from trimtab.lab.faults.run_invariants import MAX_CHANGE_AGE, MemoryBounded, NothingHalfDone, QuietInTheEnd
from trimtab.lab.faults.size_invariants import (
    MAX_RELIEF_WAIT,
    AllocatableKept,
    OomKilledNotShrunk,
    ReliefComesSoon,
)
from trimtab.lab.faults.trace import RunTrace
from trimtab.lab.faults.worlds import CURRENT_KUBERNETES, draw_world
from trimtab.lab.simulator.physics import KILLED_BY_LIMIT, UNSCHEDULED
from trimtab.lab.simulator.simulation import build_policy_records
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.metrics import Metrics

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
        all_replicas=list,
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


@pytest.mark.parametrize(
    ("kind", "mode", "intent", "violations"),
    [
        ("node-full", "Auto", "", 1),
        ("api-forbidden", "Auto", "", 0),
        # Extreme seed 50: the Intent that had begun the change was deactivated.
        ("node-full", "Recommend", "", 0),
        ("node-full", "Recommend", "web", 1),
    ],
)
def test_reverts_end_counts_only_time_in_which_the_operator_can_act(
    kind: str, mode: str, intent: str, violations: int
) -> None:
    state = make_state()
    fault = Fault(kind=kind, start=0.0, end=1e9)
    injector = FaultInjector(FaultPlan(faults=(fault,)), elapsed=lambda: 1.0, trace=RunTrace(lambda: 0.0))
    leader = make_replica(state.world, {"all": {"mode": mode}}, intent=intent)
    leader.is_leading = True
    state = replace(state, injector=injector, replicas=lambda: [leader])
    workload = next(iter(state.world.workloads.values()))
    workload.annotations["trimtab"] = {"trimtab.io/change": Phase.REVERTING}
    for pod in workload.pods.values():
        pod.created -= 2 * PROGRESS_PERIOD
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


@pytest.mark.parametrize(("placed", "violations"), [(True, 1), (False, 0)])
def test_oom_killed_not_shrunk_permits_to_take_a_template_back_of_which_no_pod_was_placed(
    *, placed: bool, violations: int
) -> None:
    # Seed 102: no node had capacity for more memory, and the rollout was rolled back.
    state = make_state()
    world, invariant = state.world, OomKilledNotShrunk(state)
    key, workload = next((key, each) for key, each in world.workloads.items() if each.pods)
    pod = next(iter(workload.pods.values()))
    name, row = pod.containers[0].name, pod.rows[0]
    containers = world.container_arrays.containers
    containers.killed[row], containers.memory[row] = KILLED_BY_LIMIT, 100.0
    for each in workload.pods.values():
        each.applied[0] = Resources(memory_limit=100)
    invariant.on_step()
    pod.applied[0] = Resources(memory_limit=200)
    pod.node = 0 if placed else UNSCHEDULED
    world.now += 3 * state.spec.step
    before, after = ({name: Resources(memory_limit=limit)} for limit in (200, 100))
    invariant.on_write(write_to("patch", key, before=before, after=after, at=world.now))
    assert len(state.log.violations) == violations


@pytest.mark.parametrize(("most", "violations"), [("64Mi", 0), ("256Mi", 1)])
def test_oom_killed_not_shrunk_permits_the_size_above_which_bounds_allow_nothing(
    most: str, violations: int
) -> None:
    # Seed 1000375: pod sync gave a new pod the size of the others, which were killed and may have no more.
    state = make_state()
    world = state.world
    replica = make_replica(
        world, {"all": {"mode": "Auto", "resourceBounds": {"memory": {"max": most}}}}, intent=""
    )
    state = replace(state, replicas=lambda: [replica])
    invariant = OomKilledNotShrunk(state)
    key, workload = next((key, each) for key, each in world.workloads.items() if each.pods)
    pod = next(iter(workload.pods.values()))
    name, row = pod.containers[0].name, pod.rows[0]
    containers = world.container_arrays.containers
    containers.killed[row], containers.memory[row] = KILLED_BY_LIMIT, 100 * MIB
    pod.applied[0] = Resources(memory_limit=200 * MIB)
    invariant.on_step()
    world.now += 3 * state.spec.step
    before, after = ({name: Resources(memory_limit=limit * MIB)} for limit in (200, 100))
    resize = write_to("resize", key, before=before, after=after, at=world.now)
    invariant.on_write(replace(resize, pod=pod.to_record("node-0")))
    assert len(state.log.violations) == violations


@pytest.mark.parametrize(("maximum", "violations"), [("100m", 0), (None, 1)])
def test_change_recorded_first_reads_annotations_within_the_limits_of_the_moment(
    maximum: str | None, violations: int
) -> None:
    # Seed 1000381: the organisation's limits were lowered during a change.
    state = make_state()
    limits = {"maxCpu": maximum} if maximum else {}
    config = OperatorConfig.model_validate({"limits": limits})
    state = replace(state, config=lambda: config)
    key, workload = next((key, each) for key, each in state.world.workloads.items() if each.pods)
    names = [each.name for each in workload.containers]
    none, wanted = ({name: Resources(cpu) for name in names} for cpu in (50, 400))
    workload.containers = tuple(
        msgspec.structs.replace(each, resources=Resources(50)) for each in workload.containers
    )
    annotations = ChangeAnnotations(change=make_change(before=none, after=wanted))
    workload.annotations["operator"] = encode_change_annotations(annotations, uid=workload.uid)
    limited = {name: Resources(100) for name in names}
    ChangeRecordedFirst(state).on_write(write_to("resize", key, before=wanted, after=limited))
    assert len(state.log.violations) == violations


@pytest.mark.parametrize(
    ("phase", "previous", "violations"),
    [(Phase.REVERTING, 2.0, 0), (Phase.REVERTING, 1.5, 1), (Phase.PROMOTING, 2.0, 1)],
)
def test_allocatable_kept_permits_a_revert_to_the_size_that_somebody_else_gave(
    phase: Phase, previous: float, violations: int
) -> None:
    # Extreme seed 6: another controller gave a pod more CPU than any node has.
    state = make_state()
    key, workload = next((key, each) for key, each in state.world.workloads.items() if each.pods)
    pod = next(iter(workload.pods.values())).to_record("node-0")
    most = int(state.world.nodes.allocatable_cpu.max())
    overrides = {pod.uid: {"main": Resources(int(most * previous))}}
    change = make_change(before=SMALL, after=LARGE, phase=phase, pod_overrides=overrides)
    annotations = encode_change_annotations(ChangeAnnotations(change=change), uid=workload.uid)
    workload.annotations[ANNOTATIONS_MANAGER] = annotations
    wanted = {"main": Resources(most * 2)}
    AllocatableKept(state).on_write(write_to("resize", key, pod=pod, before=LARGE, after=wanted))
    assert len(state.log.violations) == violations


@pytest.mark.parametrize(
    ("changes", "intent", "starts", "violations"),
    [
        ({"stabilization": "0s"}, "", 4, 0),
        ({"stabilization": "0s"}, "", 5, 1),
        ({"stabilization": "1h"}, "", 2, 0),
        ({"stabilization": "1h"}, "", 3, 1),
        ({"stabilization": "1h"}, "web", 4, 0),
        ({"stabilization": "1h"}, "web", 5, 1),
        ({"stabilization": "1h", "minimum": 0}, "", 4, 0),
        ({"stabilization": "1h", "minimum": 0}, "", 5, 1),
        ({"stabilization": "4h", "minimum": 0}, "", 3, 1),
    ],
)
def test_quiet_in_the_end_permits_more_changes_where_the_policy_damps_none(
    changes: dict[str, Any], intent: str, starts: int, violations: int
) -> None:
    # Seed 1000149: with `stabilization: 0s` each estimate is followed at once. Extreme seed 12: an hour
    # of it and `minimum: 0` leave all damping to the strategy.
    state = make_state()
    policy = {"mode": "Auto", "changes": changes}
    replica = make_replica(state.world, {"all": policy}, intent=intent)
    state = replace(state, replicas=lambda: [replica])
    invariant = QuietInTheEnd(state)
    state.world.control_time = state.world.start + state.spec.days * 86400 - 60
    key = next(iter(state.world.workloads))
    started = ChangeAnnotations(change=make_change(before=SMALL, after=LARGE))
    for _ in range(starts):
        invariant.on_write(write_to("annotate", key, old=ChangeAnnotations(), new=started))
    invariant.at_end()
    assert len(state.log.violations) == violations


@pytest.mark.parametrize(("own", "violations"), [(False, 0), (True, 1)])
def test_nothing_half_done_expects_no_end_of_a_rollout_that_a_person_started(
    *, own: bool, violations: int
) -> None:
    # Seed 1000152: a person asked for twice the CPU, for which the nodes had no capacity.
    state = make_state()
    replica = make_replica(state.world, {"all": {"mode": "Auto"}}, intent="")
    state = replace(state, replicas=lambda: [replica])
    workload = next(each for each in state.world.workloads.values() if len(each.pods) > 1)
    old, new = list(workload.pods.values())[:2]
    for pod, cpu in ((old, 50), (new, 100)):
        pod.ready = True
        pod.containers = tuple(
            msgspec.structs.replace(each, resources=Resources(cpu)) for each in pod.containers
        )
    workload.containers = new.containers
    workload.start_revision()
    new.revision = workload.revision
    cpu = 100 if own else 50
    sizes = {each.name: Resources(cpu) for each in workload.containers}
    applied = AppliedSizes(id="1", at=0, sizes=sizes, template=sizes, before={}, until=0)
    annotations = encode_change_annotations(ChangeAnnotations(applied=applied), uid=workload.uid)
    workload.annotations["operator"] = annotations
    NothingHalfDone(state).at_end()
    assert len(state.log.violations) == violations


def write_to(verb: str, key: WorkloadKey, **changes: Any) -> Write:
    """Make a write to a workload of the world."""
    return replace(write(verb), workload=key, **changes)


def make_change(**changes: Any) -> OngoingChange:
    """Make a change that has just started."""
    known: dict[str, Any] = {
        "id": "1",
        "started": 0,
        "method": UpdateMethod.IN_PLACE,
        "phase": Phase.PROMOTING,
    }
    rest: dict[str, Any] = {"since": 0, "template": SMALL, "health": PodHealth(pods=1)}
    return OngoingChange(**{**known, **rest, **changes})


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
    started = int(world.control_time - MAX_CHANGE_AGE - 1)
    change = make_change(started=started, before=SMALL, after=LARGE)
    workload.annotations["operator"] = encode_change_annotations(
        ChangeAnnotations(change=change), uid=workload.uid
    )
    replica = make_replica(world, policies, intent=intent)
    state = replace(state, replicas=lambda: [replica], config=lambda: config)
    NothingHalfDone(state).at_end()
    assert len(state.log.violations) == violations


@pytest.mark.parametrize(("reason", "violations"), [("Resizing", 0), ("Resized", 1), ("Recommended", 0)])
def test_events_agree_compares_with_the_last_record(reason: str, violations: int) -> None:
    state = make_state()
    invariant = EventsAgree(state)
    started = ChangeAnnotations(change=make_change(before=SMALL, after=LARGE))
    invariant.on_write(write("annotate", old=ChangeAnnotations(), new=started))
    invariant.on_event(EmittedEvent("operator-1", WEB, reason, "web: resized"))
    assert len(state.log.violations) == violations


@pytest.mark.parametrize(
    ("counted", "fault", "violations"),
    [(1, "", 0), (0, "", 1), (0, "process-killed", 0), (2, "process-killed", 1), (2, "second-leader", 0)],
)
def test_metrics_agree_with_the_changes_that_were_made(counted: int, fault: str, violations: int) -> None:
    state = make_state()
    metrics = Metrics()
    metrics.change_transitions.labels("Idle", "Promoting", "Started").inc(counted)
    metrics.change_transitions.labels("Promoting", "Verifying", "AllPodsSettled").inc(5)
    state = replace(state, all_replicas=lambda: [cast(Any, SimpleNamespace(metrics=metrics))])
    if fault:
        state.injector.record(Fault(kind=fault, start=0.0, end=1.0), "operator-1")
    invariant = MetricsAgree(state)
    started = ChangeAnnotations(change=make_change(before=SMALL, after=LARGE))
    invariant.on_write(write("annotate", old=ChangeAnnotations(), new=started))
    invariant.at_end()
    assert len(state.log.violations) == violations


@pytest.mark.parametrize(("queued", "violations"), [(1, 0), (100, 1)])
def test_memory_bounded_counts_the_work_queue(queued: int, violations: int) -> None:
    state = make_state()
    process = SimpleNamespace(queue_length=queued)
    replica = cast(Any, SimpleNamespace(name="operator-1", process=process))
    MemoryBounded(replace(state, replicas=lambda: [replica])).on_step()
    assert len(state.log.violations) == violations


@pytest.mark.parametrize(
    ("policy", "recommended", "hold", "violations"),
    [
        ({"mode": "Auto"}, 200, False, 1),
        ({"mode": "Auto"}, 200, True, 0),
        ({"mode": "Auto"}, 100, False, 0),
        ({"mode": "Recommend"}, 200, False, 0),
        ({"mode": "Auto", "updateStrategy": {"allowInPlaceResize": False}}, 200, False, 0),
        # Extreme seed 52: the last recommendation had the size of a template that was reset since.
        ({"mode": "Auto", "containers": [{"name": "*", "controlledResources": ["cpu"]}]}, 200, False, 0),
        ({"mode": "Auto", "containers": [{"name": "*", "controlledResources": ["memory"]}]}, 200, False, 1),
    ],
)
def test_relief_comes_soon_expects_a_change_that_nothing_forbids(
    policy: dict[str, Any], recommended: int, *, hold: bool, violations: int
) -> None:
    state = make_state()
    world = state.world
    key, workload = next((key, each) for key, each in world.workloads.items() if each.pods)
    workload.containers = tuple(
        msgspec.structs.replace(each, restart_on_memory_resize=False) for each in workload.containers
    )
    if hold:
        workload.annotations[HOLD_MANAGER] = {HOLD_ANNOTATION: "until the sale is over"}
    replica = make_replica(world, {"all": policy}, intent="")
    replica.is_leading = True
    replica.process.operator.cluster_state.active_vpa = lambda _: ""
    spec = msgspec.structs.replace(state.spec, kubernetes=CURRENT_KUBERNETES)
    state = replace(state, spec=spec, replicas=lambda: [replica])
    invariant = ReliefComesSoon(state)
    pod = next(iter(workload.pods.values()))
    name, row = pod.containers[0].name, pod.rows[0]
    for each in workload.pods.values():
        each.applied[0] = Resources(memory_limit=100)
    after = {name: Resources(memory_limit=recommended)}
    invariant.on_write(write_to("recommend", key, after=after))
    world.container_arrays.containers.killed[row] = KILLED_BY_LIMIT
    for _ in range(int(MAX_RELIEF_WAIT / spec.step) + 1):
        invariant.on_step()
        world.container_arrays.containers.killed[row] = 0
    assert len(state.log.violations) == violations
    state.log.violations.clear()
    change = ChangeAnnotations(change=make_change(before=SMALL, after=after, relief=True))
    invariant.on_write(write_to("annotate", key, new=change))
    workload.annotations[ANNOTATIONS_MANAGER] = encode_change_annotations(change, uid=workload.uid)
    replica.process.operator.cluster_state.get = lambda _: workload.to_record()
    invariant.on_step()
    assert len(state.log.violations) == violations, "the pods have no more memory yet"
    less = {name: Resources(memory_limit=100)}
    invariant.on_write(write_to("resize", key, before=less, after=after))
    state.log.violations.clear()
    invariant.on_step()
    assert not state.log.violations
