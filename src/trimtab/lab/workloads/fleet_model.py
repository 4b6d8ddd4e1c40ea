"""A whole fleet by its statistics: how large, how uneven, how seasonal its containers are, and how these go together.

Each series is drawn from quantiles that were measured over a fleet's series, so what is shipped is a few dozen numbers
and none of anybody's data. CPU is log-normal around its mean: part of it comes back each day, part wanders, part is
bursts. Memory has a level of its own, wanders slowly, and follows CPU a little.

`azure`, `alibaba` and `borg` are this with their own numbers, which `bench/fit_workloads.py` writes into `fitted/`.
"""

from __future__ import annotations

import json
import math
from copy import copy
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, create_model

from trimtab.api.quantity import MIB
from trimtab.lab.workloads.generator import Curves, GeneratorSettings, SampledGenerator
from trimtab.lab.workloads.sampling import DAY, Sampler
from trimtab.usage.trace import Floats

QUANTILE_LEVELS = np.array([0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0])
"""The quantiles that are given of each statistic."""
MEASURED_STEP = 300.0
"""Seconds: correlations from one step to the next are those of samples so far apart."""
MEMORY_PERSISTENCE = 0.995
"""The share of its random walk that memory keeps over such a step."""
MIN_VALUE = 1e-6
FITTED_DIR = Path(__file__).parent / "fitted"
"""A file a fleet: its numbers, the recordings that they come from, and how."""


def _split_numbers(given: Any) -> Any:
    return tuple(given.split(",")) if isinstance(given, str) else given


QuantileValues = Annotated[
    tuple[float, float, float, float, float, float, float, float], BeforeValidator(_split_numbers)
]
"""The least, P5, P25, P50, P75, P95, P99 and the most over all series, with commas between them."""


class FleetSettings(GeneratorSettings):
    """The numbers of a fleet."""

    mean_cores: QuantileValues
    """A series' mean CPU, in cores: its quantiles over all series."""
    variability: QuantileValues
    """The standard deviation of a series' CPU beside its mean."""
    persistence: QuantileValues
    """The correlation of CPU with that of five minutes later, but for the day's course."""
    daily: QuantileValues
    """The share of the variance of CPU's logarithm that comes back each day."""
    burst_share: QuantileValues
    """The share of time that a series is in a burst."""
    burst_size: float = Field(ge=1)
    """CPU in a burst beside CPU out of it."""
    burst_length: float = Field(gt=0)
    """Seconds that a burst takes, on average."""
    mean_mib: QuantileValues
    """A series' mean memory, in MiB."""
    memory_variability: QuantileValues
    """The standard deviation of a series' memory beside its mean."""
    memory_follows: float = Field(ge=-1, le=1)
    """The correlation of memory with CPU's course over time."""
    sizes_together: float = Field(ge=-1, le=1)
    """The rank correlation of mean CPU and mean memory."""
    small_vary: float = Field(ge=-1, le=1)
    """The rank correlation of variability with smallness."""
    peak_hour: float = Field(default=14.0, ge=0, lt=24)
    """The hour at which most series are highest."""
    hours_apart: float = Field(default=3.0, ge=0, le=12)
    """The typical distance of a series' peak from that hour, in hours."""
    most_cores: float = Field(default=64.0, gt=0)
    """The most that a series can have at any time, in cores."""


def list_fitted_recordings(name: str) -> frozenset[str]:
    """Return the recordings whose statistics are in a generator's numbers; none for one that was made up."""
    path = FITTED_DIR / f"{name}.json"
    return frozenset(json.loads(path.read_text())["sets"]) if path.exists() else frozenset()


def load_fitted_settings(name: str) -> type[FleetSettings]:
    """Return the settings with the numbers of a fleet as their defaults."""
    numbers = json.loads((FITTED_DIR / f"{name}.json").read_text())["numbers"]
    fields: dict[str, Any] = {}
    for field, number in numbers.items():
        info = copy(FleetSettings.model_fields[field])
        info.default = tuple(number) if isinstance(number, list) else number
        fields[field] = (info.annotation, info)
    return create_model(
        f"{name.capitalize()}Settings", __base__=FleetSettings, __doc__=f"{name}'s.", **fields
    )


