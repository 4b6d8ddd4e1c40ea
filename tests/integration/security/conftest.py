"""An administrator's client of the real API server, which knows our kinds."""

from collections.abc import AsyncIterator

import pytest

from harness.cluster.cluster import Cluster
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.retry import RateLimiter


@pytest.fixture(scope="session")
def kinds(cluster: Cluster) -> None:
    """The server knows our kinds."""
    cluster.learn()


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    """Open a client with the rights of an administrator."""
    connection = load_connection(kubeconfig=cluster.kubeconfig)
    async with Client(connection, rate=RateLimiter(per_second=1000, burst=1000)) as client:
        yield client
