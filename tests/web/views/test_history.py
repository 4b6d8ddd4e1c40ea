"""What happened, a page at a time: what the store has kept, and among it the kills, which it has not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.sizing.evidence import OomKills
from trimtab.store import StateKey, Store
from trimtab.store.errors import UnavailableError
from trimtab.web.backends.live import LiveBackend, _ClusterView
from trimtab.web.model import HistoryEntry as Told
from trimtab.web.views.history import build_kill_entries, number_kills
from trimtab.web.views.trend import ClusterTotals, Trend
from web.entries import entry

WEB = WorkloadKey("Deployment", "shop", "web")


def board_of(desk: Any) -> LiveBackend:
    return LiveBackend(lambda: desk, name="test")


@pytest.mark.parametrize("what", ["", "killed", "applied"])
async def test_history_pages_continue_where_the_last_ended(what: str, tmp_path: Path) -> None:
    # Three pods are killed at once, now and then; what is done falls between, or at the very same time.
    kills = [
        kill
        for pod in "abc"
        for kill in build_kill_entries(WEB, pod, [OomKills(10**8, 1, at, at) for at in range(100, 160, 3)])
    ]
    async with Store.open(tmp_path / "trimtab.db") as store:
        await store.history.append([entry(float(at)) for at in range(98, 162, 2)])
        board = board_of(SimpleNamespace(cluster_name="test", store=store))
        board._view = _ClusterView(kills=number_kills(kills))
        found: list[Told] = []
        last = None
        while page := await board.history(what=what, before=last, limit=7):
            found += page
            last = page[-1].id
    assert len(found) == len({entry.id for entry in found}) == {"killed": 60, "applied": 32, "": 92}[what]
    assert [entry.at for entry in found] == sorted((entry.at for entry in found), reverse=True)


async def test_history_page_after_a_removed_entry_is_empty(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        await store.history.append([entry(100.0), entry(200.0)])
        assert await board_of(SimpleNamespace(cluster_name="test", store=store)).history(before=10**6) == ()


async def test_history_shows_changes_before_many_recommendations(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        await store.history.append([entry(100.0), *(entry(200.0 + at, "recommended") for at in range(200))])
        board = board_of(SimpleNamespace(cluster_name="test", store=store))
        board._view = _ClusterView(
            observed_at=500.0,
            kills=number_kills(build_kill_entries(WEB, "app", [OomKills(10**8, 1, 150.0, 150.0)])),
            problem="",
        )
        shown = await board.overview()
    assert [each.what for each in shown.latest] == ["killed", "applied"]
    assert shown.today["applied"] == 1


class Away:
    """A store that does not answer, until it does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.away = True

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise UnavailableError("store.url: the server does not answer")
        return getattr(self._store, name)


def totals(at: float) -> ClusterTotals:
    return ClusterTotals(at, 1.0, 0.5, 8.0, 1e9, 5e8, 3e10)


async def test_trend_of_the_previous_leader_survives_a_store_outage_at_start(
    tmp_path: Path,
) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        desk = SimpleNamespace(cluster_name="test", store=store)
        former = board_of(desk)
        await former._restore_trend(desk)  # type: ignore[arg-type]
        former._trend.add(totals(1000.0))
        await former._save_trend()

        kept = Away(store)
        desk = SimpleNamespace(cluster_name="test", store=kept)
        board = board_of(desk)
        await board._restore_trend(desk)  # type: ignore[arg-type]
        board._trend.add(totals(2000.0))
        kept.away = False
        await board._save_trend()
        await board._restore_trend(desk)  # type: ignore[arg-type]
        board._trend.add(totals(3000.0))
        assert [each.at for each in board._trend.samples] == [1000.0, 2000.0, 3000.0]
        await board._save_trend()
        after = Trend(every=60.0)
        state = await store.states.load(StateKey("test", "dashboard", "trend"))
        assert state
        after.restore(state.data)
        assert len(after.samples) == 3


async def test_overview_without_store_names_what_is_missing(
    tmp_path: Path,
) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        kept = Away(store)
        board = board_of(SimpleNamespace(cluster_name="test", store=kept))
        board._view = _ClusterView(
            observed_at=200.0,
            kills=number_kills(build_kill_entries(WEB, "app", [OomKills(10**8, 1, 150.0, 150.0)])),
            problem="",
        )
        shown = await board.overview()
        assert (shown.trouble, shown.latest) == ("store.url: the server does not answer", ())
        assert shown.today == {"killed": 1}
