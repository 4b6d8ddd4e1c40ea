"""The namespace with a workload and Intents that the controller tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.builders.objects import node
from harness.cluster.port import ApiServer
from harness.e2e.intent_env import IntentEnv
from trimtab.kube.rest.client import Client, PatchType
from trimtab.kube.rest.resources import NODES


@pytest.fixture
async def env(
    cluster: ApiServer, client: Client, kinds: None, namespace: str, tmp_path: Path
) -> AsyncIterator[IntentEnv]:
    """A namespace with a Deployment `web` of one pod, its latency 0.2 s, and no intent yet."""
    machine = node(f"machine-{namespace}")
    await client.create(NODES, machine)
    name = machine["metadata"]["name"]
    await client.patch(NODES, name, {"status": machine["status"]}, type=PatchType.MERGE, subresource="status")
    env = IntentEnv(client, namespace, tmp_path)
    env.kpis.answers = {"p99": 0.2, "container_cpu_usage": 0.4, "request_total": 50.0}
    env.settings = {"actuators": {"scaleOut": {}, "scaleIn": {}}, "coolDown": "60s", "releaseAfter": "60s"}
    await env.deploy()
    yield env
    await client.delete(NODES, name)
