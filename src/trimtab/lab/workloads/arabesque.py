"""Jobs that load data and train models for many epochs, started in working hours.

The dataset that this type is named after (of the company Arabesque) was never published, so the type only has the
structure of such work: a job loads its data (memory rises, one core), runs epochs (all cores) with a short pause after each
(one core), and ends.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from trimtab.api.quantity import MIB
from trimtab.lab.workloads.generator import Curves, NoisyGeneratorSettings, SampledGenerator
from trimtab.lab.workloads.sampling import DAY, Sampler


class ArabesqueSettings(NoisyGeneratorSettings):
    """Jobs of a few hours."""

    step: float = Field(default=60.0, gt=0)
    """Seconds from one sample to the next."""
    cores: float = Field(default=4.0, ge=0)
    """CPU during an epoch, in cores."""
    idle_cores: float = Field(default=0.05, ge=0)
    """CPU between jobs."""
    mib: float = Field(default=4096.0, ge=0)
    """Memory when all data is loaded, in MiB."""
    idle_mib: float = Field(default=200.0, ge=0)
    """Memory between jobs."""
    job: float = Field(default=14400.0, ge=1)
    """Seconds that a job takes, on average."""
    epoch: float = Field(default=1200.0, gt=0)
    """Seconds from one epoch to the next."""
    pause_share: float = Field(default=0.1, ge=0, le=1)
    """The share of an epoch that is its pause."""
    load_share: float = Field(default=0.1, gt=0, le=1)
    """The share of a job in which it loads its data."""
    night_share: float = Field(default=0.2, ge=0, le=1)
    """The probability of a job at night or on a weekend, relative to working hours."""


class Arabesque(SampledGenerator[ArabesqueSettings]):
    """Jobs of epochs."""

    name = "arabesque"
    settings_type = ArabesqueSettings

    def draw_curves(self, sampler: Sampler) -> Curves:
        s = self.settings
        place = sampler.seconds / s.job + sampler.draw_uniform(0, 1)
        number = place.astype(np.int64)
        within = place - number
        lots = np.take_along_axis(sampler.rng.random(sampler.table_shape(number)), number, axis=1)
        begun = sampler.seconds - within * s.job
        hour, weekday = begun % DAY / 3600, np.floor(begun / DAY) % 7
        at_work = (hour >= 8) & (hour < 18) & (weekday < 5)
        runs = lots < np.where(at_work, 0.9, 0.9 * s.night_share)
        loads = within < s.load_share
        epochs = (within - s.load_share) * s.job / s.epoch
        pauses = epochs % 1.0 > 1 - s.pause_share
        size = sampler.draw_sizes(s.spread)
        busy = np.where(loads | pauses, np.minimum(1.0, s.cores), s.cores)
        held = s.idle_mib + (s.mib - s.idle_mib) * np.minimum(1.0, within / s.load_share)
        return Curves(
            cpu=size * np.where(runs, busy, s.idle_cores) * sampler.draw_noise(s.noise),
            memory=size * np.where(runs, held, s.idle_mib) * MIB,
        )
