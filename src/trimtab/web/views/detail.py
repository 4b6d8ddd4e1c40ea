"""A workload's page as far as it is slow to make: its past, how its sizes came about, and its back-test."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakValueDictionary

import numpy as np
import structlog

from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.kinds.pods import Container
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.operator.state import Desk
from trimtab.scan.pricing import Prices
from trimtab.sizing.recommendation import Recommendation
from trimtab.store import HistoryEntry, StoreError
from trimtab.usage.errors import UsageError
from trimtab.usage.trace import Trace
from trimtab.web.model import ContainerView, Factor, Fared, Plot
from trimtab.web.views.resources import size_of
from trimtab.web.views.timeseries import Sizes, backtests, plots, read_past

log = structlog.get_logger(__name__)

MOST_HISTORY = 2000
MOST_KEPT = 100
"""Workloads of which the past is kept for the next viewer."""
UNMANAGED = OptimizationPolicySpec()
"""By which one is replayed that no policy selects."""
REPLAY_LASTS = 6 * 3600.0
"""Seconds for which a back-test is good: it is slow, and a few hours more of a week change little."""


@dataclass(slots=True)
class _Kept:
    at: float
    containers: tuple[ContainerView, ...]
    replayed_at: float
    replayed: Mapping[str, tuple[Fared, ...]]
    spec: OptimizationPolicySpec
    """By which it was replayed."""


class Details:
    """The containers of workloads in full, kept for a while."""

    def __init__(self, *, prices: Prices, fresh: float) -> None:
        """`fresh` is for how many seconds a past is shown before it is read again."""
        self._prices = prices
        self._fresh = fresh
        self._kept: dict[WorkloadKey, _Kept] = {}
        self._turns: WeakValueDictionary[WorkloadKey, asyncio.Lock] = WeakValueDictionary()

    async def of(self, desk: Desk, workload: Workload, *, now: float) -> tuple[ContainerView, ...]:
        """Each of its containers; without curves where the past cannot be read."""
        # A page asks for its words and for its curves at the same time: whoever comes second waits for the first.
        turn = self._turns.setdefault(workload.key, asyncio.Lock())
        async with turn:
            known = self._kept.pop(workload.key, None)
            if known is None or now - known.at >= self._fresh:
                known = await self._read(desk, workload, known, now=now)
            self._kept[workload.key] = known
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return known.containers

    def forget(self, key: WorkloadKey) -> None:
        """What is kept of it is not so any more."""
        if key in self._kept:
            self._kept[key].at = float("-inf")

    async def _read(self, desk: Desk, workload: Workload, before: _Kept | None, *, now: float) -> _Kept:
        key, pods = workload.key, desk.catalog.pods_of(workload)
        containers = [each for each in desk.effective_containers(workload) if each.role != "init"]
        outcome, mandate = desk.statuses.outcome(key), desk.orders.of(workload)
        wanted = {each.container: each for each in outcome.recommendations} if outcome else {}
        stored: list[HistoryEntry] = []
        with suppress(StoreError):  # without it the curves show the sizes of now, and the page says why
            stored = await desk.store.history.find(
                cluster=desk.name, namespace=key.namespace, kind=key.kind, name=key.name, limit=MOST_HISTORY
            )
        names = [each.name for each in containers]
        trace: Trace | None = None
        source = desk.learning.of(mandate.sizing if mandate else None).source
        try:
            trace = await read_past(source, desk.catalog.owners(), key, names, now=now)
        except UsageError as error:
            log.warning("dashboard.no_past", workload=str(key), error=str(error))
        spec = mandate.spec if mandate else UNMANAGED
        replayed: Mapping[str, tuple[Fared, ...]] = {}
        replayed_at = float("-inf")
        if before is not None and before.spec == spec:
            replayed, replayed_at = before.replayed, before.replayed_at
        if trace is not None and now - replayed_at >= REPLAY_LASTS:
            instances: float = max(len(pods), 1)
            if not workload.runs_on:
                instances = _share_of_time(trace) * max(1, workload.replicas)
            replayed, replayed_at = await self._replay(trace, names, spec, pods=instances), now
        views = [
            _view(
                each,
                wanted.get(each.name),
                _curves(trace, place, each, wanted.get(each.name), stored),
                replayed.get(each.name, ()),
            )
            for place, each in enumerate(containers)
        ]
        return _Kept(now, tuple(views), replayed_at, replayed, spec)

    async def _replay(
        self, trace: Trace, names: list[str], spec: OptimizationPolicySpec, *, pods: float
    ) -> dict[str, tuple[Fared, ...]]:
        return {
            name: await backtests(trace, place, spec, pods=pods, prices=self._prices)
            for place, name in enumerate(names)
        }


def _share_of_time(trace: Trace) -> float:
    """In which one ran that runs now and then."""
    return float((~np.isnan(trace.cpu)).any(axis=1).mean()) if trace.steps else 0.0


def _curves(
    trace: Trace | None,
    place: int,
    container: Container,
    wanted: Recommendation | None,
    stored: list[HistoryEntry],
) -> tuple[Plot, Plot]:
    if trace is None:
        return Plot(unit="cores"), Plot(unit="bytes")
    should = wanted.target if wanted else None
    return plots(trace, place, Sizes(container.name, stored, has=container.resources, should=should))


def _view(
    container: Container,
    wanted: Recommendation | None,
    curves: tuple[Plot, Plot],
    replayed: tuple[Fared, ...],
) -> ContainerView:
    cpu, memory = curves
    return ContainerView(
        name=container.name,
        has=size_of(container.resources),
        should=size_of(wanted.target) if wanted else None,
        step=size_of(wanted.resources) if wanted and wanted.target != wanted.resources else None,
        held=(wanted.held or "") if wanted else "",
        cpu=cpu,
        memory=memory,
        explanation=tuple(
            Factor(name=factor.name, detail=factor.detail, source=factor.source)
            for factor in (wanted.explanation if wanted else ())
        ),
        backtest=replayed,
    )
