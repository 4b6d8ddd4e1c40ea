"""Decide whether a new change starts: its sizes, its method and its time.

`plan_start` is evaluated once, while no change is under way. `transitions` lists what keeps a planned change from
starting, in order.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from trimtab.actuation.actions import ChangeAction, EmitEvent, Priority, Skip, Wait, WriteAnnotations
from trimtab.actuation.change_annotations import (
    MAX_BYTES,
    OngoingChange,
    Phase,
    UpdateMethod,
    encode_change_annotations,
)
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.conflicts import REPLACING_METHODS, TEMPLATE_RESET, was_template_reset
from trimtab.actuation.decide.health import find_future_exits, health_before
from trimtab.actuation.decide.method import (
    MethodChoice,
    choose_method,
    explain_restart,
    keeps_running_pods,
    limit_to_in_place,
    list_resizable,
)
from trimtab.actuation.decide.observation import DesiredChange, Observation, evaluated_once
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
    raise_sizes,
    select_sizes,
)
from trimtab.api.fields import format_time
from trimtab.kube.kinds.pods import Pod, Resources

MAX_CANARIES = 32
_METHOD_NAMES = {
    UpdateMethod.ROLLOUT: "a rollout",
    UpdateMethod.RECREATE: "evicting pods one by one",
    UpdateMethod.TEMPLATE: "the template for later pods",
}
MEMORY_LIMITS_FIXED = (
    "Kubernetes before 1.34 does not lower memory limits in place, and updateStrategy.allowRecreate is false; upgrade "
    "Kubernetes, or set allowRecreate: true"
)


@dataclass(frozen=True, kw_only=True)
class StartPlan:
    """The change that would start now, and what its sizes and its method say against it."""

    before: dict[str, Resources]
    after: dict[str, Resources]
    is_in_sync: bool = False
    """True if pods have the recommended size already, as far as it is safe."""
    fixed_reason: str = ""
    """The reason why no part of the change is possible in place, where the policy allows nothing else."""
    choice: MethodChoice | Skip | Wait | None = None
    """The method, or why there is none; None where no method is needed."""

    @property
    def method(self) -> UpdateMethod | None:
        return self.choice.method if isinstance(self.choice, MethodChoice) else None


@evaluated_once
def plan_start(observation: Observation) -> StartPlan:
    """Plan the change from the size that pods have to the one that they are to have."""
    before, after = _compute_sizes(observation)
    if after == before:
        return StartPlan(before=before, after=after, is_in_sync=True)
    if not observation.strategy.allow_recreate and observation.workload.kind != "CronJob":
        possible = limit_to_in_place(observation, before, after)
        if possible == before:
            if why := explain_restart(observation, before, after):
                # After an OOM kill the reason is reported even where an earlier change did what was possible.
                rest = after if observation.desired.is_urgent else before
                return StartPlan(before=before, after=rest, choice=Skip(why))
            is_memory = observation.desired.memory_limits_fixed
            why = MEMORY_LIMITS_FIXED if is_memory else _explain_fixed_fields(before, after)
            return StartPlan(before=before, after=after, fixed_reason=why)
        after = possible
    return _choose_damped_method(observation, before, after)


def is_outdated(desired: DesiredChange, effective: Sizes) -> bool:
    """Return whether a recommendation was computed from other sizes than those in effect now.

    It is computed from cached pods, and a reconcile may have synced pods or finished a change since. It is a
    step away from the size that it was computed from, so that a change from any other size would go too far,
    or the wrong way.
    """
    computed_from = select_sizes(desired.computed_from or {}, desired.sizes.keys())
    return any(effective.get(name, size) != size for name, size in computed_from.items())


def cooldown_end(observation: Observation) -> int:
    """Return the end of the cooldown after a revert; 0 if there was none."""
    reverted = observation.annotations.reverted
    if reverted is None:
        return 0
    if reverted.refused and reverted.take_ownership != observation.strategy.take_ownership:
        # The user followed the advice of the refusal, which is remembered for a while.
        return reverted.at + DEADLINES.rejection
    # More memory after an OOM kill waits only if that itself was reverted: the cooldown of another change would
    # leave pods in an OOM loop for up to a week.
    return reverted.relief_until if observation.desired.is_urgent else reverted.until


def wait_for_interval(observation: Observation) -> Wait | None:
    """Return the wait for the next change after the last one; None if it is over."""
    applied = observation.annotations.applied
    if applied is None:
        return None
    interval = int(observation.strategy.min_interval.seconds)
    fights = not keeps_running_pods(observation) and was_template_reset(observation, applied)
    if interval and fights:  # Without an interval a person has chosen the moment.
        wait = Wait(applied.at + max(interval, DEADLINES.template_reset), TEMPLATE_RESET)
    else:
        until = applied.at + interval
        why = (
            f"the workload was changed at {format_time(applied.at)}; the next change may start at {format_time(until)} "
            "(updateStrategy.minInterval)"
        )
        wait = Wait(until, why)
    return wait if observation.now < wait.until else None


def broken_guardrails(observation: Observation) -> str:
    """Return the names of the guardrails that do not hold, or are unknown."""
    guardrails = observation.desired.harm_signals.guardrails
    return ", ".join(sorted(name for name, holds in guardrails.items() if holds is not True))


def waits_for_rollout(observation: Observation) -> bool:
    """Return whether a rollout of somebody else goes on, in which a change would not know its own pods.

    A resize after an OOM kill does not wait: the very kills that it ends may block the rollout.
    """
    workload, resizes = observation.workload, plan_start(observation).method is UpdateMethod.IN_PLACE
    is_rolling = workload.is_rolling_out or not workload.is_spec_observed
    return is_rolling and not (observation.desired.is_urgent and resizes)


@evaluated_once
def new_change(observation: Observation) -> OngoingChange:
    """Return the change that starts now."""
    plan = plan_start(observation)
    assert isinstance(plan.choice, MethodChoice)
    return _build_change(observation, before=plan.before, after=plan.after, choice=plan.choice)


def exceeds_annotation_size(observation: Observation) -> bool:
    """Return whether the annotations of the new change are too large: pods of many sizes are remembered one by one."""
    # A change whose previous sizes do not fit in the annotations could not be reverted.
    marked = msgspec.structs.replace(observation.annotations, change=new_change(observation))
    encoded = encode_change_annotations(marked, uid=observation.workload.uid)
    return sum(map(len, encoded.values())) > MAX_BYTES


def start_change(observation: Observation) -> list[ChangeAction]:
    """Record the new change; no pod is touched before the record is there."""
    change = new_change(observation)
    noted = msgspec.structs.replace(observation.annotations, change=change)
    sizes = f"from {format_sizes(change.before)} to {format_sizes(change.after)}"
    priority = Priority.INCREASE if has_increase(change.before, change.after) else Priority.DECREASE
    cause = " after an OOM kill" if observation.desired.is_urgent else ""
    return [
        WriteAnnotations(noted, start_priority=priority),
        EmitEvent("Normal", "Resizing", f"resizing {sizes}, {_describe_start(change)}{cause}"),
    ]


def _explain_fixed_fields(before: Sizes, after: Sizes) -> str:
    """Name the containers whose requests or limits would have to be added or removed."""
    names = ", ".join(name for name, size in before.items() if after[name] != size)
    return (
        f"requests and limits can be neither added nor removed in place (containers: {names}), and "
        "updateStrategy.allowRecreate is false; add or remove them in the workload's template, or set allowRecreate: true"
    )


def choose_canaries(observation: Observation, pods: Sequence[Pod]) -> tuple[str, ...]:
    """Return the names of the pods that go first; none if all go at once."""
    wanted = math.ceil(len(pods) * observation.strategy.canary.percent / 100)
    if observation.desired.is_urgent or wanted >= len(pods):
        return ()
    # A pod that was not ready before the change cannot show whether the change did harm.
    ready_first = sorted(pods, key=lambda pod: not pod.ready)
    return tuple(pod.name for pod in ready_first[: min(wanted, MAX_CANARIES)])


def _compute_sizes(observation: Observation) -> tuple[dict[str, Resources], dict[str, Resources]]:
    """Return the size that pods have and the one that they are to have."""
    before = select_sizes(
        observation.effective, observation.effective.keys() - observation.desired.excluded_containers
    )
    wanted = _limit_memory_decrease(observation, before)
    # Annotations are read within these limits, or what pods have: recorded beyond them, pods would get another size
    # than the one recorded. What pods have is lowered no further than is safe.
    own = raise_sizes(observation.template_sizes, before)
    after = observation.desired.size_limits.clamp(wanted, template=own)
    if after == before and (behind := pods_needing_restart(observation)):
        # The workload has its size, but these pods cannot get it without a change.
        before = select_sizes(container_sizes(behind[0].containers), before)
        after = select_sizes(after, before)
    return before, after


def _limit_memory_decrease(observation: Observation, before: Sizes) -> dict[str, Resources]:
    desired = observation.desired
    wanted = merge_sizes(before, desired.sizes)
    if desired.is_urgent:
        # A change that waits for nothing, has no canary and is not reverted because of failing pods may only add memory:
        # with the CPU that is wanted besides, a pod may fit on no node and stay pending.
        wanted = {name: _raise_memory(now, wanted[name]) for name, now in before.items()}
    return {
        name: limit_memory_decrease(now, wanted[name], need=desired.needed_memory.get(name))
        if name in desired.sizes
        else now
        for name, now in before.items()
    }


def _choose_damped_method(
    observation: Observation, before: dict[str, Resources], after: dict[str, Resources]
) -> StartPlan:
    """Choose a method. For a while after a restart, pods restart only to get more.

    A size that follows a noisy load would otherwise restart them again and again.
    """
    plan = _choose_applicable_method(observation, before, after)
    wait = _restart_cooldown(observation, plan)
    if wait is None:
        return plan
    more = {name: raise_only(plan.before[name], wanted) for name, wanted in plan.after.items()}
    if more == plan.before:
        return StartPlan(before=plan.before, after=plan.after, choice=wait)
    return _choose_applicable_method(observation, plan.before, more)


def _restart_cooldown(observation: Observation, plan: StartPlan) -> Wait | None:
    """Return the wait until pods may restart for a smaller size; None if it is over or not needed."""
    choice, applied = plan.choice, observation.annotations.applied
    if not isinstance(choice, MethodChoice) or not (choice.method in REPLACING_METHODS or choice.restarts):
        return None
    if observation.desired.is_urgent or applied is None or not applied.restarted:
        return None
    if all(observation.effective.get(name) == size for name, size in plan.after.items()):
        return None  # Pods that lag behind are brought to the size in effect.
    until = applied.restarted + observation.desired.stabilization
    why = (
        f"the last change restarted the pods; they restart for a smaller size from {format_time(until)} on "
        "(changes.stabilization)"
    )
    return Wait(until, why) if observation.now < until else None


def _choose_applicable_method(
    observation: Observation, before: dict[str, Resources], after: dict[str, Resources]
) -> StartPlan:
    """Return the method and the sizes that it can apply.

    Injected containers get their size from whoever injects them when a pod is recreated.
    """
    choice, template = choose_method(observation, before=before, after=after), observation.template_sizes
    if isinstance(choice, Skip) and observation.desired.memory_limits_fixed:
        # Pods may be replaced, but not these: a partial change in place is better than none.
        after = limit_to_in_place(observation, before, after)
        choice = choose_method(observation, before=before, after=after) if after != before else choice
    injected = before.keys() - template.keys()
    if isinstance(choice, Skip) or choice.method not in REPLACING_METHODS or not injected:
        return StartPlan(before=before, after=after, choice=choice)
    before, after = select_sizes(before, template), select_sizes(after, template)
    if after == before:
        names = ", ".join(sorted(injected))
        why = (
            f"only replaced pods could get the size, but a new pod gets the size of container {names} from whoever "
            "injects it, not from the workload's template; set the size where the container is injected"
        )
        return StartPlan(before=before, after=after, choice=Skip(why))
    choice = choose_method(observation, before=before, after=after)
    return StartPlan(before=before, after=after, choice=choice)


def _build_change(
    observation: Observation, *, before: Sizes, after: Sizes, choice: MethodChoice
) -> OngoingChange:
    now, live = observation.now, observation.live
    first = (
        choose_canaries(observation, list_resizable(observation, live, after)) if choice.allows_canary else ()
    )
    window = int(observation.strategy.canary.observation.seconds)
    # These return to a size of their own if the change is reverted, not to that of the workload.
    different = (
        [pod for pod in live if not has_size(pod, before)]
        if choice.method is not UpdateMethod.TEMPLATE
        else []
    )
    content = msgspec.json.encode([observation.workload.uid, now, after])
    return OngoingChange(
        id=hashlib.blake2b(content, digest_size=4).hexdigest(),
        started=now,
        method=choice.method,
        phase=Phase.CANARY if first else Phase.PROMOTING,
        since=now,
        before=dict(before),
        after=dict(after),
        template=observation.template_sizes,
        health=health_before(live, now=now, window=window, signals=observation.desired.harm_signals),
        relief=_is_oom_relief(observation, before, after),
        ends=find_future_exits(live, now=now),
        pod_overrides={pod.uid: select_sizes(container_sizes(pod.containers), before) for pod in different},
        canaries=first,
        patches_template=choice.patches_template,
        restarts=choice.restarts,
    )


def _raise_memory(current: Resources, wanted: Resources) -> Resources:
    return Resources.from_pairs(current.cpu, raise_only(current, wanted).memory)


def _is_oom_relief(observation: Observation, before: Sizes, after: Sizes) -> bool:
    """Return whether a change only adds memory, and a pod was OOM killed within the observation time."""
    if has_increase(after, before) or not adds_memory(before, after):
        return False
    since = observation.now - int(observation.strategy.canary.observation.seconds)
    return observation.desired.is_urgent or any(
        state.last_termination
        and state.last_termination.reason == "OOMKilled"
        and state.last_termination.finished_at >= since
        for pod in observation.live
        for state in pod.container_statuses
    )


def _describe_start(change: OngoingChange) -> str:
    if change.canaries:
        return f"pods {', '.join(change.canaries)} first"
    return (
        "all pods at once" if change.method is UpdateMethod.IN_PLACE else f"by {_METHOD_NAMES[change.method]}"
    )
