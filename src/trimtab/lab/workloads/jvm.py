"""A JVM: the heap fills with garbage up to a threshold, is collected down to the live data, and fills again.

The series is the heap in use. The kernel mostly sees the highest heap so far; see `returns`.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from trimtab.api.quantity import MIB
from trimtab.lab.workloads.generator import Curves, NoisyGeneratorSettings, SampledGenerator
from trimtab.lab.workloads.sampling import Sampler


class JvmSettings(NoisyGeneratorSettings):
    """A collection about every half hour at the middle of the day."""

    step: float = Field(default=60.0, gt=0)
    """Seconds from one sample to the next."""
    cores: float = Field(default=0.5, ge=0)
    """CPU of the work itself at its busiest, in cores."""
    collector_cores: float = Field(default=1.0, ge=0)
    """The CPU that a garbage collection adds for one step."""
    live_mib: float = Field(default=400.0, ge=0)
    """The live heap after a collection, in MiB."""
    heap_mib: float = Field(default=1200.0, gt=0)
    """The mark at which the heap is collected."""
    beside_mib: float = Field(default=180.0, ge=0)
    """Memory beside the heap: code, threads, metadata."""
    mib_a_second: float = Field(default=0.5, gt=0)
    """Garbage made at its busiest."""
    night_share: float = Field(default=0.2, ge=0, le=1)
    """The load at night relative to the day."""
    returns: bool = True
    """Memory is given back after a collection; false: it is held once it was used, as most JVMs do."""


class Jvm(SampledGenerator[JvmSettings]):
    """A sawtooth of garbage."""

    name = "jvm"
    settings_type = JvmSettings

    def draw_curves(self, sampler: Sampler) -> Curves:
        s = self.settings
        busy = s.night_share + (1 - s.night_share) * sampler.daily_curve(peak_hour=14.0)
        work = busy * sampler.draw_noise(s.noise)
        free_heap = max(s.heap_mib - s.live_mib, 1e-9)
        allocated = np.cumsum(work * s.mib_a_second * sampler.step, axis=1) + sampler.draw_uniform(
            0, free_heap
        )
        collections = np.diff(np.floor(allocated / free_heap), axis=1, prepend=0.0)
        collections[:, 0] = 0.0
        heap = s.live_mib + allocated % free_heap
        if not s.returns:
            heap = np.maximum.accumulate(np.where(collections > 0, s.heap_mib, heap), axis=1)
        size = sampler.draw_sizes(s.spread)
        return Curves(
            cpu=size * (s.cores * work + s.collector_cores * np.minimum(collections, 1.0)),
            memory=size * (s.beside_mib + heap) * MIB,
        )
