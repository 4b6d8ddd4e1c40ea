"""More memory after an OOM kill: it waits for nothing that has nothing to do with it, and for nothing that the kills broke."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuation.builders import (
    MIB,
    NOW,
    desired_change,
    harm_signals,
    observation,
    pod,
    start_change,
    wait_reason,
    workload,
)
from actuation.world import KEY, World, run
from trimtab.actuation.actions import ChangeAction, EvictPod, WriteAnnotations
from trimtab.actuation.change_annotations import (
    AppliedSizes,
    ChangeAnnotations,
    OngoingChange,
    Phase,
    RevertRecord,
    UpdateMethod,
    encode_change_annotations,
)
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.observation import DesiredChange, LocalObservations, Observation
from trimtab.actuation.decide.transitions import next_actions
from trimtab.actuation.effective_size import raise_cpu
from trimtab.actuation.executor import ChangeExecutor
from trimtab.actuation.resources import adds_memory
from trimtab.api.optimizationpolicy import MaintenanceWindow, StartupBoost
from trimtab.kube.kinds.pods import ContainerTermination, Pod, PodResize, Resources

SIZE = {"web": Resources(100, None, 256 * MIB, 256 * MIB)}
MORE = {"web": Resources(100, None, 512 * MIB, 512 * MIB)}
LESS_CPU = {"web": Resources(50, None, 256 * MIB, 256 * MIB)}
KILLED = {"web": ContainerTermination("OOMKilled", 137, NOW - 5)}
NEED = {"web": 250 * MIB}
NIGHTS = [MaintenanceWindow(start="00:00", end="01:00", time_zone="UTC")]
RESTS = RevertRecord(id="x", at=NOW - 60, why="1 of 4 pods restarted", times=9, until=NOW + 7 * 86_400)


def urgent_change(**terms: Any) -> DesiredChange:
    return desired_change(terms.pop("sizes", MORE), is_urgent=True, needed_memory=NEED, **terms)


def killed_pod(number: int = 0, **facts: Any) -> Pod:
    return pod(f"web-{number}", sizes=facts.pop("sizes", SIZE), exits=KILLED, **facts)


def observe_annotated(
    change_annotations: ChangeAnnotations,
    pods: list[Pod],
    wanted: DesiredChange,
    *,
    now: int = NOW,
    **facts: Any,
) -> Observation:
    seen = LocalObservations(**facts.pop("seen", {}))
    on = workload(template=SIZE, change_annotations=change_annotations, replicas=len(pods), **facts)
    return observation(wanted, pods=pods, on=on, now=now, local=seen)


def recorded(actions: list[ChangeAction]) -> ChangeAnnotations:
    (found,) = [action.annotations for action in actions if isinstance(action, WriteAnnotations)]
    return found


# What it does not wait for


@given(
    reverted=st.none() | st.just(RESTS),
    guardrail=st.sampled_from([True, False, None]),
    windows=st.sampled_from([(), NIGHTS]),
    starts=st.booleans(),
    unready=st.booleans(),
    rolling=st.booleans(),
    observed=st.booleans(),
    unread=st.sampled_from(["", "prometheus: refused"]),
    applied=st.booleans(),
)
def test_relief_begins_at_once_whatever_else_would_wait(
    *,
    reverted: RevertRecord | None,
    guardrail: bool | None,
    windows: Sequence[MaintenanceWindow],
    starts: bool,
    unready: bool,
    rolling: bool,
    observed: bool,
    unread: str,
    applied: bool,
) -> None:
    rule = StartupBoost(factor=2)
    pods = [killed_pod(n, ready=not unready) for n in range(9)]
    if starts:
        pods.append(pod("new", sizes=raise_cpu(SIZE, 2.0), created=NOW - 20, ready=False))
    done = AppliedSizes(id="a", at=NOW - 10, sizes=SIZE, template=SIZE) if applied else None
    wanted = urgent_change(
        harm_signals=harm_signals(guardrails={"errors": guardrail}),
        windows=windows,
        startup_boost=rule,
        usage_error=unread,
    )
    change_annotations = ChangeAnnotations(applied=done, reverted=reverted)
    begins = start_change(
        observe_annotated(change_annotations, pods, wanted, rolling=rolling, is_spec_observed=observed)
    )
    assert (begins.after, begins.relief, begins.method) == (MORE, True, UpdateMethod.IN_PLACE)
    assert begins.phase is Phase.PROMOTING


def test_change_that_is_no_relief_waits_for_its_conditions() -> None:
    four = [pod(f"web-{n}", sizes=SIZE) for n in range(4)]
    change_annotations = ChangeAnnotations(reverted=RESTS)
    assert "was reverted" in wait_reason(
        next_actions(observe_annotated(change_annotations, four, desired_change(MORE, needed_memory=NEED)))
    )
    broken = desired_change(MORE, needed_memory=NEED, harm_signals=harm_signals(guardrails={"errors": False}))
    assert "guardrail errors" in wait_reason(
        next_actions(observe_annotated(ChangeAnnotations(), four, broken))
    )


def test_relief_by_rollout_waits_for_the_rollout_under_way() -> None:
    wanted = urgent_change(allow_recreate=True, can_resize_in_place=False)
    assert "a rollout of the workload is in progress" in wait_reason(
        next_actions(observe_annotated(ChangeAnnotations(), [killed_pod()], wanted, rolling=True))
    )


@pytest.mark.parametrize(
    ("policy", "is_urgent", "replaces"),
    [
        ({}, True, False),
        ({"allow_recreate_on_oom": True}, True, True),
        ({"allow_recreate_on_oom": True}, False, False),
        ({"allow_recreate": True}, False, True),
    ],
)
def test_relief_replaces_pods_where_the_policy_allows_it_after_oom_kills(
    policy: dict[str, bool],
    is_urgent: bool,  # noqa: FBT001 - a case of the table
    replaces: bool,  # noqa: FBT001 - a case of the table
) -> None:
    wanted = desired_change(
        MORE, is_urgent=is_urgent, needed_memory=NEED, can_resize_in_place=False, **policy
    )
    case = observe_annotated(ChangeAnnotations(), [killed_pod()], wanted)
    if replaces:
        assert start_change(case).method is UpdateMethod.ROLLOUT
    else:
        assert "allowRecreate" in wait_reason(next_actions(case))


# What does not take it back


def test_relief_continues_during_a_broken_guardrail_and_a_rollout_of_others() -> None:
    broken = urgent_change(harm_signals=harm_signals(guardrails={"errors": False, "latency": None}))
    begins = start_change(observe_annotated(ChangeAnnotations(), [killed_pod(n) for n in range(4)], broken))
    given_more = [killed_pod(n, sizes=MORE) for n in range(4)]
    settled = recorded(
        next_actions(observe_annotated(ChangeAnnotations(change=begins), given_more, broken, rolling=True))
    ).change
    assert settled
    assert settled.phase is Phase.VERIFYING
    done = recorded(
        next_actions(
            observe_annotated(
                ChangeAnnotations(change=settled), given_more, broken, now=NOW + 600, rolling=True
            )
        )
    )
    assert done.applied
    assert done.applied.sizes == MORE


@pytest.mark.parametrize("reason", ["Deferred", "Infeasible"])
def test_relief_continues_beside_a_pod_without_capacity(reason: str) -> None:
    begins = start_change(
        observe_annotated(ChangeAnnotations(), [killed_pod(n) for n in range(4)], urgent_change())
    )
    full = killed_pod(
        0, sizes=MORE, applied=SIZE, resize=PodResize("PodResizePending", reason, "no capacity")
    )
    pods = [full, *(killed_pod(n, sizes=MORE) for n in range(1, 4))]
    seen = {"unsettled_since": {full.uid: NOW}}
    late = NOW + DEADLINES.deferred + 1
    goes_on = recorded(
        next_actions(
            observe_annotated(ChangeAnnotations(change=begins), pods, urgent_change(), now=late, seen=seen)
        )
    ).change
    assert goes_on
    assert goes_on.phase is Phase.VERIFYING
    alone = recorded(
        next_actions(
            observe_annotated(ChangeAnnotations(change=begins), [full], urgent_change(), now=late, seen=seen)
        )
    ).change
    assert alone
    assert alone.phase is Phase.REVERTING


def test_relief_continues_beside_a_pod_that_admission_gave_even_more_memory() -> None:
    """Reverted, the pods without capacity would take the memory from the others, which are OOM killed again."""
    pods = [killed_pod(n) for n in range(4)]
    wanted = urgent_change(allow_recreate=True, allow_in_place_resize=False)
    begins = start_change(observe_annotated(ChangeAnnotations(), pods, wanted))
    assert begins.method is UpdateMethod.ROLLOUT
    even_more = {"web": Resources(100, None, 640 * MIB, 640 * MIB)}
    late = NOW + DEADLINES.progress + 1
    came = pod("web-9", sizes=even_more, created=NOW + 60)

    def step(live: list[Pod]) -> OngoingChange | None:
        facts: dict[str, Any] = {"change_annotations": ChangeAnnotations(change=begins), "replicas": 4}
        on = workload(template=MORE, rolling=True, **facts)
        seen = LocalObservations(patched_change=begins.id, observed_since=NOW)
        return recorded(next_actions(observation(wanted, pods=live, on=on, now=late, local=seen))).change

    goes_on, alone = step([*pods[:3], came]), step(pods)
    assert goes_on is not None
    assert goes_on.phase is Phase.VERIFYING
    assert alone is not None
    assert alone.phase is Phase.REVERTING


def test_relief_that_fails_is_retried_after_minutes_and_then_more_slowly() -> None:
    """Else it would be asked for at every look; and a week, as after other reverts, is a week of kills."""
    rests, change_annotations, now = [], ChangeAnnotations(reverted=RESTS), NOW
    for _ in range(6):
        begins = start_change(observe_annotated(change_annotations, [killed_pod()], urgent_change(), now=now))
        failed = msgspec.structs.replace(begins, phase=Phase.REVERTING, reason="no capacity")
        change_annotations = recorded(
            next_actions(
                observe_annotated(
                    with_change(change_annotations, failed), [killed_pod()], urgent_change(), now=now
                )
            )
        )
        assert change_annotations.reverted
        assert (change_annotations.reverted.times, change_annotations.reverted.until) == (
            RESTS.times,
            RESTS.until,
        ), "other changes rest on"
        assert "no capacity" in wait_reason(
            next_actions(observe_annotated(change_annotations, [killed_pod()], urgent_change(), now=now + 1))
        )
        rests.append(change_annotations.reverted.relief_until - now)
        now = change_annotations.reverted.relief_until
    assert rests == [
        DEADLINES.not_at_fault_cooldown,
        600,
        1200,
        2400,
        DEADLINES.min_cooldown,
        DEADLINES.min_cooldown,
    ]


def with_change(change_annotations: ChangeAnnotations, change: OngoingChange) -> ChangeAnnotations:
    return ChangeAnnotations(
        change=change, applied=change_annotations.applied, reverted=change_annotations.reverted
    )


# What gives way to it


def cpu_decrease(phase: Phase = Phase.CANARY, **terms: Any) -> OngoingChange:
    """A change of CPU alone, tried on one of four pods."""
    four = [pod(f"web-{n}", sizes=SIZE) for n in range(4)]
    begins = start_change(
        observe_annotated(ChangeAnnotations(), four, desired_change(LESS_CPU, needed_memory=NEED, **terms))
    )
    return msgspec.structs.replace(begins, phase=phase)


def test_relief_replaces_another_canary() -> None:
    pods = [killed_pod(n) for n in range(3)] + [pod("web-3", sizes=LESS_CPU)]
    back = recorded(
        next_actions(observe_annotated(ChangeAnnotations(change=cpu_decrease()), pods, urgent_change()))
    ).change
    assert back
    assert (back.phase, back.not_at_fault) == (Phase.REVERTING, True)
    assert "goes first" in back.reason


def test_relief_replaces_a_change_that_waits_for_its_window() -> None:
    closed: dict[str, Any] = {"windows": NIGHTS}
    waits = cpu_decrease(Phase.PROMOTING)
    pods = [killed_pod(n) for n in range(3)] + [pod("web-3", sizes=LESS_CPU)]
    back = recorded(
        next_actions(observe_annotated(ChangeAnnotations(change=waits), pods, urgent_change(**closed)))
    ).change
    assert back
    assert back.phase is Phase.REVERTING
    enough = urgent_change(sizes=LESS_CPU, **closed)
    assert "window" in wait_reason(
        next_actions(observe_annotated(ChangeAnnotations(change=waits), pods, enough))
    ), "it gives the requested size"


def test_relief_does_not_apply_to_a_held_workload() -> None:
    """A revert was abandoned for relief that the hold forbade: a pod kept a tenth of its CPU despite capacity."""
    held = {"hold_reason": "held by ann"}
    waits = cpu_decrease(Phase.PROMOTING)
    pods = [killed_pod(n) for n in range(3)] + [pod("web-3", sizes=LESS_CPU)]
    assert "window" in wait_reason(
        next_actions(
            observe_annotated(ChangeAnnotations(change=waits), pods, urgent_change(windows=NIGHTS, **held))
        )
    )
    back = msgspec.structs.replace(cpu_decrease(Phase.REVERTING), since=NOW - 100)
    deferred = pod(
        "web-3", sizes=SIZE, applied=LESS_CPU, resize=PodResize("PodResizePending", "Deferred", "full")
    )
    seen = {"unsettled_since": {deferred.uid: NOW - 90}, "observed_since": NOW - 100}
    reverting = observe_annotated(
        ChangeAnnotations(change=back), [*pods[:3], deferred], urgent_change(**held), seen=seen
    )
    assert "the previous size is not in effect yet on pod web-3" in wait_reason(next_actions(reverting))


def test_relief_waits_for_a_change_that_continues_by_itself() -> None:
    """It takes minutes, and to turn round in the middle of a rollout would take longer."""
    pods = [killed_pod(n, sizes=LESS_CPU) for n in range(4)]
    actions = next_actions(
        observe_annotated(ChangeAnnotations(change=cpu_decrease(Phase.PROMOTING)), pods, urgent_change())
    )
    assert not any(isinstance(action, EvictPod) for action in actions)
    change = recorded(actions).change
    assert change
    assert change.phase is Phase.VERIFYING


def test_relief_comes_within_minutes_after_a_revert_with_a_week_of_rest() -> None:
    world = World(template=SIZE, replicas=4)
    actuator = ChangeExecutor(world, world.records, may_write=lambda: True)
    world.annotations = encode_change_annotations(ChangeAnnotations(reverted=RESTS), uid="uid-web")
    world.needed_memory = 300 * MIB
    for _ in range(10):
        world.pass_time(30)
        run(
            actuator.reconcile(KEY, replace(urgent_change(), needed_memory={"web": 300 * MIB}), now=world.now)
        )
    assert world.sizes == {(("web", MORE["web"]),)}


def test_relief_that_removes_a_memory_limit_counts_as_an_increase() -> None:
    unlimited = {"web": Resources(100, None, 256 * MIB, None)}
    assert adds_memory(SIZE, unlimited)
    assert not adds_memory(unlimited, SIZE)
    assert adds_memory(SIZE, MORE)
    assert not adds_memory(MORE, SIZE)
