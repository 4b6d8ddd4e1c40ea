"""The servers that profiles name: as many as there may be at a time, however many there were."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from trimtab.intents.kpi.query import KpiQuery
from trimtab.operator.intents.endpoints import MAX_SERVERS, OPERATOR_SERVER, KpiEndpoints
from trimtab.usage.source import Vector

ASKED = KpiQuery("up")


async def _why(endpoints: KpiEndpoints, numbers: Iterable[int]) -> list[str]:
    """What is said of servers that are none, asked together."""
    asked = {f"http://127.0.0.1:{1 + number}": [ASKED] for number in numbers}
    return [reading.reason for reading in (await endpoints.read_kpis(asked, at=0.0)).values()]


async def test_kpi_endpoints_close_unused_servers() -> None:
    async with KpiEndpoints(None, max_age=60.0, timeout=10.0) as endpoints:
        for number in range(MAX_SERVERS + 2):
            [why] = await _why(endpoints, [number])
            assert "servers" not in why


async def test_kpi_endpoints_limit_number_of_servers() -> None:
    async with KpiEndpoints(None, max_age=60.0, timeout=10.0) as endpoints:
        refused = [
            why for why in await _why(endpoints, range(MAX_SERVERS + 6)) if "more than 64 servers" in why
        ]
        assert len(refused) == 6


@pytest.mark.parametrize("server", ["http://a..b:9090", "http://" + "a" * 80, "http://[::1"])
async def test_kpi_endpoints_isolate_invalid_server(server: str) -> None:
    asked = {server: [ASKED], "http://127.0.0.1:1": [ASKED]}
    async with KpiEndpoints(None, max_age=60.0, timeout=10.0) as endpoints:
        found = await endpoints.read_kpis(asked, at=0.0)
    assert all(reading.reason for reading in found.values())
    assert len(found) == 2


async def test_kpi_endpoints_report_error_of_one_server() -> None:
    class Odd:
        async def vector(self, promql: str, *, at: float) -> Vector:
            raise RuntimeError("whatever it is")

    async with KpiEndpoints(Odd(), max_age=60.0, timeout=10.0) as endpoints:
        (reading,) = (await endpoints.read_kpis({OPERATOR_SERVER: [ASKED]}, at=0.0)).values()
    assert "whatever it is" in reading.reason
