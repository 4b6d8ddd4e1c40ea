"""Proposals: what a strategy asks for one container, now and over the last day.

The numbers are those of the strategy, NaN and implausible ones included; the data quality check decides what
is accepted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from trimtab.api.optimizationpolicy import MetricsConfig, SizingGoal
from trimtab.api.optimizationpolicy.metrics_config import (
    DEFAULT_PERCENTILE,
    DEFAULT_ROLLING_WINDOW,
    DEFAULT_SAFETY_FACTOR,
)
from trimtab.plugins import Settings
from trimtab.sizing.recommendation import Factor
from trimtab.sizing.state import MAX_PLAUSIBLE_CPU, MAX_PLAUSIBLE_MEMORY, Array, ArrayState
from trimtab.sizing.stats.window import RollingMaxima
from trimtab.sizing.strategy import TargetRange, Targets, Traits

ROUNDING_TOLERANCE = 1e-6
"""The rounding error of a product of floats: 0.2 cores are 200 millicores and not 201."""


class RecentTargets(NamedTuple):
    """The highest targets of one container by clock hour, the current one first; 0 where there was none."""

    cpu: tuple[float, ...] = ()
    """The targets of CPU in cores."""
    memory: tuple[float, ...] = ()


class ResourceTarget(msgspec.Struct, frozen=True, gc=False):
    """The target of one resource in millicores or bytes; NaN if the strategy has none."""

    target: float = math.nan
    lower: float = math.nan
    """The lower end of the range in which a request is not worth a change; `upper` is the other end."""
    upper: float = math.nan
    recent: tuple[float, ...] = ()
    """The highest target of each clock hour, the current one first; 0 where there was none."""
    covers_stabilization: bool = False
    """True if the target covers the whole stabilization window of the policy, so that recent targets need not
    be kept.
    """
    damps_changes: bool = False
    """True if the strategy itself waits until a change pays, so that its range damps nothing."""
    leaves_autoscaled: bool = False
    """True if the strategy does not size a resource by whose utilization an HPA scales."""

    def raise_to_recent(self, *, restarts: bool = True) -> ResourceTarget:
        """Return the highest recent target with proportional bounds, for consumers that follow every number.

        Without restarts, a target that covers the stabilization window itself stays, as it does under a policy.
        """
        stays = self.covers_stabilization and not restarts
        highest = 0.0 if stays else max(self.recent, default=0.0)
        if not highest > self.target > 0:
            return self
        share = highest / self.target
        return msgspec.structs.replace(
            self, target=highest, lower=self.lower * share, upper=self.upper * share
        )


class Proposal(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The targets of both resources, and the facts behind them."""

    cpu: ResourceTarget = ResourceTarget()
    memory: ResourceTarget = ResourceTarget()
    strategy: str
    facts: tuple[Factor, ...] = ()
    """The facts behind the targets, such as the percentile and the safety factor; they open the explanation.
    """


def build_proposal(
    targets: Targets,
    row: int,
    *,
    strategy: str,
    facts: tuple[Factor, ...] = (),
    recent: RecentTargets = RecentTargets(),  # noqa: B008 - immutable
    traits: Traits = Traits(),  # noqa: B008 - immutable
) -> Proposal:
    """Return the proposal of a strategy for the container in this row."""
    return Proposal(
        cpu=_build_target(targets.cpu, row, 1000.0, recent.cpu, traits),
        # No strategy sizes memory for the window: its highest recent target is always kept.
        memory=_build_target(
            targets.memory, row, 1.0, recent.memory, traits._replace(covers_stabilization=False)
        ),
        strategy=strategy,
        facts=facts,
    )


def percentile_settings(config: MetricsConfig) -> dict[str, float]:
    """Return the settings of the strategy `percentile` for a policy's metricsConfig."""
    return {
        "quantile": int((config.percentile or DEFAULT_PERCENTILE).removeprefix("P")) / 100,
        "safety_factor": config.safety_factor or DEFAULT_SAFETY_FACTOR,
        "window": (config.rolling_window or DEFAULT_ROLLING_WINDOW).seconds,
    }


GOAL_RISKS: Mapping[SizingGoal, Mapping[str, float]] = {
    SizingGoal.SAVINGS: {"cpu_risk": 0.05, "memory_risk": 1.0},
    SizingGoal.BALANCED: {},
    SizingGoal.RELIABILITY: {"cpu_risk": 0.005, "memory_risk": 0.05},
    # A batch job that gets less CPU ends later, and one that is killed begins again.
    SizingGoal.BATCH: {"cpu_risk": 0.2, "memory_risk": 0.05},
}
"""The settings of the strategy `trimtab` for each goal; Balanced has its defaults."""


def goal_settings(cpu: SizingGoal, memory: SizingGoal) -> dict[str, float]:
    """Return the settings of the strategy `trimtab` for the goals of both resources."""
    chosen = {"cpu_risk": GOAL_RISKS[cpu], "memory_risk": GOAL_RISKS[memory]}
    return {name: risks[name] for name, risks in chosen.items() if risks}


def describe_settings(strategy: str, settings: Mapping[str, Any]) -> Factor:
    """Return the settings of a strategy as the first factor of an explanation."""
    listed = ", ".join(
        f"{name} {value:.15g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in settings.items()
    )
    return Factor("settings", listed, f"strategy {strategy}")


def _build_target(
    bounds: TargetRange, row: int, units: float, recent: tuple[float, ...], traits: Traits
) -> ResourceTarget:
    return ResourceTarget(
        float(bounds.target[row]) * units,
        float(bounds.lower[row]) * units,
        float(bounds.upper[row]) * units,
        tuple([amount * units for amount in recent]),
        traits.covers_stabilization,
        traits.damps_changes,
        traits.leaves_autoscaled,
    )


HOUR = 3600.0
HOURS_KEPT = 25
"""The number of hours: the present one, and those of which the day before has a part."""


class ProposalHistorySettings(Settings):
    """The settings of a proposal history; there are none."""


class ProposalHistory(ArrayState[ProposalHistorySettings]):
    """The highest targets of each hour, in a ring."""

    name = "proposed"

    def __init__(self, containers: int, settings: ProposalHistorySettings) -> None:
        super().__init__(containers, settings)
        self._cpu = RollingMaxima(containers, seconds=HOURS_KEPT * HOUR, slices=HOURS_KEPT)
        self._memory = RollingMaxima(containers, seconds=HOURS_KEPT * HOUR, slices=HOURS_KEPT)

    def record(self, t: float, targets: Targets) -> None:
        """Record the targets of `t` seconds."""
        self._cpu.add(t, targets.cpu.target, MAX_PLAUSIBLE_CPU)
        self._memory.add(t, targets.memory.target, MAX_PLAUSIBLE_MEMORY)

    def is_due(self, t: float, *, until: float) -> bool:
        """Return whether the hour of `t` has no proposal yet and will still be remembered at `until`."""
        return until // HOUR - t // HOUR < HOURS_KEPT and not self._cpu.has_begun(t)

    def recent_targets(self, t: float, container: int) -> RecentTargets:
        """Return the targets that were proposed for this container up to `t`."""
        return RecentTargets(self._cpu.peaks_by_age(t, container), self._memory.peaks_by_age(t, container))

    def arrays(self) -> dict[str, Array]:
        return self._cpu.arrays("cpu.") | self._memory.arrays("memory.")

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        self._cpu.load_arrays("cpu.", arrays)
        self._memory.load_arrays("memory.", arrays)
