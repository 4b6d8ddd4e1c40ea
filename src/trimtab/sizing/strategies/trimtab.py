"""The default strategy: the least size that keeps to the requested risk, learned for each container.

CPU is sized so that little time is spent above the request and little demand stays unserved, memory so that
the peak of an hour is hardly ever above it. `trimtab.sizing.strategies.trimtab_engine` learns; this module
holds the settings and the timing.

Sizes are computed once per update (an hour), counted from the first sample, and stay until the next. A
question at the very end of an hour is answered as if the hour were over.

For one container and one resource, at the end of an hour:

    level L_k     k = 1  usage at the end of the hour         (stabilized: mean of the window)
                      2  slow mean, half-life 4 days
                      3  mean of the next hour on former days  (stabilized: of the busiest hour in the window)
                      4  higher of 1 and 3
                      5  fading peak
    cost(b)       = s·b/u + under·care·P(use > b) + (s + unserved·care)·E[(use - b)⁺]/u
    bid_k         = the b of least cost, where P and E are those of the errors use/L_k seen so far;
                    at least floor · fading peak, at most headroom · highest peak
    forecast      = the k whose bids have really cost least, older hours counting less
    change if     Σ expected savings > tolerance · max(1, changes/7)⁴, or the size is below floor · fading peak

`u` is the mean usage: all costs are multiples of it, so that size does not matter. `s` is the share of the request
that is used: where little is used, a larger request is cheap. `under` and `unserved` are the prices of time above the
request and of usage that was not served, from `cpu_risk`, `memory_risk` and `unserved`. `care` grows from 1 to 20
while a container has more harm than it should. `floor` and `headroom` are 1.07 and 1.4 for memory, 0 and 1.15 for CPU.

A container's own errors are averaged with assumed ones, most of them small, which count for an hour or two. No container sees another one: its size is the same whichever are sized with it. For memory, an hour counts by its peak.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from trimtab.api.quantity import ResourceName
from trimtab.plugins import Settings
from trimtab.sizing.recommendation import Factor
from trimtab.sizing.state import (
    MAX_PLAUSIBLE_CPU,
    MAX_PLAUSIBLE_MEMORY,
    Array,
    Floats,
    Indices,
    deduplicate_kills,
    grow_after_kills,
)
from trimtab.sizing.strategies.trimtab_engine.kernels import (
    CostModel,
    DecayFactors,
    EpochState,
    ErrorBuckets,
)
from trimtab.sizing.strategies.trimtab_engine.state import ResourceState, ResourceTuning, describe_choice
from trimtab.sizing.strategy import Strategy, TargetRange, Targets, Traits

HOUR, DAY, MONTH = 3600.0, 86400.0, 30 * 86400.0

CPU = ResourceTuning(
    buckets=ErrorBuckets(low=-1.5, width=0.065, buckets=88),
    prior=((0.8, 0.25), (0.2, 0.8)),
    error_half_lives=1.0,
    peak_half_life_hours=0.0,
    peak_floor=0.0,
    headroom=1.15,
    prior_epochs=1.5,
    tolerance_share=1.0,
    most=MAX_PLAUSIBLE_CPU,
    only_peaks=False,
)
MEMORY = ResourceTuning(
    buckets=ErrorBuckets(low=-0.3, width=0.03, buckets=40),
    prior=((0.98, 0.03), (0.02, 0.5)),
    error_half_lives=2.0,
    peak_half_life_hours=720.0,
    # It stays above the peak itself for three days, or a container that is busy by day, or only on weekdays,
    # would be killed at the next peak.
    peak_floor=1.07,
    headroom=1.4,
    prior_epochs=1.0,
    tolerance_share=0.45,
    most=MAX_PLAUSIBLE_MEMORY,
    only_peaks=True,
)


class HarmCosts(NamedTuple):
    """The cost of harm in units of mean use, divided by the requested risk, so that the actual risk is about the
    requested one.
    """

    cpu: float = 0.16
    stabilized_cpu: float = 0.32
    """With a stabilization window, requests are less lenient and harm costs more."""
    oom: float = 0.05
    care_threshold: float = 12.0
    """The multiple of the requested risk that a container may bear before it is treated with more care."""


class HalfLives(NamedTuple):
    """The hours in which a value loses half its weight."""

    cost_hours: float = 72.0
    slow_mean_hours: float = 96.0
    highest_peak_hours: float = 720.0
    used_share_hours: float = 336.0
    expected_savings_hours: float = 12.0
    recent_changes_hours: float = 24.0


class StabilizationTuning(NamedTuple):
    """Differences of a strategy that sizes CPU for a whole stabilization window."""

    leniency: float = 0.5
    """A spike of an hour is paid for all day, so that an unused request is less cheap."""
    peak_half_lives: float = 3.0
    """The least half-life of the fading peak, in windows."""
    cost_hours_per_hour: float = 11.0
    """The hours that costs count longer for each hour of the window: a day of them is one trial."""


HARM, HALF_LIVES, STABILIZED = HarmCosts(), HalfLives(), StabilizationTuning()
KILL_NEED_SHARE = 0.25
"""The estimated need of an OOM-killed container, between what it had and what it gets. It gets much more, because a size
that is still too small costs another kill, but only what it really uses in the next hours should last.
"""
DEADBAND = 0.2
"""The distance of the bounds from the target, for a VPA's status: its updater evicts pods outside of them."""
FREQUENT_CHANGES = 7.0
"""The number of recent changes above which the next one must save more: about five a day."""
FIRST_WEIGHT = 1 / 60
"""The share of an update that the very first sample stands for."""
COMPLETE_SHARE = 0.9
"""The share of an update after which its data suffice to compute sizes again."""


