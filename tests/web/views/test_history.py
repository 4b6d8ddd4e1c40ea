"""The history of the dashboard, a page at a time: changes, recommendations and OOM kills."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from trimtab.store import HistoryRecord, StateKey, Store
from trimtab.store.errors import UnavailableError
from trimtab.web.backends.live import LiveBackend, _ClusterView
from trimtab.web.model import HistoryEntry
from trimtab.web.views.trend import ClusterTotals, Trend
from web.entries import entry


def backend_for(operator_state: Any) -> LiveBackend:
    return LiveBackend(lambda: operator_state, name="test")


def kill(at: float, container: str = "app") -> HistoryRecord:
    return msgspec.structs.replace(
        entry(at, "killed"), container=container, why="OOM-killed at its memory limit of 100 MB"
    )


@pytest.mark.parametrize("what", ["", "killed", "applied"])
async def test_history_pages_continue_where_the_last_ended(what: str, tmp_path: Path) -> None:
    # Now and then three containers are killed at once; changes happen in between or at the same time.
    kills = [kill(float(at), container) for container in "abc" for at in range(100, 160, 3)]
    async with Store.open(tmp_path / "trimtab.db") as store:
        await store.history.append([entry(float(at)) for at in range(98, 162, 2)])
        await store.history.append(kills)
        board = backend_for(SimpleNamespace(cluster_name="test", store=store))
        found: list[HistoryEntry] = []
        last = None
        while page := await board.history(what=what, before=last, limit=7):
            found += page
            last = page[-1].id
    assert min(entry.id for entry in found) > 0
    assert len(found) == len({entry.id for entry in found}) == {"killed": 60, "applied": 32, "": 92}[what]
    assert [entry.at for entry in found] == sorted((entry.at for entry in found), reverse=True)


async def test_history_page_after_a_removed_entry_is_empty(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        await store.history.append([entry(100.0), entry(200.0)])
        assert (
            await backend_for(SimpleNamespace(cluster_name="test", store=store)).history(before=10**6) == ()
        )


async def test_history_shows_changes_before_many_recommendations(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        await store.history.append([entry(100.0), *(entry(200.0 + at, "recommended") for at in range(200))])
        await store.history.append([kill(float(at)) for at in (110, 120, 150)])
        board = backend_for(SimpleNamespace(cluster_name="test", store=store))
        board._view = _ClusterView(observed_at=500.0, problem="")
        shown = await board.overview()
    assert [each.what for each in shown.latest] == ["killed", "applied"]
    assert (shown.latest[0].at, shown.latest[0].times) == (150.0, 3)
    assert shown.latest[0].why.endswith(", 3 times since 1970-01-01 00:01 UTC")
    assert shown.today == {"applied": 1, "killed": 3}


class UnavailableStore:
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
        operator_state = SimpleNamespace(cluster_name="test", store=store)
        earlier = backend_for(operator_state)
        await earlier._restore_trend(operator_state)  # type: ignore[arg-type]
        earlier._trend.add(totals(1000.0))
        await earlier._save_trend()

        kept = UnavailableStore(store)
        operator_state = SimpleNamespace(cluster_name="test", store=kept)
        board = backend_for(operator_state)
        await board._restore_trend(operator_state)  # type: ignore[arg-type]
        board._trend.add(totals(2000.0))
        kept.away = False
        await board._save_trend()
        await board._restore_trend(operator_state)  # type: ignore[arg-type]
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
        kept = UnavailableStore(store)
        board = backend_for(SimpleNamespace(cluster_name="test", store=kept))
        board._view = _ClusterView(observed_at=200.0, problem="")
        shown = await board.overview()
        assert (shown.problem, shown.latest) == ("store.url: the server does not answer", ())
        assert shown.today == {}
