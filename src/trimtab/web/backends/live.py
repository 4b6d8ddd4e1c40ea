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
from trimtab.operator.state import Desk
from trimtab.scan.pricing import Prices
from trimtab.store import DamagedStateError, StateKey, StoreError
from trimtab.store import HistoryEntry as Stored
from trimtab.web.actions import holds
from trimtab.web.backends.backend import ActError
from trimtab.web.backends.current_usage import PodName, PodUsage, Present
from trimtab.web.model import (
    Act,
    HistoryEntry,
    IntentView,
    Money,
    NodeView,
    Overview,
    WorkloadDetail,
    WorkloadRow,
)
from trimtab.web.views.detail import Details
from trimtab.web.views.history import entry_of, numbered
from trimtab.web.views.intents import IntentViews
from trimtab.web.views.resources import by_container
from trimtab.web.views.rows import Seen, node_view, seen, states
from trimtab.web.views.trend import Totals, Trend

log = structlog.get_logger(__name__)

DAY = 86400.0
SLICE = 100
"""Workloads that are looked at before others have their turn."""
REST = 10.0
"""Times as long as a look at all took, nothing is looked at."""
LEAST_REST = 2.0
LATEST = 12
_TALK = {"recommended", "applying"}
"""What is said before anything is changed, which in a large cluster is far more than"""
_DONE = ("applied", "reverted", "held", "released")
"""what is done."""
MOST_EVENTS = 200
SAVE_EVERY = 600.0
STANDBY = "this replica stands by: another leads, whom the Lease names, and knows what there is to see"


@dataclass(frozen=True, slots=True)
class _View:
    """What was last seen."""

    at: float = 0.0
    rows: tuple[WorkloadRow, ...] = ()
    kills: tuple[HistoryEntry, ...] = ()
    nodes: tuple[NodeView, ...] = ()
    totals: Totals | None = None
    last_sample: float | None = None
    trouble: str = STANDBY


