"""A tenant's KPIProfile must not read what Prometheus has of others, nor reach servers inside the cluster's network."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from harness import UnavailableError
from harness.builders.objects import node
from harness.builders.records import policy
from harness.e2e.intent_env import START, IntentEnv
from harness.peers.prometheus import Recorded
from security.hostile_queries import HOSTILE_QUERIES
from trimtab.intents.kpi.client import PromqlKpiClient
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.resources import INTENTS, KPI_PROFILES, NODES
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.policy.resolver import build_effective_policy
from trimtab.operator.policy.validation import GUARDRAIL_ANNOTATION
from trimtab.usage.source import source

BALANCE = 4711.0
SERIES = 8000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A Prometheus with the balances of another tenant."""
    start = int(START)
    lines = ["# TYPE balance gauge"]
    for at in range(start - 60, start + 120, 10):
        lines.append(f'balance{{namespace="bank",account="alice"}} {BALANCE} {at}')
        lines.append(f'balance{{namespace="bank",account="bob"}} 1 {at}')
    lines.append("# TYPE orders gauge")
    lines += [
        f'orders{{namespace="bank",order="{number:040}",pod="a-rather-long-name-of-a-pod-{number:060}"}} 1 {start}'
        for number in range(SERIES)
    ]
    try:
        server = Recorded(tmp_path_factory.mktemp("recorded"), "\n".join(lines) + "\n")
    except UnavailableError as why:
        pytest.skip(str(why))
    with server:
        yield server


@pytest.fixture
async def env(
    client: Client, kinds: None, namespace: str, tmp_path: Path, recorded: Recorded
) -> AsyncIterator[IntentEnv]:
    """A tenant's namespace with a Deployment, under an operator that asks the real Prometheus."""
    machine = node(f"machine-{namespace}")
    await client.create(NODES, machine)
    name = machine["metadata"]["name"]
    await client.patch(NODES, name, {"status": machine["status"]}, type=PatchType.MERGE, subresource="status")
    env = IntentEnv(client, namespace, tmp_path)
    await env.deploy()
    async with (
        source("prometheus", url=recorded.url, retries=0) as usage,
        PromqlKpiClient(usage.promql, max_age=60.0, timeout=20.0) as kpis,
    ):
        env.kpis = kpis  # type: ignore[assignment]
        yield env
    await client.delete(NODES, name)


async def _measure(env: IntentEnv, query: str, **props: str) -> tuple[Object, Object]:
    """Let the tenant measure an Intent by this query; return the status of the objective and of the profile."""
    more = {"props": props} if props else {}
    await env.write(KPI_PROFILES, "spy", type="custom", query=query, **more)
    objectives = [{"name": "spy", "value": 1, "measuredBy": "spy"}]
    await env.write(INTENTS, "web", targetRef={"name": "web"}, objectives=objectives, active=False)
    async with env.start_controller() as controller:
        for _ in range(50):  # what the server answers late, a later cycle reads
            status = await env.run_cycles(controller, every=1.0)
            if "in time" not in status["objectives"][0].get("reason", ""):
                break
            await asyncio.sleep(0.1)
    profile = await env.client.get(KPI_PROFILES, "spy", namespace=env.namespace)
    return status["objectives"][0], dict(profile["status"])


@pytest.mark.parametrize(
    "query",
    [
        'balance{namespace="bank",account="alice"}',
        'sum(balance{account="alice"})',
        '{__name__="balance",account="alice"}',
        'max by (account) (max_over_time(balance{account="alice"}[1m]))',
        'vector(0) + on() group_left balance{account="alice"}',
        'balance{account="alice",namespace="bank" or namespace="bank"}',
    ],
)
async def test_profile_cannot_read_series_of_another_namespace(env: IntentEnv, query: str) -> None:
    objective, profile = await _measure(env, query)
    assert objective["verdict"] == "Unknown"
    assert "current" not in objective
    assert str(int(BALANCE)) not in str((objective, profile))


async def test_profile_of_a_trusted_namespace_reads_all_series(env: IntentEnv) -> None:
    env.extra_config = {"tenantQueries": {"unrestrictedNamespaces": [env.namespace]}}
    objective, _ = await _measure(env, 'sum(balance{account="alice"})')
    assert objective["current"] == BALANCE


async def test_error_of_prometheus_with_labels_of_others_is_not_shown(env: IntentEnv) -> None:
    env.extra_config = {"tenantQueries": {"unrestrictedNamespaces": [env.namespace]}}
    objective, profile = await _measure(env, 'vector(1) * on(namespace) balance{namespace="bank"}')
    objective, profile = await _measure(env, "balance * on(namespace) balance")
    assert objective["verdict"] == "Unknown"
    assert "rejected the query" in objective["reason"]
    for secret in ("alice", "bob", "bank"):
        assert secret not in str((objective, profile))


@pytest.mark.parametrize("query", HOSTILE_QUERIES.values(), ids=HOSTILE_QUERIES)
async def test_stored_query_does_not_stop_a_new_leader(env: IntentEnv, query: str) -> None:
    """The webhook may have been away when the object was written: every leader meets it again."""
    used = time.process_time()
    objective, profile = await _measure(env, query)
    assert time.process_time() - used < 5
    assert objective["verdict"] == "Unknown"
    assert profile["resolved"] is False
    assert profile["reason"].startswith("query: ")
    stored = msgspec.structs.replace(policy("p"), annotations=((GUARDRAIL_ANNOTATION, query),))
    used = time.process_time()
    assert GUARDRAIL_ANNOTATION in build_effective_policy(stored, OperatorConfig()).problem
    assert time.process_time() - used < 1


async def test_large_answer_is_refused(env: IntentEnv) -> None:
    env.extra_config = {"tenantQueries": {"unrestrictedNamespaces": [env.namespace]}}
    objective, _ = await _measure(env, "orders")
    assert "reads or returns too much" in objective["reason"]


@pytest.mark.parametrize("path", ["", "/admin"])
async def test_profile_cannot_make_the_operator_post_to_a_server(env: IntentEnv, path: str) -> None:
    received: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(4096))
        body = b"internal-secret"
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}"
        objective, profile = await _measure(env, "up", endpoint=endpoint, load="up")
    assert received == []
    assert "internal-secret" not in str((objective, profile))
    assert profile["resolved"] is False
    assert "tenantQueries.endpoints" in profile["reason"]
