"""A PromQL client: the fake keeps the contract that tests/integration/testing holds a real server to."""

import pytest

from trimtab.testing import FakePromql
from trimtab.usage.errors import SourceUnavailable, UsageError
from trimtab.usage.source import PromqlClient, query_value

AT = 1_700_000_600.0


async def test_promql_client_returns_each_series_with_its_labels(promql: PromqlClient) -> None:
    found = await promql.vector("depth", at=AT)
    assert sorted((labels["queue"], value) for labels, value in found) == [("a", 1.0), ("b", 2.0)]


async def test_promql_client_returns_an_aggregate_without_labels(promql: PromqlClient) -> None:
    assert [(dict(labels), value) for labels, value in await promql.vector("sum(depth)", at=AT)] == [
        ({}, 3.0)
    ]
    assert await query_value(promql, "sum(depth)", at=AT) == 3.0


async def test_promql_client_returns_nothing_for_series_that_do_not_exist(promql: PromqlClient) -> None:
    assert list(await promql.vector("missing", at=AT)) == []
    assert await query_value(promql, "missing", at=AT) is None


async def test_promql_client_returns_no_single_value_of_several_series(promql: PromqlClient) -> None:
    assert await query_value(promql, "depth", at=AT) is None


async def test_promql_client_raises_a_usage_error_for_an_invalid_query(promql: PromqlClient) -> None:
    with pytest.raises(UsageError):
        await promql.vector("sum(depth", at=AT)


async def test_fake_promql_records_queries_and_fails_on_request() -> None:
    fake = FakePromql({"up": 1.0, "down": SourceUnavailable("no route to host")})
    assert await query_value(fake, "up", at=7.0) == 1.0
    with pytest.raises(SourceUnavailable, match="no route to host"):
        await fake.vector("down", at=8.0)
    fake.available = False
    with pytest.raises(SourceUnavailable, match="does not answer"):
        await fake.vector("up", at=9.0)
    assert fake.queries == [("up", 7.0), ("down", 8.0), ("up", 9.0)]
