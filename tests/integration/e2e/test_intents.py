"""An intent on the real node: a service under load comes to its latency by a plan, and gives back what it took.

The service, the load and Prometheus are real. Under the load the service is far behind: its clients, a pool of eight,
wait for more than half a second. With enough it is far ahead: what a busy machine adds does not come near the line.
"""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from harness.cluster.cluster import Cluster
from harness.e2e.e2e_env import eventually
from harness.e2e.intent_e2e import Showcase, deployment, intent, profile, wait_while_pods_start

WANTED = 0.25
SMALL = 100
"""Millicores for a hundred milliseconds of work a second."""
MUCH, LITTLE = 25, 2
"""Requests a second, each of which costs eight milliseconds."""
HASTY = {
    "interval": "2s",
    "coolDown": "6s",
    "releaseAfter": "4s",
    "maxSampleAge": "10s",
    "learningInterval": "10s",
    "guardrails": [{"maxReplicas": 4, "maxCpu": "1"}],
}


@pytest.fixture(scope="module")
def shop(node_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Showcase]:
    namespace = f"intents-{secrets.token_hex(4)}"
    folder = tmp_path_factory.mktemp("intents")
    with Showcase(node_cluster, folder, namespace=namespace, intents=HASTY) as shop:
        shop.apply(deployment(cpu=f"{SMALL}m"), profile())
        wait_while_pods_start(shop)
        shop.load(MUCH)
        yield shop


def test_intent_brings_latency_from_missed_to_met(shop: Showcase) -> None:
    eventually(lambda: (shop.p95() or 0.0) > 1.5 * WANTED, what="a latency that is missed")
    shop.apply(intent(seconds=WANTED))
    shop.operator.start()
    eventually(lambda: shop.verdict == "Missed", what="a status that says so")
    eventually(lambda: "executedAt" in shop.status.get("plan", {}), what="a plan that is carried out")
    eventually(lambda: shop.verdict == "Met", what="the latency met", timeout=180)
    assert shop.cpu() > SMALL
    plan = shop.status["plan"]
    assert plan["reasons"]
    assert {each["objective"] for each in plan["effects"]} == {"p95"}
    assert event_reasons(shop) & {"Reach", "Compromise"}


def test_intent_releases_resources_after_load_ends(shop: Showcase) -> None:
    before = shop.cpu()
    shop.load(LITTLE)
    eventually(lambda: shop.cpu() < before, what="less CPU than under load", timeout=180)
    eventually(lambda: shop.verdict == "Met", what="the latency still met", timeout=60)
    eventually(lambda: "Release" in event_reasons(shop), what="an Event that says so", timeout=60)


def event_reasons(shop: Showcase) -> set[str]:
    """Return the reasons of the Events of the Intent."""
    found: dict[str, Any] = json.loads(
        shop.cluster.kubectl("get", "events", f"--namespace={shop.namespace}", "--output=json")
    )
    return {each["reason"] for each in found["items"] if each["involvedObject"]["kind"] == "Intent"}
