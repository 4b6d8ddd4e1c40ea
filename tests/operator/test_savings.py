"""Savings are those of applied changes that are in effect, once each, for the pods that run, across restarts."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trimtab.actuation.resources import to_manifest
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.operator import savings
from trimtab.operator.savings import (
    MAX_ABSENCE,
    MAX_GAP,
    MIN_READ_INTERVAL,
    READ_INTERVAL,
    SavingsLedger,
    SavingsReader,
)
from trimtab.prices import MONTH_HOURS
from trimtab.store import HistoryRecord, Store, StoreError
from trimtab.store.write_queue import WriteQueue

NOW = 1_800_000_000.0
HOUR, GIB = 3600.0, 1 << 30
WEB = WorkloadKey("Deployment", "shop", "web")
MONTH = MONTH_HOURS * HOUR


def size(cpu: int, memory: int = GIB) -> Resources:
    return Resources(cpu, None, memory, None)


def entry(what: str, before: int, after: int, number: int, *, at: float = NOW) -> HistoryRecord:
    return HistoryRecord(
        timestamp=at,
        cluster="c",
        namespace="shop",
        kind="Deployment",
        name="web",
        what=what,
        before={"app": to_manifest(size(before))},
        after={"app": to_manifest(size(after))},
        who="policy shop/p",
        why="",
        id=number,
    )


def saved_cores(ledger: SavingsLedger, cpu: int) -> float:
    return ledger.saved_requests(WEB, [Container("app", "main", size(cpu))])[0]


def ledger_of(*changes: tuple[str, int, int]) -> SavingsLedger:
    ledger = SavingsLedger()
    for number, (what, before, after) in enumerate(changes, start=1):
        ledger.record(entry(what, before, after, number))
    return ledger


@pytest.mark.parametrize(
    ("changes", "runs_with", "saved"),
    [
        ([("applying", 1000, 500), ("applied", 1000, 500)], 500, 0.5),
        ([("applied", 1000, 500), ("applied", 500, 250)], 250, 0.75),
        ([("applying", 1000, 500)], 1000, 0.0),
        ([("applying", 1000, 500), ("reverted", 500, 1000)], 1000, 0.0),
        ([("applied", 1000, 500), ("applying", 500, 250), ("reverted", 250, 500)], 500, 0.5),
        ([("applied", 1000, 500), ("reverted", 500, 1000)], 1000, 0.0),
        ([("applied", 1000, 500), ("applying", 500, 250), ("refused", 500, 250)], 500, 0.5),
        ([("applied", 1000, 500), ("applying", 500, 250)], 250, 0.5),
        ([("applied", 500, 1000)], 1000, -0.5),
        ([("applied", 1000, 500)], 800, 0.0),
        ([("applied", 1000, 500), ("applied", 800, 400)], 400, 0.4),
    ],
    ids=[
        "applied",
        "two steps",
        "under way",
        "reverted before it was complete",
        "reverted after another one",
        "reverted afterwards",
        "refused",
        "second one under way",
        "raised",
        "another size by a person",
        "changed from the size of a person",
    ],
)
def test_savings_are_those_of_the_changes_in_effect(
    changes: list[tuple[str, int, int]], runs_with: int, saved: float
) -> None:
    assert saved_cores(ledger_of(*changes), runs_with) == pytest.approx(saved)


def test_an_entry_counts_once_and_entries_without_sizes_not_at_all() -> None:
    ledger = ledger_of(("applied", 1000, 500))
    ledger.record(entry("applied", 1000, 500, 1))
    ledger.record(msgspec.structs.replace(entry("applied", 500, 400, 2), before=None))
    assert saved_cores(ledger, 500) == 0.5


def test_savings_add_up_over_time_with_the_pods_that_run() -> None:
    ledger, labels = SavingsLedger(), ("shop", "shop/p")
    ledger.add({labels: 100.0}, [], now=NOW)
    assert (ledger.total, ledger.since) == (0.0, NOW)
    ledger.add({labels: 100.0}, [], now=NOW + MONTH / 146)
    ledger.add({labels: 300.0}, [], now=NOW + 2 * MONTH / 146)
    assert ledger.total == pytest.approx(400 / 146)
    ledger.add({labels: -100.0}, [], now=NOW + 3 * MONTH / 146)
    assert ledger.saved(*labels) == pytest.approx(300 / 146)
    assert ledger.saved("other", "shop/p") == 0.0


def test_savings_of_a_long_pause_are_bounded_and_a_clock_that_goes_back_takes_nothing() -> None:
    ledger = SavingsLedger()
    for now in (NOW, NOW + 10 * MONTH, NOW):
        ledger.add({("shop", "p"): MONTH_HOURS}, [], now=now)
    assert ledger.total == pytest.approx(MAX_GAP / HOUR)


def test_savings_of_a_clock_that_was_ahead_for_a_while_count_once() -> None:
    ledger = SavingsLedger()
    day = 24 * HOUR
    for now in (NOW, NOW + 6 * day, NOW + HOUR, NOW + 3 * day, NOW + 7 * day):
        ledger.add({("shop", "p"): MONTH_HOURS}, [], now=now)
    assert ledger.total == pytest.approx(7 * 24.0)


def test_deleted_workload_is_forgotten_but_not_what_it_saved() -> None:
    ledger = ledger_of(("applied", 1000, 500))
    ledger.add({("shop", "p"): 10.0}, [WEB], now=NOW)
    ledger.add({("shop", "p"): 10.0}, [], now=NOW + HOUR)
    assert saved_cores(ledger, 500) == 0.5
    total = ledger.total
    ledger.add({}, [], now=NOW + HOUR + MAX_ABSENCE)
    assert saved_cores(ledger, 500) == 0.0
    assert ledger.total == total > 0


async def test_ledger_is_read_from_the_history_and_survives_its_retention(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        await store.history.append([entry("applying", 1000, 500, 0), entry("applied", 1000, 500, 0)])
        first = SavingsReader(store, cluster="c")
        await first.refresh(NOW)
        assert saved_cores(first.ledger, 500) == 0.5
        await store.history.append([entry("applied", 500, 250, 0, at=NOW - HOUR)])
        await first.refresh(NOW + 1)
        assert saved_cores(first.ledger, 250) == 0.0, "not before the interval"
        await first.refresh(NOW + READ_INTERVAL)
        assert saved_cores(first.ledger, 250) == 0.75
        await first.save(NOW + READ_INTERVAL)
        other = SavingsReader(store, cluster="other")
        await other.refresh(NOW)
        assert saved_cores(other.ledger, 250) == 0.0
        second = SavingsReader(store, cluster="c")
        await second.refresh(NOW + READ_INTERVAL)
        assert saved_cores(second.ledger, 250) == 0.75


async def test_damaged_ledger_is_built_again_from_the_history(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        await store.history.append([entry("applied", 1000, 500, 0)])
        reader = SavingsReader(store, cluster="c")
        await store.states.save(reader._key, b"\x93no ledger", timestamp=NOW)
        await reader.refresh(NOW)
        assert saved_cores(reader.ledger, 500) == 0.5


async def test_nothing_is_saved_before_the_former_ledger_was_read(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        reader = SavingsReader(store, cluster="c")
        await reader.save(NOW)
        assert await store.states.load(reader._key) is None


@pytest.mark.parametrize(
    "size",
    [{"app": None}, {"app": {"requests": {"cpu": "many"}}}, {"app": {"requests": 7}}, {"app": []}],
    ids=["none", "no quantity", "no mapping", "a list"],
)
async def test_unreadable_entry_of_the_history_is_left_out(tmp_path: Path, size: dict[str, Any]) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        broken = msgspec.structs.replace(entry("applied", 1000, 500, 0), before=size, after=size)
        await store.history.append([broken, entry("applied", 1000, 500, 0)])
        reader = SavingsReader(store, cluster="c")
        await reader.refresh(NOW)
        assert saved_cores(reader.ledger, 500) == 0.5


async def test_long_history_is_read_in_pages_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(savings, "PAGE_SIZE", 2)
    monkeypatch.setattr(savings, "MAX_ENTRIES", 4)
    async with Store.open(tmp_path / "trimtab.db") as store:
        sizes = [1000, 900, 800, 700, 600, 500]
        await store.history.append(
            [
                entry("applied", before, after, 0, at=NOW + number)
                for number, (before, after) in enumerate(pairwise(sizes))
            ]
        )
        reader = SavingsReader(store, cluster="c")
        await reader.refresh(NOW)
        assert saved_cores(reader.ledger, 500) == pytest.approx(0.4), "the newest four"


class CountedHistory:
    """A store and a leader session's writer of its history; counts the queries of the history."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.queries = 0
        self.fails = False
        self.find = store.history.find
        monkeypatch.setattr(store.history, "find", self._find)
        self.restart()

    def restart(self) -> None:
        """Begin another leader session."""
        self.reader = SavingsReader(self.store, cluster="c")
        self.queue = WriteQueue[HistoryRecord](
            "history", self.store.history, max_waiting=100, on_written=self.reader.entries_written
        )

    async def _find(self, **arguments: Any) -> list[HistoryRecord]:
        self.queries += 1
        if self.fails:
            raise StoreError("unavailable")
        return await self.find(**arguments)

    async def write(self, *entries: HistoryRecord) -> None:
        self.queue.put(entries)
        assert await self.queue.flush()

    async def read_all(self) -> SavingsLedger:
        """Return a ledger of the whole history."""
        ledger = SavingsLedger()
        for each in sorted(await self.find(limit=10_000), key=lambda each: each.id):
            ledger.record(each)
        return ledger


