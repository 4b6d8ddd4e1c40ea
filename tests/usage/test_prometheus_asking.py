"""How a server is asked many things: what is left of it afterwards."""

import asyncio
import gc
import random
import weakref

import pytest

from trimtab.kube.pace import Backoff
from trimtab.usage.errors import SourceRefused, TooMuchAsked
from trimtab.usage.prometheus.asking import Patience, together
from trimtab.usage.prometheus.parts import Part


class Answers:
    """What was answered, which may be a great deal."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    async def ask(self, part: Part) -> None:
        if len(part.namespaces) > 1:
            raise TooMuchAsked("too many samples")
        self.parts.append(part)


async def test_nothing_of_the_answers_is_kept_until_the_collector_comes_by() -> None:
    patience = Patience(concurrency=2, retries=0, backoff=Backoff(first=0.0), rng=random.Random(1))
    answers = Answers()
    kept = weakref.ref(answers)
    gc.disable()
    try:
        await patience.ask_all(
            [Part(("a", "b"), first=0, steps=1), Part(("c",), first=0, steps=1)], answers.ask
        )
        assert {part.namespaces for part in answers.parts} == {("a",), ("b",), ("c",)}
        del answers
        assert kept() is None
    finally:
        gc.enable()


async def test_those_who_ask_at_the_same_time_are_no_more_at_once_than_one_would_be() -> None:
    patience = Patience(concurrency=9, retries=0, backoff=Backoff(first=0.0), rng=random.Random(1))
    free, at_once, most, answered = asyncio.Semaphore(2), 0, 0, 0

    async def ask(_: Part) -> None:
        nonlocal at_once, most, answered
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        answered += 1

    parts = [Part((name,), first=0, steps=1) for name in "abc"]
    await together(patience.ask_all(parts, ask, free=free) for _ in range(3))
    assert (most, answered) == (2, 9)


async def test_the_first_that_fails_ends_those_beside_it_and_is_told_by_itself() -> None:
    ended = asyncio.Event()

    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def fail() -> None:
        raise SourceRefused("no")

    with pytest.raises(SourceRefused, match="no"):
        await together([wait_for_ever(), fail()])
    assert ended.is_set()
