"""A PromQL client that answers what a test tells it."""

from __future__ import annotations

from collections.abc import Mapping

import promql_parser

from trimtab.usage.errors import SourceUnavailable, UsageResponseError
from trimtab.usage.source import Vector

Answer = float | Vector | Exception | None
"""A single value without labels, a vector, an error to raise, or None for an empty result."""


class FakePromql:
    """Implements `trimtab.usage.source.PromqlClient`.

    `answers` maps a query, or a part of one, to its answer; the longest part that a query contains decides. A query
    without an answer has an empty result, like one whose series do not exist.
    """

    def __init__(self, answers: Mapping[str, Answer] | None = None) -> None:
        self.answers: dict[str, Answer] = dict(answers or {})
        self.queries: list[tuple[str, float]] = []
        """The queries that were received, with their times."""
        self.available = True
        """False lets each query fail, as if no server answered."""

    async def vector(self, promql: str, *, at: float) -> Vector:
        self.queries.append((promql, at))
        if not self.available:
            raise SourceUnavailable("the PromQL server does not answer; is it running?")
        try:
            promql_parser.parse(promql)
        except ValueError as error:
            raise UsageResponseError(f"invalid query: {error}") from None
        parts = [part for part in self.answers if part in promql]
        answer = self.answers[max(parts, key=len)] if parts else None
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return []
        return [({}, float(answer))] if isinstance(answer, int | float) else answer
