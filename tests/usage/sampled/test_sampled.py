"""Test polling sources: they keep a bounded history that survives a restart."""

import asyncio
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.kube.errors import Forbidden, KubeError, Status
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import NAMESPACES, Resource
from trimtab.store import Store
from trimtab.store.states import StateKey
from trimtab.store.tables import states
from trimtab.usage.errors import SourceUnavailable
from trimtab.usage.sampled import ContainerSample, PollingSettings, PollingSource
from trimtab.usage.sampled.block_storage import MemoryBlockStorage
from trimtab.usage.sampled.history import SampleHistory
from trimtab.usage.sampled.hour_block import HourBlock
from trimtab.usage.source import UsageQuery
from trimtab.usage.usage import PodContainer
from usage.conformance import conforms

HOUR, DAY = 3600.0, 86400.0
NOW = 1_800_000_000.0
WEB, DB = PodContainer("shop", "web-0", "web"), PodContainer("data", "db-0", "db")


class ScriptedSource(PollingSource[PollingSettings]):
    """Returns the samples that the test sets."""

    name = "scripted"
    settings_type = PollingSettings
    now = NOW
    samples: tuple[ContainerSample, ...] | None = ()

    async def snapshot(self) -> list[ContainerSample]:
        if self.samples is None:
            raise SourceUnavailable("scripted: polling fails; try later")
        return list(self.samples)

    async def poll_at(self, now: float, *samples: ContainerSample) -> None:
        self.now, self.samples = now, samples
        assert (await self.check()).ok


def scripted(store: Store | None = None, **settings: Any) -> ScriptedSource:
    made = ScriptedSource(PollingSettings(**settings), store=store, clock=lambda: made.now)
    return made


def sample(container: PodContainer, at: float, cpu: float = 1.0, memory: float = 1e9) -> ContainerSample:
    return ContainerSample(container, at, cpu, memory)


async def test_polling_source_reads_samples_as_window() -> None:
    source = scripted()
    await source.poll_at(NOW, sample(WEB, NOW, 1.0, 100))
    await source.poll_at(NOW + 30, sample(WEB, NOW + 30, 2.0, 300), sample(DB, NOW + 30, 0.5, 50))
    await source.poll_at(NOW + 60, sample(WEB, NOW + 60, 4.0, 200))
    usage = await source.read(UsageQuery(start=NOW, end=NOW + 180, step=60))
    assert usage.containers == (DB, WEB)
    np.testing.assert_array_equal(usage.cpu[:, 1], [np.nan, 1.5, 4.0])
    np.testing.assert_array_equal(usage.memory[:, 1], [np.nan, 300, 200])
    np.testing.assert_array_equal(usage.cpu[:, 0], [np.nan, 0.5, np.nan])


@settings(max_examples=100)
@given(
    drawn=st.lists(
        st.tuples(st.integers(0, 7200), st.floats(0, 64, width=32), st.floats(1, 2.0**40, width=32)),
        min_size=1,
        max_size=40,
        unique_by=lambda each: each[0],
    ),
    cell=st.sampled_from([60.0, 300.0]),
    step=st.sampled_from([300.0, 600.0, 3600.0]),
    rows=st.integers(1, 40),
)
async def test_history_labels_steps_by_their_end(
    drawn: list[tuple[int, float, float]], cell: float, step: float, rows: int
) -> None:
    """A row holds the samples of the step that ends at its time, as with every other source."""
    history = SampleHistory(MemoryBlockStorage(), step=cell, retention=DAY)
    for after, cpu, memory in sorted(drawn):
        await history.add_samples([sample(WEB, NOW + after, cpu, memory)], now=NOW + after)
    query = UsageQuery(start=NOW, end=NOW + rows * step, step=step)
    usage = await history.read(query, now=NOW + DAY)
    for row, end in enumerate(query.start + step * np.arange(rows)):
        own = [(cpu, memory) for after, cpu, memory in drawn if end - step <= NOW + after < end]
        if not own:
            assert usage.containers == () or np.isnan(usage.cpu[row, 0])
            continue
        assert usage.cpu[row, 0] == pytest.approx(np.mean([cpu for cpu, _ in own]), rel=1e-5)
        assert usage.memory[row, 0] == pytest.approx(max(memory for _, memory in own), rel=1e-6)


