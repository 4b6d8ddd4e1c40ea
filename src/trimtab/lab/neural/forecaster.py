"""A network forecasts the quantiles of the coming hour, and the size is the one with the least expected cost.

The network (`trimtab train --learner forecaster`) is shown a week of a container in numbers without a scale
(`learned_record`), and answers with quantiles: of CPU samples, and of the hour's peak of memory. What a size costs
follows from them: what is asked for, plus a penalty for time over it and for use left unserved. So the risk is set
here, as for `trimtab`, and not when the network is trained. What another size would have saved adds up until it is
worth a change. A container that has more or less harm than was asked is treated with more or less care: so the network
need not be right about workloads that it has never seen.

Sizes are named once an hour, counted from the first sample, and stay until the next. Memory is never under the week's
peak, and after an OOM at once above what was too little: of so rare an event a network has seen too few.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit
from pydantic import Field

from trimtab.lab.neural.features import FEATURES, HourClock, HourlyUsage
from trimtab.lab.neural.network import Network, build_network, load_weights, predict
from trimtab.plugins import Settings
from trimtab.sizing.state import (
    MAX_PLAUSIBLE_CPU,
    MAX_PLAUSIBLE_MEMORY,
    Array,
    Floats,
    Indices,
    deduplicate_kills,
    grow_after_kills,
)
from trimtab.sizing.strategy import Strategy, TargetRange, Targets, Traits

MONTH_HOURS = 720.0
STEPS_PER_QUANTILE = 4
"""Places that are looked at from one quantile to the next."""
TAIL_COUNT, TAIL_STEP, TAIL_POWER = 8, 1.1, 3.0
"""Places beyond the last quantile, how far apart, and the power by which it gets unlikely to be over them."""
CPU_HARM_COST, OOM_HARM_COST = 0.16, 0.05
"""The cost of harm in units of mean use, divided by the accepted risk, as for `trimtab`."""
CPU_HEADROOM, MEMORY_HEADROOM = 1.15, 1.25
"""The largest size in multiples of the week's peak."""
SAVINGS_DECAY, CHANGES_DECAY = 0.5 ** (1 / 12), 0.5 ** (1 / 24)
"""The hourly decay of the savings that a change would have brought, and of the count of changes."""
FREQUENT_CHANGES = 7.0
"""Changes of late from which on the next must have more to save: about five a day."""
CARE_RATE, MAX_HARM = 0.03, 10.0
"""The rate at which the care for a container rises while its harm exceeds the target, and the highest care."""
MIN_CARE, MAX_CARE = 0.25, 20.0
MEMORY_TOLERANCE = 0.3
"""The part of the tolerance that holds for memory, which moves less."""
DEADBAND = 0.2
"""The relative distance from the target within which a request is not worth a change."""


class ForecasterSettings(Settings):
    """Settings of the strategy."""

    file_fields: ClassVar = ("weights",)
    usage_factors: ClassVar = {"oom_bump": 0.0}

    weights: str = "forecaster"
    """The network: the one that ships with Trimtab, or the path of an .npz file that `trimtab train` has written."""
    cpu_risk: float = Field(default=0.02, gt=0, lt=1)
    """The share of time that a container may need more CPU than it asks for: less risk, more cost."""
    memory_risk: float = Field(default=0.2, ge=1e-9)
    """OOMs a container and month that are worth the memory saved: less risk, more cost."""
    unserved: float = Field(default=0.5, ge=0, le=1)
    """The definition of harm: 0 counts time over the request, 1 counts unserved CPU, which covers spikes better."""
    tolerance: float = Field(default=0.8, ge=0)
    """The wasted cost, as a fraction of hourly use, from which a size is changed."""
    oom_bump: float = Field(default=1.25, gt=1)
    """The factor by which the memory of an OOM-killed container grows."""
    oom_min_bump: float = Field(default=64 * 2.0**20, ge=0)
    """The bytes by which it grows at least."""


class HeldSizes(NamedTuple):
    """The size of each container and its results with that size."""

    size: Floats
    owed: Floats
    """The expected savings of another size since the last change."""
    moves: Floats
    """The decayed number of recent changes; the initial value stands for changes before the first."""
    care: Floats
    """The factor on the cost of harm of this container, learned from the harm it had."""
    over: Floats
    """Samples of this hour over the size."""

    @classmethod
    def new(cls, rows: int) -> HeldSizes:
        return cls(
            np.full(rows, np.nan),
            np.zeros(rows),
            np.full(rows, FREQUENT_CHANGES),
            np.ones(rows),
            np.zeros(rows),
        )


class ForecasterCostModel(NamedTuple):
    """The cost of harm in units of the level, and the multiples of the week's peak that bound a size."""

    tolerated_overuse: float
    """The share of samples that may be over the size."""
    overuse_penalty: float
    unserved_penalty: float
    change_threshold: float
    peak_floor: float
    headroom: float


