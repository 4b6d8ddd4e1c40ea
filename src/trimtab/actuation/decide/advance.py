"""A change under way: touch the pods of its phase, wait until they have settled, watch them, go on or turn back.

Worse is acted on at once. Good is believed only after the observation time, and only where nothing is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trimtab.actuation.actions import (
    ChangeAction,
    EmitEvent,
    EvictPod,
    PatchTemplate,
    Priority,
    ResizePod,
    Wait,
    WriteAnnotations,
)
from trimtab.actuation.change_annotations import (
    AppliedSizes,
    ChangeAnnotations,
    OngoingChange,
    Phase,
    UpdateMethod,
)
from trimtab.actuation.decide.conflicts import (
    REPLACING_METHODS,
    assess_change,
    is_crash_looping,
    is_rollout_complete,
    is_window_open,
    must_yield_to_oom_relief,
    pods_skipped_by_controller,
    rejection_reason,
    superseded_reason,
    target_size,
    template_rejection_reason,
)
from trimtab.actuation.decide.context import ChangeContext
from trimtab.actuation.decide.health import find_future_exits
from trimtab.actuation.decide.maintenance_windows import next_opening
from trimtab.actuation.decide.method import MethodChoice, choose_replacement, list_resizable
from trimtab.actuation.decide.stalls import (
    awaited_pods_without_capacity,
    count_missing_pods,
    crash_loop_reason,
    eviction_failure,
    needs_another_renewal,
    pods_to_move,
    stall_reason,
)
from trimtab.actuation.decide.start import DAY, MAX_CANARIES, RECHECK_INTERVAL, choose_canaries
from trimtab.actuation.resources import (
    format_sizes,
    has_increase,
    has_size,
    is_settled,
    merge_sizes,
    select_sizes,
)
from trimtab.actuation.started_limits import memory_limits_at_start
from trimtab.kube.kinds.pods import Pod

POLL_INTERVAL = 15
"""Seconds until pods are looked at again, should no event tell of them before."""


def advance(  # noqa: PLR0911 - one return a step
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange
) -> list[ChangeAction]:
    """One step further with a change that is not being taken back."""
    if turn := _change_course(situation, marks, change):
        return turn
    pods = _phase_pods(situation, change)
    if not pods and change.phase is Phase.CANARY:
        return [_replace_canaries(situation, marks, change)]
    done_without = _can_proceed_without(situation, change, pods)
    if not done_without and (touches := _pending_actions(situation, marks, change, pods)):
        closed = _wait_for_window(situation, change) if change.phase is Phase.PROMOTING else None
        return [*_resizes_outside_window(change, touches), closed] if closed else touches
    if moving := pods_to_move(situation, change):
        return _evict_for_capacity(situation, marks, change, moving)
    if waits := _wait_until_settled(situation, marks, change, pods):
        return waits
    if change.phase is Phase.PROMOTING:
        return [_record_settled(situation, marks, change, phase=Phase.VERIFYING)]
    if not change.settled:
        return [_record_settled(situation, marks, change)]
    return _observe(situation, marks, change)


def _change_course(  # noqa: PLR0911 - one return a turn
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange
) -> list[ChangeAction]:
    """Where it cannot go on as it does: back, or another way."""
    if why := superseded_reason(situation, change):
        return _start_revert(situation, marks, change, why=why, not_at_fault=True)
    if change.phase is Phase.CANARY and (why := situation.desired.hold_reason):
        # Held at its size, which most pods still have. One that is meant for all pods comes to its end.
        return _start_revert(situation, marks, change, why=why, not_at_fault=True)
    if change.way is UpdateMethod.IN_PLACE and template_rejection_reason(situation, change):
        # It was to follow only because that restarts nothing; pods get their size without it, also those to come.
        return [update_change(marks, change, patches_template=False)]
    if must_yield_to_oom_relief(situation, change):
        why = "more memory after an OOM kill goes first"
        return _start_revert(situation, marks, change, why=why, not_at_fault=True)
    found = rejection_reason(situation, change) or assess_change(situation, change).worse
    if why := found or eviction_failure(situation, change):
        return _start_revert(situation, marks, change, why=why)
    if pods_to_move(situation, change):
        return []  # they are moved, once all others are resized
    if others := _switch_to_replacement(situation, marks, change):
        return others
    if (why := stall_reason(situation, change)) and not _is_relieving_others(situation, change):
        return _start_revert(situation, marks, change, why=why)
    return []


def _phase_pods(situation: ChangeContext, change: OngoingChange) -> list[Pod]:
    if _is_replacing_pods(change):
        return list(situation.live)
    pods = list_resizable(situation, situation.live, change.after)
    return [pod for pod in pods if change.phase is not Phase.CANARY or pod.name in change.canaries]


def _replace_canaries(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange
) -> ChangeAction:
    """All canaries are gone: scaled in, or replaced. Others take their place."""
    if not situation.live:
        return Wait(situation.now + POLL_INTERVAL, "it has no pods at the moment")
    if change.moved and (away := count_missing_pods(situation)):
        return Wait(situation.now + POLL_INTERVAL, f"{away} of its pods are missing")
    if change.moved and (came := [pod.name for pod in situation.live if pod.created > change.started]):
        # Before another is evicted, it is seen whether that has helped.
        return update_change(marks, change, canaries=tuple(came[:MAX_CANARIES]), settled=0)
    chosen = choose_canaries(situation, list_resizable(situation, situation.live, change.after))
    phase = Phase.CANARY if chosen else Phase.PROMOTING
    return _enter_phase(situation, marks, change, canaries=chosen, phase=phase)


def _pending_actions(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange, pods: Sequence[Pod]
) -> list[ChangeAction]:
    """What is still to be given the new size in this phase."""
    if change.patches_template and change.phase is not Phase.CANARY:
        wanted = merge_sizes(situation.template_sizes, change.after)
        if wanted != situation.template_sizes:
            return [PatchTemplate(wanted, situation.strategy.take_ownership)]
        if change.way is UpdateMethod.RECREATE and not situation.workload.is_spec_observed:
            return [Wait(situation.now + POLL_INTERVAL, "its controller has yet to see the changed template")]
        if needs_another_renewal(situation, change):
            return [update_change(marks, change, renews=situation.now)]
    urgency = Priority.INCREASE if has_increase(change.before, change.after) else Priority.DECREASE
    if change.way is UpdateMethod.IN_PLACE or change.phase is Phase.CANARY:
        behind = [pod for pod in pods if not has_size(pod, change.after)]
        return [
            ResizePod(pod, target_size(pod, change), urgency) for pod in behind if not is_crash_looping(pod)
        ]
    # Only the pods of before: to evict one that has just come, and is of another size, would never end.
    old = [pod for pod in pods if not change.is_created_by_change(pod) and not is_settled(pod, change.after)]
    if change.way is UpdateMethod.RECREATE:
        old = [pod for pod in old if is_crash_looping(pod) or not situation.unavailable_pods]
    else:
        old = pods_skipped_by_controller(situation, old)
    return [EvictPod(pod, urgency) for pod in old[:1]]


def _resizes_outside_window(change: OngoingChange, touches: Sequence[ChangeAction]) -> list[ChangeAction]:
    """Return the resizes that wait for no window, as pod sync never does.

    They are of pods that came since: one in the place of a pod that we evicted may find a node by its new size only, and
    one of the template's size would have less than all others until a window opens.
    """

    def came_since(pod: Pod) -> bool:
        return pod.created > change.started and (change.moved or not has_size(pod, change.before))

    return [deed for deed in touches if isinstance(deed, ResizePod) and came_since(deed.pod)]


def _wait_until_settled(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange, pods: Sequence[Pod]
) -> list[ChangeAction]:
    """What is done while some of the pods do not have the new size in effect; nothing when all have."""
    waiting = _describe_unsettled(situation, change, pods)
    if not waiting:
        return []
    yet = f"it has yet to take effect on {waiting}"
    if change.phase is not Phase.VERIFYING:
        return _wait_for_crashing_pods(situation, marks, change, pods, yet=yet)
    if not _is_overdue(situation, change, pods):
        return [Wait(situation.now + POLL_INTERVAL, yet)]
    # A pod that came later is resized later, once it can be; and it is no reason to take from others what keeps them alive.
    if change.way is UpdateMethod.IN_PLACE or change.relief:
        return []
    return _start_revert(situation, marks, change, why=f"{yet}, for too long")


def _wait_for_crashing_pods(
    situation: ChangeContext,
    marks: ChangeAnnotations,
    change: OngoingChange,
    pods: Sequence[Pod],
    *,
    yet: str,
) -> list[ChangeAction]:
    """What is done while pods are waited for that may fall, again and again, before they can be resized.

    What else pods wait for comes to its end by itself, or is `stuck`.
    """
    if _can_proceed_without(situation, change, pods):
        return []
    lacking = [pod for pod in pods if not is_settled(pod, change.after)]
    fallen = [pod for pod in lacking if is_crash_looping(pod) and not has_size(pod, change.after)]
    if _is_replacing_pods(change) or not fallen or fallen != lacking:
        return [Wait(situation.now + POLL_INTERVAL, yet)]
    yet += ", which falls before it can be resized"
    if situation.now < _deadline(situation, change.since):
        return [Wait(situation.now + POLL_INTERVAL, yet)]
    # The others go on without it, and it is resized once it runs.
    return (
        [] if len(fallen) < len(pods) else _start_revert(situation, marks, change, why=yet, not_at_fault=True)
    )


def _can_proceed_without(situation: ChangeContext, change: OngoingChange, pods: Sequence[Pod]) -> bool:
    """Whether pods that do not have the new size, or cannot be given it, are left to pod sync: they were tried for long enough."""
    if change.phase is Phase.VERIFYING:
        return change.way is UpdateMethod.IN_PLACE and _is_overdue(situation, change, pods)
    return bool(stall_reason(situation, change)) and _is_relieving_others(situation, change)


def _is_overdue(situation: ChangeContext, change: OngoingChange, pods: Sequence[Pod]) -> bool:
    """Whether pods that came after the others were waited for as long as they may be."""
    # Where pods come and go all the time, one has always just come.
    at_the_latest = max(change.settled, situation.observations.observed_since) + DAY
    return situation.now >= _deadline(situation, min(_unavailable_since(change, pods), at_the_latest))


def _is_relieving_others(situation: ChangeContext, change: OngoingChange) -> bool:
    """Whether some pods have got the memory that they were killed for lack of: others without room do not cost them that."""
    is_written = situation.template_sizes == merge_sizes(situation.template_sizes, change.after)
    goes_on = change.relief and (is_written or not _is_replacing_pods(change))
    return goes_on and any(pod.ready and pod.node and is_settled(pod, change.after) for pod in situation.live)


def _switch_to_replacement(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange
) -> list[ChangeAction]:
    """Where those pods that run will not get the size, and new ones may: on another node, or from their very start."""
    full = awaited_pods_without_capacity(situation, change)
    if full and (situation.workload.kind == "DaemonSet" or situation.workload.update_strategy == "Recreate"):
        return []  # they would come to the same node; or all would go at once, and there may be no room for any to come
    why = next(iter(full), "") or crash_loop_reason(situation, change)
    found = choose_replacement(situation, why) if why else None
    # Whoever injects the others gives them their size in pods that are made anew.
    after = select_sizes(change.after, situation.template_sizes)
    if not isinstance(found, MethodChoice) or after == select_sizes(change.before, situation.template_sizes):
        return []
    noted = _enter_phase(
        situation,
        marks,
        change,
        way=found.method,
        after=after,
        patches_template=True,
        phase=Phase.PROMOTING,
    )
    return [noted, EmitEvent("Normal", "Replacing", f"its pods are replaced: {why}")]


def _evict_for_capacity(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange, moving: Mapping[str, Pod]
) -> list[ChangeAction]:
    """Evict one of them, and leave the others in peace."""
    if not change.moved:
        return [update_change(marks, change, moved=True)]
    if closed := _wait_for_window(situation, change):
        return [closed]
    if situation.unavailable_pods:
        return [
            Wait(
                situation.now + POLL_INTERVAL,
                f"{situation.unavailable_pods} of its pods are missing or not ready",
            )
        ]
    why, pod = next(iter(moving.items()))
    return [
        EvictPod(pod, Priority.INCREASE),
        EmitEvent("Normal", "Replacing", f"{pod.name} is evicted: {why}"),
    ]


def _describe_unsettled(situation: ChangeContext, change: OngoingChange, pods: Sequence[Pod]) -> str:
    """Which pods do not have the new size in effect; empty when all have."""
    if change.way is UpdateMethod.TEMPLATE:
        return ""
    if _is_replacing_pods(change) and not is_rollout_complete(situation):
        return "the replaced pods"
    if change.moved and (away := count_missing_pods(situation)):
        return f"{away} of its pods, which are missing"
    names = [pod.name for pod in pods if not is_settled(pod, change.after) or (change.moved and not pod.node)]
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else "".join(names)


def _is_replacing_pods(change: OngoingChange) -> bool:
    """Whether pods get the size by being made anew; canaries of such a change are resized."""
    return change.way in REPLACING_METHODS and change.phase is not Phase.CANARY


def _observe(situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange) -> list[ChangeAction]:
    """All pods of the phase have settled: watch them for a time, then go on."""
    now, canary = situation.now, situation.strategy.canary
    watched_until = change.settled + int(canary.observation.seconds)
    if now < watched_until:
        return [Wait(min(watched_until, now + RECHECK_INTERVAL), "watching how the pods fare")]
    if unknown := assess_change(situation, change).unknown or _unobserved_reason(situation, change):
        if now < (given_up := _deadline(situation, change.settled)):
            return [Wait(min(given_up, now + RECHECK_INTERVAL), unknown)]
        return _start_revert(situation, marks, change, why=f"{unknown}, and was so for too long")
    if change.phase is Phase.CANARY:
        noted = _enter_phase(situation, marks, change, phase=Phase.PROMOTING)
        return [_wait_for_window(situation, change) or noted]
    template = merge_sizes(change.template, change.after) if change.patches_template else change.template
    applied = AppliedSizes(
        id=change.id,
        at=now,
        sizes=change.after,
        template=template,
        before=change.before,
        until=change.settled,
        restarted=last_restart(marks, change),
        started=heap_limits_at_start(situation, marks),
    )
    return [
        WriteAnnotations(ChangeAnnotations(applied=applied)),
        EmitEvent("Normal", "Resized", f"to {format_sizes(change.after)}"),
    ]


def last_restart(marks: ChangeAnnotations, change: OngoingChange) -> int:
    """Return when a change last restarted pods, this one included."""
    if change.way in REPLACING_METHODS or change.restarts:
        return change.started
    return marks.applied.restarted if marks.applied else 0


def heap_limits_at_start(situation: ChangeContext, marks: ChangeAnnotations) -> dict[str, int]:
    """Return the memory limits that the processes started with, of containers whose heap may be a share of it."""
    limits = memory_limits_at_start(situation.workload, situation.live, marks).largest
    return {
        hint.container: limits[hint.container]
        for hint in situation.workload.heap_flags
        if hint.container in limits
    }


def _deadline(situation: ChangeContext, since: int) -> int:
    """When a change whose pods have settled is no longer waited for, of which something is amiss since then."""
    canary = situation.strategy.canary
    since = max(since, situation.observations.observed_since)
    return since + int(canary.observation.seconds) + int(canary.patience.seconds)


def _unavailable_since(change: OngoingChange, pods: Sequence[Pod]) -> int:
    """Since when a pod that came after the others can have been without its size, or not ready."""
    came = [pod.created for pod in pods if not (pod.ready and is_settled(pod, change.after))]
    return max(change.settled, min(came, default=0))


def _unobserved_reason(situation: ChangeContext, change: OngoingChange) -> str:
    """Whether no pod has lived through the observation: those that were to be watched were replaced."""
    watched_since = situation.now - int(situation.strategy.canary.observation.seconds)
    pods = _phase_pods(situation, change)
    if change.way is UpdateMethod.TEMPLATE or any(pod.created <= watched_since for pod in pods):
        return ""
    return "no pod has been there long enough to be watched"


def _wait_for_window(situation: ChangeContext, change: OngoingChange) -> Wait | None:
    """A window that closed meanwhile stops a change where it is."""
    if is_window_open(situation, change):
        return None
    opening = next_opening(situation.strategy.windows, now=situation.now)
    return Wait(opening or situation.now + RECHECK_INTERVAL, "no maintenance window is open")


def update_change(marks: ChangeAnnotations, change: OngoingChange, **changes: object) -> WriteAnnotations:
    """Write down that this is otherwise in the change."""
    return WriteAnnotations(msgspec.structs.replace(marks, change=msgspec.structs.replace(change, **changes)))


def _enter_phase(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange, **changes: object
) -> WriteAnnotations:
    """Note that a phase begins now, and which ends of containers were known by then."""
    now = situation.now
    return update_change(
        marks, change, since=now, settled=0, ends=find_future_exits(situation.live, now=now), **changes
    )


def _record_settled(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange, **changes: object
) -> WriteAnnotations:
    """Note that all pods of the phase have their size."""
    now = situation.now
    # Of a change that itself restarts containers, restarts count from here on.
    ends = find_future_exits(situation.live, now=now) if change.restarts else change.ends
    return update_change(marks, change, settled=now, ends=ends, **changes)


def _start_revert(
    situation: ChangeContext,
    marks: ChangeAnnotations,
    change: OngoingChange,
    *,
    why: str,
    not_at_fault: bool = False,
) -> list[ChangeAction]:
    noted = update_change(
        marks,
        change,
        phase=Phase.REVERTING,
        since=situation.now,
        settled=0,
        reason=why[:1024],
        blameless=not_at_fault,
    )
    return [noted, EmitEvent("Warning", "Reverting", why)]
