"""/metrics, /healthz and /readyz, asked over HTTP."""

from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from harness.builders.ip_families import AT_EITHER_HOST
from harness.process import free_port
from trimtab.errors import TrimtabError
from trimtab.http_server import serve_application
from trimtab.kube.runtime.workqueue import WorkQueue
from trimtab.operator.app import HealthChecks
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.metrics import Metrics

Get = Callable[[str], Awaitable[tuple[int, str]]]


async def _nothing(_: str) -> None:
    """Reconcile nothing."""


@pytest.fixture
def health() -> HealthChecks:
    return HealthChecks()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def get(health: HealthChecks, metrics: Metrics) -> AsyncIterator[Get]:
    async with (
        serve_application(health.build_application(metrics), "127.0.0.1:0") as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):

        async def get(path: str) -> tuple[int, str]:
            async with session.get(path) as answer:
                return answer.status, await answer.text()

        yield get


async def test_health_is_good_without_problems(get: Get) -> None:
    assert await get("/healthz") == (200, "ok\n")
    assert await get("/readyz") == (200, "ok\n")


async def test_health_names_why_it_is_not_ready(get: Get, health: HealthChecks) -> None:
    health.liveness["loop"] = lambda: ""
    health.readiness |= {"webhook": lambda: "", "informer pods": lambda: "has not listed yet"}
    assert await get("/healthz") == (200, "[+] loop\nok\n")
    status, text = await get("/readyz")
    assert status == 503
    assert text.splitlines() == ["[+] loop", "[+] webhook", "[-] informer pods: has not listed yet", "not ok"]


async def test_health_is_not_ready_when_not_alive(get: Get, health: HealthChecks) -> None:
    health.liveness["reconcile"] = lambda: "stuck for 600 s"
    assert (await get("/healthz"))[0] == 503
    assert (await get("/readyz"))[0] == 503


async def test_health_serves_metrics_of_the_operator_and_of_work_queues(get: Get, metrics: Metrics) -> None:
    queue: WorkQueue[str] = WorkQueue("policies", reconcile=_nothing)
    metrics.workloads_skipped.labels("shop", "shop/default", "HPA").set(3)
    status, text = await get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (sample,) = families["trimtab_workloads_skipped"].samples
    assert (status, sample.value) == (200, 3)
    assert sample.labels == {"namespace": "shop", "policy": "shop/default", "reason": "HPA"}
    assert {"queue": queue.name} in [sample.labels for sample in families["trimtab_queue_depth"].samples]


async def test_health_reports_a_used_address_in_one_line(health: HealthChecks, metrics: Metrics) -> None:
    async with serve_application(health.build_application(metrics), "127.0.0.1:0") as port:
        with pytest.raises(TrimtabError, match=f"address 127.0.0.1:{port}: cannot listen here") as refused:
            async with serve_application(health.build_application(metrics), f"127.0.0.1:{port}"):
                pass
    assert "\n" not in str(refused.value)


@AT_EITHER_HOST
async def test_health_listens_on_ipv4_and_ipv6_by_default(
    host: str, health: HealthChecks, metrics: Metrics
) -> None:
    """A cluster of IPv6 alone probes its pods, and calls their webhooks, by that."""
    defaults = OperatorConfig()
    assert (defaults.address, defaults.webhook.address) == (":8080", ":9443")
    port = free_port()
    url = URL.build(scheme="http", host=host, port=port, path="/healthz")
    async with (
        serve_application(health.build_application(metrics), f":{port}"),
        aiohttp.ClientSession() as session,
        session.get(url) as answer,
    ):
        assert answer.status == 200
