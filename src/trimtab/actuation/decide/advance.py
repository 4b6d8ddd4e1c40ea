"""Advance a change under way: act on the pods of its phase, wait until they have settled, observe them, go on
or revert.

A change for the worse is acted on at once. A good result counts only after the observation time, and only if
nothing is unknown.
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
"""Seconds until pods are checked again if no event reports them before."""


def advance(  # noqa: PLR0911 - one return a step
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange
) -> list[ChangeAction]:
    """Return the next actions of a change that is not being reverted."""
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
    """Return the actions that end or redirect a change that cannot go on as it does."""
    if why := superseded_reason(situation, change):
        return _start_revert(situation, marks, change, why=why, not_at_fault=True)
    if change.phase is Phase.CANARY and (why := situation.desired.hold_reason):
        # A canary is reverted: most pods still have the size at which the workload is held. A change that
        # covers all pods is finished.
        return _start_revert(situation, marks, change, why=why, not_at_fault=True)
    if change.way is UpdateMethod.IN_PLACE and template_rejection_reason(situation, change):
        # The template was to follow only because that restarts nothing. Pods get their size without it, later
        # ones too.
        return [update_change(marks, change, patches_template=False)]
    if must_yield_to_oom_relief(situation, change):
        why = "more memory after an OOM kill goes first"
        return _start_revert(situation, marks, change, why=why, not_at_fault=True)
    found = rejection_reason(situation, change) or assess_change(situation, change).worse
    if why := found or eviction_failure(situation, change):
        return _start_revert(situation, marks, change, why=why)
    if pods_to_move(situation, change):
        return []  # These pods are evicted once all others are resized.
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
    """Choose other canaries after all of them were scaled in or replaced."""
    if not situation.live:
        return Wait(situation.now + POLL_INTERVAL, "it has no pods at the moment")
    if change.moved and (away := count_missing_pods(situation)):
        return Wait(situation.now + POLL_INTERVAL, f"{away} of its pods are missing")
    if change.moved and (came := [pod.name for pod in situation.live if pod.created > change.started]):
        # Before another pod is evicted, check whether the first eviction helped.
        return update_change(marks, change, canaries=tuple(came[:MAX_CANARIES]), settled=0)
    chosen = choose_canaries(situation, list_resizable(situation, situation.live, change.after))
    phase = Phase.CANARY if chosen else Phase.PROMOTING
    return _enter_phase(situation, marks, change, canaries=chosen, phase=phase)


def _pending_actions(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange, pods: Sequence[Pod]
) -> list[ChangeAction]:
    """Return the actions that give the new size to the pods of this phase that do not have it."""
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
    # Only pods from before the change: evicting a new pod that has another size would never end.
    old = [pod for pod in pods if not change.is_created_by_change(pod) and not is_settled(pod, change.after)]
    if change.way is UpdateMethod.RECREATE:
        old = [pod for pod in old if is_crash_looping(pod) or not situation.unavailable_pods]
    else:
        old = pods_skipped_by_controller(situation, old)
    return [EvictPod(pod, urgency) for pod in old[:1]]


def _resizes_outside_window(change: OngoingChange, touches: Sequence[ChangeAction]) -> list[ChangeAction]:
    """Return the resizes that wait for no window, as pod sync never does.

    They are of pods created during the change: a replacement of an evicted pod may fit on a node only with
    its new size, and a pod with the template's size would have less than all others until a window opens.
    """

    def came_since(pod: Pod) -> bool:
        return pod.created > change.started and (change.moved or not has_size(pod, change.before))

    return [deed for deed in touches if isinstance(deed, ResizePod) and came_since(deed.pod)]


def _wait_until_settled(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange, pods: Sequence[Pod]
) -> list[ChangeAction]:
    """Return the actions while some pods do not have the new size in effect; nothing when all have."""
    waiting = _describe_unsettled(situation, change, pods)
    if not waiting:
        return []
    yet = f"it has yet to take effect on {waiting}"
    if change.phase is not Phase.VERIFYING:
        return _wait_for_crashing_pods(situation, marks, change, pods, yet=yet)
    if not _is_overdue(situation, change, pods):
        return [Wait(situation.now + POLL_INTERVAL, yet)]
    # A later pod is resized as soon as it can be, and is no reason to take from the others what keeps them
    # alive.
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
    """Return the actions while pods may crash again and again before they can be resized.

    Everything else that pods wait for ends by itself or is a stall.
    """
    if _can_proceed_without(situation, change, pods):
        return []
    lacking = [pod for pod in pods if not is_settled(pod, change.after)]
    fallen = [pod for pod in lacking if is_crash_looping(pod) and not has_size(pod, change.after)]
    if _is_replacing_pods(change) or not fallen or fallen != lacking:
        return [Wait(situation.now + POLL_INTERVAL, yet)]
    yet += ", which crashes before it can be resized"
    if situation.now < _deadline(situation, change.since):
        return [Wait(situation.now + POLL_INTERVAL, yet)]
    # The others go on without these pods, which are resized once they run.
    return (
        [] if len(fallen) < len(pods) else _start_revert(situation, marks, change, why=yet, not_at_fault=True)
    )


def _can_proceed_without(situation: ChangeContext, change: OngoingChange, pods: Sequence[Pod]) -> bool:
    """Return whether pods without the new size are left to pod sync, because they were tried for long enough."""
    if change.phase is Phase.VERIFYING:
        return change.way is UpdateMethod.IN_PLACE and _is_overdue(situation, change, pods)
    return bool(stall_reason(situation, change)) and _is_relieving_others(situation, change)


def _is_overdue(situation: ChangeContext, change: OngoingChange, pods: Sequence[Pod]) -> bool:
    """Return whether pods that were created after the others were waited for long enough."""
    # Without this limit a workload whose pods come and go all the time would never finish.
    at_the_latest = max(change.settled, situation.observations.observed_since) + DAY
    return situation.now >= _deadline(situation, min(_unavailable_since(change, pods), at_the_latest))


def _is_relieving_others(situation: ChangeContext, change: OngoingChange) -> bool:
    """Return whether some pods already have the memory that they were killed for. Pods without capacity do
    not take it from them.
    """
    is_written = situation.template_sizes == merge_sizes(situation.template_sizes, change.after)
    goes_on = change.relief and (is_written or not _is_replacing_pods(change))
    return goes_on and any(pod.ready and pod.node and is_settled(pod, change.after) for pod in situation.live)


def _switch_to_replacement(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange
) -> list[ChangeAction]:
    """Switch to replacing pods if the running ones will not get the size and new ones may, on another node or
    from their start.
    """
    full = awaited_pods_without_capacity(situation, change)
    if full and (situation.workload.kind == "DaemonSet" or situation.workload.update_strategy == "Recreate"):
        # The new pods would land on the same node; or all pods would go at once, with no capacity for any to
        # return.
        return []
    why = next(iter(full), "") or crash_loop_reason(situation, change)
    found = choose_replacement(situation, why) if why else None
    # Injected containers get their size from whoever injects them when a pod is recreated.
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
    """Evict one of these pods and leave the others as they are."""
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
    """Name the pods that do not have the new size in effect; empty when all have."""
    if change.way is UpdateMethod.TEMPLATE:
        return ""
    if _is_replacing_pods(change) and not is_rollout_complete(situation):
        return "the replaced pods"
    if change.moved and (away := count_missing_pods(situation)):
        return f"{away} of its pods, which are missing"
    names = [pod.name for pod in pods if not is_settled(pod, change.after) or (change.moved and not pod.node)]
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else "".join(names)


def _is_replacing_pods(change: OngoingChange) -> bool:
    """Return whether pods get the size by being recreated; canaries of such a change are resized."""
    return change.way in REPLACING_METHODS and change.phase is not Phase.CANARY


def _observe(situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange) -> list[ChangeAction]:
    """Observe the pods of a phase that have all settled, then go on."""
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
    """Return the memory limits that processes started with, for containers whose heap may be a share of the
    limit.
    """
    limits = memory_limits_at_start(situation.workload, situation.live, marks).largest
    return {
        hint.container: limits[hint.container]
        for hint in situation.workload.heap_flags
        if hint.container in limits
    }


def _deadline(situation: ChangeContext, since: int) -> int:
    """Return the deadline after which a change with an unresolved problem is abandoned."""
    canary = situation.strategy.canary
    since = max(since, situation.observations.observed_since)
    return since + int(canary.observation.seconds) + int(canary.evidence_timeout.seconds)


def _unavailable_since(change: OngoingChange, pods: Sequence[Pod]) -> int:
    """Return the earliest time since which a later pod can have been without its size, or not ready."""
    came = [pod.created for pod in pods if not (pod.ready and is_settled(pod, change.after))]
    return max(change.settled, min(came, default=0))


def _unobserved_reason(situation: ChangeContext, change: OngoingChange) -> str:
    """Return why the observation does not count: all observed pods were replaced meanwhile."""
    watched_since = situation.now - int(situation.strategy.canary.observation.seconds)
    pods = _phase_pods(situation, change)
    if change.way is UpdateMethod.TEMPLATE or any(pod.created <= watched_since for pod in pods):
        return ""
    return "no pod has been there long enough to be watched"


def _wait_for_window(situation: ChangeContext, change: OngoingChange) -> Wait | None:
    """Return the wait for the next maintenance window; None if one is open."""
    if is_window_open(situation, change):
        return None
    opening = next_opening(situation.strategy.windows, now=situation.now)
    return Wait(opening or situation.now + RECHECK_INTERVAL, "no maintenance window is open")


def update_change(marks: ChangeAnnotations, change: OngoingChange, **changes: object) -> WriteAnnotations:
    """Write these fields of the change to the workload."""
    return WriteAnnotations(msgspec.structs.replace(marks, change=msgspec.structs.replace(change, **changes)))


def _enter_phase(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange, **changes: object
) -> WriteAnnotations:
    """Enter a phase now, and record the container exits that are known by then."""
    now = situation.now
    return update_change(
        marks, change, since=now, settled=0, ends=find_future_exits(situation.live, now=now), **changes
    )


def _record_settled(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange, **changes: object
) -> WriteAnnotations:
    """Record that all pods of the phase have their size."""
    now = situation.now
    # A change that restarts containers counts restarts from here on only.
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
