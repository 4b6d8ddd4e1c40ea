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
from trimtab.lab.emulator.emulation import Emulation, EmulationConfig
from trimtab.lab.emulator.load_profile import LoadProfile
from trimtab.lab.emulator.run_log import PeriodRecord, RunLog
from trimtab.sizing import Strategy, TargetRange, strategy

ProgressCallback = Callable[[str, float], None]
"""Called with the current activity and the share of the run that is done."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StressStrategy:
    """The strategy under test."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    update: float = 3600.0
    """Seconds of the workload's own time from one recommendation to the next."""


async def run_stress(
    client: Client,
    profiles: Mapping[str, LoadProfile],
    config: EmulationConfig,
    *,
    under_test: StressStrategy | None = None,
    periods: int | None = None,
    sizes: Mapping[str, Resources] | None = None,
    on_progress: ProgressCallback = lambda _text, _share: None,
) -> RunLog:
    """Follow the load profiles for this many periods, or to their end, and delete everything that was created."""
    period_count = periods or max(profile.periods for profile in profiles.values())
    journal = RunLog()
    on_progress("starting pods", 0.0)
    async with Emulation(client, profiles, config, sizes=sizes) as emulation:
        sizing = None if under_test is None else _StrategyRunner(emulation, config, under_test)
        for period in range(period_count):
            on_progress(f"period {period + 1} of {period_count}", period / period_count)
            entries = await emulation.run_period()
            journal.entries += entries
            if sizing is not None:
                journal.resizes += sizing.decide(entries)
                for entry in entries:
                    await emulation.resize(entry)
        journal.missed_updates, journal.resize_errors = emulation.missed_updates, emulation.resize_errors
        on_progress("deleting the pods", 1.0)
    return journal


class _StrategyRunner:
    """The strategy, and what it has said."""

    def __init__(self, emulation: Emulation, config: EmulationConfig, under_test: StressStrategy) -> None:
        self._emulation, self._config, self._update = emulation, config, under_test.update
        self._names = tuple(emulation.profiles)
        self._profile = next(iter(emulation.profiles.values()))
        self._strategy: Strategy[Any] = strategy(under_test.name, len(self._names), **under_test.settings)

    def decide(self, entries: Sequence[PeriodRecord]) -> int:
        """Show the strategy a period; how many pods are to have another size now."""
        period = entries[0].period
        now = self._profile.period_end(period)
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
        every = max(1, round(self._update / self._profile.step))
        if not len(killed) and (period + 1) % every:
            return 0
        return self._recommend(now)

    def _recommend(self, now: float) -> int:
        answer = self._strategy.recommend(now)
        changed = 0
        for place, name in enumerate(self._names):
            size = self._emulation.sizes[name]
            wanted = self._config.build_resources(
                _next_request((size.cpu_request or 0) / 1000, answer.cpu, place),
                _next_request(float(size.memory_request or 0), answer.memory, place),
            )
            if wanted != size:
                self._emulation.sizes[name] = wanted
                changed += 1
        return changed


def _next_request(have: float, bounds: TargetRange, place: int) -> float:
    """Keep plausible sizes, and the current size where the strategy has no recommendation."""
    lower, target, upper = (float(each[place]) for each in (bounds.lower, bounds.target, bounds.upper))
    return have if math.isnan(target) or lower <= have <= upper else target
