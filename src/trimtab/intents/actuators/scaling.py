"""Scale out and in: more pods or fewer.

Which pod goes when fewer are wanted is the cluster's choice: the best is thought to go, so that availability is not
promised by a pod that may be gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from trimtab.intents.actuators.ladder import STEPS, least
from trimtab.intents.deed import Deed
from trimtab.intents.effects.model import Effects
from trimtab.intents.limits import Limits
from trimtab.intents.objective import Goal
from trimtab.intents.state import State
from trimtab.plugins import Settings

GROUP = "scaling"


class ScalingSettings(Settings):
    disruption: float = 0.02
    """What scaling costs by itself, in cores for an hour, and once more for every pod that starts or ends."""


class ScaleOut:
    settings_type: ClassVar[type[ScalingSettings]] = ScalingSettings
    name = "scaleOut"
    group = GROUP
    diminishing = True

    def __init__(self, settings: ScalingSettings | None = None) -> None:
        self.disruption = (settings or ScalingSettings()).disruption

    def candidates(self, state: State, *, goal: Goal, effects: Effects, limits: Limits) -> Sequence[Deed]:
        if goal.gives_back:
            return ()
        now = state.replicas
        most = int(min(limits.max_replicas - now, limits.more_pods))
        cpu, memory = state.requested()
        for each, more in ((cpu, limits.more_cpu), (memory, limits.more_memory)):
            if each > 0:
                most = min(most, int(min(more / each, 1e6)))
        if most < 1:
            return ()
        states = {by: _scaled(state, now + by, effects) for by in STEPS if by <= most}
        enough = least(1, most, enough=lambda by: goal.reached(_reuse(states, state, now + by, by, effects)))
        chosen = sorted({*(by for by in STEPS if by <= most), most, *([enough] if enough else [])})
        return [
            Deed(
                actuator=self.name,
                parameters={"by": by, "replicas": now + by},
                after=_reuse(states, state, now + by, by, effects),
                disruption=self.disruption * (1 + by),
                why=f"{now} → {now + by} pods",
            )
            for by in chosen
        ]


class ScaleIn:
    settings_type: ClassVar[type[ScalingSettings]] = ScalingSettings
    name = "scaleIn"
    group = GROUP
    diminishing = True

    def __init__(self, settings: ScalingSettings | None = None) -> None:
        self.disruption = (settings or ScalingSettings()).disruption

    def candidates(self, state: State, *, goal: Goal, effects: Effects, limits: Limits) -> Sequence[Deed]:
        most = state.replicas - max(1, limits.min_replicas)
        if not goal.gives_back or most < 1:
            return ()
        chosen: dict[int, State] = {}
        for by in STEPS:
            if by > most:
                break
            chosen[by] = _scaled(state, state.replicas - by, effects)
            if not goal.reached(chosen[by]):
                break
        return [
            Deed(
                actuator=self.name,
                parameters={"by": by, "replicas": state.replicas - by},
                after=after,
                disruption=self.disruption * (1 + by),
                why=f"{state.replicas} → {state.replicas - by} pods",
            )
            for by, after in chosen.items()
        ]


def _scaled(state: State, replicas: int, effects: Effects) -> State:
    pods = state.pods
    if replicas < len(pods):
        pods = tuple(sorted(pods, key=lambda pod: (pod.availability, pod.name))[:replicas])
    after = msgspec.structs.replace(state, replicas=replicas, pods=pods)
    return effects.after(state, after, group=GROUP)


def _reuse(states: dict[int, State], state: State, replicas: int, by: int, effects: Effects) -> State:
    if by not in states:
        states[by] = _scaled(state, replicas, effects)
    return states[by]
