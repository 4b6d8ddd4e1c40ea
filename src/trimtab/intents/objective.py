"""Objectives of an Intent, their evaluation, and the goal that combines them.

The tolerance is a dead band: a measured value counts as met within it, while plans aim at the value itself. Noise
therefore does not undo a plan that only just reaches its aim.
"""

from __future__ import annotations

from math import exp, inf, log
from typing import Self

import msgspec

from trimtab.api.intent import ObjectiveVerdict
from trimtab.api.kpiprofile import KPIType
from trimtab.intents.state import TargetState

_MIN_UNAVAILABILITY = 1e-9
"""The smallest unavailability, because nothing is always available."""
_CAPACITY_KPI_TYPES = frozenset({KPIType.LATENCY, KPIType.CUSTOM})


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: float
    """The value to reach, in the unit of the KPIProfile."""
    kind: KPIType = KPIType.CUSTOM
    less_is_better: bool = True
    tolerance: float = 0.0
    """The tolerance past the value that still counts as met, as a fraction of the value."""
    weight: float = 1.0
    """The weight of the objective when not all can be met."""
    measured_by: str = ""
    """The KPIProfile, under which effects are stored."""
    unit: str = ""
    """The unit of the value, for people; empty if nobody stated it."""
    description: str = ""
    """The meaning of the KPI, in words; empty if nobody stated it."""

    @property
    def worst_acceptable(self) -> float:
        """The worst value that still counts as met."""
        slack = abs(self.value) * self.tolerance
        worst = self.value + slack if self.less_is_better else self.value - slack
        return min(worst, 1.0 - _MIN_UNAVAILABILITY) if self.kind is KPIType.AVAILABILITY else worst

    def evaluate(self, current: float | None) -> ObjectiveVerdict:
        if current is None or current != current:  # noqa: PLR0124 - NaN is no measurement either
            return ObjectiveVerdict.UNKNOWN
        met = current <= self.worst_acceptable if self.less_is_better else current >= self.worst_acceptable
        return ObjectiveVerdict.MET if met else ObjectiveVerdict.MISSED

    def deficit(self, current: float) -> float:
        """Return the distance from the value as a logarithm, so that the effects of actions add up; 0 or less is
        reached.

        The distance of an availability is that of the unavailability: 99.8 % has twice the distance of 99.9 % from
        1.
        """
        if self.kind is KPIType.AVAILABILITY:
            missing = max(_MIN_UNAVAILABILITY, 1.0 - self.value)
            return log(max(_MIN_UNAVAILABILITY, 1.0 - current) / missing)
        if current <= 0 or self.value <= 0:
            reached = current <= self.value if self.less_is_better else current >= self.value
            return 0.0 if reached else inf
        distance = log(current) - log(self.value)
        return distance if self.less_is_better else -distance

    def with_headroom(self, headroom: float, current: float) -> Self:
        """Return the objective to keep during a release: a margin from a miss, or no worse than now."""
        if self.kind is KPIType.AVAILABILITY:
            value = 1.0 - (1.0 - self.value) * (1.0 - headroom)
        else:
            margin = abs(self.value) * headroom
            value = self.value - margin if self.less_is_better else self.value + margin
        tight = msgspec.structs.replace(self, value=value)
        return tight if tight.deficit(current) <= 0 else msgspec.structs.replace(self, value=current)


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    intent: str
    """The key of the Intent: namespace/name."""
    target: str = ""
    """The workload by kind, name and uid. Effects of another workload, even with the same name, do not apply."""
    objectives: tuple[Objective, ...]
    priority: float = 0.01
    priority_outside: float = 0.0
    """The priority among Intents of other namespaces. It is bounded by the administrator, because whoever may write
    Intents in a namespace chooses `priority`."""
    z_score: float = 0.5
    """The distance that plans keep from a miss, in standard deviations of the prediction."""
    is_release: bool = False
    """True if resources are to be released: actuators then propose reductions, otherwise additions."""

    @property
    def watches_capacity(self) -> bool:
        """True if an objective shows that pods have too little CPU before they fail.

        An availability does not, and neither does a throughput, which follows the demand while pods keep up.
        """
        return any(each.kind in _CAPACITY_KPI_TYPES for each in self.objectives)

    @property
    def namespace(self) -> str:
        return self.intent.partition("/")[0]

    def deficits(self, state: TargetState) -> list[float]:
        """Return the distance of each objective's worse end from its value; infinity if it is unknown."""
        found = []
        current, spread, z_score = state.objectives, state.log_spread, self.z_score
        for objective in self.objectives:
            name = objective.name
            value = current.get(name)
            if value is None:
                found.append(inf)
                continue
            if spread and (log_margin := z_score * spread.get(name, 0.0)):
                value *= exp(log_margin if objective.less_is_better else -log_margin)
            found.append(objective.deficit(value))
        return found

    def is_reached(self, state: TargetState) -> bool:
        return max(self.deficits(state)) <= _EPSILON


_EPSILON = 1e-9
"""The tolerance for logarithms as floating-point numbers."""
