"""The backend of a running operator, in a cluster or in the lab: reads its views, and acts by writing holds.

Rows are rebuilt in the background in batches, so that the operator never waits for a viewer. The history and backtest
of one workload are read when its page is opened.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from trimtab.actuation.resources import parse_sizes
from trimtab.kube.kinds.custom import NodeReport
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.operator.views import OperatorViews, SavingsSummary, WorkloadView
from trimtab.scan.pricing import ResourcePrices
from trimtab.store import DamagedStateError, StateKey, StoreError
from trimtab.store import HistoryRecord as Stored
from trimtab.web.backends import holds
from trimtab.web.backends.current_usage import CurrentUsage
from trimtab.web.model import (
    ActionError,
    CostSummary,
    HistoryEntry,
    IntentView,
    NodeSummary,
    Overview,
    PodName,
    PodUsageSample,
    WorkloadAction,
    WorkloadDetail,
    WorkloadRow,
)
from trimtab.web.views.detail import DetailCache, build_present_details
from trimtab.web.views.history import build_history_entry, merge_kills
from trimtab.web.views.intents import IntentViewCache
from trimtab.web.views.rows import build_node_summary, build_row, count_states
from trimtab.web.views.trend import ClusterTotals, Trend

log = structlog.get_logger(__name__)

DAY = 86400.0
BATCH_SIZE = 100
"""The number of workloads per batch, after which other tasks run."""
REST_FACTOR = 10.0
"""The pause between two refreshes, as a multiple of a refresh's duration."""
MIN_REST_SECONDS = 2.0
MAX_LATEST = 12
_ANNOUNCEMENTS = {"recommended", "applying"}
"""The history entries that announce a change; a large cluster has far more of them than completed changes."""
_COMPLETED = ("applied", "refused", "reverted", "held", "released", "killed")
"""The history entries of completed changes, and of OOM kills."""
MAX_EVENTS = 200
SAVE_EVERY = 600.0
STANDBY = (
    "This replica is on standby and has no data; open the dashboard of the leader, which the Lease names"
)


@dataclass(frozen=True, slots=True)
class _ClusterView:
    """The data of the last refresh."""

    observed_at: float = 0.0
    rows: tuple[WorkloadRow, ...] = ()
    nodes: tuple[NodeSummary, ...] = ()
    totals: ClusterTotals | None = None
    savings: SavingsSummary = field(default_factory=SavingsSummary)
    last_sample: float | None = None
    problem: str = STANDBY


