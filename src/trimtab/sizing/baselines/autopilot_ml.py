"""The ensemble of Google's Autopilot (Rzadca et al., EuroSys 2020, section 3.2.3).

A model is a decay rate and a margin. At intervals each model picks the limit that would have cost least on
the usage that it remembers; the cost of that limit on later usage is charged to it; and the container gets
the limit of the model that was recently cheapest. Exceeding a limit costs, staying below it costs, and so
does every change of a limit or of the chosen model.

The paper counts the samples below a limit. Here they are weighted by their distance, because a mere count
would put every limit at one end of the histogram or at the other. The weights of the costs are not in the
paper.

`lower` and `upper` are the least and the most of all models. An OOM kill costs as an overrun does, and for
two days the target is at least what was too little, and a tenth more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from trimtab.kernel import kernel
from trimtab.plugins import Settings
from trimtab.sizing.baselines.autopilot_window import BUCKETS, MIN_CPU_UNIT, MIN_MEMORY_UNIT, UsageScaler
from trimtab.sizing.state import (
    MAX_PLAUSIBLE_CPU,
    MAX_PLAUSIBLE_MEMORY,
    Array,
    Floats,
    Indices,
    scatter_memory,
)
from trimtab.sizing.stats.histogram import MASK, SHIFT, Histogram, HistogramRows, find_buckets
from trimtab.sizing.stats.window import RollingMaxima
from trimtab.sizing.strategy import Strategy, TargetRange, Targets, Traits

HOUR = 3600.0
OOM_WINDOW, OOM_SLICES, OOM_MARGIN = 48 * HOUR, 8, 1.1


class AutopilotMlSettings(Settings):
    """The models, and the cost of their mistakes."""

    usage_factors: ClassVar = {"margins": 1.0}

    half_lives: tuple[Annotated[float, Field(ge=1)], ...] = Field(
        default=(3 * HOUR, 12 * HOUR, 48 * HOUR), min_length=1, max_length=8
    )
    """Seconds in which a sample loses half its weight, for each model."""
    margins: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        default=(0.0, 0.1, 0.25), min_length=1, max_length=8
    )
    """The margin that each model adds to the limit that would have cost least, as a fraction."""
    cpu_over_cost: float = Field(default=5.0, ge=0)
    """The cost of exceeding CPU all the time, where full slack costs 1."""
    memory_over_cost: float = Field(default=50.0, ge=0)
    """The cost of exceeding memory all the time, where full slack costs 1."""
    limit_change_cost: float = Field(default=0.02, ge=0)
    """The cost of changing a limit."""
    model_change_cost: float = Field(default=0.02, ge=0)
    """The cost of choosing another model."""
    cost_half_life: float = Field(default=24 * HOUR, ge=1)
    """Seconds in which a cost loses half its weight."""
    update_interval: float = Field(default=HOUR, ge=1)
    """Seconds between two choices of limits."""
    min_samples: int = Field(default=10, ge=1)
    """The least samples for a recommendation."""


class EnsembleCosts(NamedTuple):
    """The settings that the compiled loops need."""

    over: float
    limit_change: float
    model_change: float
    half_life: float


class EnsembleModels(NamedTuple):
    """The state of each model for each row, in multiples of the row's unit: rows by models."""

    best: Floats
    """The limit that would have cost least, by half-life; NaN before the first."""
    limit: Floats
    cost: Floats
    chosen: npt.NDArray[np.int64]
    """The chosen model of each row; -1 before the first."""
    target: Floats
    last: Floats
    """The time at which costs were last charged."""
    samples: npt.NDArray[np.int64]


@kernel(error_model="numpy")
def charge_models(models: EnsembleModels, costs: EnsembleCosts, t: float, multiples: Floats) -> None:
    """Charge each model for the effect of its limit on this sample."""
    limit, cost, last, samples = models.limit, models.cost, models.last, models.samples
    span, share = math.nan, 0.0
    for row in range(multiples.size):
        used = multiples[row]
        if np.isnan(used):
            continue
        samples[row] += 1
        # An OOM kill may be reported after later samples: it then has no duration, not a negative one.
        if max(t - last[row], 0.0) != span:
            span = max(t - last[row], 0.0)
            share = 1.0 - 2.0 ** (-span / costs.half_life)
        last[row] = max(t, last[row])
        for model in range(limit.shape[1]):
            allowed = limit[row, model]
            if allowed > 0.0:
                paid = costs.over if used > allowed else 1.0 - used / allowed
                cost[row, model] += share * (paid - cost[row, model])


@kernel(error_model="numpy")
def pick_limits(rows: HistogramRows, ends: Floats, costs: EnsembleCosts, best: Floats) -> None:
    """Pick the limit of each row that would have cost least on what one histogram remembers."""
    pages, pool = rows.pages, rows.pool
    for row in range(best.size):
        total = rows.total[row]
        if total <= 0.0:
            continue
        cheapest, at = np.inf, best[row]
        under, load = 0.0, 0.0
        for bucket in range(int(rows.low[row]), int(rows.high[row]) + 1):
            weight = pool[pages[row, bucket >> SHIFT], bucket & MASK]
            if weight == 0.0:
                continue
            end = ends[bucket]
            under += weight
            load += weight * end
            paid = (costs.over * max(total - under, 0.0) + under - load / end) / total
            if end != best[row]:
                paid += costs.limit_change
            if paid < cheapest:
                cheapest, at = paid, end
        best[row] = at