@njit(cache=True, error_model="numpy")
def count_over(values: Floats, most: float, held: HeldSizes) -> None:
    """Count samples above the size; implausible samples do not count."""
    for row in range(values.size):
        if held.size[row] < values[row] <= most:
            held.over[row] += 1.0


@njit(cache=True, error_model="numpy")
def choose_sizes(
    cost_model: ForecasterCostModel,
    taus: Floats,
    quantiles: Floats,
    levels: Floats,
    peaks: Floats,
    samples: npt.NDArray[np.int64],
    held: HeldSizes,
) -> None:
    """End an hour: adjust the caution for each container, and choose a new size where a change is worth its cost.

    `quantiles` has the network's answers: the lowest quantile's logarithm, then what is between each and the next.
    """
    count = (taus.size - 1) * STEPS_PER_QUANTILE + 1 + TAIL_COUNT
    sizes, over, costs = np.empty(count), np.empty(count), np.empty(count)
    for row in range(levels.size):
        if np.isnan(levels[row]):
            continue
        size, level, peak = held.size[row], levels[row], peaks[row]
        if samples[row] > 0 and not np.isnan(size):
            harm = min(held.over[row] / samples[row] / cost_model.tolerated_overuse, MAX_HARM)
            held.care[row] = min(max(held.care[row] * np.exp(CARE_RATE * (harm - 1.0)), MIN_CARE), MAX_CARE)
        held.over[row] = 0.0
        care = held.care[row]
        _lay_out_candidates(taus, quantiles[row], sizes, over)
        share = 0.5 if np.isnan(size) else min(max(level / size, 0.02), 1.0)
        best = _find_cheapest_size(
            sizes,
            over,
            share,
            cost_model.overuse_penalty * care,
            share + cost_model.unserved_penalty * care,
            costs,
        )
        wanted = min(max(sizes[best] * level, peak * cost_model.peak_floor), peak * cost_model.headroom)
        held.moves[row] *= CHANGES_DECAY
        if np.isnan(size):
            held.size[row] = wanted
            continue
        at = np.interp(np.log(np.array([size, wanted]) / level), np.log(sizes), costs)
        beyond = max(size / level - sizes[-1], 0.0) * share
        held.owed[row] = held.owed[row] * SAVINGS_DECAY + max(at[0] + beyond - at[1], 0.0) / share
        brake = max(1.0, held.moves[row] / FREQUENT_CHANGES) ** 4
        if held.owed[row] > cost_model.change_threshold * brake or size < peak * cost_model.peak_floor:
            held.owed[row] = 0.0
            held.moves[row] += 1.0
            held.size[row] = wanted


@njit(cache=True, error_model="numpy")
def _find_cheapest_size(
    sizes: Floats, over: Floats, price: float, under: float, unserved: float, costs: Floats
) -> int:
    """Return the size of least expected cost, and the cost of each."""
    shortfall, best = 0.0, sizes.size - 1
    for index in range(sizes.size - 1, -1, -1):
        if index < sizes.size - 1:
            shortfall += (sizes[index + 1] - sizes[index]) * (over[index] + over[index + 1]) / 2
        costs[index] = price * sizes[index] + under * over[index] + unserved * shortfall
        if costs[index] < costs[best]:
            best = index
    return best


@njit(cache=True, error_model="numpy")
def _lay_out_candidates(taus: Floats, answers: Floats, sizes: Floats, over: Floats) -> None:
    """Return the candidate sizes as multiples of the level, and the probability of usage above each."""
    low, place = min(max(answers[0], -8.0), 8.0), 0
    for which in range(taus.size - 1):
        step = answers[which + 1]
        rise = min(step if step > 30.0 else np.log1p(np.exp(step)), 8.0)  # softplus, as in training
        for fine in range(STEPS_PER_QUANTILE):
            part = fine / STEPS_PER_QUANTILE
            sizes[place] = np.exp(low + part * rise)
            over[place] = 1.0 - (taus[which] + part * (taus[which + 1] - taus[which]))
            place += 1
        low += rise
    for beyond in range(TAIL_COUNT + 1):
        sizes[place] = np.exp(low) * TAIL_STEP**beyond
        over[place] = (1.0 - taus[-1]) * TAIL_STEP ** (-TAIL_POWER * beyond)
        place += 1