class FleetGenerator(SampledGenerator[FleetSettings]):
    """Containers as a fleet has them."""

    name = "fleet"
    settings_type = FleetSettings

    def draw_curves(self, sampler: Sampler) -> Curves:
        s = self.settings
        large = sampler.rng.standard_normal(sampler.series)
        cpu = self._draw_log_cpu(
            sampler,
            variability=_interpolate_quantiles(
                s.variability, _draw_correlated_places(sampler, -large, s.small_vary)
            ),
        )
        log_cpu, width = cpu
        bursts = np.where(self._draw_bursts(sampler), s.burst_size, 1.0)
        cores = _scale_to_mean(
            np.exp(width * log_cpu) * bursts, _interpolate_quantiles(s.mean_cores, _normal_cdf(large))
        )
        held = _interpolate_quantiles(s.mean_mib, _draw_correlated_places(sampler, large, s.sizes_together))
        return Curves(
            cpu=np.minimum(cores, s.most_cores),
            memory=_scale_to_mean(self._draw_memory(sampler, log_cpu), held) * MIB,
        )

    def _draw_log_cpu(self, sampler: Sampler, *, variability: Floats) -> tuple[Floats, Floats]:
        """Draw the logarithm of CPU over time, with unit variance, and its amplitude."""
        s = self.settings
        daily = np.clip(_draw_quantile(sampler, s.daily), 0.0, 1.0)
        late = (s.peak_hour + s.hours_apart * sampler.rng.standard_normal((sampler.series, 1))) / 24
        turn = 2 * np.pi * (sampler.seconds / DAY - late)
        day = (np.cos(turn) + 0.3 * np.cos(2 * turn)) * np.sqrt(2 / 1.09)
        keeps = np.clip(_draw_quantile(sampler, s.persistence), 0.0, 0.9999) ** (sampler.step / MEASURED_STEP)
        log_cpu = np.sqrt(daily) * day + np.sqrt(1 - daily) * sampler.draw_autocorrelated(keeps)
        return log_cpu, np.sqrt(np.log1p(variability**2))

    def _draw_bursts(self, sampler: Sampler) -> npt.NDArray[np.bool_]:
        """Return whether each sample is in a burst: a two-state Markov chain with a random start."""
        s = self.settings
        share = np.clip(_draw_quantile(sampler, s.burst_share), 0.0, 0.95)
        ends = min(1.0, sampler.step / s.burst_length)
        stretch = np.cumsum(sampler.rng.random(sampler.shape) < ends, axis=1, dtype=np.int64)
        lots = sampler.rng.random((sampler.series, int(stretch.max()) + 1))
        return np.take_along_axis(lots, stretch, axis=1) < share

    def _draw_memory(self, sampler: Sampler, log_cpu: Floats) -> Floats:
        s = self.settings
        width = np.sqrt(np.log1p(_draw_quantile(sampler, s.memory_variability) ** 2))
        own = sampler.draw_autocorrelated(MEMORY_PERSISTENCE ** (sampler.step / MEASURED_STEP))
        together = s.memory_follows * log_cpu + np.sqrt(1 - s.memory_follows**2) * own
        grown: Floats = np.exp(width * together)
        return grown


def _draw_quantile(sampler: Sampler, quantiles: QuantileValues) -> Floats:
    return _interpolate_quantiles(quantiles, sampler.rng.random(sampler.series))


def _draw_correlated_places(sampler: Sampler, other: Floats, together: float) -> Floats:
    """Draw numbers between 0 and 1 with this correlation to another normal number."""
    own = sampler.rng.standard_normal(sampler.series)
    return _normal_cdf(together * other + np.sqrt(1 - together**2) * own)


def _normal_cdf(values: Floats) -> Floats:
    """Return the share of the standard normal distribution below each value.

    erfc keeps its precision in the lower tail, where 1 + erf would cancel.
    """
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in values.tolist()])


def _interpolate_quantiles(quantiles: QuantileValues, places: Floats) -> Floats:
    """Interpolate between the quantiles by their logarithm, because they span decades."""
    logs = np.log(np.maximum(quantiles, MIN_VALUE))
    return np.exp(np.interp(places, QUANTILE_LEVELS, logs))[:, None]


def _scale_to_mean(rows: Floats, mean: Floats) -> Floats:
    scaled: Floats = rows * (mean / rows.mean(axis=1, keepdims=True))
    return scaled
