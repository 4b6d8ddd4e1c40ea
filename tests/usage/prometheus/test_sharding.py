"""Test how a read is split into queries: complete, without overlap and within limits."""

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from trimtab.usage.prometheus.promql import format_duration, matches_any, quote
from trimtab.usage.prometheus.sharding import (
    LAST_CHARACTERS,
    MAX_NAMESPACES,
    PodSelector,
    QueryShard,
    split_into_shards,
)

SERIES = st.dictionaries(st.text(min_size=1, max_size=4), st.integers(0, 3000), max_size=150)


@given(
    SERIES,
    st.integers(1, 300),
    st.integers(1, 100),
    st.integers(1, 5000),
)
def test_split_into_shards_covers_every_step_once_within_limits(
    series: dict[str, int], steps: int, points: int, most: int
) -> None:
    parts = list(split_into_shards(series, steps=steps, points_a_series=points, samples_a_query=most))
    asked = [
        (namespace, part.first, part.first + part.steps)
        for part in parts
        for namespace in part.pods.namespaces
    ]
    for namespace in series:
        spans = sorted((first, end) for name, first, end in asked if name == namespace)
        assert [first for first, _ in spans] == [0, *(end for _, end in spans[:-1])]
        assert spans[-1][1] == steps
    for part in parts:
        assert 0 < part.steps <= points
        assert 0 < len(part.pods.namespaces) <= MAX_NAMESPACES
        samples = part.steps * sum(max(1, series[name]) for name in part.pods.namespaces)
        assert samples <= most or (part.steps == 1 and len(part.pods.namespaces) == 1)


@given(
    st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True), st.integers(0, 9), st.integers(1, 9)
)
def test_shard_split_ends_at_one_step_and_one_last_character(
    namespaces: list[str], first: int, steps: int
) -> None:
    left, smallest = [QueryShard(PodSelector(tuple(namespaces)), first, steps, failures=2)], []
    while left:
        part = left.pop()
        assert part.failures == 2
        halves = part.split()
        left += halves
        smallest += [] if halves else [part]
    asked = sorted((*part.pods.namespaces, part.pods.last_characters, part.first) for part in smallest)
    assert all(part.steps == 1 for part in smallest)
    assert asked == sorted(itertools.product(namespaces, LAST_CHARACTERS, range(first, first + steps)))


@given(st.lists(st.text(min_size=1), min_size=2, unique=True), st.text())
def test_one_of_matches_only_the_given_names(names: list[str], other: str) -> None:
    pattern = str(matches_any("namespace", names)).removeprefix("namespace=~")
    unquoted = (
        pattern[1:-1].replace("\\\\", "\0").replace('\\"', '"').replace("\\n", "\n").replace("\0", "\\")
    )
    if "\0" not in "".join(names):
        assert all(re.fullmatch(unquoted, name) for name in names)
        assert (other in names) == bool(re.fullmatch(unquoted, other)) or "\0" in other


def test_promql_quotes_text_and_formats_durations() -> None:
    assert quote('a"b\\c\nd') == '"a\\"b\\\\c\\nd"'
    assert (format_duration(60), format_duration(1.5), format_duration(0)) == ("60s", "1500ms", "1ms")
