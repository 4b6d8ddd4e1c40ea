"""Whether a new change begins: what it would be, whether now is the time, and by which way.

Asked only while no change is under way. The answer is the marks of the change, or why there is none.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence

import msgspec

from trimtab.actuation.actions import Deed, Emit, Skip, Urgency, Wait, WriteMarks
from trimtab.actuation.change_annotations import MOST_BYTES, Applied, Change, Marks, Phase, Way, write_marks
from trimtab.actuation.decide.conflicts import NEVER_OPEN, REPLACES, SET_BACK, set_back_since
from trimtab.actuation.decide.context import Situation, Wish
from trimtab.actuation.decide.health import ends_ahead, health_before
from trimtab.actuation.decide.maintenance_windows import next_opening
from trimtab.actuation.decide.method import Plan, plan, possible_in_place, replaces_nothing, resizable
from trimtab.actuation.decide.sync_pods import needs_restart
from trimtab.actuation.resources import (
    Sizes,
    adds_memory,
    at_least,
    grows,
    has_size,
    joined,
    only,
    safe_memory,
    said,
    sizes_of,
)
from trimtab.kube.kinds.pods import Pod, Resources

MOST_CANARIES = 32
LIMITS_STAY = (
    "Kubernetes before 1.34 does not lower memory limits in place, and updateStrategy.allowRecreate is false"
)
DAY = 86_400
OUTDATED_FOR = 5
"""Seconds until a recommendation is expected that takes into account how the pods are now."""
LOOK_AGAIN = 60
"""Seconds until a passing obstacle is looked at again."""


def begin(situation: Situation, marks: Marks) -> list[Deed]:  # noqa: PLR0911 - one return an answer
    """Write down a new change where one is wanted, allowed and possible."""
    wish, workload = situation.wish, situation.workload
    if not wish.sizes:
        return [Skip(wish.held or "there is no recommendation yet")]
    is_cron_job = workload.kind == "CronJob"
    if not situation.live and not is_cron_job:
        return [Skip("it has run to its end" if workload.finished else "it has no running pods")]
    if is_outdated(wish, situation.effective):
        return [Wait(situation.now + OUTDATED_FOR, "its pods have changed since its size was recommended")]
    before, after = _wanted(situation, marks)
    if after == before:
        return []
    if not wish.strategy.allow_recreate and not is_cron_job:
        possible = possible_in_place(situation, before, after)
        if possible == before:
            why = LIMITS_STAY if wish.memory_limits_stay else _fields_stay(before, after)
            return [] if marks.applied else [Skip(why)]
        after = possible
    chosen, before, after = _damped(situation, marks, before, after)
    if obstacle := next(_obstacles(situation, marks, chosen), None):
        return [obstacle]
    if not isinstance(chosen, Plan):
        return [] if marks.applied and after == before else _declined(chosen)
    change = _change(situation, before=before, after=after, chosen=chosen)
    noted = Marks(change=change, applied=marks.applied, reverted=marks.reverted)
    if sum(map(len, write_marks(noted, uid=workload.uid).values())) > MOST_BYTES:
        return [
            Skip("its pods are of too many different sizes to remember them all; give them one size first")
        ]
    message = f"from {said(before)} to {said(after)}, {_first(change)}"
    begins = Urgency.UP if grows(before, after) else Urgency.DOWN
    return [WriteMarks(noted, begins=begins), Emit("Normal", "Resizing", message)]


def _fields_stay(before: Sizes, after: Sizes) -> str:
    """Say of which containers requests or limits would have to be added or removed."""
    names = ", ".join(name for name, size in before.items() if after[name] != size)
    return (
        f"requests and limits can be neither added nor removed in place (containers: {names}), and "
        "updateStrategy.allowRecreate is false; set them in the template once"
    )


def is_outdated(wish: Wish, effective: Sizes) -> bool:
    """Whether a recommendation was computed from other sizes than those in effect now.

    It is made of cached pods, and a reconcile may have synced pods or finished a change since. It is a step away from the
    size that it was computed from, so that a change from any other size would go too far, or the wrong way.
    """
    computed_from = only(wish.effective or {}, wish.sizes.keys())
    return any(effective.get(name, size) != size for name, size in computed_from.items())


def canaries(situation: Situation, pods: Sequence[Pod]) -> tuple[str, ...]:
    """The names of those that go first; none when all go at once."""
    wanted = math.ceil(len(pods) * situation.strategy.canary.percent / 100)
    if situation.wish.urgent or wanted >= len(pods):
        return ()
    ready_first = sorted(pods, key=lambda pod: not pod.ready)
    return tuple(pod.name for pod in ready_first[: min(wanted, MOST_CANARIES)])


def _wanted(situation: Situation, marks: Marks) -> tuple[dict[str, Resources], dict[str, Resources]]:
    """Return the size that pods have and the one that they are to have."""
    before = only(situation.effective, situation.effective.keys() - situation.wish.alone)
    after = _safe(situation, before)
    if after == before and (behind := needs_restart(situation, marks)):
        # The workload has its size, and these pods cannot come to it but by a change.
        before = only(sizes_of(behind[0].containers), before)
        after = only(after, before)
    return before, after


def _safe(situation: Situation, before: Sizes) -> dict[str, Resources]:
    wish = situation.wish
    wanted = joined(before, wish.sizes)
    if wish.urgent:  # it waits for nothing and is tried on nobody first, so it only gives
        wanted = {name: at_least(now, wanted[name]) for name, now in before.items()}
    return {
        name: safe_memory(now, wanted[name], need=wish.need.get(name)) if name in wish.sizes else now
        for name, now in before.items()
    }


def _obstacles(situation: Situation, marks: Marks, chosen: Plan | Skip | Wait) -> Iterator[Wait | Skip]:
    """What speaks against beginning now, the most lasting first.

    More memory after an OOM kill waits only for what itself would be in its way: guardrails may be broken, and rollouts
    held up, by the very kills that it ends.
    """
    now, wish, strategy, workload = situation.now, situation.wish, situation.strategy, situation.workload
    rests_until = _rests_until(marks, urgent=wish.urgent)
    if marks.reverted and now < rests_until:
        yield Wait(rests_until, f"the last change was taken back: {marks.reverted.why}")
    resizes = isinstance(chosen, Plan) and chosen.way is Way.IN_PLACE
    if (workload.rolling or not workload.observed) and not (wish.urgent and resizes):
        yield Wait(now + LOOK_AGAIN, "a rollout is under way")
    if wish.urgent:
        return
    if broken := sorted(name for name, holds in wish.evidence.guardrails.items() if holds is not True):
        yield Wait(now + LOOK_AGAIN, f"guardrail {', '.join(broken)} does not hold or is unknown")
    if wish.unread:
        yield Wait(now + LOOK_AGAIN, f"usage cannot be read: {wish.unread}")
    if marks.applied and now < (rested := _rested(situation, marks.applied)).until:
        yield rested
    opening = next_opening(strategy.windows, now=now)
    if opening is None:
        yield Skip(NEVER_OPEN)
    elif opening > now:
        yield Wait(opening, "no maintenance window is open")
    if situation.unwell and workload.runs_on:
        yield Wait(now + LOOK_AGAIN, f"{situation.unwell} of its pods are missing or not ready")


def _rests_until(marks: Marks, *, urgent: bool) -> int:
    """Until when nothing begins after a revert: more memory after a kill only where that itself was reverted."""
    if marks.reverted is None:
        return 0
    return marks.reverted.relief_until if urgent else marks.reverted.until


def _rested(situation: Situation, applied: Applied) -> Wait:
    """When it is time for the next change after this one, and why not before."""
    interval = int(situation.strategy.min_interval.seconds)
    fights = not replaces_nothing(situation) and set_back_since(situation, applied)
    if interval and fights:  # without one, a person has decided on now
        return Wait(applied.at + max(interval, DAY), SET_BACK)
    return Wait(applied.at + interval, "it was changed a short while ago, see updateStrategy.minInterval")


def _declined(chosen: Skip | Wait) -> list[Deed]:
    return [chosen, Emit("Warning", "Skipped", chosen.reason)] if isinstance(chosen, Skip) else [chosen]


def _damped(
    situation: Situation, marks: Marks, before: dict[str, Resources], after: dict[str, Resources]
) -> tuple[Plan | Skip | Wait, dict[str, Resources], dict[str, Resources]]:
    """Plan a change; for a while after a restart pods restart only for more.

    A size that follows a noisy load would restart them again and again.
    """
    planned = _planned(situation, before, after)
    chosen, before, after = planned
    rest = _rests_from_restart(situation, marks, chosen, after)
    if rest is None:
        return planned
    more = {name: at_least(before[name], wanted) for name, wanted in after.items()}
    return (rest, before, after) if more == before else _planned(situation, before, more)


def _rests_from_restart(situation: Situation, marks: Marks, chosen: Plan | Skip, after: Sizes) -> Wait | None:
    """Return the wait for the next change that may restart pods to make them smaller; None where it is over or not needed."""
    if isinstance(chosen, Skip) or not (chosen.way in REPLACES or chosen.restarts):
        return None
    if situation.wish.urgent or marks.applied is None or not marks.applied.restarted:
        return None
    if all(situation.effective.get(name) == size for name, size in after.items()):
        return None  # pods that lag behind are brought to the size in effect
    until = marks.applied.restarted + situation.wish.stabilization
    why = "its pods were restarted for a change, and restart for a smaller size only once in changes.stabilization"
    return Wait(until, why) if situation.now < until else None


def _planned(
    situation: Situation, before: dict[str, Resources], after: dict[str, Resources]
) -> tuple[Plan | Skip, dict[str, Resources], dict[str, Resources]]:
    """How to come from one size to the other, and what of them: whoever injects a container gives it its size in pods that
    are made anew.
    """
    chosen, template = plan(situation, before=before, after=after), situation.template
    if isinstance(chosen, Skip) and situation.wish.memory_limits_stay:
        # Pods may be replaced, but not these: what can be had in place is better than nothing.
        after = possible_in_place(situation, before, after)
        chosen = plan(situation, before=before, after=after) if after != before else chosen
    injected = before.keys() - template.keys()
    if isinstance(chosen, Skip) or chosen.way not in REPLACES or not injected:
        return chosen, before, after
    before, after = only(before, template), only(after, template)
    if after == before:
        names = ", ".join(sorted(injected))
        why = f"{names} is not in its template, so that it can be sized in place only"
        return Skip(why), before, after
    return plan(situation, before=before, after=after), before, after


def _change(situation: Situation, *, before: Sizes, after: Sizes, chosen: Plan) -> Change:
    now, live = situation.now, situation.live
    first = canaries(situation, resizable(situation, live, after)) if chosen.tries_in_place else ()
    window = int(situation.strategy.canary.observation.seconds)
    odd = [pod for pod in live if not has_size(pod, before)] if chosen.way is not Way.TEMPLATE else []
    content = msgspec.json.encode([situation.workload.uid, now, after])
    return Change(
        id=hashlib.blake2b(content, digest_size=4).hexdigest(),
        started=now,
        way=chosen.way,
        phase=Phase.CANARY if first else Phase.PROMOTING,
        since=now,
        before=dict(before),
        after=dict(after),
        template=situation.template,
        health=health_before(live, now=now, window=window, evidence=situation.wish.evidence),
        relief=_is_relief(situation, before, after),
        ends=ends_ahead(live, now=now),
        odd={pod.uid: only(sizes_of(pod.containers), before) for pod in odd},
        canaries=first,
        patches_template=chosen.patches_template,
        restarts=chosen.restarts,
    )


def _is_relief(situation: Situation, before: Sizes, after: Sizes) -> bool:
    """Whether memory is given, nothing taken, and a pod was killed for lack of it in the time that a change is watched for."""
    if grows(after, before) or not adds_memory(before, after):
        return False
    lately = situation.now - int(situation.strategy.canary.observation.seconds)
    return situation.wish.urgent or any(
        state.last_exit and state.last_exit.reason == "OOMKilled" and state.last_exit.at >= lately
        for pod in situation.live
        for state in pod.states
    )


def _first(change: Change) -> str:
    if change.canaries:
        return f"first {', '.join(change.canaries)}"
    return "all pods at once" if change.way is Way.IN_PLACE else f"by way of {change.way}"
