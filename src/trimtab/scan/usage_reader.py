"""Read the usage history with a step and part size that overload neither the server nor this process, also as a trace for
backtests and training.

A small cluster is read in one part with a fine step; a large one in several parts, and with a wider step if that is
still too much. The memory peak of a step is kept at any width; a wide step only loses short CPU peaks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimtab.aio import task_group
from trimtab.errors import TrimtabError
from trimtab.kube.rest.client import Client
from trimtab.plural import format_time_span
from trimtab.scan.cluster_snapshot import take_snapshot
from trimtab.usage.source import Cost, Source, UsageQuery
from trimtab.usage.trace import Trace
from trimtab.usage.usage import Usage
from trimtab.usage.workload_usage import max_over_replicas

STEPS = (300.0, 900.0, 1800.0, 3600.0)
MAX_SAMPLES = 40_000_000
"""The total number of samples above which the next wider step is used."""
MAX_PART_SAMPLES = 6_000_000
"""The number of samples that one part holds at most: about 150 MB of memory."""
PART_SAMPLES = 500_000
"""The number of samples that one part has, where that is `PART_STEPS` or more."""
PART_STEPS = 48
"""The number of steps below which servers answer at a far higher cost for each sample."""
MAX_PARALLEL_PARTS = 2
"""The number of parts read at the same time, so that the server is not idle while a response is decoded."""
LARGE_READ_SAMPLES = 10_000_000
"""The number of samples above which the cost is reported before the read."""

ReportProgress = Callable[[str, float], None]
"""Callback that receives the current activity and its completed share."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A window to read, and its estimated cost."""

    query: UsageQuery
    cost: Cost

    @property
    def is_large(self) -> bool:
        return self.cost.samples > LARGE_READ_SAMPLES

    def split(self) -> list[UsageQuery]:
        """Split the window into parts of equal length; the last may be shorter."""
        query = self.query
        most, wanted = (
            query.steps * samples // max(self.cost.samples, samples)
            for samples in (MAX_PART_SAMPLES, PART_SAMPLES)
        )
        steps = max(1, min(max(wanted, PART_STEPS), most))
        length = steps * query.step
        begins = [query.start + number * length for number in range(-(-query.steps // steps))]
        return [replace(query, start=begin, end=min(begin + length, query.end)) for begin in begins]


async def plan_read(
    source: Source[Any],
    *,
    window: float,
    step: float | None,
    now: float,
    namespaces: Sequence[str],
    sample_seconds: float = 0.0,
) -> ReadPlan:
    """Plan the read of the last `window` seconds; `step` is the user's choice, or None.

    `sample_seconds` is the step and rate window of the strategy, 0 if it has none. A large cluster is read with a wider
    step, each still averaged over that time.
    """
    if sample_seconds <= source.capabilities.interval:
        sample_seconds = 0.0  # no rate is known over less than two samples

    async def plan_step(width: float) -> ReadPlan:
        query = UsageQuery.last(
            window, now=now, step=width, namespaces=namespaces, rate_window=sample_seconds
        )
        return ReadPlan(query, await source.estimate_cost(query))

    if step is not None:
        return await plan_step(step)
    # The number of series is known to the server only, so the finest step is estimated first and widened from there.
    steps = (sample_seconds, *STEPS) if 0 < sample_seconds < STEPS[0] else STEPS
    found = await plan_step(steps[0])
    wider = next(
        (width for width in steps if found.cost.samples * steps[0] / width <= MAX_SAMPLES), steps[-1]
    )
    return found if wider == steps[0] else await plan_step(wider)


async def read_usage(
    source: Source[Any],
    plan: ReadPlan,
    observe_usage: Callable[[Usage], None],
    *,
    progress: ReportProgress,
) -> None:
    """Pass the parts on in time order; while a thread processes one, the next is being read."""
    parts = plan.split()
    shares = [0.0] * len(parts)

    async def read_part(number: int) -> Usage:
        def report(share: float) -> None:
            shares[number] = share
            progress("reading usage", sum(shares) / len(parts))

        return await source.read(parts[number], progress=report)

    # The strategies take samples in order of time, so the parts are observed in order although they are read ahead.
    pending: deque[asyncio.Task[Usage]] = deque()
    async with task_group() as group:
        for number in range(len(parts)):
            pending.append(group.create_task(read_part(number)))
            if len(pending) == MAX_PARALLEL_PARTS:
                await asyncio.to_thread(observe_usage, await pending.popleft())
        for last in pending:
            await asyncio.to_thread(observe_usage, await last)


async def read_usage_trace(
    client: Client,
    source: Source[Any],
    *,
    namespaces: Sequence[str] | None,
    window: float,
    step: float | None,
    now: float,
    progress: ReportProgress,
    on_planned: Callable[[ReadPlan], None],
) -> Trace:
    """Read a trace with one column per container, taking the highest replica; `on_planned` receives the cost first."""
    progress("listing workloads", 0.0)
    state = (await take_snapshot(client, namespaces=namespaces)).state
    used_namespaces = sorted({workload.namespace for workload in state.list_workloads()})
    if not used_namespaces:
        raise TrimtabError(f"{client.connection.context}: no workloads found; check --namespace")
    plan = await plan_read(source, window=window, step=step, now=now, namespaces=used_namespaces)
    on_planned(plan)
    owners = state.build_owner_index()
    parts: list[Trace] = []
    await read_usage(
        source,
        plan,
        lambda usage: parts.append(max_over_replicas(usage, owners).to_trace()),
        progress=progress,
    )
    found = concat_traces(parts)
    if not found.sample_count:
        raise TrimtabError(
            f"{client.connection.context}: the usage source has no samples of its workloads in {format_time_span(window)}; run `trimtab doctor`"
        )
    return found


def concat_traces(parts: Sequence[Trace]) -> Trace:
    """Join consecutive traces; a container that is missing in a part has no samples there."""
    names = tuple(sorted({name for part in parts for name in part.names}))
    place = {name: number for number, name in enumerate(names)}
    cpu, memory = np.full((2, sum(part.steps for part in parts), len(names)), np.nan)
    row = 0
    for part in parts:
        columns = [place[name] for name in part.names]
        for whole, grid in ((cpu, part.cpu), (memory, part.memory)):
            whole[row : row + part.steps, columns] = grid
        row += part.steps
    return Trace(names=names, start=parts[0].start, step=parts[0].step, cpu=cpu, memory=memory)
