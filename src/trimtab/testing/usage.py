"""A usage source that returns what a test scripts and fails on request, and a PromQL client that answers what a test tells it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import promql_parser

from trimtab.plugins import Settings
from trimtab.usage.errors import SourceUnavailable, UsageResponseError
from trimtab.usage.source import Capabilities, Cost, Progress, Source, SourceHealth, UsageQuery, Vector
from trimtab.usage.usage import PodContainer, Usage

Script = Callable[[PodContainer, float], tuple[float, float]]
"""Returns the cores and bytes that a container uses at a time; NaN where there is no sample."""


def steady(cpu: float, memory: float, *, since: float = -math.inf) -> Script:
    """Return a script of constant usage from a time on."""
    return lambda _, t: (cpu, memory) if t >= since else (math.nan, math.nan)


class ScriptedSource(Source[Settings]):
    """Returns the scripted usage of these containers."""

    name = "scripted"
    settings_type = Settings

    def __init__(self, script: Script, *pods: PodContainer, history: bool = True) -> None:
        super().__init__(Settings())
        self.capabilities = Capabilities(history=history, atomic_steps=True)
        self.script = script
        self.pods = list(pods)
        self.queries: list[UsageQuery] = []
        """The queries that were received."""
        self.failure: Exception | None = None
        """The error that each read raises."""
        self.detected: Capabilities | None = None
        """The capabilities that `check` detects, as sources do that ask their backend."""

    def stop(self) -> None:
        """Fail each read from now on, as if the backend were down."""
        self.failure = SourceUnavailable("the scripted source does not answer; is it running?")

    def start(self) -> None:
        """Answer again."""
        self.failure = None

    async def check(self) -> SourceHealth:
        self.capabilities = self.detected or self.capabilities
        if self.failure:
            return SourceHealth(ok=False, detail=str(self.failure), advice="start the source")
        return SourceHealth(ok=True, detail="scripted")

    async def estimate_cost(self, query: UsageQuery) -> Cost:
        return Cost(queries=1, series=2, samples=query.steps, bytes=query.steps)

    async def read(self, query: UsageQuery, *, progress: Progress | None = None) -> Usage:
        self.queries.append(query)
        if self.failure:
            raise self.failure
        pods = [pod for pod in self.pods if query.namespaces is None or pod.namespace in query.namespaces]
        scripted = [
            [self.script(pod, query.start + row * query.step) for pod in pods] for row in range(query.steps)
        ]
        grid = np.array(scripted, dtype=float).reshape(query.steps, len(pods), 2)
        if progress is not None:
            progress(1.0)
        return Usage(tuple(pods), query.start, query.step, grid[:, :, 0].copy(), grid[:, :, 1].copy())


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
