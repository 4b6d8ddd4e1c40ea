"""How a server is asked many things: what is left of it afterwards."""

import gc
import random
import weakref

from trimtab.kube.pace import Backoff
from trimtab.usage.errors import TooMuchAsked
from trimtab.usage.prometheus.asking import Patience
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