class LiveBackend:
    """Shows the views of an operator; `run` it as a task, or call `refresh` after a change."""

    read_only_reason = ""

    def __init__(
        self,
        views: Callable[[], OperatorViews | None],
        *,
        name: str,
        clock: Callable[[], float] = time.time,
        prices: Callable[[], ResourcePrices] = ResourcePrices,
        reports: Callable[[], Iterable[NodeReport]] = tuple,
        every: float = 60.0,
        ttl: float = 60.0,
    ) -> None:
        """Create a backend.

        `reports` returns the reports of the node agents, `every` is the number of seconds between two points of the
        cluster's curves, and `ttl` is the number of seconds for which details are cached.
        """
        self.name = name
        self.note = ""
        self.progress: float | None = None
        self._views = views
        self._clock = clock
        self._prices = prices
        self._reports = reports
        self._current_usage = CurrentUsage()
        self._trend = Trend(every=every)
        self._restored_for: str | None = None
        self._restore_failed = False
        self._details = DetailCache(prices=self._prices, fresh=ttl)
        self._intents = IntentViewCache(fresh=ttl)
        self._view = _ClusterView()
        self._overview: tuple[tuple[int, float], Overview] | None = None
        self._version_changed = asyncio.Condition()
        self.version = 1

    @property
    def currency(self) -> str:
        return self._prices().currency

    # Refreshing

    async def wait_changed(self, after: int) -> int:
        async with self._version_changed:
            await self._version_changed.wait_for(lambda: self.version != after)
            return self.version

    async def run(self) -> None:
        """Refresh continuously, as often as is cheap; a source that does not respond delays no page."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_usage_reads())
            group.create_task(self._run_refreshes())

    async def _run_usage_reads(self) -> None:
        while True:
            began = time.monotonic()
            await _run_logged(self._read_usage)
            views = self._views()
            step = views.step if views else MIN_REST_SECONDS
            await asyncio.sleep(max(step, time.monotonic() - began))

    async def _run_refreshes(self) -> None:
        saved = time.monotonic()
        while True:
            began = time.monotonic()
            await _run_logged(self._refresh_view)
            if time.monotonic() - saved > SAVE_EVERY:
                saved = time.monotonic()
                await self._save_trend()
            await asyncio.sleep(max(MIN_REST_SECONDS, REST_FACTOR * (time.monotonic() - began)))

    async def refresh(self) -> None:
        """Read current usage, rebuild the view, and notify viewers of changes."""
        await self._read_usage()
        await self._refresh_view()

    async def _read_usage(self) -> None:
        if views := self._views():
            pods = {(pod.namespace, pod.name) for pod in views.pods}
            # A policy may add a source meanwhile.
            await self._current_usage.read(dict(views.sources), pods, now=self._clock())

    async def _refresh_view(self) -> None:
        views = self._views()
        self._intents.drop_stale(self._clock())
        if views is None:
            view = _ClusterView(observed_at=self._clock())
        else:
            await self._restore_trend(views)
            view = await self._build_view(views)
        before, self._view = self._view, view
        if (before.rows, before.nodes, before.problem) != (view.rows, view.nodes, view.problem):
            await self.notify()
        else:
            self._view = replace(view, rows=before.rows)  # the same object keeps the cached table

    async def notify(self) -> None:
        """Notify viewers of a new version."""
        async with self._version_changed:
            self.version += 1
            self._version_changed.notify_all()

    async def _build_view(self, views: OperatorViews) -> _ClusterView:
        now, prices = self._clock(), self._prices()
        used = self._current_usage.list_current(now)
        rows: list[WorkloadRow] = []
        workloads = sorted(views.workloads.read().items())
        for begin in range(0, len(workloads), BATCH_SIZE):
            rows += [
                build_row(workload, used, prices=prices, now=now)
                for _, workload in workloads[begin : begin + BATCH_SIZE]
            ]
            await asyncio.sleep(0)  # a reconcile must not wait until all rows are built
        nodes = self._build_nodes(views, used, now)
        totals = _sum_totals(nodes, now=now)._replace(saved=views.savings().total)
        self._trend.add(totals)
        errors = [source.last_error for source in views.sources.values() if source.last_error]
        problems = dict.fromkeys([*errors, *self._current_usage.errors])
        return _ClusterView(
            observed_at=now,
            rows=tuple(rows),
            nodes=nodes,
            totals=totals,
            savings=views.savings(),
            last_sample=self._current_usage.last_sampled_at if totals.cpu_used is None else None,
            problem="; ".join(problems),
        )

    def _build_nodes(
        self, views: OperatorViews, used: Mapping[PodName, PodUsageSample], now: float
    ) -> tuple[NodeSummary, ...]:
        reports = {report.name: report for report in self._reports()}
        pods_by_node: dict[str, list[Pod]] = {}
        for pod in views.pods:
            pods_by_node.setdefault(pod.node, []).append(pod)
        ordered = sorted(views.nodes, key=lambda node: node.name)
        return tuple(
            build_node_summary(
                node,
                own := pods_by_node.get(node.name, []),
                used,
                reports.get(node.name),
                cost=views.node_cost(node),
                last_sample=self._current_usage.find_last_sample((pod.namespace, pod.name) for pod in own),
                now=now,
            )
            for node in ordered
        )

    # Reading

    @property
    def stop_reason(self) -> str:
        views = self._views()
        return views.stop_reason() if views else ""

    @property
    def observed_at(self) -> float:
        return self._view.observed_at

    @property
    def problem(self) -> str:
        return self._view.problem

    async def overview(self) -> Overview:
        if self._overview is None or self._overview[0] != (self.version, self._view.observed_at):
            self._overview = (self.version, self._view.observed_at), await self._build_overview()
        return self._overview[1]

    async def _build_overview(self) -> Overview:
        view, prices, trend = self._view, self._prices(), self._trend
        first = trend.samples[0] if trend.samples else None
        money = CostSummary(
            currency=prices.currency,
            requested=_price_requested(prices, view.totals),
            at_first=_price_requested(prices, first),
            used=_price_used(prices, view.totals),
            covered=sum(
                _price_resources(prices, node.cpu_covered or 0.0, node.memory_covered or 0.0)
                for node in view.nodes
            ),
            to_save=sum(row.saving for row in view.rows),
            saved=view.savings.per_month,
            saved_in_total=view.savings.total,
            saved_since=view.savings.since,
            nodes=view.totals.node_cost if view.totals else None,
            nodes_at_first=trend.first_node_cost,
        )
        problem, today = view.problem, dict[str, int]()
        latest: tuple[HistoryEntry, ...] = ()
        try:
            done = await self._list_completed_since(view.observed_at - DAY)
            today = dict(Counter(each.what for each in done))
            recent = {entry.id: entry for entry in await self.history(limit=10 * MAX_LATEST)}
            kills = [each for each in done if each.what == "killed"]
            changes = [each for each in done if each.what != "killed"][:MAX_LATEST]
            recent |= {each.id: build_history_entry(each) for each in [*kills, *changes]}
            completed = [entry for entry in recent.values() if entry.what not in _ANNOUNCEMENTS]
            latest = tuple(merge_kills(sorted(completed, key=lambda entry: -entry.at))[:MAX_LATEST])
        except StoreError as error:  # show everything else: it is needed most when the store is down
            problem = "; ".join(filter(None, [problem, str(error)]))
        return Overview(
            at=view.observed_at,
            cpu=trend.plot("cpu"),
            memory=trend.plot("memory"),
            cost=trend.plot_cost(prices.currency, partial(_price_resources, prices)),
            savings=trend.plot_savings(prices.currency),
            money=money,
            states=count_states(view.rows),
            risks=dict(Counter(risk for row in view.rows for risk in row.risks)),
            nodes=len(view.nodes),
            nodes_needed=_count_nodes_needed(view.nodes, view.totals),
            nodes_at_first=_count_nodes_needed(view.nodes, first),
            last_sample=view.last_sample,
            today=today,
            latest=latest,
            problem=problem,
            note=self.note,
            done=self.progress,
        )

    async def workloads(self) -> Sequence[WorkloadRow]:
        return self._view.rows

    async def nodes(self) -> Sequence[NodeSummary]:
        return self._view.nodes

    async def intents(self) -> Sequence[IntentView]:
        views = self._views()
        return await self._intents.get_all(views, now=self._clock()) if views else ()

    async def history(
        self, *, key: WorkloadKey | None = None, what: str = "", before: int | None = None, limit: int = 50
    ) -> Sequence[HistoryEntry]:
        views = self._views()
        if views is None:
            return ()
        older: Stored | None = None
        if before is not None and (older := await _find_entry(views, before)) is None:
            return ()  # retention has removed the entry, and all older ones
        stored = await views.store.history.find(
            cluster=views.cluster_name,
            namespace=key.namespace if key else None,
            kind=key.kind if key else None,
            name=key.name if key else None,
            what=what or None,
            older_than=older,
            limit=limit,
        )
        return [build_history_entry(each) for each in stored]

    async def entry(self, number: int) -> HistoryEntry | None:
        views = self._views()
        stored = await _find_entry(views, number) if views else None
        return build_history_entry(stored) if stored else None

    async def _list_completed_since(self, since: float) -> list[Stored]:
        """List completed changes in one query, because each query scans all entries since then."""
        views = self._views()
        if views is None:
            return []
        return await views.store.history.find(
            cluster=views.cluster_name, what=_COMPLETED, since=since, limit=10_000
        )

    async def workload(self, key: WorkloadKey, *, wait: bool = True) -> WorkloadDetail | None:
        views = self._views()
        view = views.workloads.get(key) if views else None
        if views is None or view is None:
            return None
        now = self._clock()
        known = (
            await self._details.get(views, view, now=now) if wait else self._details.get_known(view, now=now)
        )
        used = self._current_usage.list_current(now)
        row = build_row(view, used, prices=self._prices(), now=now)
        events: Sequence[HistoryEntry] = ()
        problem = ""
        try:
            events = await self.history(key=key, limit=MAX_EVENTS)
        except StoreError as error:  # show everything else, as on the overview
            problem = str(error)
        return WorkloadDetail(
            row=row,
            containers=build_present_details(view) if known is None else known,
            loading=known is None,
            events=tuple(events),
            acts=holds.list_actions(view),
            problem=problem,
        )

    # Acting

    async def run_action(self, act: WorkloadAction, key: WorkloadKey, *, who: str, why: str) -> str:
        views, view = self._require_workload(key)
        message = await holds.run_action(views, view, act, who=who, why=why, now=self._clock())
        await self._publish_action(key)
        return message

    async def undo(self, number: int, *, who: str, why: str) -> str:
        views = self._views()
        stored = await _find_entry(views, number) if views else None
        if stored is None or not build_history_entry(stored).undo:
            raise ActionError(f"history entry {number}: this entry is not a change that can be undone")
        key = WorkloadKey(stored.kind, stored.namespace, stored.name)
        views, view = self._require_workload(key)
        sizes = parse_sizes(stored.before, stored.container)
        message = await holds.hold_at(views, view.workload, sizes, who=who, why=why, now=self._clock())
        await self._publish_action(key)
        return message

    def _require_workload(self, key: WorkloadKey) -> tuple[OperatorViews, WorkloadView]:
        views = self._views()
        if views is None:
            raise ActionError(STANDBY)
        view = views.workloads.get(key)
        if view is None:
            raise ActionError(f"{key}: this workload does not exist any more; reload the page")
        return views, view

    async def _publish_action(self, key: WorkloadKey) -> None:
        self._details.invalidate(key)
        await self.notify()

    # Saved trend

    async def _restore_trend(self, views: OperatorViews) -> None:
        """Restore the curves of the previous leader once; nothing is saved before that, so that they are not overwritten."""
        if self._restored_for == views.cluster_name:
            return
        try:
            if saved := await views.store.states.load(_trend_key(views)):
                self._trend.restore(saved.data)
        except DamagedStateError as error:
            log.warning("dashboard.trend_unreadable", error=str(error))
        except StoreError as error:
            if not self._restore_failed:
                log.warning("dashboard.trend_pending", error=str(error))
            self._restore_failed = True
            return
        self._restored_for, self._restore_failed = views.cluster_name, False

    async def _save_trend(self) -> None:
        views = self._views()
        if views is None or self._restored_for != views.cluster_name:
            return
        try:
            await views.store.states.save(_trend_key(views), self._trend.state(), timestamp=self._clock())
        except StoreError as error:
            log.warning("dashboard.trend_save_failed", error=str(error))


async def _run_logged(work: Callable[[], Awaitable[None]]) -> None:
    """Run a task and log its failure: a stale page must stop neither the operator nor the next refresh."""
    try:
        await work()
    except Exception:
        log.exception("dashboard.refresh_failed")


async def _find_entry(views: OperatorViews, number: int) -> Stored | None:
    # Clusters may share a store: the entry of another one, with a workload of the same name, must not be undone here.
    return await views.store.history.get(number, cluster=views.cluster_name)


def _trend_key(views: OperatorViews) -> StateKey:
    return StateKey(views.cluster_name, "dashboard", "trend")


def _sum_totals(nodes: Sequence[NodeSummary], *, now: float) -> ClusterTotals:
    cpu = [node.cpu_used for node in nodes if node.cpu_used is not None]
    memory = [node.memory_used for node in nodes if node.memory_used is not None]
    return ClusterTotals(
        at=now,
        cpu_requested=sum(node.cpu_requested for node in nodes),
        cpu_used=sum(cpu) if cpu else None,
        cpu_allocatable=sum(node.cpu for node in nodes),
        memory_requested=sum(node.memory_requested for node in nodes),
        memory_used=sum(memory) if memory else None,
        memory_allocatable=sum(node.memory for node in nodes),
        node_cost=sum(node.cost or 0.0 for node in nodes),
    )


def _price_resources(prices: ResourcePrices, cores: float, memory: float) -> float:
    return prices.price_cpu(cores * 1000) + prices.price_memory(memory)


def _price_requested(prices: ResourcePrices, totals: ClusterTotals | None) -> float:
    return _price_resources(prices, totals.cpu_requested, totals.memory_requested) if totals else 0.0


def _price_used(prices: ResourcePrices, totals: ClusterTotals | None) -> float | None:
    if totals is None or totals.cpu_used is None or totals.memory_used is None:
        return None
    return _price_resources(prices, totals.cpu_used, totals.memory_used)


def _count_nodes_needed(nodes: Sequence[NodeSummary], totals: ClusterTotals | None) -> int | None:
    """Count the nodes of the largest size that would hold all requests if they were packed without gaps."""
    if not nodes or totals is None:
        return None
    cpu, memory = max(node.cpu for node in nodes), max(node.memory for node in nodes)
    if not (cpu and memory):
        return None
    return math.ceil(max(totals.cpu_requested / cpu, totals.memory_requested / memory))
