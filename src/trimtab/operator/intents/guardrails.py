"""The constraints of one Intent: guardrails, other autoscalers and cool-downs.

Each field has one owner: a HorizontalPodAutoscaler on the target controls the number of pods, and a
VerticalPodAutoscaler that applies controls their size. Options need a rollout, so only workloads with rolling
updates can have them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from math import inf

from msgspec.structs import replace

from trimtab.actuation.change_annotations import (
    UnreadableAnnotations,
    decode_change_annotations,
    read_change_annotations,
)
from trimtab.actuation.hold import read_hold
from trimtab.actuation.pod_options import RETRY_AFTER, OptionsPhase, read_options_annotation, supports_rollout
from trimtab.api.optimizationpolicy import PolicyMode
from trimtab.intents.actuators.resizing import Resource
from trimtab.intents.constraints import ALL_ACTUATORS, PlanConstraints
from trimtab.intents.objective import Goal
from trimtab.intents.state import TargetState
from trimtab.kube.kinds.hpas import HorizontalPodAutoscaler
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.config.intents import IntentGuardrail
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.observer import IntentObservation
from trimtab.operator.intents.safe_sizes import SafeSize
from trimtab.recommender.workload import POD_LEVEL_RESOURCES

SCALING_ACTUATORS = frozenset({"scaleOut", "scaleIn"})
RESIZING_ACTUATORS = frozenset({"resizeCPU", "resizeMemory"})
OPTION_ACTUATORS = frozenset({"cacheClass", "powerProfile"})
USAGE_HEADROOM = 1.1
"""The ratio to the current usage below which no CPU is released, whatever models predict. Nothing is released
while the usage is unknown."""
_UNSCALABLE_KINDS = {"DaemonSet", "Job", "CronJob"}


def build_constraints(
    observation: IntentObservation,
    *,
    config: OperatorConfig,
    autoscalers: AutoscalerConstraints,
    safe: SafeSize,
    cooldown_until: float,
) -> PlanConstraints:
    """Build all constraints of a plan except the capacity that is shared with other Intents."""
    workload, state = observation.workload, observation.state
    assert workload is not None
    assert state is not None
    found = guardrail_constraints(
        state, config.intents.guardrails_for(workload.namespace), goal=observation.goal
    )
    return replace(
        found,
        min_cpu=max(found.min_cpu, autoscalers.min_without_scale_out(state, "cpu")),
        max_cpu=min(found.max_cpu, autoscalers.max_cpu_without_scale_in(state)),
        min_memory=max(found.min_memory, autoscalers.min_without_scale_out(state, "memory"), safe.min_memory),
        max_safeguard_memory=_max_memory_before_oom(workload, observation.main_container),
        forbidden=found.forbidden | autoscalers.forbidden_actuators(),
        freeze=found.freeze or _freeze_reason(workload, config, autoscalers),
        cooldown_until={ALL_ACTUATORS: cooldown_until, **_retry_times_after_revert(workload)},
    )


def guardrail_constraints(
    state: TargetState, guardrails: Sequence[IntentGuardrail], *, goal: Goal
) -> PlanConstraints:
    """Return the constraints of guardrails, of the current usage and of the objectives.

    Resources are not released if no objective would show a shortage: a service that is idle at night would be
    reduced, and stay so by day while all its objectives are met.
    """
    # Unknown usage counts as more than any capacity, so that nothing is released on missing data.
    used = inf if state.cpu_used is None else state.cpu_used * USAGE_HEADROOM
    if not goal.watches_capacity:
        used = inf
    return PlanConstraints(
        min_replicas=max(
            *(guardrail.min_replicas for guardrail in guardrails), 1, _pods_for_usage(used, state)
        ),
        min_cpu=max(PlanConstraints().min_cpu, used / state.placed),
        min_total_cpu=used,
        max_replicas=min((guardrail.max_replicas for guardrail in guardrails), default=128),
        max_cpu=_min_or_infinity(guardrail.max_cpu.cores for guardrail in guardrails if guardrail.max_cpu),
        min_memory=0.0 if goal.watches_capacity else inf,
        max_memory=_min_or_infinity(
            float(guardrail.max_memory.bytes) for guardrail in guardrails if guardrail.max_memory
        ),
        forbidden=frozenset(name for guardrail in guardrails for name in guardrail.forbidden_actuators),
        freeze=next((guardrail.freeze for guardrail in guardrails if guardrail.freeze), ""),
        explore=bool(guardrails) and all(guardrail.explore for guardrail in guardrails),
    )


def _max_memory_before_oom(workload: Workload, main: str) -> float:
    """Return the most memory for pods that are about to be OOM-killed, before any of them was killed.

    More than twice the owner's size may be a leak; OOM kills then decide, with the leak guard of sizing.
    """
    own = next((each.resources for each in workload.containers if each.name == main), Resources())
    return 2.0 * (own.memory_limit or own.memory_request or 0) or inf


def _pods_for_usage(used: float, state: TargetState) -> int:
    """Return the number of pods that the current usage needs; unscheduled pods use nothing."""
    if used == inf:
        return state.placed
    return math.ceil(min(used / state.cpu, state.placed)) if state.cpu else 0


def explain_no_release(state: TargetState, goal: Goal) -> list[str]:
    """Explain for the status why nothing will be given back."""
    if not goal.watches_capacity:
        return [
            "no objective shows when pods have too little CPU, so nothing is released; add an objective on latency"
        ]
    if state.cpu_used is not None:
        return []
    return ["the CPU usage of the pods is unknown, so neither CPU nor scheduled pods are released"]


class AutoscalerConstraints:
    """The constraints that other autoscalers on the target impose."""

    def __init__(
        self,
        workload: Workload,
        *,
        hpas: Sequence[HorizontalPodAutoscaler],
        vpa: str,
        vpas_unsynced_reason: str = "",
        bounds_unsynced_reason: str = "",
        can_resize_in_place: bool,
    ) -> None:
        """Take the autoscalers; `vpas_unsynced_reason` is set while VerticalPodAutoscalers cannot be read, and
        `bounds_unsynced_reason` while HorizontalPodAutoscalers or other bounds cannot.
        """
        self._hpa_names = ", ".join(hpa.name for hpa in hpas)
        self._utilization_targets = [share for hpa in hpas for share in hpa.utilization_targets]
        self._vpa = vpa
        self._vpas_unsynced_reason = vpas_unsynced_reason
        self._bounds_unsynced_reason = bounds_unsynced_reason
        self._can_resize = can_resize_in_place
        self._has_pod_level_resources = workload.has_pod_level_resources
        self._can_scale = workload.kind not in _UNSCALABLE_KINDS
        self._supports_rollout = supports_rollout(workload)

    @property
    def forbids_resizing(self) -> bool:
        """True if another autoscaler controls the size of pods, or they cannot be resized."""
        return bool(
            self._vpa
            or self._vpas_unsynced_reason
            or self._bounds_unsynced_reason
            or self._has_pod_level_resources
            or not self._can_resize
        )

    def forbidden_actuators(self) -> frozenset[str]:
        keeps_count = self._hpa_names or self._bounds_unsynced_reason or not self._can_scale
        scaling = SCALING_ACTUATORS if keeps_count else frozenset[str]()
        resizing = RESIZING_ACTUATORS if self.forbids_resizing else frozenset[str]()
        return scaling | resizing | (frozenset[str]() if self._supports_rollout else OPTION_ACTUATORS)

    def min_without_scale_out(self, state: TargetState, resource: Resource) -> float:
        """Return the smallest size to which an HPA does not respond with more pods. An HPA on utilization would
        add pods when requests shrink: pods would get smaller and more in every cycle.
        """
        size = state.main_size
        if size is None:
            return 0.0
        shares = [
            share.target / 100
            for share in self._utilization_targets
            if share.resource == resource and share.container in {"", size.container}
        ]
        if resource == "cpu":
            used, now, request = state.cpu_used, size.cpu, size.cpu_request
            used = None if used is None else used / state.placed
        else:
            used, now, request = state.memory_used, size.memory, size.memory_request
        if not shares or not now:
            return 0.0
        # With unknown usage, any smaller request could make the HPA add pods.
        return inf if used is None else used / min(shares) * now / (request or now)

    def max_cpu_without_scale_in(self, state: TargetState) -> float:
        """Return the largest CPU to which an HPA does not respond with fewer pods.

        An HPA on utilization removes pods when requests grow beyond the need: pods would get fewer and larger in
        every cycle, down to its minimum.
        """
        size, now = state.main_size, state.cpu
        shares = [
            share.target / 100
            for share in self._utilization_targets
            if size and share.resource == "cpu" and share.container in {"", size.container}
        ]
        if not shares or not size or not now:
            return inf
        if state.cpu_used is None:
            return now
        return max(now, state.cpu_used / state.placed / min(shares) * now / (size.cpu_request or now))

    def explain(self) -> list[str]:
        """Explain for the status which fields other autoscalers control."""
        found = []
        if self._hpa_names:
            found.append(f"the number of pods is left to HorizontalPodAutoscaler {self._hpa_names}")
        if why := self._bounds_unsynced_reason:
            found.append(f"neither the number nor the size of pods is changed, because {why}")
        if self._vpa:
            found.append(f"the size of pods is left to VerticalPodAutoscaler {self._vpa}")
        elif self._vpas_unsynced_reason:
            found.append(
                f"the size of pods is not changed, because VerticalPodAutoscalers cannot be read: {self._vpas_unsynced_reason}"
            )
        elif not self._can_resize:
            found.append("this cluster cannot resize pods in place")
        elif self._has_pod_level_resources:
            found.append(f"the size of pods is not changed: {POD_LEVEL_RESOURCES}")
        return found


def blocked_reason(workload: Workload, config: OperatorConfig) -> str:
    """Return the reason why no change may start for a workload; empty if it may."""
    if why := protected_reason(workload, config):
        return why
    if PolicyMode.AUTO in config.limits.forbidden_modes:
        return "limits.forbiddenModes of the operator has Auto, so Intents only report"
    hold = read_hold(workload.annotations)
    return str(hold) if hold else ""


def protected_reason(workload: Workload, config: OperatorConfig) -> str:
    """Return the reason why no pod of a workload may be changed, not even a new one; empty if they may."""
    if config.freeze_reason:
        return config.freeze_reason
    if workload.namespace in config.limits.excluded_namespaces:
        return f"namespace {workload.namespace} is excluded by limits.excludedNamespaces"
    return ""


def _freeze_reason(workload: Workload, config: OperatorConfig, autoscalers: AutoscalerConstraints) -> str:  # noqa: PLR0911 - one return a reason
    if why := blocked_reason(workload, config):
        return why
    annotations = decode_change_annotations(dict(workload.annotations), uid=workload.uid)
    if isinstance(annotations, UnreadableAnnotations):
        return annotations.reason
    if annotations.change is not None and not autoscalers.forbids_resizing:  # otherwise nobody continues it
        return "a resize is in progress"
    options = read_options_annotation(workload)
    if options is not None and options.phase is OptionsPhase.ROLLING:
        return f"a rollout is in progress, to {options.after}"
    if workload.replicas == 0:
        return "the workload is scaled to zero, which also disables its autoscalers"
    if workload.paused:
        return "the workload is paused"
    return "a rollout is in progress" if workload.is_rolling_out else ""


def _retry_times_after_revert(workload: Workload) -> dict[str, float]:
    """Return the time until which reverted sizes and options are not retried; other actions may help meanwhile."""
    found: dict[str, float] = {}
    annotations = read_change_annotations(workload)
    if annotations and annotations.reverted:
        found |= dict.fromkeys(RESIZING_ACTUATORS, float(annotations.reverted.until))
    options = read_options_annotation(workload)
    if options is not None and options.phase is OptionsPhase.REVERTED:
        found |= dict.fromkeys(OPTION_ACTUATORS, options.since + RETRY_AFTER)
    return found


def _min_or_infinity(values: Iterable[float]) -> float:
    return min(values, default=inf)
