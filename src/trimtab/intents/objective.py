"""Objective: one thing that is wanted, and whether it is met; goal: all that one intent wants.

The tolerance is a dead band: what is measured counts as met up to there, while plans aim at the value itself. So a
plan that just reaches its aim is not undone by noise.
"""

from __future__ import annotations

from math import exp, inf, log
from typing import Self

import msgspec

from trimtab.api.intent import ObjectiveVerdict
from trimtab.api.kpiprofile import KPIType
from trimtab.intents.state import TargetState

_MIN_UNAVAILABILITY = 1e-9
"""Nothing is available always."""
_CAPACITY_KPI_TYPES = frozenset({KPIType.LATENCY, KPIType.CUSTOM})


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: float
    """What is wanted, in the unit of its KPIProfile."""
    kind: KPIType = KPIType.CUSTOM
    less_is_better: bool = True
    tolerance: float = 0.0
    """How far past the value still counts as met, as a fraction of it."""
    weight: float = 1.0
    """How much it counts beside the others when not all can be met."""
    measured_by: str = ""
    """The KPIProfile, by which effects are remembered."""

    @property
    def worst_acceptable(self) -> float:
        """The worst that still counts as met."""
        slack = abs(self.value) * self.tolerance
        worst = self.value + slack if self.less_is_better else self.value - slack
        return min(worst, 1.0 - _MIN_UNAVAILABILITY) if self.kind is KPIType.AVAILABILITY else worst

    def evaluate(self, current: float | None) -> ObjectiveVerdict:
        if current is None or current != current:  # noqa: PLR0124 - NaN is no measurement either
            return ObjectiveVerdict.UNKNOWN
        met = current <= self.worst_acceptable if self.less_is_better else current >= self.worst_acceptable
        return ObjectiveVerdict.MET if met else ObjectiveVerdict.MISSED

    def deficit(self, current: float) -> float:
        """How far it is from its value: 0 or less is reached; as a logarithm, so that deeds' effects add up.

        Of an availability it is the missing share that counts: 99.9 % is half as far from 1 as 99.8 %.
        """
        if self.kind is KPIType.AVAILABILITY:
            missing = max(_MIN_UNAVAILABILITY, 1.0 - self.value)
            return log(max(_MIN_UNAVAILABILITY, 1.0 - current) / missing)
        if current <= 0 or self.value <= 0:
            reached = current <= self.value if self.less_is_better else current >= self.value
            return 0.0 if reached else inf
        off = log(current) - log(self.value)
        return off if self.less_is_better else -off

    def with_headroom(self, headroom: float, current: float) -> Self:
        """What is still wanted while resources are given back: some way from a miss, or no worse than now."""
        if self.kind is KPIType.AVAILABILITY:
            value = 1.0 - (1.0 - self.value) * (1.0 - headroom)
        else:
            way = abs(self.value) * headroom
            value = self.value - way if self.less_is_better else self.value + way
        tight = msgspec.structs.replace(self, value=value)
        return tight if tight.deficit(current) <= 0 else msgspec.structs.replace(self, value=current)


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    intent: str
    """The key of the intent: namespace/name."""
    target: str = ""
    """The workload by kind, name and uid. What was learned of another one, also of one that had the same name, is not
    about this one."""
    objectives: tuple[Objective, ...]
    priority: float = 0.01
    z_score: float = 0.5
    """How many standard deviations of a prediction plans stay clear of a miss."""
    is_release: bool = False
    """Whether resources are to be given back: actuators then say what can be taken away, else what can be added."""

    @property
    def watches_capacity(self) -> bool:
        """Whether any objective shows that pods have too little CPU before they fail.

        An availability does not, nor does a throughput, which follows the demand as long as pods keep up.
        """
        return any(each.kind in _CAPACITY_KPI_TYPES for each in self.objectives)

    @property
    def namespace(self) -> str:
        return self.intent.partition("/")[0]

    def deficits(self, state: TargetState) -> list[float]:
        """How far each objective's worse end is from its value; what is unknown is infinitely far."""
        found = []
        current, spread, sureness = state.objectives, state.log_spread, self.z_score
        for objective in self.objectives:
            name = objective.name
            value = current.get(name)
            if value is None:
                found.append(inf)
                continue
            if spread and (unsure := sureness * spread.get(name, 0.0)):
                value *= exp(unsure if objective.less_is_better else -unsure)
            found.append(objective.deficit(value))
        return found

    def is_reached(self, state: TargetState) -> bool:
        return max(self.deficits(state)) <= _EPSILON


_EPSILON = 1e-9
"""Logarithms are floating-point numbers."""
