"""How a server is asked many things: what is left of it afterwards."""

import asyncio
import gc
import random
import weakref

import pytest

from trimtab.aio import side_by_side
from trimtab.kube.rest.retry import Backoff
from trimtab.usage.errors import TooMuchAsked
from trimtab.usage.prometheus.pod_selector import Pods
from trimtab.usage.prometheus.query_scheduler import Patience
from trimtab.usage.prometheus.sharding import Part


class Answers:
    """What was answered, which may be a great deal."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    async def ask(self, part: Part) -> None:
        if len(part.pods.namespaces) > 1:
            raise TooMuchAsked("too many samples")
        self.parts.append(part)


def patient() -> Patience:
    """Two at a time, and nothing twice."""
    return Patience(free=asyncio.Semaphore(2), retries=0, backoff=Backoff(first=0.0), rng=random.Random(1))


async def test_nothing_of_the_answers_is_kept_until_the_collector_comes_by() -> None:
    patience = patient()
    answers = Answers()
    kept = weakref.ref(answers)
    gc.disable()
    try:
        await patience.ask_all(
            [Part(Pods(("a", "b")), first=0, steps=1), Part(Pods(("c",)), first=0, steps=1)], answers.ask
        )
        assert {part.pods.namespaces for part in answers.parts} == {("a",), ("b",), ("c",)}
        del answers
        assert kept() is None
    finally:
        gc.enable()


async def test_what_is_hopeless_is_found_out_by_a_few_questions() -> None:
    asked: list[Part] = []

    async def refuse(part: Part) -> None:
        asked.append(part)
        raise TooMuchAsked("the limit is none at all")

    with pytest.raises(TooMuchAsked):
        await patient().ask_all([Part(Pods(tuple("abcdefgh")), first=0, steps=2048)], refuse)
    assert len(asked) < 30
    assert asked[-1].halves() == ()


async def test_those_who_ask_at_the_same_time_are_no_more_at_once_than_one_would_be() -> None:
    patience, at_once, most, answered = patient(), 0, 0, 0

    async def ask(_: Part) -> None:
        nonlocal at_once, most, answered
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        answered += 1

    parts = [Part(Pods((name,)), first=0, steps=1) for name in "abc"]
    async with side_by_side() as group:
        for _ in range(3):
            group.create_task(patience.ask_all(parts, ask))
    assert (most, answered) == (2, 9)
