"""Raw samples on their way into columns: what a query for the same kind of number would have answered.

As `scheme` does: of several series of one container the highest counts, and those that only differ in their processor
are added up first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from trimtab.usage.prometheus.answer import Grid
from trimtab.usage.prometheus.parts import Part
from trimtab.usage.prometheus.remote.chunks import Times, decode
from trimtab.usage.prometheus.remote.exchange import Found, request, series
from trimtab.usage.prometheus.remote.windows import maxima, rates
from trimtab.usage.prometheus.scheme import CPU, MEMORY, PERIODS, THROTTLED, Kind, Scheme, Window
from trimtab.usage.prometheus.server import Server
from trimtab.usage.trace import Floats

BYTES_A_SAMPLE = 10
"""At most, about: a counter of floats compresses badly."""

Metric = Mapping[str, str]
Row = tuple[Metric, Floats]
Windowed = Callable[[Times, Floats, int, int, int, Floats], None]
"""What is made of the samples within each window; see `windows`."""


@dataclass(frozen=True, slots=True)
class Raw:
    """What one read needs to know of a server to take raw samples from it."""

    server: Server
    scheme: Scheme
    window: Window
    required: Mapping[str, str]
    grid: Grid

    def has(self, kind: Kind) -> bool:
        """Whether raw samples tell of this kind: what a recording rule says, and kills, are asked for by queries."""
        if kind == "memory":
            return self.scheme.memory_rule is None
        return kind == "throttled" or (kind == "cpu" and self.scheme.cpu_rule is None)

    async def rows(self, kind: Kind, part: Part) -> list[Row]:
        """The labels of each container's series, and its number at every step of the part; NaN where it has none."""
        if kind == "memory":
            return await self._windows(MEMORY, part, maxima, self.window.gauge)
        if kind == "cpu":
            return await self._windows(CPU, part, rates, self.window.rate)
        held = await self._windows(THROTTLED, part, rates, self.window.rate)
        periods = {
            _key(labels): row for labels, row in await self._windows(PERIODS, part, rates, self.window.rate)
        }
        return [
            (labels, _share(row, periods[_key(labels)])) for labels, row in held if _key(labels) in periods
        ]

    async def _windows(self, metric: str, part: Part, windowed: Windowed, width: float) -> list[Row]:
        start = self.grid.start + part.first * self.grid.step
        end = start + (part.steps - 1) * self.grid.step
        asked = request(
            metric,
            labels=self.scheme.labels,
            namespaces=part.namespaces,
            required=self.required,
            start=start - width,
            end=end,
        )

        def row(found: Found) -> Row:
            labels, chunks = found
            times, values = _sound(*decode(chunks))
            out = np.empty(part.steps)
            windowed(times, values, _ms(start), _ms(self.grid.step), _ms(width), out)
            return labels, out

        return await self.server.raw(asked, lambda body: list(_added_up(map(row, series(body)))))


def _sound(times: Times, values: Floats) -> tuple[Times, Floats]:
    """In order, each time once, and without the marks of a series that went stale."""
    there = ~np.isnan(values)
    if not there.all():
        times, values = times[there], values[there]
    if len(times) > 1 and not (np.diff(times) > 0).all():
        times, first = np.unique(times, return_index=True)
        values = values[first]
    return times, values


def _added_up(rows: Iterator[Row]) -> Iterator[Row]:
    """An old kubelet has a series for each processor instead of one for all."""
    by_processor: dict[tuple[tuple[str, str], ...], Floats] = {}
    for labels, row in rows:
        if "cpu" in labels:
            rest = _key({name: value for name, value in labels.items() if name != "cpu"})
            before = by_processor.get(rest)
            by_processor[rest] = row if before is None else _sum(before, row)
        else:
            yield labels, row
    for key, row in by_processor.items():
        yield dict(key), row


def _sum(one: Floats, other: Floats) -> Floats:
    """A processor without a rate adds nothing, as in PromQL."""
    both: Floats = np.where(np.isnan(one), other, np.where(np.isnan(other), one, one + other))
    return both


def _share(part: Floats, whole: Floats) -> Floats:
    share: Floats = np.divide(part, whole, out=np.full_like(part, np.nan), where=whole > 0)
    return share


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _key(labels: Metric) -> tuple[tuple[str, str], ...]:
    """What two counters of one container have in common: all labels but the name."""
    return tuple(sorted(item for item in labels.items() if item[0] != "__name__"))
