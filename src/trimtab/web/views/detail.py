"""Build and cache the slow parts of a workload's page: its usage history, explanation and backtest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakValueDictionary

import structlog

from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.kinds.pods import Container
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.operator.paid_pods import count_paid_pods_of_view
from trimtab.operator.views import OperatorViews, WorkloadView
from trimtab.scan.pricing import ResourcePrices
from trimtab.sizing.recommendation import Recommendation
from trimtab.store import HistoryRecord, StoreError
from trimtab.timing import is_recent
from trimtab.usage.errors import UsageError
from trimtab.usage.trace import Trace
from trimtab.web.model import BacktestResult, ContainerDetail, FactorView, Plot
from trimtab.web.views.resources import build_size
from trimtab.web.views.timeseries import SizeHistory, build_plots, read_usage_history, run_backtests

log = structlog.get_logger(__name__)

MAX_HISTORY = 2000
MAX_CACHED = 100
"""The number of workloads whose details are cached."""
DEFAULT_POLICY = OptimizationPolicySpec()
"""The policy for the backtest of a workload that no policy selects."""
BACKTEST_TTL = 6 * 3600.0
"""The seconds for which a backtest is cached: it is slow, and a few hours change little."""


@dataclass(slots=True)
class _CachedDetail:
    at: float
    containers: tuple[ContainerDetail, ...]
    backtested_at: float
    backtests: Mapping[str, tuple[BacktestResult, ...]]
    spec: OptimizationPolicySpec
    """The policy of the backtest."""


class DetailCache:
    """Builds and caches the container details of workloads."""

    def __init__(self, *, prices: Callable[[], ResourcePrices], fresh: float) -> None:
        """Create a cache; `fresh` is the number of seconds for which details are cached."""
        self._prices = prices
        self._ttl = fresh
        self._cache: dict[WorkloadKey, _CachedDetail] = {}
        self._locks: WeakValueDictionary[WorkloadKey, asyncio.Lock] = WeakValueDictionary()

    async def get(
        self, views: OperatorViews, view: WorkloadView, *, now: float
    ) -> tuple[ContainerDetail, ...]:
        """Return the details of each container; without curves if the usage history cannot be read."""
        # A page requests its text and its curves at the same time: the second request waits for the first.
        key = view.workload.key
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            known = self._cache.pop(key, None)
            if known is None or not is_recent(known.at, now, within=self._ttl):
                known = await self._read(views, view, known, now=now)
            self._cache[key] = known
        while len(self._cache) > MAX_CACHED:
            del self._cache[next(iter(self._cache))]
        return known.containers

    def get_known(self, view: WorkloadView, *, now: float) -> tuple[ContainerDetail, ...] | None:
        """Return the details that are cached; None if they have to be read."""
        known = self._cache.get(view.workload.key)
        return known.containers if known and is_recent(known.at, now, within=self._ttl) else None

    def invalidate(self, key: WorkloadKey) -> None:
        """Mark the cached details of a workload as outdated."""
        if key in self._cache:
            self._cache[key].at = float("-inf")

    async def _read(
        self, views: OperatorViews, view: WorkloadView, before: _CachedDetail | None, *, now: float
    ) -> _CachedDetail:
        key, containers, wanted = view.workload.key, _list_containers(view), _list_wanted(view)
        stored: list[HistoryRecord] = []
        with suppress(
            StoreError
        ):  # without it the curves show the current sizes, and the page shows the error
            stored = await views.store.history.find(
                cluster=views.cluster_name,
                namespace=key.namespace,
                kind=key.kind,
                name=key.name,
                limit=MAX_HISTORY,
            )
        names = [each.name for each in containers]
        trace: Trace | None = None
        try:
            trace = await read_usage_history(
                views.source_for(view),
                views.build_owner_index(),
                key,
                names,
                created=view.workload.created,
                finest=views.step,
                now=now,
            )
        except UsageError as error:
            log.warning("dashboard.usage_history_unavailable", workload=str(key), error=str(error))
        spec = view.policy.spec if view.policy else DEFAULT_POLICY
        backtests: Mapping[str, tuple[BacktestResult, ...]] = {}
        backtested_at = float("-inf")
        if before is not None and before.spec == spec:
            backtests, backtested_at = before.backtests, before.backtested_at
        # While the source is away, the last backtest stays, and the next page tries again.
        if trace is not None and not is_recent(backtested_at, now, within=BACKTEST_TTL):
            instances = count_paid_pods_of_view(view, now=now)
            # The page of a workload that is scaled to zero shows what one pod would cost.
            if view.workload.is_long_running:
                instances = max(instances, 1.0)
            backtests, backtested_at = await self._run_backtests(trace, names, spec, pods=instances), now
        details = [
            _build_detail(
                each,
                wanted.get(each.name),
                _build_plots(trace, place, each, wanted.get(each.name), stored, now=now),
                backtests.get(each.name, ()),
            )
            for place, each in enumerate(containers)
        ]
        return _CachedDetail(now, tuple(details), backtested_at, backtests, spec)

    async def _run_backtests(
        self, trace: Trace, names: list[str], spec: OptimizationPolicySpec, *, pods: float
    ) -> dict[str, tuple[BacktestResult, ...]]:
        return {
            name: await run_backtests(trace, place, spec, pods=pods, prices=self._prices())
            for place, name in enumerate(names)
        }


def _build_plots(
    trace: Trace | None,
    place: int,
    container: Container,
    wanted: Recommendation | None,
    stored: list[HistoryRecord],
    *,
    now: float,
) -> tuple[Plot, Plot]:
    if trace is None:
        return Plot(unit="cores"), Plot(unit="bytes")
    recommended = wanted.target if wanted else None
    return build_plots(
        trace,
        place,
        SizeHistory(container.name, stored, has=container.resources, should=recommended),
        now=now,
    )


def build_present_details(view: WorkloadView) -> tuple[ContainerDetail, ...]:
    """Build the details of each container without its past, which takes long to read."""
    wanted = _list_wanted(view)
    none = Plot(unit="cores"), Plot(unit="bytes")
    return tuple(_build_detail(each, wanted.get(each.name), none, ()) for each in _list_containers(view))


def _list_containers(view: WorkloadView) -> list[Container]:
    return [each for each in view.containers if each.role != "init"]


def _list_wanted(view: WorkloadView) -> dict[str, Recommendation]:
    return {each.container: each for each in view.outcome.recommendations} if view.outcome else {}


def _build_detail(
    container: Container,
    wanted: Recommendation | None,
    curves: tuple[Plot, Plot],
    backtests: tuple[BacktestResult, ...],
) -> ContainerDetail:
    cpu, memory = curves
    return ContainerDetail(
        name=container.name,
        has=build_size(container.resources),
        should=build_size(wanted.target) if wanted else None,
        step=build_size(wanted.resources) if wanted and wanted.target != wanted.resources else None,
        held=(wanted.no_change_reason or "") if wanted else "",
        cpu=cpu,
        memory=memory,
        explanation=tuple(
            FactorView(name=factor.name, detail=factor.detail, source=factor.source)
            for factor in (wanted.explanation if wanted else ())
        ),
        backtest=backtests,
    )
