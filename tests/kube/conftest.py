"""The event loop that our programs run, and a client as a program would make it."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from harness.cluster.port import ApiServer
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.retry import RateLimiter

Loops = dict[str, Callable[[], asyncio.AbstractEventLoop]]


def pytest_asyncio_loop_factories(item: pytest.Item) -> Loops:
    """Use Python's own loop only where a test speeds up time, which no other loop can."""
    if item.get_closest_marker("looptime"):
        return {"asyncio": asyncio.new_event_loop}
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def client(cluster: ApiServer) -> AsyncIterator[Client]:
    async with Client(
        load_connection(kubeconfig=cluster.kubeconfig), rate=RateLimiter(per_second=1000, burst=1000)
    ) as client:
        yield client
