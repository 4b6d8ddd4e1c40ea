"""The agent's evictions: one at a time for each pod, and a pause for a pod whose eviction was refused."""

import asyncio
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from harness.builders.node_views import pod_view
from trimtab.kube.errors import (
    ApiError,
    Conflict,
    DisruptionBlocked,
    Forbidden,
    InternalError,
    KubeError,
    NotFound,
    ServerTimeout,
    Status,
    TimedOut,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from trimtab.kube.rest.client import Client
from trimtab.node.metrics import QosMetrics
from trimtab.node.qos.evictor import EVICTION_BLOCKED_SECONDS, EVICTION_LABELS, Evictor, build_api_evict
from trimtab.node.strategies import Eviction

WEB = Eviction(
    pod_view("kubepods/web", uid="web", name="web", namespace="shop"), "memoryevict", "memory is low"
)
OTHER = Eviction(pod_view("kubepods/other", uid="other", name="other"), "cpuevict", "CPU is low")


class EvictorBed:
    """An evictor, and an API server that answers each eviction alike."""

    def __init__(self, error: KubeError | None = None) -> None:
        self.registry = CollectorRegistry()
        self.error = error
        self.asked: list[str] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.evictor = Evictor(self._evict, QosMetrics(self.registry))

    async def _evict(self, eviction: Eviction) -> None:
        self.asked.append(eviction.pod.name)
        await self.answers.wait()
        if self.error:
            raise self.error

    def count(self, result: str, strategy: str = "memoryevict") -> float | None:
        labels = {"strategy": strategy, "result": result}
        return self.registry.get_sample_value("trimtab_node_evictions_total", labels)


def api_error(kind: type[ApiError]) -> ApiError:
    return kind(Status(message="no", code=kind.code))


async def test_eviction_is_counted_and_blocks_nothing() -> None:
    bed = EvictorBed()
    bed.evictor.start([WEB, OTHER], now=100.0)
    await bed.evictor.wait_idle()
    assert bed.asked == ["web", "other"]
    assert (bed.count("evicted"), bed.count("evicted", "cpuevict"), bed.count("refused")) == (1, 1, None)
    assert bed.evictor.eviction_blocked(100.0) == frozenset()


@pytest.mark.parametrize("kind", [DisruptionBlocked, InternalError, Forbidden, NotFound, Conflict])
async def test_refused_eviction_is_not_repeated_for_a_minute(kind: type[ApiError]) -> None:
    """Two disruption budgets of one pod are an internal error, which other requests may repeat at once."""
    bed = EvictorBed(api_error(kind))
    bed.evictor.start([WEB], now=100.0)
    await bed.evictor.wait_idle()
    assert (bed.count("refused"), bed.count("evicted")) == (1, None)
    assert bed.evictor.eviction_blocked(100.0 + EVICTION_BLOCKED_SECONDS / 2) == {"web"}
    assert bed.evictor.eviction_blocked(101.0 + EVICTION_BLOCKED_SECONDS) == frozenset()


@pytest.mark.parametrize(
    "error",
    [
        *(api_error(kind) for kind in (TooManyRequests, Unavailable, ServerTimeout)),
        Unreachable("no route", sent=False),
        TimedOut("no answer", sent=True),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_eviction_is_repeated_at_once_after_an_error_that_is_not_about_the_pod(
    error: KubeError,
) -> None:
    bed = EvictorBed(error)
    for _ in range(2):
        bed.evictor.start([WEB], now=100.0)
        await bed.evictor.wait_idle()
        assert bed.evictor.eviction_blocked(100.0) == frozenset()
    assert bed.asked == ["web", "web"]
    assert bed.count("refused") == 2


async def test_pod_whose_eviction_is_in_flight_is_not_evicted_again() -> None:
    bed = EvictorBed()
    bed.answers.clear()
    for now in (100.0, 101.0, 102.0):
        bed.evictor.start([WEB], now=now)
        await asyncio.sleep(0)
    bed.answers.set()
    await bed.evictor.wait_idle()
    assert bed.asked == ["web"]
    bed.evictor.start([WEB], now=103.0)
    await bed.evictor.wait_idle()
    assert bed.asked == ["web", "web"]


@pytest.mark.parametrize("dry_run", [False, True])
async def test_api_evict_names_the_pod_its_uid_and_the_agent(*, dry_run: bool) -> None:
    sent: list[dict[str, Any]] = []

    class RecordingClient:
        async def evict(self, name: str, **options: Any) -> None:
            sent.append({"name": name, **options})

    await build_api_evict(cast("Client", RecordingClient()), dry_run=dry_run)(WEB)
    assert sent == [
        {"name": "web", "namespace": "shop", "uid": "web", "labels": EVICTION_LABELS, "dry_run": dry_run}
    ]
