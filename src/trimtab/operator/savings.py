"""Savings that changes really brought: from the history of applied changes, for the pods that run, over time.

For each container the size before the first change counts as what it would have without Trimtab; after a change from a size
that someone else gave it, that one does. What it has less than that, its workload saves, while the pods have the size of the
last change. A revert returns to the size before and so takes its savings back; a change that was reverted or refused before it
was complete never saved anything. More than before counts as negative savings.

The ledger is part of the store's state: it survives restarts, and the retention of the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog

from trimtab.actuation.resources import parse_sizes
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.prices import MONTH_HOURS
from trimtab.store import HistoryRecord, Store
from trimtab.store.errors import DamagedStateError, StoreError
from trimtab.store.states import StateKey
from trimtab.timing import Interval

log = structlog.get_logger(__name__)

HOUR = 3600.0
MIN_READ_INTERVAL, READ_INTERVAL, SAVE_INTERVAL = 300.0, 6 * HOUR, 900.0
"""The seconds between two reads of the history while this process writes to it, between two reads otherwise, and between two
saves of the ledger."""
LATE_ENTRIES = 6 * HOUR
"""The seconds by which an entry may be older than one that was read before: the history waits for an unavailable store."""
MAX_GAP = 7 * 24 * HOUR
"""The seconds without an update that still count: another leader takes over, or the operator was stopped for a while."""
MAX_ABSENCE = 7 * 24 * HOUR
"""The seconds after which a workload that does not exist any more is forgotten."""
PAGE_SIZE, MAX_ENTRIES = 1000, 20_000
"""The entries that are read at once, and the newest ones that count at the first read of a long history."""
ENTRIES = ("applying", "applied", "reverted", "refused")


class RequestedAmounts(NamedTuple):
    """The requests of a container, in millicores and bytes."""

    cpu: int = 0
    memory: int = 0

    @classmethod
    def of(cls, size: Resources) -> RequestedAmounts:
        counted = size.with_implied_requests()
        return cls(counted.cpu_request or 0, counted.memory_request or 0)


class ContainerLedger(msgspec.Struct, array_like=True):
    """The requests of one container without Trimtab, and those of the last change."""

    before: RequestedAmounts
    after: RequestedAmounts


class WorkloadLedger(msgspec.Struct, array_like=True):
    """The changes of one workload."""

    containers: dict[str, ContainerLedger] = msgspec.field(default_factory=dict)
    targets: dict[str, RequestedAmounts] = msgspec.field(default_factory=dict)
    """The requests to which a change is under way; empty if there is none."""
    seen_at: float = 0.0
    """The time at which the workload last existed."""


class _SavedLedger(msgspec.Struct, array_like=True):
    workloads: dict[str, WorkloadLedger] = msgspec.field(default_factory=dict)
    saved: dict[str, float] = msgspec.field(default_factory=dict)
    """The money saved so far, by namespace and policy, separated by a space."""
    updated_at: float = 0.0
    last_id: int = 0
    last_time: float = 0.0
    since: float = 0.0
    """The time of the first update."""


class SavingsLedger:
    """The savings that changes brought, by workload and over time. Pure."""

    def __init__(self) -> None:
        self._state = _SavedLedger()

    @property
    def since(self) -> float | None:
        """The time since which savings are summed up; None before the first update."""
        return self._state.since or None

    @property
    def total(self) -> float:
        """The money that was saved so far in the whole cluster."""
        return sum(self._state.saved.values())

    @property
    def last_entry(self) -> tuple[float, int]:
        """The time and the id of the newest entry of the history that was recorded."""
        return self._state.last_time, self._state.last_id

    def saved(self, namespace: str, policy: str) -> float:
        """Return the money that was saved so far by the workloads of a policy in a namespace."""
        return self._state.saved.get(f"{namespace} {policy}", 0.0)

    def record(self, entry: HistoryRecord) -> None:
        """Record one entry of the history, the oldest first; an entry that was recorded before changes nothing."""
        if entry.id <= self._state.last_id:
            return
        self._state.last_id = entry.id
        self._state.last_time = max(self._state.last_time, entry.timestamp)
        key = _name(WorkloadKey(entry.kind, entry.namespace, entry.name))
        ledger = self._state.workloads.setdefault(key, WorkloadLedger(seen_at=entry.timestamp))
        before, after = (
            {name: RequestedAmounts.of(each) for name, each in parse_sizes(side, entry.container).items()}
            for side in (entry.before, entry.after)
        )
        was_changing, ledger.targets = bool(ledger.targets), after if entry.what == "applying" else {}
        # A change that did not get as far as applied has changed nothing that lasts.
        if entry.what == "applied" or (entry.what == "reverted" and not was_changing):
            for name in before.keys() & after.keys():
                known = ledger.containers.get(name)
                baseline = known.before if known and known.after == before[name] else before[name]
                ledger.containers[name] = ContainerLedger(baseline, after[name])

    def saved_requests(self, key: WorkloadKey, containers: Iterable[Container]) -> tuple[float, float]:
        """Return the cores and bytes that each pod of a workload has less than without Trimtab."""
        ledger = self._state.workloads.get(_name(key))
        # Most workloads were never changed, and each ingest cycle asks for all.
        if ledger is None:
            return 0.0, 0.0
        cpu = memory = 0
        for each in containers:
            known, has = ledger.containers.get(each.name), RequestedAmounts.of(each.resources)
            # Another size is one that somebody else chose, except that to which a change is under way.
            if known and has in {known.after, ledger.targets.get(each.name)}:
                cpu += known.before.cpu - known.after.cpu
                memory += known.before.memory - known.after.memory
        return cpu / 1000, float(memory)

    def add(
        self, per_month: Mapping[tuple[str, str], float], existing: Iterable[WorkloadKey], *, now: float
    ) -> None:
        """Add what was saved since the last update, by the savings per month of each namespace and policy."""
        state = self._state
        passed = min(max(now - state.updated_at, 0.0), MAX_GAP) if state.updated_at else 0.0
        # Time that a clock ahead has counted is not counted again, unless the clock was so wrong that it counted almost none.
        is_behind = state.updated_at - MAX_GAP < now < state.updated_at
        state.updated_at, state.since = state.updated_at if is_behind else now, state.since or now
        for labels, amount in per_month.items():
            name = " ".join(labels)
            state.saved[name] = state.saved.get(name, 0.0) + amount * passed / HOUR / MONTH_HOURS
        for key in existing:
            if known := state.workloads.get(_name(key)):
                known.seen_at = now
        state.workloads = {
            name: each for name, each in state.workloads.items() if now - each.seen_at < MAX_ABSENCE
        }

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def restore(self, data: bytes) -> None:
        """Restore what `encode` returned; raise `ValueError` for anything else."""
        try:
            self._state = msgspec.msgpack.decode(data, type=_SavedLedger)
        except msgspec.MsgspecError as error:
            raise ValueError(f"savings: these bytes are no ledger: {error}") from None


def _name(key: WorkloadKey) -> str:
    return f"{key.kind}/{key.namespace}/{key.name}"


class SavingsReader:
    """Keeps the ledger up to date with the history in the store.

    A leader session reads the history when it starts, and then when it has written to it itself. Others hardly ever write to
    it in that time: a former leader whose entries waited for the store, or an import.
    """

    def __init__(self, store: Store, *, cluster: str) -> None:
        self.ledger = SavingsLedger()
        self._store = store
        self._cluster = cluster
        self._key = StateKey(cluster, "operator", "savings")
        self._read, self._attempt = Interval(READ_INTERVAL), Interval(MIN_READ_INTERVAL)
        self._save = Interval(SAVE_INTERVAL)
        self._is_restored = False
        self._is_outdated = True
        """The history has entries that the ledger does not have."""

    def entries_written(self, entries: Sequence[HistoryRecord]) -> None:
        """Read the history in the next cycle if these entries, which it has now, say what was saved."""
        self._is_outdated |= any(entry.what in ENTRIES for entry in entries)

    async def refresh(self, now: float) -> None:
        """Read new entries of the history where that is due; a failure costs time, and is tried again."""
        try:
            if (self._is_outdated or self._read.due(now)) and self._attempt.due(now):
                self._attempt.restart(now)
                await self._update(now)
            if self._save.due(now):
                await self.save(now)
        except StoreError as error:
            log.warning("savings.store_unavailable", error=str(error))

    async def _update(self, now: float) -> None:
        if not self._is_restored:
            await self._restore()
        # Before the read: an entry that is written meanwhile may be missing in it.
        self._is_outdated = False
        try:
            entries = await self._list_new(now)
        except BaseException:
            self._is_outdated = True
            raise
        for entry in entries:
            self._record(entry)
        self._read.restart(now)

    async def save(self, now: float) -> None:
        """Save the ledger, unless the one of the former leader was not read yet."""
        if self._is_restored:
            self._save.restart(now)
            await self._store.states.save(self._key, self.ledger.encode(), timestamp=now)

    def _record(self, entry: HistoryRecord) -> None:
        try:
            self.ledger.record(entry)
        # Former versions, imports and people write entries too: one of them must not stop the ingestion of usage.
        except (TrimtabError, ValueError, TypeError, AttributeError) as error:
            log.warning("savings.entry_unreadable", entry=entry.id, error=str(error))

    async def _restore(self) -> None:
        try:
            if saved := await self._store.states.load(self._key):
                self.ledger.restore(saved.data)
        except (DamagedStateError, ValueError) as error:
            log.warning("savings.ledger_unreadable", error=str(error))
        self._is_restored = True

    async def _list_new(self, now: float) -> list[HistoryRecord]:
        """List the entries that were written since the last read, the oldest first."""
        time, last = self.ledger.last_entry
        # The clock of a former leader may have been days ahead: all entries since then would be too old.
        since = min(time, now) - LATE_ENTRIES if last else None
        found: list[HistoryRecord] = []
        page: list[HistoryRecord] | None = None
        while page is None or (len(page) == PAGE_SIZE and len(found) < MAX_ENTRIES):
            page = await self._store.history.find(
                cluster=self._cluster,
                what=ENTRIES,
                since=since,
                older_than=page[-1] if page else None,
                after_id=last,
                limit=PAGE_SIZE,
            )
            found += page
        return sorted(found, key=lambda entry: entry.id)