@settings(max_examples=100)
@given(now=st.floats(NOW, NOW + HOUR), step=st.sampled_from([60.0, 300.0, 3600.0]))
async def test_history_of_one_poll_is_in_the_last_step_of_the_present(now: float, step: float) -> None:
    history = SampleHistory(MemoryBlockStorage(), step=60.0, retention=DAY)
    await history.add_samples([sample(WEB, now, 2.0, 1e9)], now=now)
    usage = await history.read(UsageQuery.last(2 * HOUR, now=now, step=step), now=now)
    assert usage.sample_count == 1
    assert (usage.cpu[-1, 0], usage.memory[-1, 0]) == (2.0, 1e9)


async def test_polling_source_averages_cpu_and_keeps_memory_maximum() -> None:
    source = scripted()
    for minute in range(10):
        at = NOW + 60 * minute
        await source.poll_at(at, sample(WEB, at, minute, 1000 + minute))
    usage = await source.read(UsageQuery(start=NOW + 300, end=NOW + 900, step=300))
    assert usage.cpu[:, 0].tolist() == [2, 7]
    assert usage.memory[:, 0].tolist() == [1004, 1009]


async def test_polling_source_drops_stale_repeated_and_implausible_samples() -> None:
    source = scripted()
    await source.poll_at(NOW, sample(WEB, NOW - 1000), sample(DB, NOW + 1000))
    await source.poll_at(
        NOW + 30, sample(WEB, NOW + 5, cpu=1.0), sample(DB, NOW + 5, cpu=-1.0, memory=np.inf)
    )
    await source.poll_at(NOW + 40, sample(WEB, NOW + 5, cpu=9.0), sample(DB, NOW + 6, cpu=1e9, memory=0))
    usage = await source.read(UsageQuery(start=NOW - 3600, end=NOW + 3600, step=60))
    assert usage.containers == (WEB,)
    assert usage.sample_count == 1
    assert np.nanmax(usage.cpu) == 1.0


