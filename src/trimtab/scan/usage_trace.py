"""Read the usage history of a cluster's workloads as a trace for backtests and training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trimtab.errors import TrimtabError
from trimtab.kube.rest.client import Client
from trimtab.plural import format_time_span
from trimtab.scan.cluster_snapshot import take_snapshot
from trimtab.scan.usage_reader import ReadPlan, ReportProgress, plan_read, read_usage
from trimtab.usage.source import Source
from trimtab.usage.trace import Trace
from trimtab.usage.workload_usage import max_over_replicas


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