async def test_history_is_queried_only_after_this_process_wrote_changes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        history = CountedHistory(store, monkeypatch)

        async def queries(cycle: int) -> int:
            before = history.queries
            await history.reader.refresh(NOW + cycle * MIN_READ_INTERVAL)
            return history.queries - before

        assert [await queries(cycle) for cycle in range(5)] == [1, 0, 0, 0, 0]
        await history.write(entry("recommended", 1000, 500, 0), entry("killed", 1000, 500, 0))
        assert await queries(5) == 0, "these say nothing about savings"
        history.queue.put([entry("applied", 1000, 500, 0)])
        assert await queries(6) == 0, "the history does not have it yet"
        await history.queue.flush()
        history.fails = True
        assert [await queries(cycle) for cycle in (7, 8)] == [1, 1], "tried again"
        history.fails = False
        assert [await queries(cycle) for cycle in (9, 10)] == [1, 0]
        assert saved_cores(history.reader.ledger, 500) == 0.5
        history.restart()
        assert [await queries(cycle) for cycle in (11, 12)] == [1, 0], "another replica may have led"


async def test_entry_that_is_written_during_a_read_is_read_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        history = CountedHistory(store, monkeypatch)
        find = history.find

        async def find_and_write(**arguments: Any) -> list[HistoryRecord]:
            found = await find(**arguments)
            await history.write(entry("applied", 1000, 500, 0))
            return found

        history.find = find_and_write
        await history.reader.refresh(NOW)
        history.find = find
        await history.reader.refresh(NOW + MIN_READ_INTERVAL)
        assert saved_cores(history.reader.ledger, 500) == 0.5


