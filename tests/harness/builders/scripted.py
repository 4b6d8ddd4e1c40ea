"""Provide a usage source that returns what a test wrote down, and fails when told to."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from trimtab.plugins import Settings
from trimtab.usage.errors import SourceUnavailable
from trimtab.usage.source import Capabilities, Cost, Progress, Source, SourceHealth, UsageQuery
from trimtab.usage.usage import PodContainer, Usage

Script = Callable[[PodContainer, float], tuple[float, float]]
"""What a container of a pod used at a time: cores and bytes; NaN where there is no sample."""


def steady(cpu: float, memory: float, *, since: float = -math.inf) -> Script:
    return lambda _, t: (cpu, memory) if t >= since else (math.nan, math.nan)


class Scripted(Source[Settings]):
    """Tells of these pods' containers."""

    name = "scripted"
    settings_type = Settings

    def __init__(self, script: Script, *pods: PodContainer, history: bool = True) -> None:
        super().__init__(Settings())
        self.capabilities = Capabilities(history=history, atomic_steps=True)
        self.script = script
        self.pods = list(pods)
        self.asked: list[UsageQuery] = []
        self.failure: Exception | None = None
        self.found: Capabilities | None = None
        """What it finds out of itself at the start."""

    def go_away(self) -> None:
        self.failure = SourceUnavailable("scripted: no answer; is it running?")

    def come_back(self) -> None:
        self.failure = None

    async def check(self) -> SourceHealth:
        self.capabilities = self.found or self.capabilities
        return SourceHealth(ok=True, detail="scripted")

    async def estimate_cost(self, query: UsageQuery) -> Cost:
        return Cost(queries=1, series=2, samples=query.steps, bytes=query.steps)

    async def read(self, query: UsageQuery, *, progress: Progress | None = None) -> Usage:
        self.asked.append(query)
        if self.failure:
            raise self.failure
        told = [
            [self.script(pod, query.start + row * query.step) for pod in self.pods]
            for row in range(query.steps)
        ]
        grid = np.array(told, dtype=float).reshape(query.steps, len(self.pods), 2)
        return Usage(tuple(self.pods), query.start, query.step, grid[:, :, 0].copy(), grid[:, :, 1].copy())