@kernel(error_model="numpy")
def choose_models(models: EnsembleModels, costs: EnsembleCosts, margins: Floats) -> None:
    """Set each model's limit, and choose the cheapest for each row."""
    for row in range(models.chosen.size):
        lowest, choice = np.inf, -1
        for model in range(models.limit.shape[1]):
            asked = models.best[row, model // margins.size] * (1.0 + margins[model % margins.size])
            if np.isnan(asked):
                continue
            if asked != models.limit[row, model]:
                if models.limit[row, model] > 0.0:
                    models.cost[row, model] += costs.limit_change
                models.limit[row, model] = asked
            paid = models.cost[row, model]
            if model != models.chosen[row]:
                paid += costs.model_change
            if asked != models.target[row]:
                paid += costs.limit_change
            if paid < lowest:
                lowest, choice = paid, model
        if choice >= 0:
            models.chosen[row] = choice
            models.target[row] = models.limit[row, choice]


class Ensemble:
    """All models of one resource of all containers."""

    def __init__(
        self, rows: int, settings: AutopilotMlSettings, costs: EnsembleCosts, scaler: UsageScaler
    ) -> None:
        self.costs, self.scaler = costs, scaler
        self.margins = np.array(settings.margins)
        self.histograms = [Histogram(rows, BUCKETS, half_life) for half_life in settings.half_lives]
        kinds = len(settings.half_lives)
        count = kinds * self.margins.size
        self.models = EnsembleModels(
            best=np.full((rows, kinds), np.nan),
            limit=np.full((rows, count), np.nan),
            cost=np.zeros((rows, count)),
            chosen=np.full(rows, -1),
            target=np.full(rows, np.nan),
            last=np.full(rows, -np.inf),
            samples=np.zeros(rows, np.int64),
        )

    def add(self, t: float, values: Floats) -> None:
        multiples = self.scaler.to_multiples(values)
        charge_models(self.models, self.costs, t, multiples)
        found = find_buckets(BUCKETS, multiples, np.inf)
        for histogram in self.histograms:
            histogram.add(t, found)

    def update_limits(self) -> None:
        for column, histogram in enumerate(self.histograms):
            best = self.models.best[:, column].copy()  # contiguous, as the kernel is compiled for
            pick_limits(histogram.rows, BUCKETS.ends, self.costs, best)
            self.models.best[:, column] = best
        choose_models(self.models, self.costs, self.margins)

    def compute_range(self, min_samples: int) -> TargetRange:
        unit = np.where(self.models.samples >= min_samples, self.scaler.unit, np.nan)
        lower, upper = self.models.limit.min(axis=1) * unit, self.models.limit.max(axis=1) * unit
        return TargetRange(lower=lower, target=self.models.target * unit, upper=upper)

    def arrays(self, prefix: str) -> dict[str, Array]:
        own = {prefix + name: array for name, array in self.models._asdict().items()}
        own[prefix + "unit"] = self.scaler.unit
        for index, histogram in enumerate(self.histograms):
            own |= histogram.arrays(f"{prefix}{index}.")
        return own

    def load_arrays(self, prefix: str, arrays: Mapping[str, Array]) -> None:
        for index, histogram in enumerate(self.histograms):
            histogram.load_arrays(f"{prefix}{index}.", arrays)
        self.models = EnsembleModels(*(arrays[prefix + name] for name in EnsembleModels._fields))
        self.scaler.unit = arrays[prefix + "unit"]


class AutopilotMlStrategy(Strategy[AutopilotMlSettings]):
    """Autopilot's ensemble of models."""

    name = "autopilot-ml"
    settings_type = AutopilotMlSettings
    traits = Traits(is_baseline=True)

    def __init__(self, containers: int, settings: AutopilotMlSettings) -> None:
        super().__init__(containers, settings)

        def ensemble(over: float, least: float, most: float) -> Ensemble:
            costs = EnsembleCosts(
                over, settings.limit_change_cost, settings.model_change_cost, settings.cost_half_life
            )
            return Ensemble(containers, settings, costs, UsageScaler(containers, least=least, most=most))

        self._cpu = ensemble(settings.cpu_over_cost, MIN_CPU_UNIT, MAX_PLAUSIBLE_CPU)
        self._memory = ensemble(settings.memory_over_cost, MIN_MEMORY_UNIT, MAX_PLAUSIBLE_MEMORY)
        self._ooms = RollingMaxima(containers, seconds=OOM_WINDOW, slices=OOM_SLICES)
        self._due = np.full(1, -np.inf)

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        self._cpu.add(t, cpu)
        self._memory.add(t, memory)
        if t >= self._due[0]:
            self._cpu.update_limits()
            self._memory.update_limits()
            self._due[0] = t + self.settings.update_interval

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:
        had = scatter_memory(self.containers, containers, memory)
        self._memory.add(t, had)
        self._ooms.add(t, had, MAX_PLAUSIBLE_MEMORY)

    def recommend(self, t: float) -> Targets:
        memory = self._memory.compute_range(self.settings.min_samples)
        least = np.nan_to_num(self._ooms.peak(t)) * OOM_MARGIN
        lower, target, upper = (
            np.maximum(bound, least) for bound in (memory.lower, memory.target, memory.upper)
        )
        return Targets(
            cpu=self._cpu.compute_range(self.settings.min_samples),
            memory=TargetRange(lower=lower, target=target, upper=upper),
        )

    def arrays(self) -> dict[str, Array]:
        models = self._cpu.arrays("cpu.") | self._memory.arrays("memory.")
        return models | self._ooms.arrays("ooms.") | {"due": self._due}

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        self._cpu.load_arrays("cpu.", arrays)
        self._memory.load_arrays("memory.", arrays)
        self._ooms.load_arrays("ooms.", arrays)
        self._due = arrays["due"]
