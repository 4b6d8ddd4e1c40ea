"""Two levels of usage, low and high, without values between: the hardest case for strategies that average."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from trimtab.api.quantity import MIB
from trimtab.lab.workloads.generator import Curves, NoisyGeneratorSettings, SampledGenerator
from trimtab.lab.workloads.sampling import Sampler


class LowHighSettings(NoisyGeneratorSettings):
    """High for a quarter of the time, in hours that come at random."""

    cores_low: float = Field(default=0.1, ge=0)
    """CPU while low, in cores."""
    cores_high: float = Field(default=1.0, ge=0)
    """CPU while high."""
    mib_low: float = Field(default=128.0, ge=0)
    """Memory while low, in MiB."""
    mib_high: float = Field(default=384.0, ge=0)
    """Memory while high."""
    high_share: float = Field(default=0.25, ge=0, le=1)
    """The share of time that it is high."""
    hold: float = Field(default=14400.0, ge=1)
    """Seconds from one rise to the next that could be: in each such stretch it is high for its share."""
    regular: bool = False
    """A rise in every stretch, in the midst of it; or else whole stretches are high, at random."""


class LowHigh(SampledGenerator[LowHighSettings]):
    """Low or high."""

    name = "low_high"
    settings_type = LowHighSettings

    def draw_curves(self, sampler: Sampler) -> Curves:
        s = self.settings
        if s.regular:
            place = (sampler.seconds / s.hold) % 1.0
            high = np.broadcast_to(np.abs(place - 0.5) < s.high_share / 2, sampler.shape)
        else:
            high = sampler.draw_levels(sampler.draw_stretches(s.hold, regular=False), 0.0, 1.0) < s.high_share
        size = sampler.draw_sizes(s.spread)
        return Curves(
            cpu=size * np.where(high, s.cores_high, s.cores_low) * sampler.draw_noise(s.noise),
            memory=size * np.where(high, s.mib_high, s.mib_low) * MIB,
        )
