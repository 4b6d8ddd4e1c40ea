"""Asks one PromQL server for the KPIs of many intents at once.

Many questions make one request: their answers are told apart by a label. A question that the server fails at would
fail all that travel with it, so a batch that fails is halved until the culprit is alone, and alone it is asked from
then on until it succeeds. Whatever is not answered with one fresh number is unknown, with the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from trimtab.intents.kpi.measurement import Reading, unknown
from trimtab.intents.kpi.query import Question
from trimtab.usage.errors import SourceAway, SourceSlow, UsageError

LABEL = "trimtab_kpi"
MOST = 50
"""Questions a request,"""
LONGEST = 16_000
"""and characters."""

Vector = Sequence[tuple[Mapping[str, str], float]]


class Teller(Protocol):
    """What answers PromQL."""

    async def vector(self, promql: str, *, at: float) -> Vector:
        """All that a query gives at a time, each with its labels."""
        ...


class Asking:
    """Knows how the questions fare that one server is asked."""

    def __init__(self, teller: Teller, *, stale: float, patience: float) -> None:
        self._teller = teller
        self._stale = stale
        self._patience = patience
        self._failed: set[Question] = set()

    async def readings(self, questions: Iterable[Question], *, at: float) -> dict[Question, Reading]:
        """Each question with what the server knows of it at this time; questions alike are asked once."""
        asked = list(dict.fromkeys(questions))
        self._failed.intersection_update(asked)
        alone = [[each] for each in asked if each.scalar or each in self._failed]
        together = [each for each in asked if not (each.scalar or each in self._failed)]
        found: dict[Question, Reading] = {}
        for answered in await asyncio.gather(
            *(self._batch(batch, at) for batch in (*_batches(together), *alone))
        ):
            found |= answered
        return found

    async def _batch(self, batch: Sequence[Question], at: float) -> dict[Question, Reading]:
        try:
            async with asyncio.timeout(self._patience):
                answer = await self._teller.vector(_together(batch), at=at)
        except (UsageError, TimeoutError) as error:
            # A server that is away is away for all; one that is slow or refuses may be so because of one of them.
            away = isinstance(error, SourceAway) and not isinstance(error, SourceSlow)
            if len(batch) > 1 and not away:
                middle = len(batch) // 2
                halves = await asyncio.gather(
                    self._batch(batch[:middle], at), self._batch(batch[middle:], at)
                )
                return halves[0] | halves[1]
            self._failed.update(() if away else batch)
            why = str(error) or f"no answer within {self._patience:g} s"
            return dict.fromkeys(batch, unknown(why))
        self._failed.difference_update(batch)
        return {question: self._reading(number, answer) for number, question in enumerate(batch)}

    def _reading(self, number: int, answer: Vector) -> Reading:
        def of(label: str) -> list[float]:
            return [value for labels, value in answer if labels.get(LABEL, "0") == label]

        values, ages = of(str(number)), of(f"{number} age")
        if not values:
            return unknown("the query gives nothing: its series are not there, or have no samples lately")
        if len(values) > 1:
            return unknown(f"the query gives {len(values)} numbers; put sum, max or the like around it")
        # Without an age, a range within the query bounds it, or the question went alone.
        if ages and not max(ages) <= self._stale:
            return unknown(f"the newest sample is {max(ages):.0f} s old")
        return Reading.of(values[0])


def _batches(questions: Sequence[Question]) -> Iterator[list[Question]]:
    batch: list[Question] = []
    length = 0
    for question in questions:
        if batch and (len(batch) == MOST or length + len(question.promql) > LONGEST):
            yield batch
            batch, length = [], 0
        batch.append(question)
        length += len(question.promql)
    if batch:
        yield batch


def _together(batch: Sequence[Question]) -> str:
    """One query for all of them."""
    if len(batch) == 1 and batch[0].scalar:
        return batch[0].promql
    parts = []
    for number, question in enumerate(batch):
        parts.append(_marked(question.promql, str(number)))
        if question.plain:
            # Of each selector the newest sample, and of those the oldest: one that is stale makes the number so.
            ages = " or ".join(
                _marked(f"time() - max(timestamp({selector}))", str(place))
                for place, selector in enumerate(question.plain)
            )
            parts.append(_marked(f"max({ages})", f"{number} age"))
    return " or ".join(parts)


def _marked(promql: str, mark: str) -> str:
    # On lines of its own, since a query may end in a comment.
    return f'label_replace(\n{promql}\n, "{LABEL}", "{mark}", "", "")'
