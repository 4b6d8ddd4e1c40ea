"""A client of the real API server, as a program would make it, on the loop that our programs run."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from harness.cluster import Cluster
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.retry import RateLimiter

Loops = dict[str, Callable[[], asyncio.AbstractEventLoop]]


def pytest_asyncio_loop_factories(item: pytest.Item) -> Loops:
    """Time can only be sped up on Python's own loop."""
    if item.get_closest_marker("looptime"):
        return {"asyncio": asyncio.new_event_loop}
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with Client(
        load_connection(kubeconfig=cluster.kubeconfig), rate=RateLimiter(per_second=1000, burst=1000)
    ) as client:
        yield client
