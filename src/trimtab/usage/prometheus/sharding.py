"""How a big read is cut into queries that a server will answer, and cut again when it does not.

A part is some pods over some steps. Pods come first: a query over few series and a long time costs a server less than
the reverse, for it opens each series once. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from trimtab.usage.prometheus.pod_selector import PodSelector

MAX_NAMESPACES = 100
"""In one query: their names make it long."""
MAX_SERIES = 5_000
"""In one query: what names a series takes more room than a sample, with us and on the way."""


@dataclass(frozen=True, slots=True)
class QueryShard:
    """The steps `first` up to `first + steps` of some pods."""

    pods: PodSelector
    first: int
    steps: int
    failures: int = 0
    """How often this part, or one that it was cut from, got no answer."""

    def split(self) -> tuple[QueryShard, ...]:
        """The same in two parts; none when it cannot be smaller."""
        fewer = tuple(replace(self, pods=pods) for pods in self.pods.split())
        if fewer or self.steps == 1:
            return fewer
        early = self.steps // 2
        return replace(self, steps=early), replace(self, first=self.first + early, steps=self.steps - early)


def split_into_shards(
    series: Mapping[str, int], *, steps: int, points_a_series: int, samples_a_query: int
) -> Iterator[QueryShard]:
    """Every namespace at every step once, in parts of at most so many samples by what is known of the series."""
    length = min(steps, points_a_series, samples_a_query)
    room = min(samples_a_query // length, MAX_SERIES)
    group: list[str] = []
    taken = 0
    for namespace, known in sorted(series.items()):
        weight = max(1, known)
        if weight > room:
            yield from _split_by_time((namespace,), steps, max(1, min(length, samples_a_query // weight)))
            continue
        if group and (taken + weight > room or len(group) == MAX_NAMESPACES):
            yield from _split_by_time(tuple(group), steps, length)
            group, taken = [], 0
        group.append(namespace)
        taken += weight
    if group:
        yield from _split_by_time(tuple(group), steps, length)


def _split_by_time(namespaces: tuple[str, ...], steps: int, length: int) -> Iterator[QueryShard]:
    for first in range(0, steps, length):
        yield QueryShard(PodSelector(namespaces), first, min(length, steps - first))
