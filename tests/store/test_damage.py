"""A file that is damaged is set aside; one that is only locked, forbidden or on a full disk is kept."""

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from store.builders import KEY, entry
from trimtab.store import (
    AccessError,
    AddressError,
    BusyError,
    DamagedError,
    Store,
    StoreError,
    sqlite,
)


def damaged(file: Path) -> list[str]:
    return sorted(path.name for path in file.parent.glob("*damaged*"))


def content(file: Path) -> bytes:
    return file.read_bytes()


async def begin(file: Path, *, rows: int = 3000) -> None:
    async with Store.open(file) as store:
        await store.states.save(KEY, b"learned" * 10_000, timestamp=1)
        await store.history.append([entry(t) for t in range(rows)])


async def works(address: Path) -> None:
    async with Store.open(address) as store:
        await store.history.append([entry(1)])
        assert await store.history.find()


def overwrite(file: Path, offset: int, content: bytes) -> None:
    with file.open("r+b") as raw:
        raw.seek(offset)
        raw.write(content)


def spoil(file: Path) -> None:
    file.write_bytes(b"not a database, by any means" * 500)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2 + 100)


def scramble(file: Path) -> None:
    chance = random.Random(3)
    for page in range(1, file.stat().st_size // 4096):
        overwrite(file, page * 4096, chance.randbytes(64))


def move(file: Path) -> None:
    for part in ("-wal", "-shm", ""):
        Path(f"{file}{part}").rename(f"{file}.moved{part}")


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(spoil, id="another file"),
        pytest.param(lambda file: overwrite(file, 0, bytes(4096)), id="first page zeroed"),
        pytest.param(lambda file: overwrite(file, 100, b"\xff" * 2000), id="schema overwritten"),
        pytest.param(cut, id="cut in half"),
        pytest.param(scramble, id="pages scrambled"),
    ],
)
async def test_store_sets_a_damaged_file_aside_and_starts_a_new_one(
    file: Path, damage: Callable[[Path], None]
) -> None:
    await begin(file)
    damage(file)
    spoilt = content(file)
    with capture_logs() as logs:
        await works(file)
    assert damaged(file) == ["trimtab.db.damaged-1"]
    assert content(file.with_name("trimtab.db.damaged-1")) == spoilt
    (said,) = logs
    assert said["log_level"] == "error"
    assert said["kept_as"] == str(file) + ".damaged-1"
    assert said["reason"]


async def test_store_sets_a_second_damaged_file_aside_beside_the_first(file: Path) -> None:
    for _ in range(3):
        await works(file)
        spoil(file)
    await works(file)
    assert damaged(file) == [f"trimtab.db.damaged-{n}" for n in (1, 2, 3)]


async def test_store_sets_damage_aside_once_if_many_find_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = sqlite.SQLite._set_aside

    def slowly(self: sqlite.SQLite, *, reason: str) -> None:
        time.sleep(0.2)  # so that the others would find it too, if they could look now
        at_once(self, reason=reason)

    monkeypatch.setattr(sqlite.SQLite, "_set_aside", slowly)
    await begin(file)
    overwrite(file, 0, bytes(4096))
    await asyncio.gather(*(works(file) for _ in range(5)))
    assert damaged(file) == ["trimtab.db.damaged-1"]
    async with Store.open(file) as store:
        assert len(await store.history.find()) == 5


async def test_store_is_not_harmed_by_an_open_handle_of_the_damaged_file(file: Path) -> None:
    await begin(file)
    async with Store.open(file) as old:
        await old.history.append([entry(1)])
        scramble(file)
        async with Store.open(file) as new:
            assert damaged(file) == [f"trimtab.db.damaged-1{part}" for part in ("", "-shm", "-wal")]
            await new.history.append([entry(1)])
    await works(file)
    async with Store.open(file) as store:
        assert len(await store.history.find()) == 2


