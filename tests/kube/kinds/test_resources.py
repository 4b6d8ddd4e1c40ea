"""Arithmetic on requests and limits, for CPU and memory alike."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from trimtab.kube.kinds.pods import RequestLimit, Resources

AMOUNTS = st.none() | st.integers(0, 10**6)
RESOURCES = st.builds(Resources, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)


@given(RESOURCES, RESOURCES)
def test_resources_combine_applies_one_rule_to_cpu_and_memory(one: Resources, other: Resources) -> None:
    swapped = one.combine(other, lambda mine, theirs: RequestLimit(mine.request, theirs.limit))
    assert swapped == Resources(one.cpu_request, other.cpu_limit, one.memory_request, other.memory_limit)
    assert Resources.from_pairs(one.cpu, one.memory) == one == Resources(*one.amounts)
    assert (one.select("cpu"), one.select("memory")) == (one.cpu, one.memory)


@given(RESOURCES)
def test_resources_implied_request_is_the_limit_only_where_no_request_is_set(has: Resources) -> None:
    counted = has.with_implied_requests()
    assert (counted.cpu_limit, counted.memory_limit) == (has.cpu_limit, has.memory_limit)
    assert counted.cpu_request == (has.cpu_limit if has.cpu_request is None else has.cpu_request)
    assert counted.memory_request == (has.memory_limit if has.memory_request is None else has.memory_request)
    assert counted.with_implied_requests() == counted


def test_resources_total_has_a_limit_only_if_each_container_has_one() -> None:
    limited, unlimited = Resources(100, 200, 1, 2), Resources(None, None, 3, 4)
    assert Resources.total([limited, unlimited]) == Resources(100, None, 4, 6)
    assert Resources.total([limited, limited]) == Resources(200, 400, 2, 4)
    assert Resources.total([]) == Resources()


def test_resources_fill_from_keeps_amounts_that_are_set() -> None:
    assert Resources(1, None, 0, None).fill_from(Resources(5, 6, 7, None)) == Resources(1, 6, 0, None)


def test_resources_parse_reads_quantities_of_a_manifest() -> None:
    parsed = Resources.parse({"cpu": "250m", "memory": 64}, {"memory": "1Mi"})
    assert parsed == Resources(250, None, 64, 1 << 20)


def test_resources_stored_form_has_four_fields() -> None:
    stored = msgspec.json.encode(Resources(1, 2, 3, 4))
    assert stored == b'{"cpu_request":1,"cpu_limit":2,"memory_request":3,"memory_limit":4}'
