"""A client of the real API server, as a program would make it."""

from collections.abc import AsyncIterator

import pytest

from harness.cluster import Cluster
from trimtab.kube.auth import load_connection
from trimtab.kube.client import Client
from trimtab.kube.pace import RateLimit


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with Client(
        load_connection(kubeconfig=cluster.kubeconfig), rate=RateLimit(per_second=1000, burst=1000)
    ) as client:
        yield client
