"""A file that is damaged is set aside; one that is only locked, forbidden or on a full disk is kept."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.builders import KEY, entry
from store.test_damage import damaged, works
from trimtab.store import (
    FullError,
    Store,
)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    disk = tmp_path / "small"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a file system can be mounted by root only")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


async def test_store_reports_a_full_disk_and_keeps_what_was_committed(small_disk: Path) -> None:
    file = small_disk / "trimtab.db"
    async with Store.open(file) as store:
        await store.history.append([entry(1)])
        with pytest.raises(FullError, match=r"^store\.url: .*/trimtab\.db: .*; free disk space$"):
            await store.states.save(KEY, bytes(4 << 20), timestamp=1)
        assert len(await store.history.find()) == 1
        assert await store.states.load(KEY) is None
    async with Store.open(file) as store:
        assert len(await store.history.find()) == 1
    assert damaged(file) == []


async def test_store_reports_a_disk_that_is_full_at_the_start(small_disk: Path) -> None:
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"), filler.open("wb") as raw:
        while True:
            raw.write(bytes(4096))
    with pytest.raises(FullError):
        await works(small_disk / "trimtab.db")
    filler.unlink()
    await works(small_disk / "trimtab.db")
    assert damaged(small_disk / "trimtab.db") == []


async def test_store_opens_patiently_on_a_full_disk_and_works_when_there_is_space(small_disk: Path) -> None:
    """An operator on a full disk still has to relieve and revert."""
    file, filler = small_disk / "trimtab.db", small_disk / "filler"
    async with Store.open(file) as store:
        await store.history.append([entry(1)])
    with pytest.raises(OSError, match="No space"), filler.open("wb", buffering=0) as raw:
        while True:
            raw.write(bytes(512))
    async with Store.open(file, allow_unavailable=True) as store:
        with pytest.raises(FullError):
            await store.history.append([entry(2)])
        filler.unlink()
        await store.history.append([entry(3)])
        assert len(await store.history.find()) == 2
    assert damaged(file) == []
