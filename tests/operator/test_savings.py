"""Savings are those of applied changes that are in effect, once each, for the pods that run, across restarts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trimtab.actuation.resources import to_manifest
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.operator import savings
from trimtab.operator.savings import MAX_ABSENCE, MAX_GAP, READ_INTERVAL, SavingsLedger, SavingsReader
from trimtab.prices import MONTH_HOURS
from trimtab.store import HistoryRecord, Store

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
