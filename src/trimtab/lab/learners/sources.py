"""What learners are trained on: generators of some families, and recordings. Others are left for the test, whole.

A test on the same kind of workload that was trained on says little. So whole families of generators are held out, and
whoever trains on recordings holds out whole sets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.errors import TrimtabError
from trimtab.lab.environments import AnyOf, Demand, Generated, Recorded
from trimtab.usage.trace import Trace

TRAINED = ("azure", "alibaba", "diurnal_web", "batch", "memory_leak", "step", "sinusoidal", "low_high")
HELD_OUT = ("borg", "jvm", "flash_crowd", "arabesque")
HOUR = 3600.0
SHORTEST = 3
"""Hours of a recording that a forecaster can learn from: it looks at two and at what the next one brings."""


def recordings(
    traces: Sequence[Trace], *, seed: int, containers: int, generated: bool = True, days: int = 14
) -> list[Trace]:
    """For the forecaster: so many containers of each family, half of them drawn anew, and then the recordings."""
    if not generated:
        return list(traces)
    made = [
        Generated(types=(name,)).draw(
            np.random.default_rng([seed, number, half]), containers=max(1, containers // 2), hours=24 * days
        )
        for number, name in enumerate(TRAINED)
        for half in range(2)
    ]
    return [*made, *traces]


def lasts(trace: Trace, hours: int) -> bool:
    """Whether a recording is so many hours long."""
    return trace.steps * trace.step >= hours * HOUR


def demand(traces: Sequence[Trace], *, hours: int, generated: bool = True) -> Demand:
    """For the agents: an episode of the generators as often as one of a recording that is long enough for it.

    A shorter one would come again from its start, and teach that every day is like the last.
    """
    long: list[Demand] = [Recorded(trace) for trace in traces if lasts(trace, hours)]
    if generated:
        drawn = max(1, len(long)) / 2
        steps: list[Demand] = [Generated(types=TRAINED, step=step) for step in (300.0, 60.0)]
        return AnyOf([*steps, *long], weights=[drawn, drawn, *[1.0] * len(long)])
    if not long:
        raise TrimtabError(
            f"train: no recording is as long as an episode, {hours} hours; ask for fewer --hours"
        )
    return AnyOf(long)
