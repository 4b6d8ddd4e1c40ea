"""Campaigns over many seeds: interesting seeds, failing ones, the seeds that tests repeat, and the ledger."""

from __future__ import annotations

import contextlib
import csv
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trimtab.lab.faults import campaign as campaigns
from trimtab.lab.faults.campaign import (
    RARE,
    SIMULATION_ERROR,
    Campaign,
    LedgerRow,
    SeedSummary,
    append_to_ledger,
    choose_seeds,
    summarize_seed,
)
from trimtab.lab.faults.corpus import load_case
from trimtab.lab.faults.records import Violation
from trimtab.lab.faults.runner import draw_case

ROOT = Path(__file__).parents[3]
LEDGER = ROOT / "docs" / "research" / "fault-ledger.csv"


def read_ledger(path: Path) -> list[LedgerRow]:
    with path.open(newline="", encoding="utf-8") as file:
        return [msgspec.convert(row, LedgerRow, strict=False) for row in csv.DictReader(file)]


def summary(seed: int, **changes: Any) -> SeedSummary:
    return SeedSummary(seed=seed, intensity="heavy", days=2.0, **{"seconds": 1.0, **changes})


BROKEN = Violation(invariant="bounds-kept", at=0.0, message="above")


def run_campaign(folder: Path | None, *summaries: SeedSummary) -> Campaign:
    campaign = Campaign(folder=folder, on_summary=lambda _: None)
    known = {each.seed: each for each in summaries}

    def work(_: Callable[[int], SeedSummary], seeds: Iterable[int]) -> Iterator[SeedSummary]:
        return map(known.__getitem__, seeds)

    campaign.run(known, intensity="heavy", workers=work)
    return campaign


def test_campaign_keeps_seeds_with_new_pairs_or_rare_evaluations() -> None:
    often = {"bounds-kept": 5}
    before = [summary(seed, evaluations=often) for seed in range(RARE)]
    campaign = run_campaign(
        None,
        *before,
        summary(20, evaluations=often),
        summary(21, evaluations=often, pairs=("api-timeout/start",)),
        summary(22, evaluations=often, pairs=("api-timeout/start",)),
        summary(23, evaluations={"windows-respected": 1}),
    )
    assert [each.seed for each in campaign.interesting] == [*range(RARE), 21, 23]


def test_campaign_saves_failing_seeds_as_cases_that_can_be_replayed(tmp_path: Path) -> None:
    campaign = run_campaign(tmp_path / "found", summary(3), summary(4, violations=(BROKEN,)))
    assert [each.seed for each in campaign.failing] == [4]
    saved = load_case(tmp_path / "found" / "operator-4-heavy.json")
    assert saved.invariant == "bounds-kept"
    assert saved.case == draw_case(4, "heavy")
    lines = (tmp_path / "found" / "failing.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(line, type=SeedSummary).seed for line in lines] == [4]


def test_summarize_seed_ends_a_run_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def loop(_: object) -> None:
        while True:
            with contextlib.suppress(Exception):  # as the operator handles errors
                sum(1 for _ in itertools.count())

    monkeypatch.setattr(campaigns, "run_any_case", loop)
    monkeypatch.setattr(campaigns, "MAX_SECONDS", 0.5)
    (violation,) = summarize_seed(3, intensity="heavy").violations
    assert violation.invariant == SIMULATION_ERROR
    assert "the run took more than 0.5 s of a core" in violation.message
    assert "in loop" in violation.message, "it names the place"


def test_campaign_sums_up_all_seeds_and_stops_when_it_is_over() -> None:
    campaign = run_campaign(None, summary(1, fault_counts={"held": 2}), summary(2, fault_counts={"held": 1}))
    assert campaign.days == 4.0
    assert campaign.count_faults() == {"held": 3}
    over = Campaign(folder=None, on_summary=lambda _: None)
    over.run(range(5), intensity="heavy", workers=lambda _, seeds: map(summary, seeds))
    assert len(over.summaries) == 5
    none = Campaign(folder=None, on_summary=lambda _: None)
    none.run(range(5), intensity="heavy", workers=lambda _, seeds: map(summary, seeds), is_over=lambda: True)
    assert none.summaries == []


def test_choose_seeds_takes_what_shows_most_in_the_time_and_no_failing_seed() -> None:
    rich = summary(1, fault_counts={"held": 1, "rollout": 1}, seconds=2.0)
    same = summary(2, fault_counts={"held": 1}, seconds=2.0)
    other = summary(3, fault_counts={"node-lost": 1}, seconds=2.0)
    slow = summary(4, fault_counts={"node-full": 1}, seconds=100.0)
    failing = summary(5, fault_counts={"lease-taken": 1}, violations=(BROKEN,))
    assert choose_seeds([same, rich, other, slow, failing], seconds=5.0) == (1, 3)
    assert choose_seeds([same, rich, other, slow, failing], seconds=7.0) == (1, 2, 3)


def test_ledger_keeps_every_campaign(tmp_path: Path) -> None:
    row = LedgerRow(
        date="2026-11-19",
        commit="a9f527b1",
        first_seed=5,
        count=2,
        cluster_days=4.5,
        machine_hours=0.014,
        violations=1,
    )
    for _ in range(2):
        append_to_ledger(tmp_path / "ledger.csv", row)
    assert read_ledger(tmp_path / "ledger.csv") == [row, row]


def test_committed_ledger_is_plausible_and_the_page_states_its_sum() -> None:
    rows = read_ledger(LEDGER)
    for row in rows:
        assert 2.0 <= row.cluster_days / row.count <= 31.0, row
        assert 0 <= row.violations <= row.count
        assert row.machine_hours > 0
        assert not row.commit.endswith("-dirty"), "run campaigns on a commit"
    days = sum(row.cluster_days for row in rows)
    clean = sum(row.cluster_days for row in rows if not row.violations)
    seeds = sum(row.count for row in rows)
    text = f"{seeds:,} seeds, {days:,.0f} cluster-days; {clean:,.0f} cluster-days in campaigns without a violation"
    assert text in (ROOT / "docs" / "research" / "fault-simulation.md").read_text(), text
