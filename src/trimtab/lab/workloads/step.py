"""Steps: CPU and memory each keep a level for a while, then take another one."""

from __future__ import annotations

from pydantic import Field

from trimtab.api.quantity import MIB
from trimtab.lab.workloads.generator import Curves, NoisyGeneratorSettings, SampledGenerator
from trimtab.lab.workloads.sampling import Sampler


class StepSettings(NoisyGeneratorSettings):
    """Six hours a level."""

    cores_low: float = Field(default=0.1, ge=0)
    """The lowest level of CPU, in cores."""
    cores_high: float = Field(default=1.0, ge=0)
    """The highest level of CPU."""
    mib_low: float = Field(default=128.0, ge=0)
    """The lowest level of memory, in MiB."""
    mib_high: float = Field(default=512.0, ge=0)
    """The highest level of memory."""
    hold: float = Field(default=21600.0, ge=1)
    """Seconds that a level is held."""
    regular: bool = False
    """Hold each level for exactly that long, and not on average."""


class Step(SampledGenerator[StepSettings]):
    """Levels at random, held for a while."""

    name = "step"
    settings_type = StepSettings

    def draw_curves(self, sampler: Sampler) -> Curves:
        s = self.settings
        stretch, size = sampler.draw_stretches(s.hold, regular=s.regular), sampler.draw_sizes(s.spread)
        return Curves(
            cpu=size * sampler.draw_levels(stretch, s.cores_low, s.cores_high) * sampler.draw_noise(s.noise),
            memory=size * sampler.draw_levels(stretch, s.mib_low, s.mib_high) * MIB,
        )
