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


async def test_nothing_of_the_answers_is_kept_until_the_collector_comes_by() -> None:
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


async def test_what_is_hopeless_is_found_out_by_a_few_questions() -> None:
    asked: list[QueryShard] = []

    async def refuse(part: QueryShard) -> None:
        asked.append(part)
        raise QueryTooLarge("the limit is none at all")

    with pytest.raises(QueryTooLarge):
        await patient().run_all([QueryShard(PodSelector(tuple("abcdefgh")), first=0, steps=2048)], refuse)
    assert len(asked) < 30
    assert asked[-1].split() == ()


async def test_those_who_ask_at_the_same_time_are_no_more_at_once_than_one_would_be() -> None:
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
