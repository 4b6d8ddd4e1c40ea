"""Test concurrency, splitting and memory of the query scheduler."""

import asyncio
import gc
import random
import weakref

import pytest

from trimtab.aio import task_group
from trimtab.timing import Backoff
from trimtab.usage.errors import QueryTooLarge, SourceRefused, SourceUnavailable, UsageError
from trimtab.usage.prometheus.query_scheduler import QueryScheduler
from trimtab.usage.prometheus.sharding import PodSelector, QueryShard


class Responses:
    """Collects responses, which may be large."""

    def __init__(self) -> None:
        self.shards: list[QueryShard] = []

    async def query(self, shard: QueryShard) -> None:
        if len(shard.pods.namespaces) > 1:
            raise QueryTooLarge("too many samples")
        self.shards.append(shard)


def make_scheduler() -> QueryScheduler:
    """Return a scheduler with two slots and without retries."""
    return QueryScheduler(
        slots=asyncio.Semaphore(2), retries=0, backoff=Backoff(first=0.0), rng=random.Random(1)
    )


async def test_query_scheduler_keeps_no_reference_to_responses() -> None:
    scheduler = make_scheduler()
    responses = Responses()
    reference = weakref.ref(responses)
    gc.disable()
    try:
        await scheduler.run_all(
            [
                QueryShard(PodSelector(("a", "b")), first=0, steps=1),
                QueryShard(PodSelector(("c",)), first=0, steps=1),
            ],
            responses.query,
        )
        assert {shard.pods.namespaces for shard in responses.shards} == {("a",), ("b",), ("c",)}
        del responses
        assert reference() is None
    finally:
        gc.enable()


async def test_query_scheduler_gives_up_early_if_every_query_is_too_large() -> None:
    queried: list[QueryShard] = []

    async def refuse(shard: QueryShard) -> None:
        queried.append(shard)
        raise QueryTooLarge("the limit is none at all")

    with pytest.raises(QueryTooLarge):
        await make_scheduler().run_all(
            [QueryShard(PodSelector(tuple("abcdefgh")), first=0, steps=2048)], refuse
        )
    assert len(queried) < 30
    assert queried[-1].split() == ()


async def test_query_scheduler_shares_slots_between_callers() -> None:
    scheduler, at_once, highest, done = make_scheduler(), 0, 0, 0

    async def query(_: QueryShard) -> None:
        nonlocal at_once, highest, done
        at_once += 1
        highest = max(highest, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        done += 1

    shards = [QueryShard(PodSelector((name,)), first=0, steps=1) for name in "abc"]
    async with task_group() as group:
        for _ in range(3):
            group.create_task(scheduler.run_all(shards, query))
    assert (highest, done) == (2, 9)


async def test_query_scheduler_isolates_failing_part_if_failures_are_reported() -> None:
    answered: set[str] = set()
    failed: dict[tuple[str, ...], str] = {}

    async def query(shard: QueryShard) -> None:
        if "bad" in shard.pods.namespaces:
            raise SourceRefused("the query is invalid")
        answered.update(shard.pods.namespaces)

    def report(shard: QueryShard, error: UsageError) -> None:
        failed[shard.pods.namespaces] = str(error)

    parts = [QueryShard(PodSelector(("a", "bad", "b", "c"), "0"), first=0, steps=1)]
    await make_scheduler().run_all(parts, query, report=report)
    assert answered == {"a", "b", "c"}
    assert failed == {("bad",): "the query is invalid"}


async def test_query_scheduler_reports_whole_part_if_server_is_unavailable() -> None:
    failed: list[QueryShard] = []

    async def query(_: QueryShard) -> None:
        raise SourceUnavailable("cannot connect")

    part = QueryShard(PodSelector(("a", "b")), first=0, steps=1)
    await make_scheduler().run_all([part], query, report=lambda shard, _: failed.append(shard))
    assert failed == [part]
