"""A client of the real API server, as a program would make it, on the loop that our programs run."""

from collections.abc import AsyncIterator

import pytest

from harness.cluster.cluster import Cluster
from kube.conftest import pytest_asyncio_loop_factories  # noqa: F401 - a hook
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.retry import RateLimiter


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with Client(
        load_connection(kubeconfig=cluster.kubeconfig), rate=RateLimiter(per_second=1000, burst=1000)
    ) as client:
        yield client
