"""Decide whether a new change starts: its sizes, its time and its method.

Called only while no change is under way. The result is the annotations of the change, or the reason why there
is none.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence

import msgspec

from trimtab.actuation.actions import ChangeAction, EmitEvent, Priority, Skip, Wait, WriteAnnotations
from trimtab.actuation.change_annotations import (
    MAX_BYTES,
    AppliedSizes,
    ChangeAnnotations,
    OngoingChange,
    Phase,
    UpdateMethod,
    encode_change_annotations,
)
from trimtab.actuation.decide.conflicts import (
    NO_WINDOW_OPENS,
    REPLACING_METHODS,
    TEMPLATE_RESET,
    was_template_reset,
)
from trimtab.actuation.decide.context import ChangeContext, DesiredChange
from trimtab.actuation.decide.health import find_future_exits, health_before
from trimtab.actuation.decide.maintenance_windows import next_opening
from trimtab.actuation.decide.method import (
    MethodChoice,
    choose_method,
    keeps_running_pods,
    limit_to_in_place,
    list_resizable,
)
from trimtab.actuation.decide.sync_pods import pods_needing_restart
from trimtab.actuation.resources import (
    Sizes,
    adds_memory,
    container_sizes,
    format_sizes,
    has_increase,
    has_size,
    limit_memory_decrease,
    merge_sizes,
    raise_only,
    select_sizes,
)
from trimtab.kube.kinds.pods import Pod, Resources

MAX_CANARIES = 32
MEMORY_LIMITS_FIXED = (
    "Kubernetes before 1.34 does not lower memory limits in place, and updateStrategy.allowRecreate is false"
)
DAY = 86_400
OUTDATED_RETRY = 5
"""Seconds until a recommendation that considers the current pods is expected."""
RECHECK_INTERVAL = 60
"""Seconds until a passing obstacle is checked again."""


def start_change(situation: ChangeContext, marks: ChangeAnnotations) -> list[ChangeAction]:  # noqa: PLR0911 - one return an answer
    """Record a new change if one is wanted, allowed and possible."""
    wish, workload = situation.desired, situation.workload
    if not wish.sizes:
        return [Skip(wish.no_sizes_reason or "there is no recommendation yet")]
    is_cron_job = workload.kind == "CronJob"
    if not situation.live and not is_cron_job:
        return [Skip("it has run to its end" if workload.finished else "it has no running pods")]
    if is_outdated(wish, situation.effective):
        return [Wait(situation.now + OUTDATED_RETRY, "its pods have changed since its size was recommended")]
    before, after = _compute_sizes(situation, marks)
    if after == before:
        return []
    if not wish.strategy.allow_recreate and not is_cron_job:
        possible = limit_to_in_place(situation, before, after)
        if possible == before:
            why = MEMORY_LIMITS_FIXED if wish.memory_limits_fixed else _explain_fixed_fields(before, after)
            return [] if marks.applied else [Skip(why)]
        after = possible
    chosen, before, after = _choose_damped_method(situation, marks, before, after)
    if obstacle := next(_iter_blockers(situation, marks, chosen), None):
        return [obstacle]
    if not isinstance(chosen, MethodChoice):
        return [] if marks.applied and after == before else _decline(chosen)
    change = _build_change(situation, before=before, after=after, chosen=chosen)
    noted = ChangeAnnotations(change=change, applied=marks.applied, reverted=marks.reverted)
    if sum(map(len, encode_change_annotations(noted, uid=workload.uid).values())) > MAX_BYTES:
        return [
            Skip("its pods are of too many different sizes to remember them all; give them one size first")
        ]
    message = f"from {format_sizes(before)} to {format_sizes(after)}, {_describe_start(change)}"
    begins = Priority.INCREASE if has_increase(before, after) else Priority.DECREASE
    return [WriteAnnotations(noted, start_priority=begins), EmitEvent("Normal", "Resizing", message)]


def _explain_fixed_fields(before: Sizes, after: Sizes) -> str:
    """Name the containers whose requests or limits would have to be added or removed."""
    names = ", ".join(name for name, size in before.items() if after[name] != size)
    return (
        f"requests and limits can be neither added nor removed in place (containers: {names}), and "
        "updateStrategy.allowRecreate is false; set them in the template once"
    )


def is_outdated(desired: DesiredChange, effective: Sizes) -> bool:
    """Return whether a recommendation was computed from other sizes than those in effect now.

    It is computed from cached pods, and a reconcile may have synced pods or finished a change since. It is a
    step away from the size that it was computed from, so that a change from any other size would go too far,
    or the wrong way.
    """
    computed_from = select_sizes(desired.computed_from or {}, desired.sizes.keys())
    return any(effective.get(name, size) != size for name, size in computed_from.items())


def choose_canaries(situation: ChangeContext, pods: Sequence[Pod]) -> tuple[str, ...]:
    """Return the names of the pods that go first; none if all go at once."""
    wanted = math.ceil(len(pods) * situation.strategy.canary.percent / 100)
    if situation.desired.is_urgent or wanted >= len(pods):
        return ()
    ready_first = sorted(pods, key=lambda pod: not pod.ready)
    return tuple(pod.name for pod in ready_first[: min(wanted, MAX_CANARIES)])


def _compute_sizes(
    situation: ChangeContext, marks: ChangeAnnotations
) -> tuple[dict[str, Resources], dict[str, Resources]]:
    """Return the size that pods have and the one that they are to have."""
    before = select_sizes(
        situation.effective, situation.effective.keys() - situation.desired.excluded_containers
    )
    after = _limit_memory_decrease(situation, before)
    if after == before and (behind := pods_needing_restart(situation, marks)):
        # The workload has its size, but these pods cannot get it without a change.
        before = select_sizes(container_sizes(behind[0].containers), before)
        after = select_sizes(after, before)
    return before, after


def _limit_memory_decrease(situation: ChangeContext, before: Sizes) -> dict[str, Resources]:
    wish = situation.desired
    wanted = merge_sizes(before, wish.sizes)
    if wish.is_urgent:  # A change that waits for nothing and has no canary may only add resources.
        wanted = {name: raise_only(now, wanted[name]) for name, now in before.items()}
    return {
        name: limit_memory_decrease(now, wanted[name], need=wish.needed_memory.get(name))
        if name in wish.sizes
        else now
        for name, now in before.items()
    }


def _iter_blockers(
    situation: ChangeContext, marks: ChangeAnnotations, chosen: MethodChoice | Skip | Wait
) -> Iterator[Wait | Skip]:
    """Yield what speaks against starting now, the most lasting first.

    More memory after an OOM kill waits only for what would block the change itself: the very kills that it
    ends may break guardrails and block rollouts.
    """
    now, wish, strategy, workload = situation.now, situation.desired, situation.strategy, situation.workload
    rests_until = _cooldown_until(marks, urgent=wish.is_urgent)
    if marks.reverted and now < rests_until:
        yield Wait(rests_until, f"the last change was reverted: {marks.reverted.why}")
    resizes = isinstance(chosen, MethodChoice) and chosen.method is UpdateMethod.IN_PLACE
    if (workload.is_rolling_out or not workload.is_spec_observed) and not (wish.is_urgent and resizes):
        yield Wait(now + RECHECK_INTERVAL, "a rollout is under way")
    if wish.is_urgent:
        return
    if broken := sorted(name for name, holds in wish.harm_signals.guardrails.items() if holds is not True):
        yield Wait(now + RECHECK_INTERVAL, f"guardrail {', '.join(broken)} does not hold or is unknown")
    if wish.usage_error:
        yield Wait(now + RECHECK_INTERVAL, f"usage cannot be read: {wish.usage_error}")
    if marks.applied and now < (rested := _wait_for_interval(situation, marks.applied)).until:
        yield rested
    opening = next_opening(strategy.windows, now=now)
    if opening is None:
        yield Skip(NO_WINDOW_OPENS)
    elif opening > now:
        yield Wait(opening, "no maintenance window is open")
    if situation.unavailable_pods and workload.is_long_running:
        yield Wait(
            now + RECHECK_INTERVAL, f"{situation.unavailable_pods} of its pods are missing or not ready"
        )


def _cooldown_until(marks: ChangeAnnotations, *, urgent: bool) -> int:
    """Return the end of the cooldown after a revert. More memory after an OOM kill waits only if that itself
    was reverted.
    """
    if marks.reverted is None:
        return 0
    return marks.reverted.relief_until if urgent else marks.reverted.until


def _wait_for_interval(situation: ChangeContext, applied: AppliedSizes) -> Wait:
    """Return the wait for the next change after this one."""
    interval = int(situation.strategy.min_interval.seconds)
    fights = not keeps_running_pods(situation) and was_template_reset(situation, applied)
    if interval and fights:  # Without an interval a person has chosen the moment.
        return Wait(applied.at + max(interval, DAY), TEMPLATE_RESET)
    return Wait(applied.at + interval, "it was changed a short while ago, see updateStrategy.minInterval")


def _decline(chosen: Skip | Wait) -> list[ChangeAction]:
    return [chosen, EmitEvent("Warning", "Skipped", chosen.reason)] if isinstance(chosen, Skip) else [chosen]


def _choose_damped_method(
    situation: ChangeContext,
    marks: ChangeAnnotations,
    before: dict[str, Resources],
    after: dict[str, Resources],
) -> tuple[MethodChoice | Skip | Wait, dict[str, Resources], dict[str, Resources]]:
    """Choose a method. For a while after a restart, pods restart only to get more.

    A size that follows a noisy load would otherwise restart them again and again.
    """
    planned = _choose_applicable_method(situation, before, after)
    chosen, before, after = planned
    rest = _restart_cooldown(situation, marks, chosen, after)
    if rest is None:
        return planned
    more = {name: raise_only(before[name], wanted) for name, wanted in after.items()}
    return (rest, before, after) if more == before else _choose_applicable_method(situation, before, more)


def _restart_cooldown(
    situation: ChangeContext, marks: ChangeAnnotations, chosen: MethodChoice | Skip, after: Sizes
) -> Wait | None:
    """Return the wait until pods may restart for a smaller size; None if it is over or not needed."""
    if isinstance(chosen, Skip) or not (chosen.method in REPLACING_METHODS or chosen.restarts):
        return None
    if situation.desired.is_urgent or marks.applied is None or not marks.applied.restarted:
        return None
    if all(situation.effective.get(name) == size for name, size in after.items()):
        return None  # Pods that lag behind are brought to the size in effect.
    until = marks.applied.restarted + situation.desired.stabilization
    why = "its pods were restarted for a change, and restart for a smaller size only once in changes.stabilization"
    return Wait(until, why) if situation.now < until else None


def _choose_applicable_method(
    situation: ChangeContext, before: dict[str, Resources], after: dict[str, Resources]
) -> tuple[MethodChoice | Skip, dict[str, Resources], dict[str, Resources]]:
    """Return the method and the sizes that it can apply.

    Injected containers get their size from whoever injects them when a pod is recreated.
    """
    chosen, template = choose_method(situation, before=before, after=after), situation.template_sizes
    if isinstance(chosen, Skip) and situation.desired.memory_limits_fixed:
        # Pods may be replaced, but not these: a partial change in place is better than none.
        after = limit_to_in_place(situation, before, after)
        chosen = choose_method(situation, before=before, after=after) if after != before else chosen
    injected = before.keys() - template.keys()
    if isinstance(chosen, Skip) or chosen.method not in REPLACING_METHODS or not injected:
        return chosen, before, after
    before, after = select_sizes(before, template), select_sizes(after, template)
    if after == before:
        names = ", ".join(sorted(injected))
        why = f"{names} is not in its template, so that it can be sized in place only"
        return Skip(why), before, after
    return choose_method(situation, before=before, after=after), before, after


def _build_change(
    situation: ChangeContext, *, before: Sizes, after: Sizes, chosen: MethodChoice
) -> OngoingChange:
    now, live = situation.now, situation.live
    first = choose_canaries(situation, list_resizable(situation, live, after)) if chosen.allows_canary else ()
    window = int(situation.strategy.canary.observation.seconds)
    odd = (
        [pod for pod in live if not has_size(pod, before)]
        if chosen.method is not UpdateMethod.TEMPLATE
        else []
    )
    content = msgspec.json.encode([situation.workload.uid, now, after])
    return OngoingChange(
        id=hashlib.blake2b(content, digest_size=4).hexdigest(),
        started=now,
        way=chosen.method,
        phase=Phase.CANARY if first else Phase.PROMOTING,
        since=now,
        before=dict(before),
        after=dict(after),
        template=situation.template_sizes,
        health=health_before(live, now=now, window=window, signals=situation.desired.harm_signals),
        relief=_is_oom_relief(situation, before, after),
        ends=find_future_exits(live, now=now),
        odd={pod.uid: select_sizes(container_sizes(pod.containers), before) for pod in odd},
        canaries=first,
        patches_template=chosen.patches_template,
        restarts=chosen.restarts,
    )


def _is_oom_relief(situation: ChangeContext, before: Sizes, after: Sizes) -> bool:
    """Return whether a change only adds memory, and a pod was OOM killed within the observation time."""
    if has_increase(after, before) or not adds_memory(before, after):
        return False
    lately = situation.now - int(situation.strategy.canary.observation.seconds)
    return situation.desired.is_urgent or any(
        state.last_termination
        and state.last_termination.reason == "OOMKilled"
        and state.last_termination.finished_at >= lately
        for pod in situation.live
        for state in pod.container_statuses
    )


def _describe_start(change: OngoingChange) -> str:
    if change.canaries:
        return f"first {', '.join(change.canaries)}"
    return "all pods at once" if change.way is UpdateMethod.IN_PLACE else f"by way of {change.way}"
