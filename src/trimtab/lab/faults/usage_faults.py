"""Faults of the usage source: samples that are missing, wrong or late, and a source that does not answer.

A wrong sample stays wrong: what is scraped during a fault is read so for ever. A source that is away, slow or truncated
is so only while the fault lasts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from trimtab.lab.faults.gate import ProcessGate
from trimtab.lab.faults.plan import Fault, FaultDetails, FaultInjector, FaultKind
from trimtab.lab.faults.worlds import WorldSpec
from trimtab.lab.simulator.usage_source import SimulatedUsageSettings, SimulatedUsageSource
from trimtab.usage.errors import SourceTimeout, SourceUnavailable, UsageResponseError
from trimtab.usage.source import Cost, Progress, Source, SourceHealth, UsageQuery
from trimtab.usage.trace import Floats
from trimtab.usage.usage import PodContainer, Usage

Cells = npt.NDArray[np.bool_]

_AWAY, _SLOW, _GARBLED, _TRUNCATED = "source-away", "source-slow", "source-garbled", "source-truncated"
_YOUNG, _LATE, _FROZEN = "source-young", "usage-late", "usage-frozen"
_MISSING, _NEGATIVE, _INFINITE = "usage-missing", "usage-negative", "usage-infinite"
_THOUSANDFOLD, _TWICE, _RENAMED = "usage-thousandfold", "usage-counted-twice", "usage-renamed"
_NAN, _UNCOUNTED = "usage-nan", "usage-without-kills"
_PAST, _FUTURE = "usage-from-past", "usage-from-future"
MEMORY_SPIKE = "memory-spike"
"""The kind of a fault of the cluster that no sample shows."""


def _draw_share(rng: random.Random, world: WorldSpec) -> FaultDetails:
    """Draw the share of samples that are affected, of one workload or of all."""
    target = rng.choice(["", *(workload.name for workload in world.workloads)])
    return FaultDetails(target=target, share=rng.choice([0.05, 0.5, 1.0]), amount=rng.choice([600.0, 3600.0]))


KINDS = (
    FaultKind(name=_AWAY, sentence="The usage source refuses connections.", hides_usage=True),
    FaultKind(name=_SLOW, sentence="The usage source does not answer in time.", hides_usage=True),
    FaultKind(
        name=_GARBLED, sentence="The usage source answers something that is no response.", hides_usage=True
    ),
    FaultKind(
        name=_TRUNCATED,
        sentence="The usage source leaves out some containers.",
        draw=_draw_share,
        hides_usage=True,
    ),
    FaultKind(
        name=_YOUNG,
        sentence="The usage source has lost everything before the fault.",
        hides_usage=True,
        duration=(4 * 3600.0, 12 * 3600.0),
    ),
    FaultKind(name=_LATE, sentence="Samples reach the source late.", draw=_draw_share, hides_usage=True),
    FaultKind(
        name=_FROZEN,
        sentence="Samples repeat the last value before the fault.",
        draw=_draw_share,
        hides_usage=True,
    ),
    FaultKind(name=_MISSING, sentence="Samples are missing.", draw=_draw_share, hides_usage=True),
    FaultKind(
        name=_NAN,
        sentence="Samples of memory are NaN, those of CPU are right.",
        draw=_draw_share,
        hides_usage=True,
    ),
    FaultKind(
        name=_UNCOUNTED,
        sentence="The source knows neither OOM kills nor throttling.",
        duration=(4 * 3600.0, 24 * 3600.0),
    ),
    FaultKind(name=_NEGATIVE, sentence="Samples are negative.", draw=_draw_share, hides_usage=True),
    FaultKind(name=_INFINITE, sentence="Samples are infinite.", draw=_draw_share, hides_usage=True),
    FaultKind(name=_THOUSANDFOLD, sentence="Samples are a thousand times too high.", draw=_draw_share),
    FaultKind(name=_TWICE, sentence="Containers are counted twice.", draw=_draw_share),
    FaultKind(
        name=_RENAMED,
        sentence="The label of the container has another name.",
        draw=_draw_share,
        hides_usage=True,
    ),
    FaultKind(
        name=_PAST, sentence="Samples have the values of an earlier time.", draw=_draw_share, hides_usage=True
    ),
    FaultKind(
        name=_FUTURE, sentence="Samples have the values of a later time.", draw=_draw_share, hides_usage=True
    ),
)


class FaultySource(Source[SimulatedUsageSettings]):
    """The source of one process; all processes read the same samples."""

    name = "simulation"
    settings_type = SimulatedUsageSettings
    capabilities = SimulatedUsageSource.capabilities

    def __init__(
        self, inner: SimulatedUsageSource, injector: FaultInjector, gate: ProcessGate, *, start: float
    ) -> None:
        """Create a source; `start` is the time of the world at which the times of faults begin."""
        super().__init__(SimulatedUsageSettings())
        self._inner = inner
        self._injector = injector
        self._gate = gate
        self._start = start

    async def check(self) -> SourceHealth:
        return await self._inner.check()

    async def estimate_cost(self, query: UsageQuery) -> Cost:
        return await self._inner.estimate_cost(query)

    async def read(self, query: UsageQuery, *, progress: Progress | None = None) -> Usage:
        self._gate.pass_through("read usage")
        hit, record = self._injector.hit, self._injector.record
        if fault := hit(_AWAY):
            record(fault, "read")
            raise SourceUnavailable("the usage source cannot be reached: connection refused")
        if fault := hit(_SLOW):
            record(fault, "read")
            raise SourceTimeout("the usage source did not answer within 30 s")
        if fault := hit(_GARBLED):
            record(fault, "read")
            raise UsageResponseError("the usage source answered with an HTML page")
        usage = await self._inner.read(query, progress=progress)
        usage = self._spoil(usage)
        self._gate.pass_through("read usage")
        return usage

    def _spoil(self, usage: Usage) -> Usage:
        for kind in (_MISSING, _NEGATIVE, _INFINITE, _THOUSANDFOLD, _TWICE, _PAST, _FUTURE, _FROZEN):
            for fault in self._injector.list_started(kind):
                cells = self._select_cells(usage, fault)
                shift = max(1, round(fault.amount / usage.step))
                self._change(usage, fault, cells, partial(_spoil_grid, kind=kind, shift=shift))
        usage = self._hide(usage)
        for fault in self._injector.list_started(_RENAMED):
            if (cells := self._select_cells(usage, fault)).any():
                self._injector.record(fault, f"{int(cells.sum())} samples")
                usage = _rename(usage, cells)
        for fault in self._injector.active(_TRUNCATED):
            keep = ~self._select_columns(usage, fault)
            self._injector.record(fault, f"{int((~keep).sum())} containers")
            usage = _keep_columns(usage, keep)
        return usage

    def _hide(self, usage: Usage) -> Usage:
        """Erase samples that the source does not have, or not yet."""
        for fault in self._injector.list_started(_NAN):
            if (cells := self._select_cells(usage, fault)).any():
                self._injector.record(fault, f"{int(cells.sum())} samples")
                _erase(usage.memory, cells)
        for fault in self._injector.list_started(MEMORY_SPIKE):
            if (cells := self._select_spike(usage, fault)).any():
                _erase(usage.memory, cells)
        for fault in self._injector.active(_UNCOUNTED):
            self._injector.record(fault, "read")
            usage = replace(usage, throttled=None, ooms=None)
        for fault in self._injector.active(_LATE):
            recent = usage.times[:, None] > self._start + self._injector.elapsed - fault.amount
            self._change(usage, fault, recent & self._select_columns(usage, fault)[None, :], _erase)
        for fault in self._injector.active(_YOUNG):
            before = usage.times < self._start + self._injector.period(fault)[0]
            self._change(usage, fault, np.repeat(before[:, None], len(usage.containers), axis=1), _erase)
        return usage

    def _change(
        self, usage: Usage, fault: Fault, cells: Cells, change: Callable[[Floats, Cells], None]
    ) -> None:
        """Change the selected samples of CPU and memory in place."""
        if cells.any():
            self._injector.record(fault, f"{int(cells.sum())} samples")
            for grid in (usage.cpu, usage.memory):
                change(grid, cells)

    def _select_cells(self, usage: Usage, fault: Fault) -> Cells:
        """Select the samples that were scraped during a fault, and that it hits."""
        since = usage.times - self._start
        begin, end = self._injector.period(fault)
        rows = (since >= begin) & (since < end)
        return rows[:, None] & self._select_columns(usage, fault)[None, :]

    def _select_spike(self, usage: Usage, fault: Fault) -> Cells:
        """Select the samples of a workload whose steps began during a spike."""
        since = usage.times - self._start
        begin, end = self._injector.period(fault)
        rows = (since > begin) & (since < end + usage.step)
        _, _, workload = fault.target.rpartition("/")
        columns = np.array([name.pod.startswith(f"{workload}-") for name in usage.containers], np.bool_)
        return rows[:, None] & columns[None, :]

    def _select_columns(self, usage: Usage, fault: Fault) -> Cells:
        return np.array([_is_affected(name, fault) for name in usage.containers], np.bool_)


def _is_affected(name: PodContainer, fault: Fault) -> bool:
    if fault.target and not name.pod.startswith(fault.target):
        return False
    # Always the same pods: a draw for each read would make a sample wrong now and right later.
    return random.Random(f"{fault.seed}/{name}").random() < fault.share  # noqa: S311 - not for secrets


def _erase(grid: Floats, cells: Cells) -> None:
    grid[cells] = np.nan


def _spoil_grid(grid: Floats, cells: Cells, *, kind: str, shift: int) -> None:
    match kind:
        case "usage-missing":
            grid[cells] = np.nan
        case "usage-negative":
            grid[cells] *= -1.0
        case "usage-infinite":
            grid[cells] = np.inf
        case "usage-thousandfold":
            grid[cells] *= 1000.0
        case "usage-counted-twice":
            grid[cells] *= 2.0
        case "usage-from-past":
            grid[cells] = np.roll(grid, shift, axis=0)[cells]
        case "usage-from-future":
            grid[cells] = np.roll(grid, -shift, axis=0)[cells]
        case "usage-frozen":
            for column in np.flatnonzero(cells.any(axis=0)).tolist():
                rows = np.flatnonzero(cells[:, column])
                grid[rows, column] = grid[max(rows[0] - 1, 0), column]


def _rename(usage: Usage, cells: Cells) -> Usage:
    """Move the samples to containers without a name, as of cgroups that cAdvisor cannot label."""
    columns = np.flatnonzero(cells.any(axis=0)).tolist()
    names = tuple(
        PodContainer(usage.containers[at].namespace, usage.containers[at].pod, "POD") for at in columns
    )
    new = [name for name in dict.fromkeys(names) if name not in usage.containers]
    if len(new) != len(columns):
        keep = np.ones(len(usage.containers), np.bool_)
        keep[columns] = False
        return _keep_columns(usage, keep)

    def move(grid: Floats) -> Floats:
        moved = np.where(cells[:, columns], grid[:, columns], np.nan)
        return np.concatenate([np.where(cells, np.nan, grid), moved], axis=1)

    return replace(
        usage,
        containers=(*usage.containers, *names),
        cpu=move(usage.cpu),
        memory=move(usage.memory),
        throttled=None if usage.throttled is None else move(usage.throttled),
    )


def _keep_columns(usage: Usage, keep: Cells) -> Usage:
    kept = tuple(name for name, stays in zip(usage.containers, keep.tolist(), strict=True) if stays)
    return replace(
        usage,
        containers=kept,
        cpu=usage.cpu[:, keep],
        memory=usage.memory[:, keep],
        throttled=None if usage.throttled is None else usage.throttled[:, keep],
        ooms=None if usage.ooms is None else tuple(oom for oom in usage.ooms if oom.container in kept),
    )
