"""The board of a working operator, in a cluster or in the lab: reads its desk, and acts by writing holds.

Rows are made anew in the background, a slice at a time, so that the operator's own work never waits for a viewer. What
is to be seen only on one workload's page, its past and its back-test, is read when somebody opens it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from trimtab.kube.kinds.custom import NodeReport
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.operator.state import OperatorState
from trimtab.scan.pricing import ResourcePrices
from trimtab.store import DamagedStateError, StateKey, StoreError
from trimtab.store import HistoryRecord as Stored
from trimtab.web.actions import holds
from trimtab.web.backends.backend import ActionError
from trimtab.web.backends.current_usage import CurrentUsage, PodName, PodUsageSample
from trimtab.web.model import (
    CostSummary,
    HistoryEntry,
    IntentView,
    NodeSummary,
    Overview,
    WorkloadAction,
    WorkloadDetail,
    WorkloadRow,
)
from trimtab.web.views.detail import DetailCache
from trimtab.web.views.history import build_history_entry, number_kills
from trimtab.web.views.intents import IntentViewCache
from trimtab.web.views.resources import parse_sizes
from trimtab.web.views.rows import WorkloadRowData, build_node_summary, build_row, count_states
from trimtab.web.views.trend import ClusterTotals, Trend

log = structlog.get_logger(__name__)

DAY = 86400.0
BATCH_SIZE = 100
"""Workloads that are looked at before others have their turn."""
REST_FACTOR = 10.0
"""Times as long as a look at all took, nothing is looked at."""
MIN_REST_SECONDS = 2.0
MAX_LATEST = 12
_ANNOUNCEMENTS = {"recommended", "applying"}
"""What is said before anything is changed, which in a large cluster is far more than"""
_COMPLETED = ("applied", "reverted", "held", "released")
"""what is done."""
MAX_EVENTS = 200
SAVE_EVERY = 600.0
STANDBY = "this replica stands by: another leads, whom the Lease names, and knows what there is to see"


@dataclass(frozen=True, slots=True)
class _ClusterView:
    """What was last seen."""

    observed_at: float = 0.0
    rows: tuple[WorkloadRow, ...] = ()
    kills: tuple[HistoryEntry, ...] = ()
    nodes: tuple[NodeSummary, ...] = ()
    totals: ClusterTotals | None = None
    last_sample: float | None = None
    problem: str = STANDBY


class LiveBackend:
    """Shows what is on a desk; `run` it as a task, or `look` whenever there is something new."""

    read_only_reason = ""

    def __init__(
        self,
        state: Callable[[], OperatorState | None],
        *,
        name: str,
        clock: Callable[[], float] = time.time,
        prices: ResourcePrices | None = None,
        reports: Callable[[], Iterable[NodeReport]] = tuple,
        every: float = 60.0,
        ttl: float = 60.0,
    ) -> None:
        """`reports` are what agents tell of their nodes, `every` is how many seconds lie between two points of the cluster's curves, `fresh` how long a past is shown
        before it is read again.
        """
        self.name = name
        self.note = ""
        self.progress: float | None = None
        self._state = state
        self._clock = clock
        self._prices = prices or ResourcePrices()
        self.currency = self._prices.currency
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

    # News

    async def wait_changed(self, after: int) -> int:
        async with self._version_changed:
            await self._version_changed.wait_for(lambda: self.version != after)
            return self.version

    async def run(self) -> None:
        """Look again and again, as often as it is cheap; a source that does not answer delays no page."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_usage_reads())
            group.create_task(self._run_refreshes())

    async def _run_usage_reads(self) -> None:
        while True:
            began = time.monotonic()
            await _run_logged(self._read_usage)
            desk = self._state()
            step = desk.recommender.step if desk else MIN_REST_SECONDS
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
        """Read what is used, look at everything anew, and tell where something has changed."""
        await self._read_usage()
        await self._refresh_view()

    async def _read_usage(self) -> None:
        if desk := self._state():
            pods = {(pod.namespace, pod.name) for pod in desk.cluster_state.pods}
            await self._current_usage.read(desk.recommender, pods, now=self._clock())

    async def _refresh_view(self) -> None:
        desk = self._state()
        self._intents.drop_stale(self._clock())
        if desk is None:
            view = _ClusterView(observed_at=self._clock())
        else:
            await self._restore_trend(desk)
            view = await self._build_view(desk)
        before, self._view = self._view, view
        if (before.rows, before.nodes, before.problem) != (view.rows, view.nodes, view.problem):
            await self.notify()
        else:
            self._view = replace(view, rows=before.rows)  # the same object: its listing is kept

    async def notify(self) -> None:
        """There is something new to see."""
        async with self._version_changed:
            self.version += 1
            self._version_changed.notify_all()

    async def _build_view(self, state: OperatorState) -> _ClusterView:
        now = self._clock()
        used = self._current_usage.list_current(now)
        found: list[WorkloadRowData] = []
        workloads = sorted(state.cluster_state.list_workloads(), key=lambda workload: workload.key)
        for begin in range(0, len(workloads), BATCH_SIZE):
            async with state.recommender.lock:
                found += [
                    build_row(state, workload, used, prices=self._prices, now=now)
                    for workload in workloads[begin : begin + BATCH_SIZE]
                ]
            await asyncio.sleep(0)
        kills = number_kills(kill for each in found for kill in each.kills)
        nodes = self._build_nodes(state, used, now)
        totals = _sum_totals(nodes, now=now)
        self._trend.add(totals)
        troubles = dict.fromkeys([*state.recommender.errors_by_source.values(), *self._current_usage.errors])
        return _ClusterView(
            observed_at=now,
            rows=tuple(each.row for each in found),
            kills=kills,
            nodes=nodes,
            totals=totals,
            last_sample=self._current_usage.last_sampled_at if totals.cpu_used is None else None,
            problem="; ".join(troubles),
        )

    def _build_nodes(
        self, state: OperatorState, used: Mapping[PodName, PodUsageSample], now: float
    ) -> tuple[NodeSummary, ...]:
        told = {report.name: report for report in self._reports()}
        on: dict[str, list[Pod]] = {}
        for pod in state.cluster_state.pods:
            on.setdefault(pod.node, []).append(pod)
        ordered = sorted(state.cluster_state.nodes, key=lambda node: node.name)
        return tuple(
            build_node_summary(
                node,
                own := on.get(node.name, []),
                used,
                told.get(node.name),
                last_sample=self._current_usage.find_last_sample((pod.namespace, pod.name) for pod in own),
                now=now,
            )
            for node in ordered
        )

    # Reading

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
        view, prices, trend = self._view, self._prices, self._trend
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
            to_save=sum(row.saving for row in view.rows if row.saving > 0),
        )
        trouble, today = view.problem, dict[str, int]()
        latest: tuple[HistoryEntry, ...] = ()
        try:
            done = await self._list_completed_since(view.observed_at - DAY)
            today = dict(Counter(each.what for each in done))
            told = {entry.id: entry for entry in await self.history(limit=10 * MAX_LATEST)}
            told |= {kill.id: kill for kill in view.kills[:MAX_LATEST]}
            told |= {each.id: build_history_entry(each) for each in done[:MAX_LATEST]}
            loud = [entry for entry in told.values() if entry.what not in _ANNOUNCEMENTS]
            latest = tuple(sorted(loud, key=lambda entry: -entry.at)[:MAX_LATEST])
        except StoreError as error:  # all else is known without it, and then worth seeing most
            trouble = "; ".join(filter(None, [trouble, str(error)]))
        # Of kills that began earlier, only the last is certain to be of today.
        recent = [kill for kill in view.kills if kill.at > view.observed_at - DAY]
        today["killed"] = sum(kill.times if kill.since > view.observed_at - DAY else 1 for kill in recent)
        return Overview(
            at=view.observed_at,
            cpu=trend.plot("cpu"),
            memory=trend.plot("memory"),
            money=money,
            states=count_states(view.rows),
            risks=dict(Counter(risk for row in view.rows for risk in row.risks)),
            nodes=len(view.nodes),
            nodes_needed=_count_nodes_needed(view.nodes, view.totals),
            nodes_at_first=_count_nodes_needed(view.nodes, first),
            last_sample=view.last_sample,
            today=today,
            latest=latest,
            trouble=trouble,
            note=self.note,
            done=self.progress,
        )

    async def workloads(self) -> Sequence[WorkloadRow]:
        return self._view.rows

    async def nodes(self) -> Sequence[NodeSummary]:
        return self._view.nodes

    async def intents(self) -> Sequence[IntentView]:
        desk = self._state()
        return await self._intents.get_all(desk, now=self._clock()) if desk else ()

    async def history(
        self, *, key: WorkloadKey | None = None, what: str = "", before: int | None = None, limit: int = 50
    ) -> Sequence[HistoryEntry]:
        desk = self._state()
        if desk is None:
            return ()
        # Kills are learned and not stored: they are put among the entries, at each time after those that are.
        kills = [kill for kill in self._view.kills if what in {"", kill.what} and key in {None, kill.key}]
        older: Stored | None = None
        until: float | None = None
        if before is not None and before < 0:
            last = next((kill.at for kill in kills if kill.id == before), -before / 1000)
            until = math.nextafter(last, 0.0)
            kills = [kill for kill in kills if kill.id > before]
        elif before is not None:
            if (older := await desk.store.history.get(before)) is None:
                return ()  # it was among the oldest, which are forgotten first
            kills = [kill for kill in kills if kill.at <= older.timestamp]
        stored = await desk.store.history.find(
            cluster=desk.cluster_name,
            namespace=key.namespace if key else None,
            kind=key.kind if key else None,
            name=key.name if key else None,
            what=what or None,
            until=until,
            older_than=older,
            limit=limit,
        )
        entries = [*map(build_history_entry, stored), *kills]
        return sorted(entries, key=lambda entry: -entry.at)[:limit]

    async def entry(self, number: int) -> HistoryEntry | None:
        desk = self._state()
        stored = await desk.store.history.get(number) if desk else None
        return build_history_entry(stored) if stored else None

    async def _list_completed_since(self, moment: float) -> list[Stored]:
        """At once, and not word by word: each look goes through all that was said since."""
        desk = self._state()
        if desk is None:
            return []
        return await desk.store.history.find(
            cluster=desk.cluster_name, what=_COMPLETED, since=moment, limit=10_000
        )

    async def workload(self, key: WorkloadKey) -> WorkloadDetail | None:
        desk = self._state()
        workload = desk.cluster_state.get(key) if desk else None
        if desk is None or workload is None:
            return None
        now = self._clock()
        containers = await self._details.get(desk, workload, now=now)
        used = self._current_usage.list_current(now)
        async with desk.recommender.lock:
            row = build_row(desk, workload, used, prices=self._prices, now=now).row
        events: Sequence[HistoryEntry] = ()
        trouble = ""
        try:
            events = await self.history(key=key, limit=MAX_EVENTS)
        except StoreError as error:  # as on the overview, all else is known
            trouble = str(error)
        return WorkloadDetail(
            row=row,
            containers=containers,
            events=tuple(events),
            acts=holds.list_actions(desk, workload),
            trouble=trouble,
        )

    # Acting

    async def run_action(self, act: WorkloadAction, key: WorkloadKey, *, who: str, why: str) -> str:
        desk, workload = self._require_workload(key)
        told = await holds.run_action(desk, workload, act, who=who, why=why, now=self._clock())
        await self._publish_action(key)
        return told

    async def undo(self, number: int, *, who: str, why: str) -> str:
        desk = self._state()
        stored = await desk.store.history.get(number) if desk else None
        if stored is None or not build_history_entry(stored).undo:
            raise ActionError(f"history entry {number}: there is nothing in it to put back")
        key = WorkloadKey(stored.kind, stored.namespace, stored.name)
        desk, workload = self._require_workload(key)
        sizes = parse_sizes(stored.before, stored.container)
        told = await holds.hold_at(desk, workload, sizes, who=who, why=why, now=self._clock())
        await self._publish_action(key)
        return told

    def _require_workload(self, key: WorkloadKey) -> tuple[OperatorState, Workload]:
        desk = self._state()
        if desk is None:
            raise ActionError(STANDBY)
        workload = desk.cluster_state.get(key)
        if workload is None:
            raise ActionError(f"{key}: there is no such workload, or it is gone")
        return desk, workload

    async def _publish_action(self, key: WorkloadKey) -> None:
        self._details.invalidate(key)
        await self.notify()

    # Remembering

    async def _restore_trend(self, desk: OperatorState) -> None:
        """Go on with the curves of whoever led before, once; until the store has told of them nothing is saved over them."""
        if self._restored_for == desk.cluster_name:
            return
        try:
            if state := await desk.store.states.load(_trend_key(desk)):
                self._trend.restore(state.data)
        except DamagedStateError as error:
            log.warning("dashboard.no_trend", error=str(error))
        except StoreError as error:
            if not self._restore_failed:
                log.warning("dashboard.no_trend_yet", error=str(error))
            self._restore_failed = True
            return
        self._restored_for, self._restore_failed = desk.cluster_name, False

    async def _save_trend(self) -> None:
        desk = self._state()
        if desk is None or self._restored_for != desk.cluster_name:
            return
        try:
            await desk.store.states.save(_trend_key(desk), self._trend.state(), timestamp=self._clock())
        except StoreError as error:
            log.warning("dashboard.trend_not_kept", error=str(error))


async def _run_logged(work: Callable[[], Awaitable[None]]) -> None:
    """Do it, and log a failure: a page that is not up to date must not end the operator beside it, nor the next look."""
    try:
        await work()
    except Exception:
        log.exception("dashboard.not_looked")


def _trend_key(state: OperatorState) -> StateKey:
    return StateKey(state.cluster_name, "dashboard", "trend")


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
    """How many of the largest node would hold what was requested, if it could be packed without gaps."""
    if not nodes or totals is None:
        return None
    cpu, memory = max(node.cpu for node in nodes), max(node.memory for node in nodes)
    if not (cpu and memory):
        return None
    return math.ceil(max(totals.cpu_requested / cpu, totals.memory_requested / memory))
