"""Scale out and in: more pods or fewer.

Which pod goes when fewer are wanted is the cluster's choice: the best is thought to go, so that availability is not
promised by a pod that may be gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import ClassVar

from msgspec.structs import replace

from trimtab.intents.action import Deed
from trimtab.intents.actuators.candidate_values import looked_at, rungs
from trimtab.intents.constraints import Limits
from trimtab.intents.effects.model import Effects
from trimtab.intents.objective import Goal
from trimtab.intents.state import PodState, State, without_a_place
from trimtab.plugins import Settings

GROUP = "scaling"


class ScalingSettings(Settings):
    disruption: float = 0.02
    """What scaling costs by itself, in cores for an hour, and once more for every pod that starts or ends."""


class _Scaling:
    settings_type: ClassVar[type[ScalingSettings]] = ScalingSettings
    name: str
    group = GROUP
    diminishing = True

    def __init__(self, settings: ScalingSettings | None = None) -> None:
        self.disruption = (settings or ScalingSettings()).disruption

    def _deeds(self, state: State, values: Sequence[float], *, goal: Goal, effects: Effects) -> list[Deed]:
        """A deed for each number of replicas, and where some were left out between, for the least that is enough."""

        def expect(replicas: Sequence[float]) -> list[State]:
            return effects.after(state, [_scaled(state, int(each)) for each in replicas], group=GROUP)

        return [
            Deed(
                actuator=self.name,
                parameters={"replicas": int(replicas), "from": state.replicas},
                after=after,
                disruption=self.disruption * (1 + abs(replicas - state.replicas)),
            )
            for replicas, after in looked_at(values, step=1.0, goal=goal, expect=expect)
        ]


class ScaleOut(_Scaling):
    name = "scaleOut"

    def candidates(self, state: State, *, goal: Goal, effects: Effects, limits: Limits) -> Sequence[Deed]:
        if goal.gives_back:
            return ()
        now = state.replicas
        most = min(float(limits.max_replicas - now), limits.more_pods)
        for each, more in zip(state.requested(), (limits.more_cpu, limits.more_memory), strict=True):
            if each > 0:
                most = min(most, more / each)
        # No pods at all is how a person turns a service off: nobody is woken from that.
        # And while pods have no place, more of them would fare no better, and their number grow turn by turn.
        if now < 1 or most < 1 or state.unplaced:
            return ()
        values = rungs(now, low=1.0, high=now + min(most // 1, 3.0 * now), step=1.0, down=False)
        values = values if values[0] == now + 1 else [now + 1, *values]
        return self._deeds(state, values, goal=goal, effects=effects)


class ScaleIn(_Scaling):
    name = "scaleIn"

    def candidates(self, state: State, *, goal: Goal, effects: Effects, limits: Limits) -> Sequence[Deed]:
        now, least = state.replicas, max(1, limits.min_replicas)
        if not goal.gives_back or now <= least:
            return ()
        values = rungs(now, low=float(least), high=inf, step=1.0, down=True)
        values = values if values[0] == now - 1 else [now - 1, *values]
        return self._deeds(state, values, goal=goal, effects=effects)


def _scaled(state: State, replicas: int) -> State:
    pods = state.pods
    if replicas < len(pods):
        pods = tuple(sorted(pods, key=lambda pod: (not _serves(pod), pod.availability, pod.name))[:replicas])
    return replace(state, replicas=replicas, pods=pods, unplaced=without_a_place(state, replicas))


def _serves(pod: PodState) -> bool:
    return bool(pod.node) or pod.state == "Running"
