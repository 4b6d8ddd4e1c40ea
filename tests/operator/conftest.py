"""A client of an API server, which knows our kinds."""

from collections.abc import AsyncIterator

import pytest

from harness.cluster.port import ApiServer
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.retry import RateLimiter


@pytest.fixture(scope="session")
def kinds(cluster: ApiServer) -> None:
    """Let the server know our kinds."""
    cluster.learn()


@pytest.fixture
async def client(cluster: ApiServer) -> AsyncIterator[Client]:
    async with Client(
        load_connection(kubeconfig=cluster.kubeconfig), rate=RateLimiter(per_second=1000, burst=1000)
    ) as client:
        yield client
