"""How a server is asked many things: what is left of it afterwards."""

import asyncio
import gc
import random
import weakref

import pytest

from trimtab.aio import task_group
from trimtab.kube.rest.retry import Backoff
from trimtab.usage.errors import QueryTooLarge
from trimtab.usage.prometheus.pod_selector import PodSelector
from trimtab.usage.prometheus.query_scheduler import QueryScheduler
from trimtab.usage.prometheus.sharding import QueryShard


class Answers:
    """What was answered, which may be a great deal."""

    def __init__(self) -> None:
        self.parts: list[QueryShard] = []

    async def ask(self, part: QueryShard) -> None:
        if len(part.pods.namespaces) > 1:
            raise QueryTooLarge("too many samples")
        self.parts.append(part)


def patient() -> QueryScheduler:
    """Two at a time, and nothing twice."""
    return QueryScheduler(
        slots=asyncio.Semaphore(2), retries=0, backoff=Backoff(first=0.0), rng=random.Random(1)
    )


async def test_query_scheduler_keeps_no_reference_to_responses() -> None:
    patience = patient()
    answers = Answers()
    kept = weakref.ref(answers)
    gc.disable()
    try:
        await patience.run_all(
            [
                QueryShard(PodSelector(("a", "b")), first=0, steps=1),
                QueryShard(PodSelector(("c",)), first=0, steps=1),
            ],
            answers.ask,
        )
        assert {part.pods.namespaces for part in answers.parts} == {("a",), ("b",), ("c",)}
        del answers
        assert kept() is None
    finally:
        gc.enable()


async def test_query_scheduler_gives_up_early_if_every_query_is_too_large() -> None:
    asked: list[QueryShard] = []

    async def refuse(part: QueryShard) -> None:
        asked.append(part)
        raise QueryTooLarge("the limit is none at all")

    with pytest.raises(QueryTooLarge):
        await patient().run_all([QueryShard(PodSelector(tuple("abcdefgh")), first=0, steps=2048)], refuse)
    assert len(asked) < 30
    assert asked[-1].split() == ()


async def test_query_scheduler_shares_slots_between_callers() -> None:
    patience, at_once, most, answered = patient(), 0, 0, 0

    async def ask(_: QueryShard) -> None:
        nonlocal at_once, most, answered
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        answered += 1

    parts = [QueryShard(PodSelector((name,)), first=0, steps=1) for name in "abc"]
    async with task_group() as group:
        for _ in range(3):
            group.create_task(patience.run_all(parts, ask))
    assert (most, answered) == (2, 9)
