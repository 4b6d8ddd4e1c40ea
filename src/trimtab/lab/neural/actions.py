"""The observation and the actions of an agent: the same in the environments and in the strategy.

A choice is a place from 0 to 1 for CPU and for memory, on a logarithmic scale: of CPU between somewhat under the mean of
the last day and somewhat over the peak of the week, of memory between that peak and half as much again. So the worst that an untrained agent can ask for is still sane, and
ten times the usage gives ten times the size. What is seen are the record's features of both resources, at which place
the request stands now, how wide the span is, and how long ago the last OOM was.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.lab.neural.features import FEATURES
from trimtab.sizing.state import Floats

ACTION_SIZE = 2
EXTRA_FEATURES = 5
OBSERVATION_SIZE = 2 * FEATURES + EXTRA_FEATURES
"""The number of values in an observation."""
OOM_DECAY_HOURS = 24.0
"""The time in which an OOM is forgotten to a third."""


class ActionRange(NamedTuple):
    """The range in which an agent chooses a size, for each container; NaN where nothing is known."""

    low: Floats
    high: Floats

    def to_size(self, position: Floats) -> Floats:
        sizes: Floats = self.low * (self.high / self.low) ** np.clip(position, 0.0, 1.0)
        return sizes

    def to_position(self, size: Floats) -> Floats:
        """Return the position of a size on the scale, at most a little beyond its ends."""
        with np.errstate(divide="ignore", invalid="ignore"):
            places = np.log(size / self.low) / np.log(self.high / self.low)
        return np.clip(np.nan_to_num(places, nan=0.5), -0.5, 1.5)

    @property
    def width(self) -> Floats:
        return np.log(self.high / self.low)


def cpu_action_range(level: Floats, peak: Floats) -> ActionRange:
    return ActionRange(low=0.7 * level, high=1.2 * np.maximum(peak, level))


def memory_action_range(level: Floats, peak: Floats) -> ActionRange:
    """Return a range that is never below the week's peak: what a container once needed it may need again."""
    highest = np.maximum(peak, level)
    return ActionRange(low=1.0 * highest, high=1.5 * highest)


def build_observation(
    *,
    cpu: Floats,
    memory: Floats,
    spans: tuple[ActionRange, ActionRange],
    requests: tuple[Floats, Floats],
    hours_since_oom: Floats,
) -> Floats:
    """Return the observation, one row a container; zeros stand for unknown values."""
    beside = [
        *(span.to_position(request) for span, request in zip(spans, requests, strict=True)),
        *(span.width for span in spans),
        np.exp(-hours_since_oom / OOM_DECAY_HOURS),
    ]
    view: Floats = np.nan_to_num(np.concatenate([cpu, memory, np.stack(beside, axis=1)], axis=1))
    return view
