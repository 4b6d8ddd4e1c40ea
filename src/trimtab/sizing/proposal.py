"""What a strategy proposes for one container: one row of its arrays, as a record.

The numbers are as the strategy gave them, NaN and nonsense included; the gate decides what is believed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from trimtab.api.optimizationpolicy import MetricsConfig
from trimtab.sizing.recommendation import Factor
from trimtab.sizing.strategy import TargetRange, Targets
from trimtab.sizing.tracking.proposal_history import RecentTargets

ROUNDING_TOLERANCE = 1e-6
"""What a product of floats may be off by: 0.2 cores are 200 millicores and not 201."""


class ResourceTarget(msgspec.Struct, frozen=True, gc=False):
    """One resource in millicores or bytes; NaN: the strategy cannot say."""

    target: float = math.nan
    lower: float = math.nan
    """A request between this and `upper` is not worth a change."""
    upper: float = math.nan
    recent: tuple[float, ...] = ()
    """The highest target of each hour of the clock, this one's first; 0 where there was none."""
    covers_stabilization: bool = False
    """Whether the target is for all of the time that a policy keeps sizes, so that it need not keep the highest of late."""

    def raise_to_recent(self) -> ResourceTarget:
        """The highest target of late, with bounds as wide: for who follows a number wherever it goes."""
        highest = max(self.recent, default=0.0)
        if not highest > self.target > 0:
            return self
        share = highest / self.target
        return ResourceTarget(
            highest, self.lower * share, self.upper * share, self.recent, self.covers_stabilization
        )


class Proposal(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Both resources, and what the strategy has to say about them."""

    cpu: ResourceTarget = ResourceTarget()
    memory: ResourceTarget = ResourceTarget()
    strategy: str
    facts: tuple[Factor, ...] = ()
    """What it rests on, such as the percentile and the safety factor; they open the explanation."""


def build_proposal(
    targets: Targets,
    row: int,
    *,
    strategy: str,
    facts: tuple[Factor, ...] = (),
    recent: RecentTargets = RecentTargets(),  # noqa: B008 - immutable
    covers_stabilization: bool = False,
) -> Proposal:
    """What a strategy said of the container in this row."""
    return Proposal(
        cpu=_build_target(targets.cpu, row, 1000.0, recent.cpu, keeps=covers_stabilization),
        memory=_build_target(targets.memory, row, 1.0, recent.memory),
        strategy=strategy,
        facts=facts,
    )


def percentile_settings(config: MetricsConfig) -> dict[str, float]:
    """The settings of the strategy `percentile` that do what a policy's metricsConfig says."""
    return {
        "quantile": int(config.percentile.removeprefix("P")) / 100,
        "safety_factor": config.safety_factor,
        "window": config.rolling_window.seconds,
    }


def describe_settings(strategy: str, settings: Mapping[str, Any]) -> Factor:
    """What a strategy was told, to open an explanation with."""
    said = ", ".join(
        f"{name} {value:.15g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in settings.items()
    )
    return Factor("settings", said, f"strategy {strategy}")


def _build_target(
    bounds: TargetRange, row: int, units: float, lately: tuple[float, ...], *, keeps: bool = False
) -> ResourceTarget:
    return ResourceTarget(
        float(bounds.target[row]) * units,
        float(bounds.lower[row]) * units,
        float(bounds.upper[row]) * units,
        tuple(target * units for target in lately),
        keeps,
    )
