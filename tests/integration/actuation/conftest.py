"""The real cluster behind the port, and somebody who drives an actuator until it is done."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest

from harness.cluster.cluster import Cluster
from trimtab.actuation.decide.observation import DesiredChange
from trimtab.actuation.executor import ChangeExecutor, ReconcileResult
from trimtab.actuation.kube_cluster import KubeCluster, ReadRecords
from trimtab.kube.auth import load_connection
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.retry import RateLimiter
from trimtab.kube.runtime.event_recorder import EventRecorder


def hasty_client(cluster: Cluster) -> Client:
    return Client(
        load_connection(kubeconfig=cluster.kubeconfig), rate=RateLimiter(per_second=1000, burst=1000)
    )


def behind(client: Client) -> KubeCluster:
    """The cluster that a client asks, as an actuator sees it."""
    events = EventRecorder(
        client, component="trimtab.io/test", instance="test", now=lambda: datetime.now(UTC)
    )
    return KubeCluster(client, events)


@pytest.fixture
async def client(asked_cluster: Cluster) -> AsyncIterator[Client]:
    async with hasty_client(asked_cluster) as client:
        yield client


@pytest.fixture
def live(client: Client) -> KubeCluster:
    return behind(client)


class Driver:
    """Reconciles as an operator would: again and again."""

    def __init__(self, live: KubeCluster) -> None:
        self.records = ReadRecords(live)
        self.actuator = ChangeExecutor(live, self.records, may_write=lambda: True)
        self.ahead = 0
        """Seconds by which our clock is ahead, so that no test waits for them."""

    async def until(
        self,
        key: WorkloadKey,
        desired_change: DesiredChange,
        reached: Callable[[ReconcileResult], bool],
        *,
        timeout: float = 120,
    ) -> ReconcileResult:
        report: ReconcileResult | None = None
        try:
            async with asyncio.timeout(timeout):
                while True:
                    await self.records.read(key)
                    report = await self.actuator.reconcile(
                        key, desired_change, now=int(time.time()) + self.ahead
                    )
                    assert report is not None
                    if reached(report):
                        return report
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(f"it stays at {report}") from None


@pytest.fixture
def driver(live: KubeCluster) -> Driver:
    return Driver(live)
