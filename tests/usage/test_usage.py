"""Test usage records, summaries and queries."""

import numpy as np
import pytest
from hypothesis import strategies as st

from trimtab.errors import TrimtabError
from trimtab.usage.source import SOURCES, UsageQuery, Vector, query_value, source
from trimtab.usage.usage import Oom, PodContainer, Usage, mask_implausible

COLUMNS = st.lists(
    st.lists(st.one_of(st.just(np.nan), st.floats(0, 1e6)), min_size=5, max_size=5), min_size=1, max_size=4
)


def test_mask_implausible_drops_impossible_values() -> None:
    values = np.array([0.0, 5.0, -1e-9, np.inf, -np.inf, np.nan, 11.0])
    np.testing.assert_array_equal(mask_implausible(values, maximum=10), [0, 5, *[np.nan] * 5])


def test_usage_query_last_aligns_to_whole_steps() -> None:
    ask = UsageQuery.last(3600, now=10_030, step=60, namespaces=["shop"])
    assert (ask.end, ask.start, ask.steps) == (10_080, 6_480, 60)
    assert ask.namespaces == ("shop",)
    assert UsageQuery(start=0, end=0.3, step=0.1).steps == 3


@pytest.mark.parametrize(
    ("start", "end", "step", "line"),
    [(0, 10, 0, "step: 0 s"), (10, 10, 1, "end: 10 must be after"), (0, 1e9, 1, "use a longer step")],
)
def test_usage_query_rejects_invalid_window(start: float, end: float, step: float, line: str) -> None:
    with pytest.raises(TrimtabError, match=line):
        UsageQuery(start=start, end=end, step=step)


def test_source_rejects_unknown_name() -> None:
    assert "prometheus" in SOURCES.names()
    with pytest.raises(TrimtabError, match=r"usage source 'prometeus' is not known; there are: .*prometheus"):
        source("prometeus")


def test_take_latest_copies_only_the_last_samples() -> None:
    grid = np.array([[0.0, 1], [2, 3], [4, np.nan]])
    web = (PodContainer("shop", "web-0", "web"), PodContainer("shop", "web-1", "web"))
    whole = Usage(web, 60.0, 60.0, grid, grid, ooms=(Oom(120.0, web[0]),))
    last = whole.take_latest()
    assert (last.steps, last.start, last.cpu.tolist(), last.memory.tolist()) == (1, 180.0, [[4, 3]], [[4, 3]])
    assert last.cpu.base is None
    assert last.ooms == ()
    assert whole.take_latest().take_latest().start == 180.0
    assert whole.slice_steps(0, 0).take_latest().steps == 0


def test_slice_steps_keeps_only_its_own_ooms() -> None:
    grid = np.zeros((4, 1))
    web = PodContainer("shop", "web-0", "web")
    whole = Usage(
        (web,), 60.0, 60.0, grid, grid, ooms=tuple(Oom(at, web) for at in (60.0, 90.0, 150.0, 240.0))
    )
    first, rest = whole.slice_steps(0, 2), whole.slice_steps(2, 4)
    assert [oom.at for oom in first.ooms or ()] == [60.0, 90.0]
    assert [oom.at for oom in rest.ooms or ()] == [150.0, 240.0]
    assert (rest.start, rest.steps) == (180.0, 2)


async def test_source_evaluates_promql_only_if_its_backend_does() -> None:
    assert source("prometheus", url="http://127.0.0.1:9").promql is not None
    polled = source("metrics-server")
    assert polled.promql is None
    assert await polled.has_usage(at=0.0) is None


async def test_query_value_returns_single_number_or_none() -> None:
    class FakeClient:
        def __init__(self, *values: float) -> None:
            self.found: Vector = [({}, value) for value in values]

        async def vector(self, promql: str, *, at: float) -> Vector:
            assert (promql, at) == ("up", 7.0)
            return self.found

    assert await query_value(FakeClient(1.0), "up", at=7.0) == 1.0
    assert await query_value(FakeClient(), "up", at=7.0) is None
    assert await query_value(FakeClient(1.0, 2.0), "up", at=7.0) is None