class OperatorBoard:
    """Shows what is on a desk; `run` it as a task, or `look` whenever there is something new."""

    read_only = ""

    def __init__(
        self,
        desk: Callable[[], Desk | None],
        *,
        name: str,
        clock: Callable[[], float] = time.time,
        prices: Prices | None = None,
        reports: Callable[[], Iterable[NodeReport]] = tuple,
        every: float = 60.0,
        fresh: float = 60.0,
    ) -> None:
        """`reports` are what agents tell of their nodes, `every` is how many seconds lie between two points of the cluster's curves, `fresh` how long a past is shown
        before it is read again.
        """
        self.name = name
        self.note = ""
        self.done: float | None = None
        self._desk = desk
        self._clock = clock
        self._prices = prices or Prices()
        self.currency = self._prices.currency
        self._reports = reports
        self._present = Present()
        self._trend = Trend(every=every)
        self._known_to: str | None = None
        self._missed = False
        self._details = Details(prices=self._prices, fresh=fresh)
        self._intents = IntentViews(fresh=fresh)
        self._view = _View()
        self._overview: tuple[tuple[int, float], Overview] | None = None
        self._news = asyncio.Condition()
        self.version = 1

    # News

    async def changed(self, after: int) -> int:
        async with self._news:
            await self._news.wait_for(lambda: self.version != after)
            return self.version

    async def run(self) -> None:
        """Look again and again, as often as it is cheap; a source that does not answer delays no page."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_reading())
            group.create_task(self._keep_looking())

    async def _keep_reading(self) -> None:
        while True:
            began = time.monotonic()
            await _guarded(self._read_usage)
            desk = self._desk()
            step = desk.learning.step if desk else LEAST_REST
            await asyncio.sleep(max(step, time.monotonic() - began))

    async def _keep_looking(self) -> None:
        saved = time.monotonic()
        while True:
            began = time.monotonic()
            await _guarded(self._look_again)
            if time.monotonic() - saved > SAVE_EVERY:
                saved = time.monotonic()
                await self._save()
            await asyncio.sleep(max(LEAST_REST, REST * (time.monotonic() - began)))

    async def look(self) -> None:
        """Read what is used, look at everything anew, and tell where something has changed."""
        await self._read_usage()
        await self._look_again()

    async def _read_usage(self) -> None:
        if desk := self._desk():
            pods = {(pod.namespace, pod.name) for pod in desk.catalog.pods}
            await self._present.read(desk.learning, pods, now=self._clock())

    async def _look_again(self) -> None:
        desk = self._desk()
        self._intents.forget_stale(self._clock())
        if desk is None:
            view = _View(at=self._clock())
        else:
            await self._remember(desk)
            view = await self._look(desk)
        before, self._view = self._view, view
        if (before.rows, before.nodes, before.trouble) != (view.rows, view.nodes, view.trouble):
            await self.tell()
        else:
            self._view = replace(view, rows=before.rows)  # the same object: its listing is kept

    async def tell(self) -> None:
        """There is something new to see."""
        async with self._news:
            self.version += 1
            self._news.notify_all()

    async def _look(self, desk: Desk) -> _View:
        now = self._clock()
        used = self._present.current(now)
        found: list[Seen] = []
        workloads = sorted(desk.catalog.workloads(), key=lambda workload: workload.key)
        for begin in range(0, len(workloads), SLICE):
            async with desk.learning.lock:
                found += [
                    seen(desk, workload, used, prices=self._prices, now=now)
                    for workload in workloads[begin : begin + SLICE]
                ]
            await asyncio.sleep(0)
        kills = numbered(kill for each in found for kill in each.kills)
        nodes = self._nodes(desk, used, now)
        totals = _totals(nodes, now=now)
        self._trend.add(totals)
        troubles = dict.fromkeys([*desk.learning.troubles.values(), *self._present.troubles])
        return _View(
            at=now,
            rows=tuple(each.row for each in found),
            kills=kills,
            nodes=nodes,
            totals=totals,
            last_sample=self._present.last if totals.cpu_used is None else None,
            trouble="; ".join(troubles),
        )

    def _nodes(self, desk: Desk, used: Mapping[PodName, PodUsage], now: float) -> tuple[NodeView, ...]:
        told = {report.name: report for report in self._reports()}
        on: dict[str, list[Pod]] = {}
        for pod in desk.catalog.pods:
            on.setdefault(pod.node, []).append(pod)
        ordered = sorted(desk.catalog.nodes, key=lambda node: node.name)
        return tuple(
            node_view(
                node,
                own := on.get(node.name, []),
                used,
                told.get(node.name),
                last_sample=self._present.last_sample((pod.namespace, pod.name) for pod in own),
                now=now,
            )
            for node in ordered
        )

    # Reading

    @property
    def at(self) -> float:
        return self._view.at

    @property
    def trouble(self) -> str:
        return self._view.trouble

    async def overview(self) -> Overview:
        if self._overview is None or self._overview[0] != (self.version, self._view.at):
            self._overview = (self.version, self._view.at), await self._summed_up()
        return self._overview[1]

    async def _summed_up(self) -> Overview:
        view, prices, trend = self._view, self._prices, self._trend
        first = trend.samples[0] if trend.samples else None
        money = Money(
            currency=prices.currency,
            requested=_requested(prices, view.totals),
            at_first=_requested(prices, first),
            used=_used(prices, view.totals),
            covered=sum(
                _cost(prices, node.cpu_covered or 0.0, node.memory_covered or 0.0) for node in view.nodes
            ),
            to_save=sum(row.saving for row in view.rows if row.saving > 0),
        )
        trouble, today = view.trouble, dict[str, int]()
        latest: tuple[HistoryEntry, ...] = ()
        try:
            done = await self._done_since(view.at - DAY)
            today = dict(Counter(each.what for each in done))
            told = {entry.id: entry for entry in await self.history(limit=10 * LATEST)}
            told |= {kill.id: kill for kill in view.kills[:LATEST]}
            told |= {each.id: entry_of(each) for each in done[:LATEST]}
            loud = [entry for entry in told.values() if entry.what not in _TALK]
            latest = tuple(sorted(loud, key=lambda entry: -entry.at)[:LATEST])
        except StoreError as error:  # all else is known without it, and then worth seeing most
            trouble = "; ".join(filter(None, [trouble, str(error)]))
        # Of kills that began earlier, only the last is certain to be of today.
        recent = [kill for kill in view.kills if kill.at > view.at - DAY]
        today["killed"] = sum(kill.times if kill.since > view.at - DAY else 1 for kill in recent)
        return Overview(
            at=view.at,
            cpu=trend.plot("cpu"),
            memory=trend.plot("memory"),
            money=money,
            states=states(view.rows),
            risks=dict(Counter(risk for row in view.rows for risk in row.risks)),
            nodes=len(view.nodes),
            nodes_needed=_needed(view.nodes, view.totals),
            nodes_at_first=_needed(view.nodes, first),
            last_sample=view.last_sample,
            today=today,
            latest=latest,
            trouble=trouble,
            note=self.note,
            done=self.done,
        )

    async def workloads(self) -> Sequence[WorkloadRow]:
        return self._view.rows

    async def nodes(self) -> Sequence[NodeView]:
        return self._view.nodes

    async def intents(self) -> Sequence[IntentView]:
        desk = self._desk()
        return await self._intents.of(desk, now=self._clock()) if desk else ()

    async def history(
        self, *, key: WorkloadKey | None = None, what: str = "", before: int | None = None, limit: int = 50
    ) -> Sequence[HistoryEntry]:
        desk = self._desk()
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
            cluster=desk.name,
            namespace=key.namespace if key else None,
            kind=key.kind if key else None,
            name=key.name if key else None,
            what=what or None,
            until=until,
            older_than=older,
            limit=limit,
        )
        entries = [*map(entry_of, stored), *kills]
        return sorted(entries, key=lambda entry: -entry.at)[:limit]

    async def entry(self, number: int) -> HistoryEntry | None:
        desk = self._desk()
        stored = await desk.store.history.get(number) if desk else None
        return entry_of(stored) if stored else None

    async def _done_since(self, moment: float) -> list[Stored]:
        """At once, and not word by word: each look goes through all that was said since."""
        desk = self._desk()
        if desk is None:
            return []
        return await desk.store.history.find(cluster=desk.name, what=_DONE, since=moment, limit=10_000)

    async def workload(self, key: WorkloadKey) -> WorkloadDetail | None:
        desk = self._desk()
        workload = desk.catalog.get(key) if desk else None
        if desk is None or workload is None:
            return None
        now = self._clock()
        containers = await self._details.of(desk, workload, now=now)
        used = self._present.current(now)
        async with desk.learning.lock:
            row = seen(desk, workload, used, prices=self._prices, now=now).row
        events: Sequence[HistoryEntry] = ()
        trouble = ""
        try:
            events = await self.history(key=key, limit=MOST_EVENTS)
        except StoreError as error:  # as on the overview, all else is known
            trouble = str(error)
        return WorkloadDetail(
            row=row,
            containers=containers,
            events=tuple(events),
            acts=holds.offered(desk, workload),
            trouble=trouble,
        )

    # Acting

    async def act(self, act: Act, key: WorkloadKey, *, who: str, why: str) -> str:
        desk, workload = self._found(key)
        told = await holds.act(desk, workload, act, who=who, why=why, now=self._clock())
        await self._acted(key)
        return told

    async def undo(self, number: int, *, who: str, why: str) -> str:
        desk = self._desk()
        stored = await desk.store.history.get(number) if desk else None
        if stored is None or not entry_of(stored).undo:
            raise ActError(f"history entry {number}: there is nothing in it to put back")
        key = WorkloadKey(stored.kind, stored.namespace, stored.name)
        desk, workload = self._found(key)
        sizes = by_container(stored.before, stored.container)
        told = await holds.hold_at(desk, workload, sizes, who=who, why=why, now=self._clock())
        await self._acted(key)
        return told

    def _found(self, key: WorkloadKey) -> tuple[Desk, Workload]:
        desk = self._desk()
        if desk is None:
            raise ActError(STANDBY)
        workload = desk.catalog.get(key)
        if workload is None:
            raise ActError(f"{key}: there is no such workload, or it is gone")
        return desk, workload

    async def _acted(self, key: WorkloadKey) -> None:
        self._details.forget(key)
        await self.tell()

    # Remembering

    async def _remember(self, desk: Desk) -> None:
        """Go on with the curves of whoever led before, once; until the store has told of them nothing is saved over them."""
        if self._known_to == desk.name:
            return
        try:
            if state := await desk.store.states.load(_key(desk)):
                self._trend.restore(state.data)
        except DamagedStateError as error:
            log.warning("dashboard.no_trend", error=str(error))
        except StoreError as error:
            if not self._missed:
                log.warning("dashboard.no_trend_yet", error=str(error))
            self._missed = True
            return
        self._known_to, self._missed = desk.name, False

    async def _save(self) -> None:
        desk = self._desk()
        if desk is None or self._known_to != desk.name:
            return
        try:
            await desk.store.states.save(_key(desk), self._trend.state(), timestamp=self._clock())
        except StoreError as error:
            log.warning("dashboard.trend_not_kept", error=str(error))


async def _guarded(work: Callable[[], Awaitable[None]]) -> None:
    """Do it, and log a failure: a page that is not up to date must not end the operator beside it, nor the next look."""
    try:
        await work()
    except Exception:
        log.exception("dashboard.not_looked")


def _key(desk: Desk) -> StateKey:
    return StateKey(desk.name, "dashboard", "trend")


def _totals(nodes: Sequence[NodeView], *, now: float) -> Totals:
    cpu = [node.cpu_used for node in nodes if node.cpu_used is not None]
    memory = [node.memory_used for node in nodes if node.memory_used is not None]
    return Totals(
        at=now,
        cpu_requested=sum(node.cpu_requested for node in nodes),
        cpu_used=sum(cpu) if cpu else None,
        cpu_allocatable=sum(node.cpu for node in nodes),
        memory_requested=sum(node.memory_requested for node in nodes),
        memory_used=sum(memory) if memory else None,
        memory_allocatable=sum(node.memory for node in nodes),
    )


def _cost(prices: Prices, cores: float, memory: float) -> float:
    return prices.of_cpu(cores * 1000) + prices.of_memory(memory)


def _requested(prices: Prices, totals: Totals | None) -> float:
    return _cost(prices, totals.cpu_requested, totals.memory_requested) if totals else 0.0


def _used(prices: Prices, totals: Totals | None) -> float | None:
    if totals is None or totals.cpu_used is None or totals.memory_used is None:
        return None
    return _cost(prices, totals.cpu_used, totals.memory_used)


def _needed(nodes: Sequence[NodeView], totals: Totals | None) -> int | None:
    """How many of the largest node would hold what was requested, if it could be packed without gaps."""
    if not nodes or totals is None:
        return None
    cpu, memory = max(node.cpu for node in nodes), max(node.memory for node in nodes)
    if not (cpu and memory):
        return None
    return math.ceil(max(totals.cpu_requested / cpu, totals.memory_requested / memory))
