"""A web service: requests follow the day and drop on weekends, CPU follows requests, memory follows them a little."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from trimtab.api.quantity import MIB
from trimtab.lab.workloads.generator import Curves, NoisyGeneratorSettings, SampledGenerator
from trimtab.lab.workloads.sampling import Sampler


class DiurnalWebSettings(NoisyGeneratorSettings):
    """A hundred requests a second at noon of a working day."""

    noise: float = Field(default=0.1, ge=0, le=3)
    """The standard deviation of a sample around the shape, as a share of it."""
    rate: float = Field(default=100.0, ge=0)
    """Requests a second at the peak."""
    peak_hour: float = Field(default=14.0, ge=0, lt=24)
    """The hour of the day with most requests."""
    hours_apart: float = Field(default=2.0, ge=0, le=12)
    """The largest distance of a series' peak from that hour, in hours."""
    night_share: float = Field(default=0.15, ge=0, le=1)
    """Requests at the quietest hour, as a share of the peak."""
    weekend_share: float = Field(default=0.5, ge=0)
    """Requests on a weekend, as a share of a working day's."""
    sharpness: float = Field(default=1.5, gt=0)
    """The sharpness of the peak: 1 is a sine wave, more is sharper."""
    cpu_milliseconds: float = Field(default=8.0, ge=0)
    """CPU time of one request."""
    idle_cores: float = Field(default=0.02, ge=0)
    """CPU without any request."""
    mib: float = Field(default=300.0, ge=0)
    """Memory without any request, in MiB."""
    mib_at_peak: float = Field(default=80.0, ge=0)
    """The memory that is added at the peak."""


class DiurnalWeb(SampledGenerator[DiurnalWebSettings]):
    """A service by day."""

    name = "diurnal_web"
    settings_type = DiurnalWebSettings

    def draw_curves(self, sampler: Sampler) -> Curves:
        s = self.settings
        hour = s.peak_hour + sampler.draw_uniform(-s.hours_apart, s.hours_apart)
        turn = 2 * np.pi * (sampler.seconds / 86400 - hour / 24)
        day = s.night_share + (1 - s.night_share) * (0.5 + 0.5 * np.cos(turn)) ** s.sharpness
        day = day * np.where(sampler.is_weekend, s.weekend_share, 1.0)
        size = sampler.draw_sizes(s.spread)
        requests = size * s.rate * day * sampler.draw_noise(s.noise)
        return Curves(
            cpu=s.idle_cores + requests * s.cpu_milliseconds / 1000,
            memory=size * (s.mib + s.mib_at_peak * day) * MIB,
            requests=requests,
        )
