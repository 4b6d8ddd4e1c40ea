"""Split a large read into queries that a server can answer, and split them again if it cannot.

A shard is some pods over some steps. Pods are selected by namespace and, where a namespace is too large, by the end of
their names: most end with a random character, which divides a namespace evenly. Pods are split first: a query for few
series over a long time costs a server less than the reverse, because it opens each series once. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from trimtab.usage.prometheus.query_scheduler import QueryPart

LAST_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
"""The characters that a pod's name may end with."""

NamespaceNames = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodSelector:
    """The pods of some namespaces whose names end with one of some characters."""

    namespaces: NamespaceNames
    last_characters: str = LAST_CHARACTERS

    @property
    def is_unfiltered(self) -> bool:
        """Return whether all pods of these namespaces are selected."""
        return self.last_characters == LAST_CHARACTERS

    @property
    def name_pattern(self) -> str:
        """Return a pattern for the names of the pods."""
        return f".*[{self.last_characters}]"

    @property
    def share(self) -> float:
        """Return the approximate share of the namespaces' pods that is selected."""
        return len(self.last_characters) / len(LAST_CHARACTERS)

    def split(self) -> tuple[PodSelector, ...]:
        """Return two selectors for half of the pods each; empty if it cannot be split."""
        names, middle = self.namespaces, len(self.namespaces) // 2
        if middle:
            return replace(self, namespaces=names[:middle]), replace(self, namespaces=names[middle:])
        middle = len(self.last_characters) // 2
        if middle:
            return (
                replace(self, last_characters=self.last_characters[:middle]),
                replace(self, last_characters=self.last_characters[middle:]),
            )
        return ()


MAX_NAMESPACES = 100
"""The maximum number of namespaces in a query, because their names make it long."""
MAX_SERIES = 5_000
"""The maximum number of series in a query, because labels take more memory than a sample."""


@dataclass(frozen=True, slots=True)
class QueryShard(QueryPart):
    """The steps from `first` up to `first + steps` of some pods."""

    pods: PodSelector
    first: int
    steps: int

    def split(self) -> tuple[QueryShard, ...]:
        """Return one half of the pods each, or of the steps of a single pod."""
        fewer = tuple(replace(self, pods=pods) for pods in self.pods.split())
        if fewer or self.steps == 1:
            return fewer
        early = self.steps // 2
        return replace(self, steps=early), replace(self, first=self.first + early, steps=self.steps - early)


def split_into_shards(
    series: Mapping[str, int], *, steps: int, points_a_series: int, samples_a_query: int
) -> Iterator[QueryShard]:
    """Yield shards that cover each namespace and step once, with at most so many estimated samples."""
    length = min(steps, points_a_series, samples_a_query)
    max_series = min(samples_a_query // length, MAX_SERIES)
    group: list[str] = []
    taken = 0
    for namespace, known in sorted(series.items()):
        weight = max(1, known)
        if weight > max_series:
            yield from _split_by_time((namespace,), steps, max(1, min(length, samples_a_query // weight)))
            continue
        if group and (taken + weight > max_series or len(group) == MAX_NAMESPACES):
            yield from _split_by_time(tuple(group), steps, length)
            group, taken = [], 0
        group.append(namespace)
        taken += weight
    if group:
        yield from _split_by_time(tuple(group), steps, length)


def _split_by_time(namespaces: tuple[str, ...], steps: int, length: int) -> Iterator[QueryShard]:
    for first in range(0, steps, length):
        yield QueryShard(PodSelector(namespaces), first, min(length, steps - first))
