"""A store in a file. tests/integration/store runs the same tests on PostgreSQL."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from trimtab.store import Store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trimtab.db"


@pytest.fixture
def address(file: Path) -> str:
    """Return an address at which a store can be opened that does not exist yet."""
    return str(file)


@pytest.fixture
async def store(address: str) -> AsyncIterator[Store]:
    async with Store.open(address) as store:
        yield store
