"""A memory leak: memory grows with activity and never shrinks, until the container restarts."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from trimtab.api.quantity import MIB
from trimtab.lab.workloads.generator import Curves, NoisyGeneratorSettings, SampledGenerator
from trimtab.lab.workloads.sampling import Sampler


class MemoryLeakSettings(NoisyGeneratorSettings):
    """A few MiB an hour, and a restart every other day."""

    cores: float = Field(default=0.2, ge=0)
    """CPU, in cores."""
    mib: float = Field(default=128.0, ge=0)
    """Memory after a start, in MiB."""
    mib_an_hour: float = Field(default=8.0, ge=0)
    """The rate of growth."""
    unsteadiness: float = Field(default=0.5, ge=0, le=3)
    """The unevenness of growth: the standard deviation of a step's growth, as a share of it."""
    most_mib: float = Field(default=512.0, gt=0)
    """The memory at which the container restarts."""


class MemoryLeak(SampledGenerator[MemoryLeakSettings]):
    """Growth without end, but for restarts."""

    name = "memory_leak"
    settings_type = MemoryLeakSettings

    def draw_curves(self, sampler: Sampler) -> Curves:
        s = self.settings
        span = max(s.most_mib - s.mib, 1e-9)
        grown = np.cumsum(s.mib_an_hour * sampler.step / 3600 * sampler.draw_noise(s.unsteadiness), axis=1)
        size = sampler.draw_sizes(s.spread)
        return Curves(
            cpu=size * s.cores * sampler.draw_noise(s.noise),
            memory=size * (s.mib + (grown + sampler.draw_uniform(0, span)) % span) * MIB,
        )
