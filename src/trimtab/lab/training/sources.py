"""The training data: generators of some families, and recordings. The other families are held out.

A test on the same kind of workload that was trained on says little. So whole families of generators are held out, and
whoever trains on recordings holds out whole sets. A family may have statistics of a recording in it, though: what is known
of a set in that way is not held out, and neither is a family that has them in common with one that is trained on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.errors import TrimtabError
from trimtab.lab.environments import DemandSource, GeneratedDemand, MixedDemand, RecordedDemand
from trimtab.lab.workloads.fleet_model import list_fitted_recordings
from trimtab.usage.trace import Trace

TRAINED_FAMILIES = (
    "azure",
    "alibaba",
    "diurnal_web",
    "batch",
    "memory_leak",
    "step",
    "sinusoidal",
    "low_high",
)
HELD_OUT_FAMILIES = ("jvm", "flash_crowd", "arabesque")
"""Families of which nothing is in what is trained on."""
RELATED_FAMILIES = ("borg",)
"""Families that are not trained on, but are fitted to recordings that trained families are fitted to as well."""
KNOWN_RECORDINGS = frozenset[str]().union(*map(list_fitted_recordings, TRAINED_FAMILIES))
"""Recordings whose statistics are in families that are trained on: nothing that was trained is new to them."""
HOUR = 3600.0
MIN_HOURS = 3
"""Hours of a recording that a forecaster can learn from: it looks at two and at what the next one brings."""


def build_training_traces(
    traces: Sequence[Trace], *, seed: int, containers: int, generated: bool = True, days: int = 14
) -> list[Trace]:
    """Build the forecaster's data: this many containers of each family, half of them drawn again, then the recordings."""
    if not generated:
        return list(traces)
    made = [
        GeneratedDemand(types=(name,)).sample(
            np.random.default_rng([seed, number, half]), containers=max(1, containers // 2), hours=24 * days
        )
        for number, name in enumerate(TRAINED_FAMILIES)
        for half in range(2)
    ]
    return [*made, *traces]


def covers_hours(trace: Trace, hours: int) -> bool:
    """Return whether a recording is at least this many hours long."""
    return trace.steps * trace.step >= hours * HOUR


def build_training_demand(traces: Sequence[Trace], *, hours: int, generated: bool = True) -> DemandSource:
    """Build the agents' demand: episodes of generators as often as episodes of recordings that are long enough.

    A shorter one would come again from its start, and teach that every day is like the last.
    """
    long: list[DemandSource] = [RecordedDemand(trace) for trace in traces if covers_hours(trace, hours)]
    if generated:
        drawn = max(1, len(long)) / 2
        steps: list[DemandSource] = [
            GeneratedDemand(types=TRAINED_FAMILIES, step=step) for step in (300.0, 60.0)
        ]
        return MixedDemand([*steps, *long], weights=[drawn, drawn, *[1.0] * len(long)])
    if not long:
        raise TrimtabError(f"train: no recording is as long as an episode, {hours} hours; use fewer --hours")
    return MixedDemand(long)
