"""The servers that profiles name: as many as there may be at a time, however many there were."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from trimtab.intents.kpi.client import Vector
from trimtab.intents.kpi.query import Question
from trimtab.operator.intents.endpoints import MOST, OWN, Endpoints

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


@pytest.mark.parametrize("server", ["http://a..b:9090", "http://" + "a" * 80, "http://[::1"])
async def test_a_server_that_cannot_be_keeps_no_other_from_being_asked(server: str) -> None:
    asked = {server: [ASKED], "http://127.0.0.1:1": [ASKED]}
    async with Endpoints(None, stale=60.0, patience=10.0) as endpoints:
        found = await endpoints.readings(asked, at=0.0)
    assert all(reading.why for reading in found.values())
    assert len(found) == 2


async def test_whatever_fails_of_one_server_is_told_of_that_one() -> None:
    class Odd:
        async def vector(self, promql: str, *, at: float) -> Vector:
            raise RuntimeError("whatever it is")

    async with Endpoints(Odd(), stale=60.0, patience=10.0) as endpoints:
        (reading,) = (await endpoints.readings({OWN: [ASKED]}, at=0.0)).values()
    assert "whatever it is" in reading.why
