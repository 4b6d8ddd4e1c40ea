"""A usage source that tells what a test wrote down, and fails when it is told to."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from trimtab.plugins import Settings
from trimtab.usage.errors import SourceAway
from trimtab.usage.source import Ask, Capabilities, Cost, Health, Progress, Source
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
        self.capabilities = Capabilities(history=history, whole_steps=True)
        self.script = script
        self.pods = list(pods)
        self.asked: list[Ask] = []
        self.failure: Exception | None = None
        self.found: Capabilities | None = None
        """What it finds out of itself at the start."""

    def go_away(self) -> None:
        self.failure = SourceAway("scripted: no answer; is it running?")

    def come_back(self) -> None:
        self.failure = None

    async def check(self) -> Health:
        self.capabilities = self.found or self.capabilities
        return Health(ok=True, detail="scripted")

    async def cost(self, ask: Ask) -> Cost:
        return Cost(queries=1, series=2, samples=ask.steps, bytes=ask.steps)

    async def read(self, ask: Ask, *, progress: Progress | None = None) -> Usage:
        self.asked.append(ask)
        if self.failure:
            raise self.failure
        told = [
            [self.script(pod, ask.start + row * ask.step) for pod in self.pods] for row in range(ask.steps)
        ]
        grid = np.array(told, dtype=float).reshape(ask.steps, len(self.pods), 2)
        return Usage(tuple(self.pods), ask.start, ask.step, grid[:, :, 0].copy(), grid[:, :, 1].copy())
