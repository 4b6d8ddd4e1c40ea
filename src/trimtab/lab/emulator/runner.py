"""A stress run: pods follow a workload on a real cluster while a recommender under test sizes them.

The strategy is shown what the pods used, in the workload's own time; where that has an answer and a pod's request is
outside of its bounds, the pod is brought to its target. Without a strategy pods keep the size that they begin with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.client import Client
from trimtab.lab.emulator.emulation import Emulation, Place
from trimtab.lab.emulator.load_profile import Course
from trimtab.lab.emulator.run_log import Entry, Journal
from trimtab.sizing import Bounds, Strategy, strategy

Told = Callable[[str, float], None]
"""What is being done, and the share of the run that is done."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommender:
    """The strategy under test."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    update: float = 3600.0
    """Seconds of the workload's own time from one recommendation to the next."""


async def stress(
    client: Client,
    courses: Mapping[str, Course],
    place: Place,
    *,
    recommender: Recommender | None = None,
    periods: int | None = None,
    sizes: Mapping[str, Resources] | None = None,
    told: Told = lambda _text, _share: None,
) -> Journal:
    """Follow the courses for so many periods, or to their end; everything that was made is gone afterwards."""
    many = periods or max(course.periods for course in courses.values())
    journal = Journal()
    told("starting pods", 0.0)
    async with Emulation(client, courses, place, sizes=sizes) as emulation:
        sizing = None if recommender is None else _Sizing(emulation, place, recommender)
        for period in range(many):
            told(f"period {period + 1} of {many}", period / many)
            entries = await emulation.live()
            journal.entries += entries
            if sizing is not None:
                journal.resizes += sizing.decide(entries)
                for entry in entries:
                    await emulation.resize(entry)
        journal.unheard, journal.refusals = emulation.unheard, emulation.refusals
        told("taking the pods away", 1.0)
    return journal


class _Sizing:
    """The strategy, and what it has said."""

    def __init__(self, emulation: Emulation, place: Place, recommender: Recommender) -> None:
        self._emulation, self._place, self._update = emulation, place, recommender.update
        self._names = tuple(emulation.courses)
        self._course = next(iter(emulation.courses.values()))
        self._strategy: Strategy[Any] = strategy(recommender.name, len(self._names), **recommender.settings)

    def decide(self, entries: Sequence[Entry]) -> int:
        """Show the strategy a period; how many pods are to have another size now."""
        period = entries[0].period
        now = self._course.time(period)
        self._strategy.observe(
            now,
            np.array([entry.used_cpu for entry in entries]),
            np.array([entry.used_memory for entry in entries]),
        )
        killed = np.array([place for place, entry in enumerate(entries) if entry.killed], np.intp)
        if len(killed):
            sizes = [self._emulation.sizes[self._names[place]] for place in killed]
            held = [float(size.memory_limit or size.memory_request or 0) for size in sizes]
            self._strategy.observe_oom(now, killed, np.array(held))
        every = max(1, round(self._update / self._course.step))
        if not len(killed) and (period + 1) % every:
            return 0
        return self._recommend(now)

    def _recommend(self, now: float) -> int:
        answer = self._strategy.recommend(now)
        changed = 0
        for place, name in enumerate(self._names):
            size = self._emulation.sizes[name]
            wanted = self._place.size(
                _moved((size.cpu_request or 0) / 1000, answer.cpu, place),
                _moved(float(size.memory_request or 0), answer.memory, place),
            )
            if wanted != size:
                self._emulation.sizes[name] = wanted
                changed += 1
        return changed


def _moved(have: float, bounds: Bounds, place: int) -> float:
    """What is plausible stays; what the strategy cannot tell of, too."""
    lower, target, upper = (float(each[place]) for each in (bounds.lower, bounds.target, bounds.upper))
    return have if math.isnan(target) or lower <= have <= upper else target
