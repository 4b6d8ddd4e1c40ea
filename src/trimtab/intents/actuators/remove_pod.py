"""Remove a failing pod: a pod that fails much more often than the others is replaced by a new one.

The number of pods stays the same. Scaling in reduces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from trimtab.intents.actuator import IntentAction
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.availability_model import NEW_POD_AVAILABILITY, AvailabilityModel
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal
from trimtab.intents.state import PodState, TargetState
from trimtab.plugins import Settings


class RemovePodSettings(Settings):
    disruption: float = 0.05
    """The cost of the action itself, in core-hours."""
    min_pods: int = 1
    """The number of other pods that must be running."""


class RemovePod:
    settings_type: ClassVar[type[RemovePodSettings]] = RemovePodSettings
    name = "rmPod"
    group = "rmPod"
    diminishing = True

    def __init__(self, settings: RemovePodSettings | None = None) -> None:
        settings = settings or RemovePodSettings()
        self.disruption, self._min_pods = settings.disruption, settings.min_pods

    def candidates(
        self,
        state: TargetState,
        *,
        goal: Goal,
        effects: EffectModels,
        limits: PlanConstraints,  # noqa: ARG002 - it makes nothing larger
    ) -> Sequence[IntentAction]:
        running = [pod for pod in state.pods if pod.state == "Running"]
        if goal.is_release or not state.pods:
            return ()
        worst = min(state.pods, key=lambda pod: (pod.availability, pod.name))
        new = next(
            (
                model.new_pod_availability
                for model in effects.learned_models.values()
                if isinstance(model, AvailabilityModel)
            ),
            NEW_POD_AVAILABILITY,
        )
        if worst.availability >= new or len([pod for pod in running if pod is not worst]) < self._min_pods:
            return ()
        fresh = PodState(name=f"{worst.name}'s successor", qos=worst.qos, availability=new)
        pods = tuple(fresh if pod is worst else pod for pod in state.pods)
        (after,) = effects.predict(state, [replace(state, pods=pods)], group=self.group)
        return [
            IntentAction(
                actuator=self.name,
                parameters={"name": worst.name, "availability": worst.availability},
                after=after,
                disruption=self.disruption,
            )
        ]
