"""A sine wave of CPU and one of memory."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from trimtab.api.quantity import MIB
from trimtab.lab.workloads.generator import Curves, NoisyGeneratorSettings, SampledGenerator
from trimtab.lab.workloads.sampling import Sampler


class SinusoidalSettings(NoisyGeneratorSettings):
    """One wave a day."""

    period: float = Field(default=86400.0, gt=0)
    """Seconds from one crest to the next."""
    cores: float = Field(default=0.5, ge=0)
    """The CPU that it swings around, in cores."""
    mib: float = Field(default=256.0, ge=0)
    """The memory that it swings around, in MiB."""
    amplitude: float = Field(default=0.6, ge=0, le=1)
    """The amplitude to each side, as a share of the mean."""
    lag: float = Field(default=0.0)
    """Seconds by which memory follows CPU."""
    in_phase: bool = False
    """All series have their crests at the same time, a quarter of a period after the start."""


class Sinusoidal(SampledGenerator[SinusoidalSettings]):
    """Waves, each series at its own time."""

    name = "sinusoidal"
    settings_type = SinusoidalSettings

    def draw_curves(self, sampler: Sampler) -> Curves:
        s = self.settings
        size = sampler.draw_sizes(s.spread)
        late = sampler.draw_uniform(0.0, 0.0 if s.in_phase else s.period)
        cpu, memory = (
            1 + s.amplitude * np.sin(2 * np.pi * (sampler.seconds - late - lag) / s.period)
            for lag in (0.0, s.lag)
        )
        return Curves(
            cpu=size * s.cores * cpu * sampler.draw_noise(s.noise), memory=size * s.mib * MIB * memory
        )
