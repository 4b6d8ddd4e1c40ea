"""Several things at once."""

import asyncio

import pytest

from trimtab.errors import TrimtabError
from trimtab.tasks import side_by_side


async def test_the_first_that_fails_ends_those_beside_it_and_is_told_by_itself() -> None:
    ended = asyncio.Event()

    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def fail() -> None:
        raise TrimtabError("no")

    with pytest.raises(TrimtabError, match="no"):
        async with side_by_side() as group:
            group.create_task(wait_for_ever())
            group.create_task(fail())
    assert ended.is_set()
