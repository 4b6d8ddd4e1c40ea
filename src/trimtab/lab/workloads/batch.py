"""A batch job: as much CPU as it can get for an hour or two at a fixed time of the day, and almost none otherwise."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from trimtab.api.quantity import MIB
from trimtab.lab.workloads.generator import Curves, NoisyGeneratorSettings, SampledGenerator
from trimtab.lab.workloads.sampling import Sampler


class BatchSettings(NoisyGeneratorSettings):
    """A run each night."""

    period: float = Field(default=86400.0, ge=1)
    """Seconds from one run to the next."""
    at: float = Field(default=7200.0, ge=0)
    """Seconds into the period at which a run begins."""
    apart: float = Field(default=7200.0, ge=0)
    """Seconds over which the series' beginnings are spread."""
    length: float = Field(default=5400.0, gt=0)
    """Seconds that a run takes, typically."""
    length_spread: float = Field(default=0.3, ge=0, le=3)
    """The variation of run lengths: the width of a log-normal factor."""
    missed_share: float = Field(default=0.05, ge=0, le=1)
    """The share of runs that do not take place."""
    cores: float = Field(default=2.0, ge=0)
    """CPU of a run, in cores."""
    idle_cores: float = Field(default=0.01, ge=0)
    """CPU otherwise."""
    mib: float = Field(default=1024.0, ge=0)
    """Memory at the end of a run, in MiB."""
    idle_mib: float = Field(default=64.0, ge=0)
    """Memory otherwise."""


class Batch(SampledGenerator[BatchSettings]):
    """Runs at their time."""

    name = "batch"
    settings_type = BatchSettings

    def draw_curves(self, sampler: Sampler) -> Curves:
        s = self.settings
        place = sampler.seconds - s.at - sampler.draw_uniform(0, s.apart)
        number = np.floor(place / s.period).astype(np.int64)
        since, number = place - number * s.period, number - number.min()
        table = sampler.table_shape(number)
        lengths = s.length * np.exp(s.length_spread * sampler.rng.standard_normal(table))
        lengths[sampler.rng.random(table) < s.missed_share] = 0.0
        length = np.minimum(np.take_along_axis(lengths, number, axis=1), s.period)
        runs = since < length
        done = np.divide(since, length, out=np.zeros(sampler.shape), where=runs)
        size = sampler.draw_sizes(s.spread)
        return Curves(
            cpu=size * np.where(runs, s.cores, s.idle_cores) * sampler.draw_noise(s.noise),
            memory=size * (s.idle_mib + (s.mib - s.idle_mib) * np.sqrt(done)) * MIB,
        )
