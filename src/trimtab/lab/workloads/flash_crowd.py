"""A flash crowd: a steady service whose load rises many times within minutes and then declines slowly."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from trimtab.api.quantity import MIB
from trimtab.lab.workloads.generator import Curves, NoisyGeneratorSettings, SampledGenerator
from trimtab.lab.workloads.sampling import Sampler


class FlashCrowdSettings(NoisyGeneratorSettings):
    """Two crowds in the time, ten times the usual load each."""

    step: float = Field(default=60.0, gt=0)
    """Seconds from one sample to the next."""
    rate: float = Field(default=20.0, ge=0)
    """Requests a second without a crowd."""
    crowds: int = Field(default=2, ge=0, le=1000)
    """The number of crowds, at random times."""
    magnitude: float = Field(default=10.0, ge=1)
    """The load at the height of a crowd, beside the usual one."""
    magnitude_spread: float = Field(default=0.4, ge=0, le=3)
    """The variation of their sizes: the width of a log-normal factor."""
    rise: float = Field(default=300.0, gt=0)
    """Seconds from the usual load to the height."""
    decay: float = Field(default=3600.0, gt=0)
    """Seconds in which a crowd goes down to a third."""
    cpu_milliseconds: float = Field(default=10.0, ge=0)
    """CPU time of one request."""
    mib: float = Field(default=256.0, ge=0)
    """Memory without any request, in MiB."""
    mib_a_request: float = Field(default=0.5, ge=0)
    """The memory that each request a second adds."""


class FlashCrowd(SampledGenerator[FlashCrowdSettings]):
    """Crowds that nobody announced."""

    name = "flash_crowd"
    settings_type = FlashCrowdSettings

    def draw_curves(self, sampler: Sampler) -> Curves:
        s = self.settings
        load = np.ones(sampler.shape)
        for _ in range(s.crowds):
            since = sampler.seconds - sampler.draw_uniform(0, s.duration)
            height = (s.magnitude - 1) * sampler.draw_sizes(s.magnitude_spread)
            risen = np.clip(1 + since / s.rise, 0.0, 1.0)
            load += height * risen * np.exp(-np.maximum(since, 0.0) / s.decay)
        requests = sampler.draw_sizes(s.spread) * s.rate * load * sampler.draw_noise(s.noise)
        return Curves(
            cpu=requests * s.cpu_milliseconds / 1000,
            memory=(s.mib + s.mib_a_request * requests) * MIB,
            requests=requests,
        )
