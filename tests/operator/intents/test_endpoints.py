"""The servers that profiles name: as many as there may be at a time, however many there were."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.intents.kpi.query import Question
from trimtab.operator.intents.endpoints import MOST, Endpoints

ASKED = Question("up")


async def _why(endpoints: Endpoints, numbers: Iterable[int]) -> list[str]:
    """What is said of servers that are none, asked together."""
    asked = {f"http://127.0.0.1:{1 + number}": [ASKED] for number in numbers}
    return [reading.why for reading in (await endpoints.readings(asked, at=0.0)).values()]


async def test_servers_that_no_profile_names_any_more_make_room_for_others() -> None:
    async with Endpoints(None, stale=60.0, patience=10.0) as endpoints:
        for number in range(MOST + 2):
            [why] = await _why(endpoints, [number])
            assert "servers" not in why


async def test_of_too_many_at_a_time_so_many_are_asked() -> None:
    async with Endpoints(None, stale=60.0, patience=10.0) as endpoints:
        refused = [why for why in await _why(endpoints, range(MOST + 6)) if "more than 64 servers" in why]
        assert len(refused) == 6
