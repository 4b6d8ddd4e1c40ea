"""What one intent may do now: guardrails, other autoscalers and rest, folded into its limits.

One owner a field holds here too: with a HorizontalPodAutoscaler on the target the number of pods is that one's, and
with a VerticalPodAutoscaler that applies, their size. Options come by a rollout, so only to pods that are replaced by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from math import inf

from msgspec.structs import replace

from trimtab.actuation.change_annotations import Foreign, own_marks, read_marks
from trimtab.actuation.hold import read_hold
from trimtab.actuation.pod_options import RETRY, Phase, can_roll, read_options
from trimtab.intents.actuators.resizing import Resource
from trimtab.intents.constraints import EVERY, Limits
from trimtab.intents.objective import Goal
from trimtab.intents.state import State
from trimtab.kube.kinds.hpas import Hpa
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.config.intents import IntentGuardrail
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.observer import Observation
from trimtab.operator.intents.safe_sizes import SafeSize
from trimtab.recommender.workload import AS_A_WHOLE

SCALING = frozenset({"scaleOut", "scaleIn"})
RESIZING = frozenset({"resizeCPU", "resizeMemory"})
CHOOSING = frozenset({"cacheClass", "powerProfile"})
ABOVE_USE = 1.1
"""Nothing is given back below what is used now and a tenth, whatever models say of it; and nothing where that is unknown."""
_NO_SCALE = {"DaemonSet", "Job", "CronJob"}


def limits_of(
    observation: Observation, *, config: OperatorConfig, others: Others, safe: SafeSize, rests_until: float
) -> Limits:
    """All that a plan for it may not pass, apart from the room that it shares with others."""
    workload, state = observation.workload, observation.state
    assert workload is not None
    assert state is not None
    found = guarded(state, config.intents.guardrails_of(workload.namespace), goal=observation.goal)
    return replace(
        found,
        min_cpu=max(found.min_cpu, others.least(state, "cpu")),
        max_cpu=min(found.max_cpu, others.most_cpu(state)),
        min_memory=max(found.min_memory, others.least(state, "memory"), safe.least_memory),
        max_safeguard_memory=_most_without_a_kill(workload, observation.main),
        forbidden=found.forbidden | others.forbidden(),
        freeze=found.freeze or _freeze(workload, config, others),
        resting={EVERY: rests_until, **_reverted(workload)},
    )


def guarded(state: State, rails: Sequence[IntentGuardrail], *, goal: Goal) -> Limits:
    """Return the limits that follow from guardrails, from what is used now and from what the objectives can show.

    Nothing is given back of which no objective shows that it was too much: a service that is idle at night would be cut
    to that, and stay so by day while all its objectives are met.
    """
    used = inf if state.cpu_used is None else state.cpu_used * ABOVE_USE
    if not goal.watches_capacity:
        used = inf
    return Limits(
        min_replicas=max(*(rail.min_replicas for rail in rails), 1, _pods_for(used, state)),
        min_cpu=max(Limits().min_cpu, used / state.placed),
        min_cpu_together=used,
        max_replicas=min((rail.max_replicas for rail in rails), default=128),
        max_cpu=_least(rail.max_cpu.cores for rail in rails if rail.max_cpu),
        min_memory=0.0 if goal.watches_capacity else inf,
        max_memory=_least(float(rail.max_memory.bytes) for rail in rails if rail.max_memory),
        forbidden=frozenset(name for rail in rails for name in rail.forbidden),
        freeze=next((rail.freeze for rail in rails if rail.freeze), ""),
        explore=bool(rails) and all(rail.explore for rail in rails),
    )


def _most_without_a_kill(workload: Workload, main: str) -> float:
    """Return up to which memory pods that run out of it are given more before any of them was killed.

    Beyond twice what their owner gave them it may be a leak: kills then decide, after which sizing's leak guard holds.
    """
    own = next((each.resources for each in workload.containers if each.name == main), Resources())
    return 2.0 * (own.memory_limit or own.memory_request or 0) or inf


def _pods_for(used: float, state: State) -> int:
    """How many of the pods what is used now takes; those without a place use nothing."""
    if used == inf:
        return state.placed
    return math.ceil(min(used / state.cpu, state.placed)) if state.cpu else 0


def said_of_use(state: State, goal: Goal) -> list[str]:
    """Explain for the status why nothing will be given back."""
    if not goal.watches_capacity:
        return [
            "none of its objectives shows when pods have too little, so nothing is given back; add one on latency"
        ]
    if state.cpu_used is not None:
        return []
    return ["what CPU its pods use is not known, so no CPU is given back, and no pod that has a place"]


class Others:
    """Who else has a say over the target, and over what."""

    def __init__(
        self,
        workload: Workload,
        *,
        hpas: Sequence[Hpa],
        vpa: str,
        unread_vpas: str = "",
        resizes_in_place: bool,
    ) -> None:
        """`unread_vpas` tells why it is not known which VerticalPodAutoscalers there are."""
        self._scaler = ", ".join(hpa.name for hpa in hpas)
        self._held = [share for hpa in hpas for share in hpa.utilisations]
        self._vpa = vpa
        self._unread = unread_vpas
        self._resizes = resizes_in_place
        self._as_a_whole = workload.as_a_whole
        self._scales = workload.kind not in _NO_SCALE
        self._rolls = can_roll(workload)

    @property
    def forbids_sizes(self) -> bool:
        """Whether somebody else has the say over the size of pods, or nobody."""
        return bool(self._vpa or self._unread or self._as_a_whole or not self._resizes)

    def forbidden(self) -> frozenset[str]:
        scaling = SCALING if self._scaler or not self._scales else frozenset[str]()
        resizing = RESIZING if self.forbids_sizes else frozenset[str]()
        return scaling | resizing | (frozenset[str]() if self._rolls else CHOOSING)

    def least(self, state: State, resource: Resource) -> float:
        """The least of a resource that no autoscaler answers with more pods, as one does that holds use to a share of the
        request: pods would get smaller and more, turn by turn.
        """
        size = state.size
        if size is None:
            return 0.0
        shares = [
            share.target / 100
            for share in self._held
            if share.resource == resource and share.container in {"", size.container}
        ]
        if resource == "cpu":
            used, now, request = state.cpu_used, size.cpu, size.cpu_request
            used = None if used is None else used / state.placed
        else:
            used, now, request = state.memory_used, size.memory, size.memory_request
        if not shares or not now:
            return 0.0
        return inf if used is None else used / min(shares) * now / (request or now)

    def most_cpu(self, state: State) -> float:
        """Return the most CPU of a pod that no autoscaler answers with fewer pods.

        One that holds CPU to a share of the request removes pods when requests grow beyond the need: pods would get fewer
        and larger, turn by turn, down to its minimum.
        """
        size, now = state.size, state.cpu
        shares = [
            share.target / 100
            for share in self._held
            if size and share.resource == "cpu" and share.container in {"", size.container}
        ]
        if not shares or not size or not now:
            return inf
        if state.cpu_used is None:
            return now
        return max(now, state.cpu_used / state.placed / min(shares) * now / (size.cpu_request or now))

    def said(self) -> list[str]:
        """For the status: what is left to others, and to whom."""
        found = []
        if self._scaler:
            found.append(f"the number of pods is left to HorizontalPodAutoscaler {self._scaler}")
        if self._vpa:
            found.append(f"the size of pods is left to VerticalPodAutoscaler {self._vpa}")
        elif self._unread:
            found.append(
                f"the size of pods is left alone: no VerticalPodAutoscaler can be read: {self._unread}"
            )
        elif not self._resizes:
            found.append("this cluster cannot resize pods in place")
        elif self._as_a_whole:
            found.append(f"the size of pods is left alone: {AS_A_WHOLE}")
        return found


def left_alone(workload: Workload, config: OperatorConfig) -> str:
    """Return why nothing is begun for a workload; empty where it may."""
    if why := untouchable(workload, config):
        return why
    hold = read_hold(workload.annotations)
    return str(hold) if hold else ""


def untouchable(workload: Workload, config: OperatorConfig) -> str:
    """Return why no pod of a workload may be touched, not even a new one; empty where they may."""
    if config.dry_run:
        return "the operator runs with dryRun"
    if workload.namespace in config.limits.untouched_namespaces:
        return f"namespace {workload.namespace} is never touched, see limits.untouchedNamespaces"
    return ""


def _freeze(workload: Workload, config: OperatorConfig, others: Others) -> str:  # noqa: PLR0911 - one return a reason
    if why := left_alone(workload, config):
        return why
    marks = read_marks(dict(workload.annotations), uid=workload.uid)
    if isinstance(marks, Foreign):
        return marks.why
    if marks.change is not None and not others.forbids_sizes:  # else nobody goes on with it
        return "a change of size is under way"
    options = read_options(workload)
    if options is not None and options.phase is Phase.ROLLING:
        return f"a rollout is under way, to {options.after}"
    if workload.replicas == 0:
        return "it is scaled to zero, as autoscalers are told by that to leave it alone"
    if workload.paused:
        return "it is paused"
    return "a rollout is under way" if workload.rolling else ""


def _reverted(workload: Workload) -> dict[str, float]:
    """Until when sizes and options are left alone that had to be taken back the last time: other deeds may help."""
    found: dict[str, float] = {}
    marks = own_marks(workload)
    if marks and marks.reverted:
        found |= dict.fromkeys(RESIZING, float(marks.reverted.until))
    options = read_options(workload)
    if options is not None and options.phase is Phase.REVERTED:
        found |= dict.fromkeys(CHOOSING, options.since + RETRY)
    return found


def _least(values: Iterable[float]) -> float:
    return min(values, default=inf)