class TrimtabSettings(Settings):
    """The settings of `trimtab`. The defaults suit a cluster that nobody has tuned."""

    usage_factors: ClassVar = {"oom_bump": 0.0}

    cpu_risk: float = Field(default=0.02, gt=0, lt=1)
    """The share of time in which a container may need more CPU than it requests: less risk, more cost."""
    memory_risk: float = Field(default=0.2, ge=1e-9)
    """The OOM kills per container and month that are worth the memory saved: less risk, more cost."""
    unserved: float = Field(default=0.5, ge=0, le=1)
    """The kind of harm that counts: 0 is time above the request alone, 1 is unserved CPU alone, which covers
    spikes better.
    """
    update: float = Field(default=HOUR, ge=1)
    """Seconds between two computations of a size."""
    stabilization: float = Field(default=0.0, ge=0, le=DAY)
    """Seconds for which requests stay as high as they were, so that CPU is sized for all of them and not for
    the next hour alone; a policy's changes.stabilization sets it.
    """
    half_life: float = Field(default=96.0, gt=0)
    """Hours in which an error of a forecast loses half its weight."""
    tolerance: float = Field(default=0.3, ge=0)
    """The excess cost that a size must have caused before it is changed, as a fraction of the usage in an
    update: a higher value means fewer changes.
    """
    oom_bump: float = Field(default=1.5, gt=1)
    """The factor by which the memory of an OOM killed container grows."""
    oom_min_bump: float = Field(default=64 * 2.0**20, ge=0)
    """The least bytes by which the memory of an OOM killed container grows."""
    min_cpu: float = Field(default=0.001, ge=0)
    """The least cores of a request."""
    min_memory: float = Field(default=0.0, ge=0)
    """The least bytes of a request."""


