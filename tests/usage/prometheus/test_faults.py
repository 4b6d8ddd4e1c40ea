"""Test a faulty Prometheus: a read returns the same values or a one-line error, never a wrong number."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.peers.recorded_prometheus import RecordedServers
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client
from trimtab.timing import Backoff
from trimtab.usage.errors import (
    QueryTooLarge,
    SourceRefused,
    SourceUnavailable,
    UsageError,
    UsageResponseError,
)
from trimtab.usage.prometheus import Prometheus, PrometheusSettings
from trimtab.usage.source import UsageQuery
from trimtab.usage.usage import Usage
from usage.faulty import Answer, Faulty, body, silent, status, torn
from usage.recording import T0, MetricRecording, container_labels

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


TOO_MANY = "query processing would load too many samples into memory in query execution"
# A sidecar that went away and the Prometheus behind one, as Thanos v0.42.4 says it; a store of Mimir's; and what gRPC
# itself finds too large.
SIDECAR_AWAY = 'fetch series for {replica="b"}: rpc error: code = Unavailable desc = connection error'
BEHIND_IT = (
    "rpc error: code = Aborted desc = receive series: rpc error: code = Unknown desc = query Prometheus"
)
STORE_AWAY = (
    "failed to fetch some blocks (err-mimir-store-consistency-check-failed). The failed blocks are: 01M7H8"
)
TOO_LARGE = "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (9 vs. 4)"


def two_namespaces() -> str:
    recording = MetricRecording()
    for namespace in ("shop", "bank"):
        for i in range(3):
            labels = container_labels(f"web-{i}", namespace=namespace)
            recording.container(labels, cores=0.1 * (i + 1), memory=1e8 * (i + 1))
    return recording.text


@pytest.fixture(scope="module")
def recorded(servers: RecordedServers) -> Iterator[str]:
    with servers.serve("two-namespaces", two_namespaces()) as url:
        yield url


@pytest.fixture(scope="module")
def expected(recorded: str) -> Usage:
    return asyncio.run(read(recorded))


@pytest.fixture
async def faulty(recorded: str) -> AsyncIterator[Faulty]:
    async with Faulty(recorded) as server:
        yield server


async def read(url: str, **settings: Any) -> Usage:
    chosen = PrometheusSettings(url=url, raw_samples=False, **settings)
    async with Prometheus(chosen, backoff=NO_DELAY) as prometheus:
        return await prometheus.read(QUERY)


def assert_same(one: Usage, other: Usage) -> None:
    assert one.containers == other.containers
    # Prometheus 3 may answer the same query with another last bit.
    np.testing.assert_allclose(one.cpu, other.cpu, rtol=1e-12)
    np.testing.assert_array_equal(one.memory, other.memory)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(status(422, kind="execution", error=TOO_MANY), id="too many samples"),
        pytest.param(
            status(400, kind="bad_data", error="exceeded maximum resolution of 11,000 points"),
            id="too many points",
        ),
        pytest.param(status(422, kind="execution", error=SIDECAR_AWAY), id="a store away"),
        pytest.param(status(422, kind="execution", error=BEHIND_IT), id="away behind a store"),
        pytest.param(status(422, kind="execution", error=STORE_AWAY), id="blocks away"),
        pytest.param(status(422, kind="execution", error=TOO_LARGE), id="too large for gRPC"),
        pytest.param(
            status(503, kind="timeout", error="query timed out in expression evaluation"), id="slow"
        ),
        pytest.param(status(503), id="unavailable"),
        pytest.param(status(502), id="bad gateway"),
        pytest.param(
            status(429, error="too many outstanding requests", **{"Retry-After": "0.01"}), id="busy"
        ),
        pytest.param(torn, id="torn"),
        pytest.param(body(lambda given: given[: len(given) // 2]), id="half a JSON"),
        pytest.param(body(lambda _: b""), id="empty"),
        pytest.param(body(lambda _: b"<html>Sign in</html>"), id="a page"),
        pytest.param(
            body(lambda given: given[:-1] + b',"warnings":["a store was not reached"]}'), id="in part"
        ),
        pytest.param(body(lambda given: given[:-1] + b',"isPartial":true}'), id="in part, VictoriaMetrics"),
    ],
)
async def test_prometheus_retries_or_splits_after_temporary_failures(
    faulty: Faulty, expected: Usage, fault: Answer
) -> None:
    faulty.next.extend([fault] * 5)
    assert_same(await read(faulty.url), expected)
    assert not faulty.next


async def test_prometheus_splits_query_that_times_out(faulty: Faulty, expected: Usage) -> None:
    faulty.next.append(silent)
    assert_same(await read(faulty.url, timeout=1), expected)


async def test_prometheus_splits_query_with_too_large_response(faulty: Faulty, expected: Usage) -> None:
    assert_same(await read(faulty.url, bytes_an_answer=4096), expected)
    assert len(faulty.asked) > 10


async def test_prometheus_splits_query_at_server_sample_limit(
    servers: RecordedServers, expected: Usage
) -> None:
    with servers.serve("sixty-samples", two_namespaces(), "--query.max-samples=60") as limited:
        async with Faulty(limited) as seen:
            assert_same(await read(seen.url), expected)
            assert len(seen.asked) > 4


async def test_prometheus_limits_concurrent_queries(faulty: Faulty, expected: Usage) -> None:
    assert_same(await read(faulty.url, samples_a_query=20, concurrency=3), expected)
    assert len(faulty.asked) > 50
    assert faulty.most_at_a_time <= 3


def duplicate_series(given: bytes) -> bytes:
    """Repeat every series in reverse order with some samples duplicated."""
    answer = json.loads(given)
    series = answer["data"]["result"]
    series += [{**one, "values": one["values"][::-1] + one["values"][:3]} for one in series]
    return json.dumps(answer).encode()


async def test_prometheus_ignores_duplicate_and_unordered_samples(faulty: Faulty, expected: Usage) -> None:
    faulty.always = body(duplicate_series)
    assert_same(await read(faulty.url), expected)


def with_values(change: dict[int, str]) -> Answer:
    def changed(given: bytes) -> bytes:
        answer = json.loads(given)
        for one in answer["data"]["result"]:
            for place, value in change.items():
                one["values"][place][1] = value
        return json.dumps(answer).encode()

    return body(changed)


async def test_prometheus_drops_implausible_values(faulty: Faulty, expected: Usage) -> None:
    absurd = {10: "NaN", 11: "+Inf", 12: "-Inf", 13: "-1", 14: "1e300", 15: "1e400"}
    faulty.always = with_values(absurd)
    usage = await read(faulty.url)
    wrong = ~np.isnan(usage.memory) & (usage.memory != expected.memory)
    assert not wrong.any()
    assert np.isnan(usage.memory[10:16]).all()
    cpu = ~np.isnan(usage.cpu) & ~np.isclose(usage.cpu, expected.cpu, rtol=1e-12, atol=0.0)
    assert not cpu.any()


@pytest.mark.parametrize(
    ("fault", "error", "line"),
    [
        (status(401), SourceRefused, "401 .*; check token_file, username, tenant"),
        (status(404, error="page not found"), SourceRefused, "404 page not found; check url"),
        (status(302), SourceRefused, "check url"),
        (status(400, kind="bad_data", error="parse error"), SourceRefused, "400 parse error"),
        (status(422, kind="execution", error=TOO_MANY), QueryTooLarge, "too many samples"),
        (status(503), SourceUnavailable, "503"),
        (body(lambda given: given[:50]), UsageResponseError, "truncated or not JSON"),
        (body(lambda given: given.replace(b'"matrix"', b'"vector"')), UsageResponseError, "is a vector"),
        (
            body(lambda given: given.replace(b'"pod"', b'"dop"')),
            UsageResponseError,
            "without the label 'pod'",
        ),
        (
            body(lambda given: re.sub(rb"\[(\d{10}),", rb"[9\1,", given)),
            UsageResponseError,
            "unexpected times",
        ),
        (body(lambda given: given.replace(b',"', b',"x', 99)), UsageResponseError, "."),
        (with_values({5: "many"}), UsageResponseError, "not a number"),
        (
            body(lambda given: re.sub(rb'\[(\d{10}),"', rb'[\1,1,"', given)),
            UsageResponseError,
            "not a time and a value",
        ),
    ],
)
async def test_prometheus_reports_permanent_failure_in_one_line(
    faulty: Faulty, fault: Answer, error: type[UsageError], line: str
) -> None:
    faulty.always = fault
    with pytest.raises(error, match=line) as refused:
        await read(faulty.url, retries=2)
    assert str(refused.value).startswith(faulty.url)
    assert "\n" not in str(refused.value)
    assert len(faulty.asked) < 2000


async def test_prometheus_sends_headers_tenant_and_rotated_token(
    faulty: Faulty, expected: Usage, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    settings = PrometheusSettings(
        url=faulty.url, token_file=token, tenant="a|b", headers={"X-Scope-Extra": "1"}
    )
    async with Prometheus(settings) as prometheus:
        assert_same(await prometheus.read(QUERY), expected)
        assert all(headers["Authorization"] == "Bearer first" for headers in faulty.headers)
        assert all(headers["X-Scope-OrgID"] == "a|b" for headers in faulty.headers)
        assert all(headers["X-Scope-Extra"] == "1" for headers in faulty.headers)
        (tmp_path / "new").write_text("second\n")
        (tmp_path / "new").rename(token)
        faulty.headers.clear()
        await prometheus.read(QUERY)
    assert all(headers["Authorization"] == "Bearer second" for headers in faulty.headers)


def service(name: str, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "monitoring", "labels": labels},
        "spec": {"ports": [{"name": "http", "port": 8080}]},
    }


async def test_prometheus_reads_discovered_server_through_api_server_proxy(
    recorded: str, expected: Usage, tmp_path: Path
) -> None:
    mimir = {"app.kubernetes.io/name": "mimir", "app.kubernetes.io/component": "query-frontend"}
    services = [service("thanos", app="thanos-query"), service("mimir", **mimir)]  # of which one answers
    proxied = "/api/v1/namespaces/monitoring/services/http:mimir:8080/proxy/prometheus"
    listed = {"/api/v1/services": {"metadata": {}, "items": services}}
    async with Faulty(recorded, proxied, listed) as api:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            "{apiVersion: v1, kind: Config, current-context: c, users: [],"
            " contexts: [{name: c, context: {cluster: c}}],"
            f" clusters: [{{name: c, cluster: {{server: '{api.url}'}}}}]}}"
        )
        async with Client(load_connection(kubeconfig=kubeconfig)) as client:
            settings = PrometheusSettings(reach="proxy")
            async with Prometheus(settings, client=client) as prometheus:
                assert_same(await prometheus.read(QUERY), expected)
        assert api.methods == {"GET"}  # a reader has no right to more