async def test_history_stores_samples_after_clock_was_ahead() -> None:
    storage = MemoryBlockStorage()
    history = SampleHistory(storage, step=60.0, retention=8 * DAY)
    await history.add_samples([sample(WEB, NOW + DAY)], now=NOW + DAY)
    assert await history.add_samples([sample(WEB, NOW)], now=NOW) == 1
    assert int(NOW // HOUR) in await storage.list_hours()


@pytest.mark.parametrize("sample_time", [NOW, NOW + 9 * DAY], ids=["only our clock", "all clocks"])
async def test_history_keeps_hours_if_clock_jumps_ahead_briefly(sample_time: float) -> None:
    storage = MemoryBlockStorage()
    history = SampleHistory(storage, step=60.0, retention=8 * DAY)
    for hours_ago in (3, 2, 1):
        await history.add_samples([sample(WEB, NOW - hours_ago * HOUR)], now=NOW - hours_ago * HOUR)
    known = await storage.list_hours()
    await history.add_samples([sample(WEB, sample_time)], now=NOW + 9 * DAY)
    await history.add_samples([sample(WEB, NOW)], now=NOW)
    assert set(known) <= set(await storage.list_hours())


async def test_polling_source_polls_on_read_after_clock_was_set_back() -> None:
    source = scripted()
    await source.poll_at(NOW + DAY, sample(WEB, NOW + DAY))
    source.now, source.samples = NOW, (sample(WEB, NOW, cpu=3.0),)
    usage = await source.read(UsageQuery(start=NOW - 60, end=NOW + 60, step=60))
    assert np.nanmax(usage.cpu) == 3.0


async def test_polling_source_reads_the_same_after_restart(tmp_path: Path) -> None:
    ask = UsageQuery(start=NOW - 60, end=NOW + 3 * HOUR, step=60)
    whole = scripted()
    for number in range(100):
        at = NOW + 60 * number
        await whole.poll_at(at, sample(WEB, at, number % 7), sample(WEB, at + 1, 1), sample(DB, at, 0.1))
    for half in (range(50), range(50, 100)):
        async with Store.open(tmp_path / "trimtab.db") as store:
            source = scripted(store)
            async with source:
                for number in half:
                    at = NOW + 60 * number
                    await source.poll_at(
                        at, sample(WEB, at, number % 7), sample(WEB, at + 1, 1), sample(DB, at, 0.1)
                    )
    async with Store.open(tmp_path / "trimtab.db") as store:
        again = scripted(store)
        again.samples = None
        usage, wanted = await again.read(ask), await whole.read(ask)
    assert usage.containers == wanted.containers
    np.testing.assert_array_equal(usage.cpu, wanted.cpu)
    np.testing.assert_array_equal(usage.memory, wanted.memory)


async def test_polling_source_deletes_samples_beyond_retention(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store, scripted(store, keep=3 * HOUR) as source:
        for hour in range(10):
            at = NOW + hour * HOUR
            await source.poll_at(at, sample(WEB, at))
        assert len(await store.states.list_summaries()) == 5
        usage = await source.read(UsageQuery(start=NOW + HOUR, end=NOW + 11 * HOUR, step=HOUR))
        assert usage.sample_count == 5


async def test_polling_source_skips_damaged_hour(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        async with scripted(store) as source:
            for hour in range(3):
                await source.poll_at(NOW + hour * HOUR, sample(WEB, NOW + hour * HOUR))
        key = StateKey("default", "usage/scripted", str(int(NOW // HOUR) + 1))
        await store.states.save(key, b"not an hour", timestamp=NOW)
        again = scripted(store)
        again.samples = None
        usage = await again.read(UsageQuery(start=NOW, end=NOW + 3 * HOUR, step=HOUR))
    assert usage.sample_count == 2


async def test_polling_source_reports_store_failure(tmp_path: Path) -> None:
    file = tmp_path / "trimtab.db"
    async with Store.open(file) as store:
        source = scripted(store)
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(f"ALTER TABLE {states.name} RENAME COLUMN data TO away")
        source.samples = (sample(WEB, NOW),)
        async with source:
            health = await source.check()
            with pytest.raises(SourceUnavailable, match="the history is unavailable"):
                await source.read(UsageQuery.last(60, now=NOW, step=60))
    assert not health.ok
    assert health.advice == "check the store"


async def test_polling_source_reads_history_while_polling_fails() -> None:
    source = scripted()
    source.samples = None
    ask = UsageQuery.last(600, now=NOW + 90, step=60)
    with pytest.raises(SourceUnavailable):
        await source.read(ask)
    health = await source.check()
    assert (health.ok, health.detail, health.advice) == (False, "scripted: polling fails", "try later")
    await source.poll_at(NOW, sample(WEB, NOW))
    source.samples, source.now = None, NOW + 90
    assert (await source.read(ask)).sample_count == 1


@pytest.mark.parametrize("off", [90.0, -400.0])
async def test_polling_source_check_reports_clock_skew(off: float) -> None:
    source = scripted()
    source.samples = (sample(WEB, NOW), sample(DB, NOW + off))
    assert "; 1 container ignored because of a clock more than 60 s ahead" in (await source.check()).detail
    source.now, source.samples = NOW + 30, (sample(WEB, NOW + 30), sample(DB, NOW + 30))
    assert "ignored" not in (await source.check()).detail


async def test_polling_source_polls_while_open() -> None:
    source = scripted(interval=1)
    source.samples = (sample(WEB, NOW),)
    async with source, asyncio.timeout(30):
        while "1 container," not in (await source.check()).detail:
            await asyncio.sleep(0.01)
    assert (await source.read(UsageQuery.last(60, now=NOW, step=60))).sample_count == 1


async def test_polling_source_conforms_to_source_contract() -> None:
    source = scripted()
    for minute in range(5):
        at = NOW + 60 * minute
        await source.poll_at(at, sample(WEB, at), sample(DB, at))
    await conforms(source, UsageQuery.last(600, now=NOW + 240, step=60))


def test_polling_settings_reject_step_that_does_not_divide_hour() -> None:
    with pytest.raises(ValueError, match="7 s does not"):
        PollingSettings(step=7)


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from([WEB, DB]), st.floats(0, 3599), st.floats(0, 64), st.floats(1, 1e12)),
        max_size=60,
    )
)
def test_hour_block_unpacks_what_it_packed(
    drawn: list[tuple[PodContainer, float, float, float]],
) -> None:
    hour = HourBlock(5, step=60)
    hour.add(ContainerSample(container, 5 * HOUR + at, cpu, memory) for container, at, cpu, memory in drawn)
    again = HourBlock.unpack(5, hour.pack())
    assert again.containers == hour.containers
    np.testing.assert_array_equal(again.cpu, hour.cpu)
    np.testing.assert_array_equal(again.counts, hour.counts)
    np.testing.assert_array_equal(again.memory, hour.memory)
    assert again.counts.sum() == len(drawn)


async def test_history_reads_many_containers_of_a_day() -> None:
    history = SampleHistory(MemoryBlockStorage(), step=300, retention=DAY)
    fleet = [PodContainer("many", f"pod-{number}", "c") for number in range(500)]
    for hour in range(24):
        at = NOW + hour * HOUR
        await history.add_samples([sample(one, at) for one in fleet], now=at)
    usage = await history.read(
        UsageQuery(start=NOW + HOUR, end=NOW + DAY + HOUR, step=HOUR), now=NOW + 2 * DAY
    )
    assert usage.cpu.shape == (24, 500)
    assert usage.sample_count == 24 * 500


class FakeCluster:
    """A client that lists only the namespace kube-system, for the uid of the cluster."""

    def __init__(self, uid: str, *, failure: KubeError | None = None) -> None:
        self.uid = uid
        self.scope = None
        self.failure = failure

    async def list_objects(self, resource: Resource, *, fields: str) -> list[dict[str, Any]]:
        assert (resource, fields) == (NAMESPACES, "metadata.name=kube-system")
        if self.failure:
            raise self.failure
        return [{"metadata": {"name": "kube-system", "uid": self.uid}}]


def scripted_for(api: FakeCluster, store: Store, **settings: Any) -> ScriptedSource:
    client = cast("Client", api)
    made = ScriptedSource(PollingSettings(**settings), client=client, store=store, clock=lambda: made.now)
    return made


QUERY = UsageQuery(start=NOW - HOUR, end=NOW + HOUR, step=300.0)


async def read_memory_after_restart(source: ScriptedSource) -> set[float]:
    """Read the stored memory values while polling fails."""
    source.samples = None
    usage = await source.read(QUERY)
    return {value for column in usage.memory.T.tolist() for value in column if not math.isnan(value)}


async def test_polling_source_separates_clusters_that_share_a_store(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        prod, test = FakeCluster("prod-uid"), FakeCluster("test-uid")
        for cluster, memory in ((prod, 3e9), (test, 1e9)):
            async with scripted_for(cluster, store) as source:
                await source.poll_at(NOW, sample(WEB, NOW, memory=memory))
        assert await read_memory_after_restart(scripted_for(prod, store)) == {3e9}
        assert await read_memory_after_restart(scripted_for(test, store)) == {1e9}


async def test_polling_source_adopts_samples_without_cluster_name(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        async with scripted(store, cluster="default") as before:
            await before.poll_at(NOW, sample(WEB, NOW, memory=3e9))
        await store.states.save(StateKey("prod-uid", "trimtab", "a/0"), b"learned", timestamp=NOW)
        assert await read_memory_after_restart(scripted_for(FakeCluster("prod-uid"), store)) == {3e9}
        assert {note.cluster for note in await store.states.list_summaries()} == {"prod-uid"}
        assert await read_memory_after_restart(scripted_for(FakeCluster("prod-uid"), store)) == {3e9}, (
            "and once more"
        )


async def test_polling_source_leaves_unnamed_samples_of_shared_store(
    tmp_path: Path,
) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        async with scripted(store, cluster="default") as before:
            await before.poll_at(NOW, sample(WEB, NOW, memory=3e9))
        await store.states.save(StateKey("test-uid", "trimtab", "a/0"), b"learned", timestamp=NOW)
        prod = scripted_for(FakeCluster("prod-uid"), store)
        await prod.poll_at(NOW + HOUR, sample(DB, NOW + HOUR))
        assert await read_memory_after_restart(prod) == set()


async def test_polling_source_keeps_configured_cluster_name(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        async with scripted_for(FakeCluster("prod-uid"), store, cluster="mine") as source:
            await source.poll_at(NOW, sample(WEB, NOW))
        assert {note.cluster for note in await store.states.list_summaries()} == {"mine"}


async def test_polling_source_check_reports_unreadable_cluster_uid(tmp_path: Path) -> None:
    refused = Forbidden(Status(message="namespaces is forbidden"))
    async with Store.open(tmp_path / "trimtab.db") as store:
        async with scripted_for(FakeCluster("", failure=refused), store) as source:
            source.samples = (sample(WEB, NOW),)
            health = await source.check()
        assert not health.ok
        assert "namespaces is forbidden" in health.detail
        assert health.advice == "grant list on namespaces, or set cluster to a unique name"
        assert await store.states.list_summaries() == []
