"""Objective: one thing that is wanted, and whether it is met.

The tolerance is a dead band: what is measured counts as met up to there, while plans aim at the value itself. So a
plan that just reaches its aim is not undone by noise.
"""

from __future__ import annotations

import msgspec

from trimtab.api.intent import Verdict
from trimtab.api.kpiprofile import KPIType


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
    def bound(self) -> float:
        """The worst that still counts as met."""
        slack = abs(self.value) * self.tolerance
        return self.value + slack if self.less_is_better else self.value - slack

    def verdict(self, current: float | None) -> Verdict:
        if current is None or current != current:  # noqa: PLR0124 - NaN is no measurement either
            return Verdict.UNKNOWN
        return Verdict.MET if self.reaches(current, self.bound) else Verdict.MISSED

    def reaches(self, current: float, aim: float) -> bool:
        """Whether this is as good as the aim, or better."""
        return current <= aim if self.less_is_better else current >= aim


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """All that one intent wants."""

    intent: str
    """Its key: namespace/name."""
    objectives: tuple[Objective, ...]
    priority: float = 0.01

    @property
    def namespace(self) -> str:
        return self.intent.partition("/")[0]
