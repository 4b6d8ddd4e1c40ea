"""Sends pods away by the eviction API, beside the rounds: a server that is slow must not hold up the next second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from trimtab.kube.errors import InternalError, KubeError, describe
from trimtab.kube.rest.client import Client
from trimtab.node.model import PodView
from trimtab.node.qos.metrics import QosMetrics
from trimtab.node.strategies import Eviction

log = structlog.get_logger(__name__)

EvictPod = Callable[[Eviction], Awaitable[None]]
"""Sends a pod away; KubeError where that is not possible."""

EVICTION_BLOCKED_SECONDS = 60.0
"""For so long a pod that may not be sent away, as by its disruption budget, is passed over for the next one."""


def build_api_evict(client: Client, *, dry_run: bool = False) -> EvictPod:
    """Evict as a drain does, so that disruption budgets hold."""

    async def evict(eviction: Eviction) -> None:
        pod = eviction.pod
        await client.evict(pod.name, namespace=pod.namespace, uid=pod.uid, dry_run=dry_run)
        done = "node.would_evict" if dry_run else "node.evicted"
        log.info(done, pod=_format_pod(pod), strategy=eviction.strategy, why=eviction.reason)

    return evict


class Evictor:
    """The evictions that are under way, one a pod, and who was not let go lately."""

    def __init__(self, evict: EvictPod, metrics: QosMetrics) -> None:
        self._evict = evict
        self._metrics = metrics
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, float] = {}

    def start(self, evictions: Iterable[Eviction], *, now: float) -> None:
        for eviction in evictions:
            if eviction.pod.uid not in self._in_flight:
                self._in_flight[eviction.pod.uid] = asyncio.create_task(self._evict_pod(eviction, now))

    def eviction_blocked(self, now: float) -> frozenset[str]:
        """The uids of pods that the API server has lately said must stay."""
        self._refused = {uid: at for uid, at in self._refused.items() if now - at < EVICTION_BLOCKED_SECONDS}
        return frozenset(self._refused)

    async def wait_idle(self) -> None:
        """Once none is under way."""
        await asyncio.gather(*self._in_flight.values())

    async def _evict_pod(self, eviction: Eviction, now: float) -> None:
        try:
            await self._evict(eviction)
            result = "evicted"
        except KubeError as error:
            result = "refused"
            # What passes by itself is not about this pod, but for the 500 that one with two budgets gets.
            if not error.transient or isinstance(error, InternalError):
                self._refused[eviction.pod.uid] = now
            log.warning(
                "node.eviction_refused",
                pod=_format_pod(eviction.pod),
                strategy=eviction.strategy,
                why=describe(error),
            )
        finally:
            self._in_flight.pop(eviction.pod.uid)
        self._metrics.evictions.labels(eviction.strategy, result).inc()


def _format_pod(pod: PodView) -> str:
    return f"{pod.namespace}/{pod.name}"
