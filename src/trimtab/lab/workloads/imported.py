"""A recording as a workload: any file that `trimtab backtest` reads, with a random sample of its series.

A gap repeats the sample before it, because a workload needs a value at every step.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from trimtab.errors import TrimtabError
from trimtab.lab.workloads.generator import Generator, check_size
from trimtab.lab.workloads.workload import GeneratedWorkload
from trimtab.plugins import Settings
from trimtab.usage.files import read_trace
from trimtab.usage.trace import Floats


class ImportedSettings(Settings):
    """A recording, whole."""

    path: Path
    """The recording: a file, an archive or a folder."""
    form: str | None = None
    """Its format, where its columns do not tell: trimtab, bitbrains, google2019, azure, …"""
    step: float | None = Field(default=None, gt=0)
    """Seconds from one sample to the next; as it was recorded when not given."""
    duration: float | None = Field(default=None, gt=0)
    """Seconds to take of it, from its beginning."""
    mib: float = Field(default=64.0, ge=0)
    """Memory, in MiB, of series for which none was recorded."""


class Imported(Generator[ImportedSettings]):
    """The recording."""

    name = "imported"
    settings_type = ImportedSettings

    def generate(self, count: int = 1, *, seed: int = 0) -> GeneratedWorkload:
        s = self.settings
        trace = read_trace(s.path, format_name=s.form, step=s.step)
        steps = trace.steps if s.duration is None else min(trace.steps, round(s.duration / trace.step))
        check_size(self.name, count=count, steps=steps)
        cpu, memory = trace.cpu[:steps].T, trace.memory[:steps].T
        usable = np.flatnonzero(np.isfinite(cpu).any(axis=1))
        if count > len(usable):
            raise TrimtabError(
                f"workload type imported: count {count}: {s.path} has {len(usable)} series with CPU usage"
            )
        chosen = usable[np.sort(np.random.default_rng(seed).permutation(len(usable))[:count])]
        return GeneratedWorkload(
            type=self.name,
            step=trace.step,
            cpu=_fill_gaps(cpu[chosen], default=0.0),
            memory=_fill_gaps(memory[chosen], default=s.mib * 2.0**20),
            start=trace.start,
            settings=s.model_dump(mode="json"),
            seed=seed,
        )


def _fill_gaps(rows: Floats, *, default: float) -> Floats:
    """Fill gaps with the last sample before; at the beginning with the first one after, or `otherwise` where there is
    none.
    """
    known = np.isfinite(rows)
    steps = np.arange(rows.shape[1])
    last = np.maximum.accumulate(np.where(known, steps, -1), axis=1)
    first = np.argmax(known, axis=1)[:, None]
    bridged = np.take_along_axis(rows, np.where(last < 0, first, last), axis=1)
    bridged[~known.any(axis=1)] = default
    return np.ascontiguousarray(bridged)
