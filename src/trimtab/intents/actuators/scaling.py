"""Scale out and in.

On scale-in Kubernetes chooses the pod to delete. The model assumes that the most available pod goes, so that a
plan does not rely on a pod that may be deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import ClassVar

from msgspec.structs import replace

from trimtab.intents.actuator import IntentAction
from trimtab.intents.actuators.candidate_values import evaluate_candidates, list_candidate_values
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal
from trimtab.intents.state import PodState, TargetState, count_unplaced
from trimtab.plugins import Settings

GROUP = "scaling"


class ScalingSettings(Settings):
    disruption: float = 0.02
    """The cost of the action itself, in core-hours; it is added once more for every pod that starts or stops."""


class _ScalingActuator:
    settings_type: ClassVar[type[ScalingSettings]] = ScalingSettings
    name: str
    group = GROUP
    diminishing = True

    def __init__(self, settings: ScalingSettings | None = None) -> None:
        self.disruption = (settings or ScalingSettings()).disruption

    def _build_actions(
        self, state: TargetState, values: Sequence[float], *, goal: Goal, effects: EffectModels
    ) -> list[IntentAction]:
        """Build an action for each number of replicas, and one for the smallest number that is sufficient."""

        def expect(replicas: Sequence[float]) -> list[TargetState]:
            return effects.predict(
                state, [_with_replicas(state, int(each)) for each in replicas], group=GROUP
            )

        return [
            IntentAction(
                actuator=self.name,
                parameters={"replicas": int(replicas), "from": state.replicas},
                after=after,
                disruption=self.disruption * (1 + abs(replicas - state.replicas)),
            )
            for replicas, after in evaluate_candidates(values, step=1.0, goal=goal, expect=expect)
        ]


class ScaleOut(_ScalingActuator):
    name = "scaleOut"

    def candidates(
        self, state: TargetState, *, goal: Goal, effects: EffectModels, limits: PlanConstraints
    ) -> Sequence[IntentAction]:
        if goal.is_release:
            return ()
        now = state.replicas
        most = min(float(limits.max_replicas - now), limits.extra_pods)
        for each, more in zip(state.requests_per_pod(), (limits.extra_cpu, limits.extra_memory), strict=True):
            if each > 0:
                most = min(most, more / each)
        # Zero replicas means that a user has turned the service off: never start it again.
        # Do not add replicas while some are unscheduled: they would not be scheduled either, and their number would
        # grow in every cycle.
        if now < 1 or most < 1 or state.unplaced:
            return ()
        values = list_candidate_values(
            now, low=1.0, high=now + min(most // 1, 3.0 * now), step=1.0, down=False
        )
        values = values if values[0] == now + 1 else [now + 1, *values]
        return self._build_actions(state, values, goal=goal, effects=effects)


class ScaleIn(_ScalingActuator):
    name = "scaleIn"

    def candidates(
        self, state: TargetState, *, goal: Goal, effects: EffectModels, limits: PlanConstraints
    ) -> Sequence[IntentAction]:
        now, least = state.replicas, max(1, limits.min_replicas)
        if not goal.is_release or now <= least:
            return ()
        values = list_candidate_values(now, low=float(least), high=inf, step=1.0, down=True)
        values = values if values[0] == now - 1 else [now - 1, *values]
        return self._build_actions(state, values, goal=goal, effects=effects)


def _with_replicas(state: TargetState, replicas: int) -> TargetState:
    pods = state.pods
    if replicas < len(pods):
        pods = tuple(
            sorted(pods, key=lambda pod: (not _is_serving(pod), pod.availability, pod.name))[:replicas]
        )
    return replace(state, replicas=replicas, pods=pods, unplaced=count_unplaced(state, replicas))


def _is_serving(pod: PodState) -> bool:
    return bool(pod.node) or pod.state == "Running"