class TrimtabStrategy(Strategy[TrimtabSettings]):
    """Sizes by the forecast that costs least, with a margin from its own errors."""

    name: ClassVar[str] = "trimtab"
    settings_type: ClassVar[type[Settings]] = TrimtabSettings
    traits = Traits(
        counts_samples=False, damps_changes=True
    )  # A sample weighs by the time since the last one.

    former_arrays = frozenset({"cpu.shape", "cpu.fleet", "memory.shape", "memory.fleet"})

    def __init__(self, containers: int, settings: TrimtabSettings) -> None:
        super().__init__(containers, settings)
        window = settings.stabilization if settings.stabilization > settings.update else 0.0
        self.traits = self.traits._replace(covers_stabilization=window > 0.0)
        self._window_hours = window / HOUR
        cpu_price = (HARM.stabilized_cpu if window else HARM.cpu) / settings.cpu_risk
        oom_risk = settings.memory_risk * settings.update / MONTH
        self._cpu = ResourceState(
            containers,
            CPU,
            _build_decay_factors(CPU, settings, window),
            CostModel(
                overuse_penalty=(1.0 - settings.unserved) * cpu_price,
                unserved_penalty=settings.unserved * cpu_price,
                tolerated_overuse=HARM.care_threshold * settings.cpu_risk,
                leniency=STABILIZED.leniency if window else 1.0,
                peak_floor=CPU.peak_floor,
                headroom=CPU.headroom,
                change_threshold=settings.tolerance * CPU.tolerance_share,
                frequent_changes=FREQUENT_CHANGES,
            ),
        )
        self._memory = ResourceState(
            containers,
            MEMORY,
            _build_decay_factors(MEMORY, settings, 0.0),
            CostModel(
                overuse_penalty=HARM.oom / oom_risk,
                unserved_penalty=0.0,
                tolerated_overuse=HARM.care_threshold * oom_risk,
                leniency=1.0,
                peak_floor=MEMORY.peak_floor,
                headroom=MEMORY.headroom,
                change_threshold=settings.tolerance * MEMORY.tolerance_share,
                frequent_changes=FREQUENT_CHANGES,
            ),
        )
        self._clock = np.full(2, np.nan)  # The times of the last sample and of the first.

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        before = float(self._clock[0])
        if np.isnan(before):
            self._clock[1] = t
        self._clock[0] = t
        weight = FIRST_WEIGHT if np.isnan(before) else min((t - before) / self.settings.update, 1.0)
        for resource, usage in ((self._cpu, cpu), (self._memory, memory)):
            if not np.isnan(before) and self._epoch_number(t) != self._epoch_number(before):
                resource.close_epoch(self._epoch_hour(before), self._epoch_hour(t))
            resource.observe(usage, weight)

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:  # noqa: ARG002 - it counts for the present epoch
        containers, memory = deduplicate_kills(self.containers, containers, memory)
        sizes, needs = grow_after_kills(
            memory, self.settings.oom_bump, self.settings.oom_min_bump, need_share=KILL_NEED_SHARE
        )
        self._memory.raise_to(containers, sizes, needs)

    def recommend(self, t: float) -> Targets:
        cpu, memory = (self._state_at(resource, t).held for resource in (self._cpu, self._memory))
        return Targets(
            cpu=self._compute_range(cpu, self.settings.min_cpu),
            memory=self._compute_range(memory, self.settings.min_memory),
        )

    def explain(self, t: float, row: int) -> tuple[Factor, ...]:
        found: list[Factor] = []
        resources: tuple[tuple[ResourceName, ResourceState], ...] = (
            ("cpu", self._cpu),
            ("memory", self._memory),
        )
        for name, resource in resources:
            choice = resource.explain(self._state_at(resource, t), row)
            if choice is not None:
                window = self._window_hours if name == "cpu" else 0.0
                detail = describe_choice(name, choice, window_hours=window)
                found.append(Factor(f"{name} forecast", detail, f"strategy {self.name}"))
        return tuple(found)

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        for name, array in self.arrays().items():
            array[...] = arrays[name]
        self._cpu.clear_preview()
        self._memory.clear_preview()

    def arrays(self) -> dict[str, Array]:
        return {
            "clock": self._clock,
            **{f"cpu.{name}": array for name, array in self._cpu.arrays().items()},
            **{f"memory.{name}": array for name, array in self._memory.arrays().items()},
        }

    def _state_at(self, resource: ResourceState, t: float) -> EpochState:
        """Return the state from `t` on, as if the epoch ended now, unless it has just started."""
        last = float(self._clock[0])
        if np.isnan(last):
            return resource.current
        late = (t - float(self._clock[1])) / self.settings.update - self._epoch_number(last)
        if late < COMPLETE_SHARE and resource.has_sizes:
            return resource.current
        return resource.preview(self._epoch_hour(last), self._epoch_hour(t))

    def _epoch_number(self, t: float) -> float:
        return (t - float(self._clock[1])) // self.settings.update

    def _epoch_hour(self, t: float) -> int:
        """Return the hour of the day at which the epoch of this time started."""
        return int((float(self._clock[1]) + self._epoch_number(t) * self.settings.update) % DAY // HOUR)

    def _compute_range(self, held: Floats, least: float) -> TargetRange:
        target = np.maximum(held, least)
        return TargetRange(
            target=target,
            lower=target * (1 - DEADBAND),
            upper=target * (1 + DEADBAND),
        )


def _build_decay_factors(tuning: ResourceTuning, settings: TrimtabSettings, window: float) -> DecayFactors:
    """Return half-lives as the share that is left after an update; the window is that of stabilization."""
    hours = window / HOUR

    def left(half_life_hours: float) -> float:
        return float(0.5 ** (settings.update / HOUR / half_life_hours)) if half_life_hours else 0.0

    slow_mean = left(HALF_LIVES.slow_mean_hours)
    return DecayFactors(
        errors=left(tuning.error_half_lives * settings.half_life),
        costs=left(HALF_LIVES.cost_hours + STABILIZED.cost_hours_per_hour * hours),
        slow_mean=slow_mean,
        fading_peak=left(max(tuning.peak_half_life_hours, STABILIZED.peak_half_lives * hours)),
        highest_peak=left(HALF_LIVES.highest_peak_hours),
        hourly_mean=0.5,
        used_share=left(HALF_LIVES.used_share_hours),
        expected_savings=left(HALF_LIVES.expected_savings_hours),
        changes=left(HALF_LIVES.recent_changes_hours),
        prior_epochs=tuning.prior_epochs,
        kept_mean=left(hours),
        kept_hours=max(round(hours), 1),
        mature_weight=(1.0 - slow_mean ** (hours * HOUR / settings.update)) / (1.0 - slow_mean),
    )
