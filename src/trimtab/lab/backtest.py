"""Replay usage through a strategy on the operator's schedule, and count what its sizes would have cost and harmed.

The strategy sees every sample in order of time. At each update it recommends sizes from what it has seen so far, and
a container keeps its size until the next update. A container is sized from its first sample plus the warm-up on (a
quarter of its history where that is shorter). Nothing is counted before the strategy has a recommendation for it.

A container that needs more memory than it has is OOM-killed: its usage then shows the limit, not the need. The
strategy observes the kill, and the container restarts with what the strategy recommends next. CPU beyond the request
only counts as unserved: replayed usage does not grow when there is more.

`generate_sample_trace` makes up a small fleet, so that a back-test can be tried without any recording: two weeks, a sample
each five minutes. Four kinds of container: a web service that follows the day, a batch job each night, one that leaks
memory until it is restarted, one that is idle but for spikes. Left out is realism: the workload generators are for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.api.quantity import MIB
from trimtab.lab.scores import CHANGES, SUMS, Scores, accumulate
from trimtab.sizing import Strategy
from trimtab.sizing.stats.window import RollingMaxima
from trimtab.usage.trace import Floats, Trace

RowProgress = Callable[[int], None]
MIN_COUNTED_CHANGE = 0.05


@dataclass(frozen=True, slots=True)
class BacktestSchedule:
    """The schedule of a back-test: seconds, the smallest relative change that is applied, and how long a size is kept."""

    update: float = 3600.0
    warm_up: float = 86400.0
    minimum_change: float = 0.0
    stabilization: float = 0.0


def backtest(
    trace: Trace, strategy: Strategy[Any], schedule: BacktestSchedule, *, progress: RowProgress | None = None
) -> Scores:
    """Score a strategy on a trace; `progress` is called after each row of samples."""
    replay = _Replay(trace, strategy, schedule)
    every = replay.rows_per_update
    for row in range(0, trace.steps, every):
        replay.run_interval(row, min(row + every, trace.steps))
        if progress is not None:
            progress(min(every, trace.steps - row))
    return Scores.from_sums(trace.names, cpu=replay.cpu_sums, memory=replay.memory_sums, days=replay.days)


class _Replay:
    """The fleet while it is replayed: what each container has now, and the sums so far."""

    def __init__(self, trace: Trace, strategy: Strategy[Any], schedule: BacktestSchedule) -> None:
        self.trace, self.strategy, self.schedule = trace, strategy, schedule
        self.cpu, self.memory = np.full((2, trace.container_count), np.nan)
        self.cpu_sums, self.memory_sums = np.zeros((2, trace.container_count, SUMS))
        self._sizable_from, self.days = _find_sizing_start(trace, schedule.warm_up)
        self.rows_per_update = max(1, round(schedule.update / trace.step))
        span = (
            self.rows_per_update * trace.step
        )  # what samples make of an update: of each one a slice is remembered
        kept = int(schedule.stabilization // span) + 1
        self._recent_cpu, self._recent_memory = (
            RollingMaxima(trace.container_count, seconds=kept * span, slices=kept) for _ in range(2)
        )

    def run_interval(self, begin: int, end: int) -> None:
        """Size the containers, then live through the rows until the next update."""
        now = self._row_time(begin)
        ready = self._sizable_from <= now
        if ready.any():
            sizes = self.strategy.recommend(now)
            cpu = sizes.cpu.target
            if not self.strategy.traits.covers_stabilization:
                cpu = _stabilize(now, cpu, self.cpu, self._recent_cpu)
            memory = _stabilize(now, sizes.memory.target, self.memory, self._recent_memory)
            self.cpu = self._apply(self.cpu, np.where(ready, cpu, np.nan), self.cpu_sums)
            self.memory = self._apply(self.memory, np.where(ready, memory, np.nan), self.memory_sums)
        accumulate(self.trace.cpu[begin:end], self.cpu, self.cpu_sums)
        if np.any(self.trace.memory[begin:end] > self.memory):
            for row in range(begin, end):
                self._replay_row_with_ooms(row)
            return
        accumulate(self.trace.memory[begin:end], self.memory, self.memory_sums)
        for row in range(begin, end):
            self.strategy.observe(self._row_time(row), self.trace.cpu[row], self.trace.memory[row])

    def _replay_row_with_ooms(self, row: int) -> None:
        now, memory = self._row_time(row), self.trace.memory[row]
        accumulate(memory[None], self.memory, self.memory_sums)
        self.strategy.observe(now, self.trace.cpu[row], np.where(memory > self.memory, self.memory, memory))
        killed = np.flatnonzero(memory > self.memory)
        if len(killed):
            self.strategy.observe_oom(now, killed, self.memory[killed])
            back_with = np.full_like(self.memory, np.nan)
            back_with[killed] = self.strategy.recommend(now).memory.target[killed]
            self.memory = self._apply(self.memory, back_with, self.memory_sums)

    def _apply(self, held: Floats, wanted: Floats, sums: Floats) -> Floats:
        """Set the sizes that containers have from now on; a change is counted where a container had a size before."""
        change = np.abs(wanted - held)
        stays = np.isnan(wanted) | (change <= self.schedule.minimum_change * held)
        sums[:, CHANGES] += ~stays & (change > MIN_COUNTED_CHANGE * held)
        return np.where(stays, held, wanted)

    def _row_time(self, row: int) -> float:
        return self.trace.start + row * self.trace.step


def _stabilize(now: float, proposed: Floats, held: Floats, recent: RollingMaxima) -> Floats:
    """Return the proposal, lowered no further than the highest recent proposal."""
    recent.add(now, proposed, np.inf)
    return np.fmax(proposed, np.fmin(held, recent.peak(now)))


def _find_sizing_start(trace: Trace, warm_up: float) -> tuple[Floats, Floats]:
    """Return when each container may first be sized (never without a sample), and for how many days it then runs."""
    sampled = ~(np.isnan(trace.cpu) & np.isnan(trace.memory))
    first, last = sampled.argmax(axis=0), trace.steps - sampled[::-1].argmax(axis=0)
    unsized = np.minimum(warm_up, (last - first) * trace.step / 4)
    start = trace.start + first * trace.step + unsized
    return np.where(sampled.any(axis=0), start, np.inf), ((last - first) * trace.step - unsized) / 86400


STEP, DAYS = 300.0, 14
KINDS = ("web", "batch", "leak", "spiky")


def generate_sample_trace(containers: int = 40, *, seed: int = 1) -> Trace:
    """The same fleet for the same seed."""
    draw = np.random.default_rng(seed)
    hours = np.arange(int(DAYS * 86400 / STEP)) * STEP / 3600
    columns = [_generate_container(KINDS[number % len(KINDS)], hours, draw) for number in range(containers)]
    return Trace(
        names=tuple(f"{KINDS[number % len(KINDS)]}-{number // len(KINDS)}" for number in range(containers)),
        start=0.0,
        step=STEP,
        cpu=np.stack([cpu for cpu, _ in columns], axis=1),
        memory=np.stack([memory for _, memory in columns], axis=1) * MIB,
    )


def _generate_container(kind: str, hours: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    size = rng.lognormal(-1.0, 0.8)
    noise = rng.lognormal(0.0, 0.12, len(hours))
    steady = 200 * size * (1 + 0.02 * rng.standard_normal(len(hours)))
    day = 0.5 - 0.5 * np.cos(2 * np.pi * (hours - rng.uniform(2, 5)) / 24)
    if kind == "web":
        return size * (0.2 + day**2) * noise, steady * (1 + 0.2 * day)
    if kind == "batch":
        running = (hours % 24 >= 2) & (hours % 24 < 4)
        return size * np.where(running, 2.0, 0.01) * noise, steady * np.where(running, 4.0, 1.0)
    if kind == "leak":
        return size * 0.3 * noise, steady * (1 + (hours % 60) / 60)
    spikes = rng.random(len(hours)) < 0.02
    return size * np.where(spikes, 1.0, 0.05) * noise, steady
