"""KPIs measured by a real Prometheus, and by the servers that profiles name."""

from collections.abc import Iterable

import pytest

from trimtab.api.intent import TargetRef
from trimtab.intents.kpi.client import MAX_SERVERS, PromqlKpiClient
from trimtab.intents.kpi.query import KpiQuery, build_kpi_query
from trimtab.usage.errors import SourceUnavailable
from trimtab.usage.source import Vector

START, END = 1_700_000_000, 1_700_000_600


def ask(query: str, name: str = "web") -> KpiQuery:
    return build_kpi_query(query, namespace="shop", target=TargetRef(name=name))


LATENCY = 'max(latency{namespace="$namespace",app="$name"})'
RATE = 'sum(rate(hits_total{app="$name"}[1m]))'


async def allow_any_endpoint(host: str, port: int) -> None:
    """Allow loopback too: the tests listen there."""


async def test_kpi_client_reports_unavailable_server() -> None:
    class Unavailable:
        asked = 0

        async def vector(self, promql: str, *, at: float) -> Vector:
            self.asked += 1
            raise SourceUnavailable("cannot connect")

    unavailable = Unavailable()
    found = await PromqlKpiClient(unavailable, max_age=60, timeout=30).measure(
        [ask(LATENCY), ask(RATE)], at=END
    )
    assert {each.reason for each in found.values()} == {"the server cannot be reached or is overloaded"}
    assert unavailable.asked == 1


async def _unknown_reasons(kpis: PromqlKpiClient, ports: Iterable[int]) -> list[str]:
    """Return the reasons of a query to each of these ports, on which nothing listens."""
    queries = [KpiQuery("up", server=f"http://127.0.0.1:{1 + port}") for port in ports]
    return [reading.reason for reading in (await kpis.measure(queries, at=0.0)).values()]


async def test_kpi_client_closes_unused_servers() -> None:
    async with PromqlKpiClient(None, max_age=60.0, timeout=10.0, check=allow_any_endpoint) as kpis:
        for port in range(MAX_SERVERS + 2):
            [reason] = await _unknown_reasons(kpis, [port])
            assert "servers" not in reason


async def test_kpi_client_limits_number_of_servers() -> None:
    async with PromqlKpiClient(None, max_age=60.0, timeout=10.0, check=allow_any_endpoint) as kpis:
        reasons = await _unknown_reasons(kpis, range(MAX_SERVERS + 6))
        assert len([reason for reason in reasons if "more than 64 servers" in reason]) == 6


@pytest.mark.parametrize("server", ["http://a..b:9090", "http://" + "a" * 80, "http://[::1"])
async def test_kpi_client_isolates_invalid_server(server: str) -> None:
    queries = [KpiQuery("up", server=each) for each in (server, "http://127.0.0.1:1")]
    async with PromqlKpiClient(None, max_age=60.0, timeout=10.0, check=allow_any_endpoint) as kpis:
        found = await kpis.measure(queries, at=0.0)
    assert all(reading.reason for reading in found.values())
    assert len(found) == 2


async def test_kpi_client_reports_unexpected_error_of_server() -> None:
    class Broken:
        async def vector(self, promql: str, *, at: float) -> Vector:
            raise RuntimeError("the server is odd")

    async with PromqlKpiClient(Broken(), max_age=60.0, timeout=10.0) as kpis:
        (reading,) = (await kpis.measure([KpiQuery("up")], at=0.0)).values()
    assert "intent.server_failed" in reading.reason
