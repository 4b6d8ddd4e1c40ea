"""How a big read is cut into queries that a server will answer, and cut again when it does not.

A part is some namespaces over some steps. Namespaces come first: a query over few series and a long time costs a
server less than the reverse, for it opens each series once. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

MOST_NAMESPACES = 100
"""In one query: their names make it long."""
MOST_SERIES = 5_000
"""In one query: what names a series takes more room than a sample, with us and on the way."""


@dataclass(frozen=True, slots=True)
class Part:
    """The steps `first` up to `first + steps` of some namespaces."""

    namespaces: tuple[str, ...]
    first: int
    steps: int
    failures: int = 0
    """How often this part, or one that it was cut from, got no answer."""

    def halves(self) -> tuple[Part, ...]:
        """The same in two parts; none when it cannot be smaller."""
        names, middle = self.namespaces, len(self.namespaces) // 2
        if middle:
            return replace(self, namespaces=names[:middle]), replace(self, namespaces=names[middle:])
        if self.steps > 1:
            early = self.steps // 2
            return (
                replace(self, steps=early),
                replace(self, first=self.first + early, steps=self.steps - early),
            )
        return ()


def parts_of(
    series: Mapping[str, int], *, steps: int, points_a_series: int, samples_a_query: int
) -> Iterator[Part]:
    """Every namespace at every step once, in parts of at most so many samples by what is known of the series."""
    length = min(steps, points_a_series, samples_a_query)
    room = min(samples_a_query // length, MOST_SERIES)
    group: list[str] = []
    taken = 0
    for namespace, known in sorted(series.items()):
        weight = max(1, known)
        if weight > room:
            yield from _over_time((namespace,), steps, max(1, min(length, samples_a_query // weight)))
            continue
        if group and (taken + weight > room or len(group) == MOST_NAMESPACES):
            yield from _over_time(tuple(group), steps, length)
            group, taken = [], 0
        group.append(namespace)
        taken += weight
    if group:
        yield from _over_time(tuple(group), steps, length)


def _over_time(namespaces: tuple[str, ...], steps: int, length: int) -> Iterator[Part]:
    for first in range(0, steps, length):
        yield Part(namespaces, first, min(length, steps - first))
