"""Raw samples on their way into columns: what a query for the same kind of number would have answered.

As `scheme` does: of several series of one container the highest counts, and those that only differ in their processor
are added up first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trimtab.usage.errors import BadAnswer
from trimtab.usage.prometheus.api import Server
from trimtab.usage.prometheus.remote_read.protocol import answered, request
from trimtab.usage.prometheus.remote_read.range_functions import windowed
from trimtab.usage.prometheus.response import Grid
from trimtab.usage.prometheus.schema import CPU, MEMORY, PERIODS, THROTTLED, Kind, Labels, Scheme, Window
from trimtab.usage.prometheus.sharding import Part
from trimtab.usage.trace import Floats

BYTES_A_SAMPLE = 10
"""At most, about: a counter of floats compresses badly."""

Metric = Mapping[str, str]
Key = tuple[tuple[str, str], ...]


class Rows(NamedTuple):
    """The labels of each container's series, and its number at every step; NaN where it has none."""

    labels: Sequence[Metric]
    values: Floats


@dataclass(frozen=True, slots=True)
class Raw:
    """What one read needs to know of a server to take raw samples from it."""

    server: Server
    scheme: Scheme
    window: Window
    grid: Grid

    def has(self, kind: Kind) -> bool:
        """Whether raw samples tell of this kind: what a recording rule says, and kills, are asked for by queries."""
        if kind == "memory":
            return self.scheme.memory_rule is None
        return kind == "throttled" or (kind == "cpu" and self.scheme.cpu_rule is None)

    async def rows(self, kind: Kind, labels: Labels, part: Part) -> Rows:
        """What the part's containers have of this kind, in series that name them by these labels."""
        if kind == "memory":
            return await self._windows(MEMORY, labels, part, self.window.gauge)
        if kind == "cpu":
            return await self._windows(CPU, labels, part, self.window.rate, counter=True)
        held = await self._windows(THROTTLED, labels, part, self.window.rate, counter=True)
        return _share(held, await self._windows(PERIODS, labels, part, self.window.rate, counter=True))

    async def _windows(
        self, metric: str, names: Labels, part: Part, width: float, *, counter: bool = False
    ) -> Rows:
        start = self.grid.start + part.first * self.grid.step
        end = start + (part.steps - 1) * self.grid.step
        asked = request(metric, self.scheme.matchers(names, part.pods), start=start - width, end=end)

        def read(body: bytes) -> Rows:
            labels, chunks = answered(body)
            values = np.empty((len(labels), part.steps))
            if not windowed(chunks, _ms(start), _ms(self.grid.step), _ms(width), counter, values):
                raise BadAnswer("the answer has a chunk of samples that cannot be read")
            return _added_up(Rows(labels, values))

        return await self.server.raw(asked, read)


def _added_up(rows: Rows) -> Rows:
    """An old kubelet has a series for each processor instead of one for all."""
    if not any("cpu" in labels for labels in rows.labels):
        return rows
    whole: dict[Key, Floats] = {}
    for labels, row in zip(rows.labels, rows.values, strict=True):
        rest = tuple(sorted(item for item in labels.items() if item[0] != "cpu"))
        before = whole.get(rest)
        whole[rest] = row if before is None else _sum(before, row)
    return Rows([dict(key) for key in whole], np.array(list(whole.values())))


def _sum(one: Floats, other: Floats) -> Floats:
    """A processor without a rate adds nothing, as in PromQL."""
    both: Floats = np.where(np.isnan(one), other, np.where(np.isnan(other), one, one + other))
    return both


def _share(part: Rows, whole: Rows) -> Rows:
    """One counter in another of the same container; who has only one of them has no share."""
    place = {_key(labels): number for number, labels in enumerate(whole.labels)}
    both = [number for number, labels in enumerate(part.labels) if _key(labels) in place]
    over = whole.values[[place[_key(part.labels[number])] for number in both]]
    share = np.divide(part.values[both], over, out=np.full_like(over, np.nan), where=over > 0)
    return Rows([part.labels[number] for number in both], share)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _key(labels: Metric) -> Key:
    """What two counters of one container have in common: all labels but the name."""
    return tuple(sorted(item for item in labels.items() if item[0] != "__name__"))