async def test_entries_count_after_one_of_a_clock_that_was_ahead(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        reader = SavingsReader(store, cluster="c")
        await store.history.append([entry("applied", 1000, 500, 0, at=NOW + 30 * 24 * HOUR)])
        await reader.refresh(NOW)
        await store.history.append([entry("applied", 500, 250, 0, at=NOW + HOUR)])
        await reader.refresh(NOW + READ_INTERVAL)
        assert saved_cores(reader.ledger, 250) == 0.75


class RandomWorkloads:
    """Workloads that are changed, deleted and created again at random; returns what the history says about it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sizes = {f"w{number}": 1000 for number in range(4)}
        self.deleted: set[str] = set()

    @property
    def existing(self) -> list[WorkloadKey]:
        return [WorkloadKey("Deployment", "shop", name) for name in self.sizes if name not in self.deleted]

    def step(self, now: float) -> Iterable[HistoryRecord]:
        name = self.rng.choice(list(self.sizes))
        has = self.sizes[name]
        wanted = self.rng.choice([250, 500, 750, 1000, 1500])
        events: dict[str, list[str]] = {
            "nothing": [],
            "deleted": [],
            "another size": [],
            "incomplete": ["applying"],
            "complete": ["applying", "applied"],
            "refused": ["applying", "refused"],
            "given up": ["applying", "reverted"],
            "reverted": ["applying", "applied", "reverted"],
        }
        event = self.rng.choice(list(events))
        if event == "deleted":
            self.deleted ^= {name}
            self.sizes[name] = 1000
        elif event in {"another size", "complete"}:
            self.sizes[name] = wanted
        for what in events[event]:
            sides = (wanted, has) if what == "reverted" else (has, wanted)
            yield msgspec.structs.replace(entry(what, *sides, 0, at=now), name=name)

    def saved(self, ledger: SavingsLedger) -> dict[str, float]:
        """Return what each workload that exists saves with any of the sizes that it may have."""
        return {
            f"{key.name} {cpu}": ledger.saved_requests(key, [Container("app", "main", size(cpu))])[0]
            for key in self.existing
            for cpu in (250, 500, 750, 1000, 1500)
        }


@pytest.mark.parametrize("seed", range(20))
async def test_ledger_that_reads_new_entries_only_equals_one_of_the_whole_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng, labels = random.Random(seed), ("shop", "p")
    async with Store.open(tmp_path / "trimtab.db") as store:
        history, workloads, total = CountedHistory(store, monkeypatch), RandomWorkloads(rng), SavingsLedger()
        quiet = quiet_queries = 0
        for cycle in range(80):
            now = NOW + cycle * MIN_READ_INTERVAL
            entries = [each for _ in range(rng.choice([0, 0, 1, 3])) for each in workloads.step(now)]
            is_restart = rng.random() < 0.1
            if is_restart:
                await history.reader.save(now - MIN_READ_INTERVAL)
                # The other replica led for a moment, and this one restores what it saved.
                await store.history.append(entries)
                history.restart()
            else:
                await history.write(*entries)
            before = history.queries
            await history.reader.refresh(now)
            if not (entries or is_restart) and cycle:
                quiet, quiet_queries = quiet + 1, quiet_queries + history.queries - before
            whole = await history.read_all()
            assert workloads.saved(history.reader.ledger) == workloads.saved(whole)
            for ledger, known in ((history.reader.ledger, history.reader.ledger), (total, whole)):
                amount = sum(workloads.saved(known).values())
                ledger.add({labels: amount}, workloads.existing, now=now)
        assert history.reader.ledger.total == pytest.approx(total.total)
        assert total.total
    assert quiet > 5
    assert quiet_queries <= 80 * MIN_READ_INTERVAL // READ_INTERVAL
