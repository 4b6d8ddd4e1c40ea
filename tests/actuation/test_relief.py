"""More memory after an OOM kill: it waits for nothing that has nothing to do with it, and for nothing that the kills broke."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuation.builders import MIB, NOW, begun, evidence, pod, situation, why, wish, workload
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


def urgent(**terms: Any) -> DesiredChange:
    return wish(terms.pop("sizes", MORE), is_urgent=True, needed_memory=NEED, **terms)


def killed(number: int = 0, **facts: Any) -> Pod:
    return pod(f"web-{number}", sizes=facts.pop("sizes", SIZE), exits=KILLED, **facts)


def marked(
    marks: ChangeAnnotations, pods: list[Pod], wanted: DesiredChange, *, now: int = NOW, **facts: Any
) -> Observation:
    seen = LocalObservations(**facts.pop("seen", {}))
    on = workload(template=SIZE, marks=marks, replicas=len(pods), **facts)
    return situation(wanted, pods=pods, on=on, now=now, sightings=seen)


def noted(deeds: list[ChangeAction]) -> ChangeAnnotations:
    (found,) = [deed.annotations for deed in deeds if isinstance(deed, WriteAnnotations)]
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
    windows: Any,
    starts: bool,
    unready: bool,
    rolling: bool,
    observed: bool,
    unread: str,
    applied: bool,
) -> None:
    rule = StartupBoost(factor=2)
    pods = [killed(n, ready=not unready) for n in range(9)]
    if starts:
        pods.append(pod("new", sizes=raise_cpu(SIZE, 2.0), created=NOW - 20, ready=False))
    done = AppliedSizes(id="a", at=NOW - 10, sizes=SIZE, template=SIZE) if applied else None
    wanted = urgent(
        harm_signals=evidence(guardrails={"errors": guardrail}),
        windows=windows,
        startup_boost=rule,
        usage_error=unread,
    )
    marks = ChangeAnnotations(applied=done, reverted=reverted)
    begins = begun(marked(marks, pods, wanted, rolling=rolling, is_spec_observed=observed))
    assert (begins.after, begins.relief, begins.way) == (MORE, True, UpdateMethod.IN_PLACE)
    assert begins.phase is Phase.PROMOTING


def test_change_that_is_no_relief_waits_for_its_conditions() -> None:
    four = [pod(f"web-{n}", sizes=SIZE) for n in range(4)]
    marks = ChangeAnnotations(reverted=RESTS)
    assert "was reverted" in why(next_actions(marked(marks, four, wish(MORE, needed_memory=NEED))))
    broken = wish(MORE, needed_memory=NEED, harm_signals=evidence(guardrails={"errors": False}))
    assert "guardrail errors" in why(next_actions(marked(ChangeAnnotations(), four, broken)))


def test_relief_that_is_only_possible_by_a_rollout_waits_for_the_one_under_way() -> None:
    wanted = urgent(allow_recreate=True, can_resize_in_place=False)
    assert "a rollout of the workload is in progress" in why(
        next_actions(marked(ChangeAnnotations(), [killed()], wanted, rolling=True))
    )


# What does not take it back


def test_relief_goes_on_while_a_guardrail_is_broken_and_others_roll_it_out() -> None:
    broken = urgent(harm_signals=evidence(guardrails={"errors": False, "latency": None}))
    begins = begun(marked(ChangeAnnotations(), [killed(n) for n in range(4)], broken))
    given_more = [killed(n, sizes=MORE) for n in range(4)]
    settled = noted(
        next_actions(marked(ChangeAnnotations(change=begins), given_more, broken, rolling=True))
    ).change
    assert settled
    assert settled.phase is Phase.VERIFYING
    done = noted(
        next_actions(
            marked(ChangeAnnotations(change=settled), given_more, broken, now=NOW + 600, rolling=True)
        )
    )
    assert done.applied
    assert done.applied.sizes == MORE


@pytest.mark.parametrize("reason", ["Deferred", "Infeasible"])
def test_relief_continues_beside_a_pod_without_room(reason: str) -> None:
    begins = begun(marked(ChangeAnnotations(), [killed(n) for n in range(4)], urgent()))
    full = killed(0, sizes=MORE, applied=SIZE, resize=PodResize("PodResizePending", reason, "no room"))
    pods = [full, *(killed(n, sizes=MORE) for n in range(1, 4))]
    seen = {"unsettled_since": {full.uid: NOW}}
    late = NOW + DEADLINES.deferred + 1
    goes_on = noted(
        next_actions(marked(ChangeAnnotations(change=begins), pods, urgent(), now=late, seen=seen))
    ).change
    assert goes_on
    assert goes_on.phase is Phase.VERIFYING
    alone = noted(
        next_actions(marked(ChangeAnnotations(change=begins), [full], urgent(), now=late, seen=seen))
    ).change
    assert alone
    assert alone.phase is Phase.REVERTING


def test_relief_that_cannot_be_given_is_tried_again_after_minutes_and_then_more_slowly() -> None:
    """Else it would be asked for at every look; and a week, as after other reverts, is a week of kills."""
    rests, marks, now = [], ChangeAnnotations(reverted=RESTS), NOW
    for _ in range(6):
        begins = begun(marked(marks, [killed()], urgent(), now=now))
        failed = msgspec.structs.replace(begins, phase=Phase.REVERTING, reason="no room")
        marks = noted(next_actions(marked(replaced(marks, failed), [killed()], urgent(), now=now)))
        assert marks.reverted
        assert (marks.reverted.times, marks.reverted.until) == (RESTS.times, RESTS.until), (
            "other changes rest on"
        )
        assert "no room" in why(next_actions(marked(marks, [killed()], urgent(), now=now + 1)))
        rests.append(marks.reverted.relief_until - now)
        now = marks.reverted.relief_until
    assert rests == [
        DEADLINES.not_at_fault_cooldown,
        600,
        1200,
        2400,
        DEADLINES.min_cooldown,
        DEADLINES.min_cooldown,
    ]


def replaced(marks: ChangeAnnotations, change: OngoingChange) -> ChangeAnnotations:
    return ChangeAnnotations(change=change, applied=marks.applied, reverted=marks.reverted)


# What gives way to it


def lowered(phase: Phase = Phase.CANARY, **terms: Any) -> OngoingChange:
    """A change of CPU alone, tried on one of four pods."""
    four = [pod(f"web-{n}", sizes=SIZE) for n in range(4)]
    begins = begun(marked(ChangeAnnotations(), four, wish(LESS_CPU, needed_memory=NEED, **terms)))
    return msgspec.structs.replace(begins, phase=phase)


def test_relief_replaces_another_canary() -> None:
    pods = [killed(n) for n in range(3)] + [pod("web-3", sizes=LESS_CPU)]
    back = noted(next_actions(marked(ChangeAnnotations(change=lowered()), pods, urgent()))).change
    assert back
    assert (back.phase, back.blameless) == (Phase.REVERTING, True)
    assert "goes first" in back.reason


def test_relief_replaces_a_change_that_waits_for_its_window() -> None:
    closed: dict[str, Any] = {"windows": NIGHTS}
    waits = lowered(Phase.PROMOTING)
    pods = [killed(n) for n in range(3)] + [pod("web-3", sizes=LESS_CPU)]
    back = noted(next_actions(marked(ChangeAnnotations(change=waits), pods, urgent(**closed)))).change
    assert back
    assert back.phase is Phase.REVERTING
    enough = urgent(sizes=LESS_CPU, **closed)
    assert "window" in why(next_actions(marked(ChangeAnnotations(change=waits), pods, enough))), (
        "it brings what is asked for"
    )


def test_relief_does_not_apply_to_a_held_workload() -> None:
    """A revert was given up for relief that the hold forbade: a pod kept a tenth of its CPU though room came soon."""
    held = {"hold_reason": "held by ann"}
    waits = lowered(Phase.PROMOTING)
    pods = [killed(n) for n in range(3)] + [pod("web-3", sizes=LESS_CPU)]
    assert "window" in why(
        next_actions(marked(ChangeAnnotations(change=waits), pods, urgent(windows=NIGHTS, **held)))
    )
    back = msgspec.structs.replace(lowered(Phase.REVERTING), since=NOW - 100)
    deferred = pod(
        "web-3", sizes=SIZE, applied=LESS_CPU, resize=PodResize("PodResizePending", "Deferred", "full")
    )
    seen = {"unsettled_since": {deferred.uid: NOW - 90}, "observed_since": NOW - 100}
    reverting = marked(ChangeAnnotations(change=back), [*pods[:3], deferred], urgent(**held), seen=seen)
    assert "the previous size is not in effect yet on pod web-3" in why(next_actions(reverting))


def test_relief_waits_for_a_change_that_continues_by_itself() -> None:
    """It takes minutes, and to turn round in the middle of a rollout would take longer."""
    pods = [killed(n, sizes=LESS_CPU) for n in range(4)]
    deeds = next_actions(marked(ChangeAnnotations(change=lowered(Phase.PROMOTING)), pods, urgent()))
    assert not any(isinstance(deed, EvictPod) for deed in deeds)
    change = noted(deeds).change
    assert change
    assert change.phase is Phase.VERIFYING


def test_relief_comes_within_minutes_after_a_revert_with_a_week_of_rest() -> None:
    world = World(template=SIZE, replicas=4)
    actuator = ChangeExecutor(world, world.records, may_write=lambda: True)
    world.annotations = encode_change_annotations(ChangeAnnotations(reverted=RESTS), uid="uid-web")
    world.needed_memory = 300 * MIB
    for _ in range(10):
        world.pass_time(30)
        run(actuator.reconcile(KEY, replace(urgent(), needed_memory={"web": 300 * MIB}), now=world.now))
    assert world.sizes == {(("web", MORE["web"]),)}


def test_memory_without_a_limit_is_more_than_any_limit() -> None:
    unlimited = {"web": Resources(100, None, 256 * MIB, None)}
    assert adds_memory(SIZE, unlimited)
    assert not adds_memory(unlimited, SIZE)
    assert adds_memory(SIZE, MORE)
    assert not adds_memory(MORE, SIZE)
