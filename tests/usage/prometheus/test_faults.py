"""Test a faulty Prometheus: a read returns the same values or a one-line error, never a wrong number."""

import pytest

from trimtab.timing import Backoff
from trimtab.usage.errors import (
    SourceUnavailable,
)
from trimtab.usage.prometheus import Prometheus, PrometheusSettings
from trimtab.usage.source import UsageQuery
from usage.recording import T0

QUERY = UsageQuery(start=T0, end=T0 + 7200, step=60)
NO_DELAY = Backoff(first=0.001, ceiling=0.01)


async def test_prometheus_reports_unreachable_server() -> None:
    settings = PrometheusSettings(url="http://127.0.0.1:9", retries=1)
    async with Prometheus(settings, backoff=NO_DELAY) as prometheus:
        with pytest.raises(SourceUnavailable, match="cannot connect"):
            await prometheus.read(QUERY)
        assert not (await prometheus.check()).ok


async def test_prometheus_check_advises_setting_url() -> None:
    async with Prometheus(PrometheusSettings()) as prometheus:
        health = await prometheus.check()
    assert not health.ok
    assert health.advice == "set url, or choose another provider such as metrics-server"