async def test_store_sets_a_linked_file_aside_at_its_target(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(file)
    spoil(file)
    await works(link)
    assert link.is_symlink()
    assert damaged(file) == ["trimtab.db.damaged-1"]


async def test_store_reports_damage_during_use_and_repairs_it_at_the_next_use(file: Path) -> None:
    await begin(file)
    async with Store.open(file) as store:
        scramble(file)
        with pytest.raises(DamagedError, match=r"malformed.*; it is renamed at the next use"):
            await store.history.find(limit=10_000)
        await store.history.append([entry(1)])
        assert len(await store.history.find()) == 1
    await works(file)
    assert damaged(file)[0] == "trimtab.db.damaged-1"


@pytest.mark.parametrize("another", [True, False])
async def test_store_writes_to_its_path_after_the_file_was_moved(file: Path, *, another: bool) -> None:
    """As by a replica that sets it aside, by a restored backup, or by hand."""
    async with Store.open(file) as store:
        await store.history.append([entry(1)])
        move(file)
        if another:
            await works(file)
        with capture_logs() as logs:
            await store.history.append([entry(2)])
            await store.history.append([entry(3)])
        assert [each["event"] for each in logs] == ["store.file_replaced"]
    async with Store.open(file) as found:
        assert len(await found.history.find()) == 2 + another


async def test_store_reports_a_missing_folder_until_it_is_back(file: Path) -> None:
    async with Store.open(file) as store:
        await store.history.append([entry(1)])
        aside = file.parent.rename(file.parent.with_name("aside"))
        with pytest.raises(AddressError, match=r"^store\.url: the folder .* does not exist"):
            await store.history.append([entry(2)])
        aside.rename(file.parent)
        await store.history.append([entry(3)])
        assert len(await store.history.find()) == 2


async def test_store_treats_an_empty_file_as_new(file: Path) -> None:
    os.close(os.open(file, os.O_CREAT))
    await works(file)
    assert damaged(file) == []


async def test_store_treats_a_locked_file_as_busy(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await begin(file)
    monkeypatch.setattr(sqlite, "_LOCK_TIMEOUT", 0.1)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            BusyError, match=r"^store\.url: .*/trimtab\.db: database is locked; another process"
        ):
            await works(file)
    await works(file)
    assert damaged(file) == []


@contextmanager
def as_nobody() -> Iterator[None]:
    """To root nothing is forbidden."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_path(file: Path) -> Path:
    """Others can come in as far as the file's folder."""
    for folder in (file.parent, *file.parent.parents):
        if folder.stat().st_uid == os.geteuid() and len(folder.parts) > 2:
            folder.chmod(folder.stat().st_mode | 0o755)
    return file


@pytest.mark.parametrize("there", [True, False])
async def test_store_reports_a_folder_that_is_not_writable(open_path: Path, *, there: bool) -> None:
    if there:
        await begin(open_path)
    open_path.parent.chmod(0o555)
    with (
        as_nobody(),
        pytest.raises(AccessError, match=r"^store\.url: .*; make the file and its folder writable"),
    ):
        await works(open_path)
    open_path.parent.chmod(0o755)
    assert damaged(open_path) == []


async def test_store_reports_a_folder_that_is_not_readable(open_path: Path) -> None:
    open_path.parent.chmod(0o000)
    with as_nobody(), pytest.raises(StoreError, match=r"^store\.url: "):
        await works(open_path)
    open_path.parent.chmod(0o755)


async def test_store_reports_a_damaged_file_that_cannot_be_set_aside(open_path: Path) -> None:
    spoil(open_path)
    open_path.parent.chmod(0o555)
    with (
        as_nobody(),
        pytest.raises(AccessError, match=r"^store\.url: .* is damaged \(.*\) and cannot be set aside"),
    ):
        await works(open_path)
    open_path.parent.chmod(0o755)
    assert damaged(open_path) == []


async def test_store_opening_that_hangs_does_not_block_others_for_ever(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_LOCK_TIMEOUT", 0.2)
    async with sqlite.SQLite(file).prepare_open():
        with pytest.raises(BusyError, match="another process has it locked"):
            await works(file)
    await works(file)


async def test_store_leaves_a_file_alone_that_a_mistyped_address_names(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("replicas: 3\nimage: shop/web:1.2\n")
    with pytest.raises(
        AddressError, match=r"values\.yaml is not a database and was not changed; name another file"
    ):
        await works(file)
    assert damaged(file) == []
    assert file.read_text() == "replicas: 3\nimage: shop/web:1.2\n"


async def test_store_recreates_only_a_dropped_table(file: Path) -> None:
    async with Store.open(file) as store:
        await store.states.save(KEY, b"learned", timestamp=1)
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("DROP TABLE trimtab_history")
        with pytest.raises(
            DamagedError, match="no such table: trimtab_history; it is created again at the next use"
        ):
            await store.history.append([entry(1)])
        await store.history.append([entry(2)])
        assert [each.timestamp for each in await store.history.find()] == [2]
        assert await store.states.load(KEY) is not None
    assert damaged(file) == []
