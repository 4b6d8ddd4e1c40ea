"""Evict pods by the eviction API, concurrently with the rounds so that a slow server delays none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from trimtab.kube.errors import InternalError, KubeError, describe
from trimtab.kube.rest.client import Client
from trimtab.node.metrics import QosMetrics
from trimtab.node.model import PodView
from trimtab.node.strategies import Eviction
from trimtab.timing import Cooldown

log = structlog.get_logger(__name__)

EvictPod = Callable[[Eviction], Awaitable[None]]
"""Evicts a pod; raises KubeError if that fails."""

EVICTION_LABELS = {"trimtab.io/evicted-by": "agent"}
"""The labels of an agent's evictions; deploy/agent/admission.yaml requires them, and asks for the pod's node only then."""
EVICTION_BLOCKED_SECONDS = 60.0
"""The seconds for which a pod that could not be evicted, as by its disruption budget, is skipped."""


def build_api_evict(client: Client, *, dry_run: bool = False) -> EvictPod:
    """Evict like a drain, so that disruption budgets apply."""

    async def evict(eviction: Eviction) -> None:
        pod = eviction.pod
        await client.evict(
            pod.name, namespace=pod.namespace, uid=pod.uid, labels=EVICTION_LABELS, dry_run=dry_run
        )
        event = "qos.would_evict" if dry_run else "qos.evicted"
        log.info(event, pod=_format_pod(pod), strategy=eviction.strategy, reason=eviction.reason)

    return evict


class Evictor:
    """The evictions in flight, one per pod, and the pods whose eviction was recently rejected."""

    def __init__(self, evict: EvictPod, metrics: QosMetrics) -> None:
        self._evict = evict
        self._metrics = metrics
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        self._rejected = Cooldown[str](EVICTION_BLOCKED_SECONDS)

    def start(self, evictions: Iterable[Eviction], *, now: float) -> None:
        for eviction in evictions:
            if eviction.pod.uid not in self._in_flight:
                self._in_flight[eviction.pod.uid] = asyncio.create_task(self._evict_pod(eviction, now))

    def eviction_blocked(self, now: float) -> frozenset[str]:
        """Return the uids of pods whose eviction the API server recently rejected."""
        return frozenset(self._rejected.active(now))

    async def wait_idle(self) -> None:
        """Wait until no eviction is in flight."""
        await asyncio.gather(*self._in_flight.values())

    async def _evict_pod(self, eviction: Eviction, now: float) -> None:
        try:
            await self._evict(eviction)
            result = "evicted"
        except KubeError as error:
            result = "refused"
            # Transient errors are not about this pod, except the 500 for a pod with two disruption budgets.
            if not error.transient or isinstance(error, InternalError):
                self._rejected.start(eviction.pod.uid, now)
            log.warning(
                "qos.eviction_rejected",
                pod=_format_pod(eviction.pod),
                strategy=eviction.strategy,
                reason=describe(error),
            )
        finally:
            self._in_flight.pop(eviction.pod.uid)
        self._metrics.evictions.labels(eviction.strategy, result).inc()


def _format_pod(pod: PodView) -> str:
    return f"{pod.namespace}/{pod.name}"