class ResourceForecast:
    """The forecast of one resource of all containers: their usage, the network and the sizes in effect."""

    def __init__(
        self, rows: int, *, model: Network, taus: Floats, cost_model: ForecasterCostModel, most: float
    ) -> None:
        self._model, self._taus, self._cost_model, self._most = model, taus, cost_model, most
        self.usage = HourlyUsage(rows, most=most)
        self.held = HeldSizes.new(rows)

    def add(self, usage: Floats) -> None:
        count_over(usage, self._most, self.held)
        self.usage.add(usage)

    def compute_next_sizes(self, now: int, ahead: float) -> HeldSizes:
        """Return the sizes from the next hour on; this changes no state."""
        shown = self.usage.compute_features(now, ahead)
        held = HeldSizes(*(array.copy() for array in self.held))
        answers = predict(self._model, shown.features)
        samples = self.usage.open_hour.samples
        choose_sizes(self._cost_model, self._taus, answers, shown.levels, shown.peaks, samples, held)
        return held

    def close_hour(self, now: int, coming: int, ahead: float) -> None:
        """End the hour, and choose the sizes of the next."""
        self.held = self.compute_next_sizes(now, ahead)
        self.usage.close_hour(now, coming)

    def arrays(self, prefix: str) -> dict[str, Array]:
        held = {f"{prefix}held.{name}": array for name, array in self.held._asdict().items()}
        return self.usage.arrays(prefix) | held

    def load_arrays(self, prefix: str, arrays: Mapping[str, Array]) -> None:
        self.usage.load_arrays(prefix, arrays)
        self.held = HeldSizes(*(arrays[f"{prefix}held.{name}"] for name in HeldSizes._fields))


class ForecasterStrategy(Strategy[ForecasterSettings]):
    """Sizes containers by the forecast of a network for the next hour."""

    name: ClassVar[str] = "forecaster"
    settings_type: ClassVar[type[Settings]] = ForecasterSettings
    traits = Traits(counts_samples=False)  # Hours count, not samples.

    def __init__(self, containers: int, settings: ForecasterSettings) -> None:
        super().__init__(containers, settings)
        s, arrays = settings, load_weights(settings.weights)

        def forecast(prefix: str, stake: ForecasterCostModel, most: float) -> ResourceForecast:
            model = build_network(arrays, prefix, inputs=FEATURES, source=s.weights)
            taus = np.asarray(arrays[prefix + "taus"], np.float64)
            return ResourceForecast(containers, model=model, taus=taus, cost_model=stake, most=most)

        self._cpu = forecast(
            "cpu.",
            ForecasterCostModel(
                tolerated_overuse=s.cpu_risk,
                overuse_penalty=(1.0 - s.unserved) * CPU_HARM_COST / s.cpu_risk,
                unserved_penalty=s.unserved * CPU_HARM_COST / s.cpu_risk,
                change_threshold=s.tolerance,
                peak_floor=0.0,
                headroom=CPU_HEADROOM,
            ),
            MAX_PLAUSIBLE_CPU,
        )
        self._memory = forecast(
            "memory.",
            ForecasterCostModel(
                tolerated_overuse=s.memory_risk / MONTH_HOURS,
                overuse_penalty=OOM_HARM_COST / (s.memory_risk / MONTH_HOURS),
                unserved_penalty=0.0,
                change_threshold=s.tolerance * MEMORY_TOLERANCE,
                peak_floor=1.0,
                headroom=MEMORY_HEADROOM,
            ),
            MAX_PLAUSIBLE_MEMORY,
        )
        self._clock = HourClock()

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        turned = self._clock.advance(t)
        for forecast, usage in ((self._cpu, cpu), (self._memory, memory)):
            if turned is not None:
                over, now = turned
                forecast.close_hour(over, now, self._clock.hour_start(now))
            forecast.add(usage)

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:  # noqa: ARG002 - it counts for the present hour
        containers, memory = deduplicate_kills(self.containers, containers, memory)
        bumped, needed = grow_after_kills(memory, self.settings.oom_bump, self.settings.oom_min_bump)
        size = self._memory.held.size
        size[containers] = np.fmax(size[containers], bumped)
        needs = np.full(self.containers, np.nan)
        needs[containers] = needed
        self._memory.usage.add(needs)

    def recommend(self, t: float) -> Targets:
        return Targets(cpu=self._compute_range(self._cpu, t), memory=self._compute_range(self._memory, t))

    def _compute_range(self, forecast: ResourceForecast, t: float) -> TargetRange:
        held = forecast.held
        if self._clock.has_started and self._clock.is_nearly_over(t):
            held = forecast.compute_next_sizes(
                self._clock.current_hour, self._clock.hour_start(self._clock.current_hour + 1)
            )
        target = held.size.copy()
        return TargetRange(target=target, lower=target * (1 - DEADBAND), upper=target * (1 + DEADBAND))

    def arrays(self) -> dict[str, Array]:
        return self._cpu.arrays("cpu.") | self._memory.arrays("memory.") | {"clock": self._clock.times}

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        self._cpu.load_arrays("cpu.", arrays)
        self._memory.load_arrays("memory.", arrays)
        self._clock.times = arrays["clock"]
