"""All of a store as JSON lines, and back."""

from pathlib import Path

import pytest

from store.test_archive import exported, fill
from trimtab.store import Store


@pytest.mark.postgres
async def test_archive_moves_a_store_from_file_to_server_and_back(
    file: Path, postgres: str, tmp_path: Path
) -> None:
    async with (
        Store.open(file) as first,
        Store.open(postgres) as second,
        Store.open(tmp_path / "back.db") as third,
    ):
        await fill(first)
        assert await second.import_lines(first.export_lines()) == 9
        assert await third.import_lines(second.export_lines()) == 9
        assert await exported(third) == await exported(first)
