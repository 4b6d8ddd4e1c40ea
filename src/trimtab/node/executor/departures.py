"""Sends pods away by the eviction API, beside the rounds: a server that is slow must not hold up the next second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from trimtab.kube.client import Client
from trimtab.kube.errors import KubeError, describe
from trimtab.node.executor.tally import Tally
from trimtab.node.strategies import Eviction

log = structlog.get_logger(__name__)

Evict = Callable[[Eviction], Awaitable[None]]
"""Sends a pod away; KubeError where that is not possible."""


def by_eviction_api(client: Client, *, dry_run: bool = False) -> Evict:
    """Evict as a drain does, so that disruption budgets hold."""

    async def evict(eviction: Eviction) -> None:
        pod = eviction.pod
        await client.evict(pod.name, namespace=pod.namespace, uid=pod.uid, dry_run=dry_run)

    return evict


class Departures:
    """The evictions that are under way, one a pod."""

    def __init__(self, evict: Evict, tally: Tally) -> None:
        self._evict = evict
        self._tally = tally
        self._leaving: dict[str, asyncio.Task[None]] = {}

    def begin(self, evictions: Iterable[Eviction]) -> None:
        for eviction in evictions:
            if eviction.pod.uid not in self._leaving:
                self._leaving[eviction.pod.uid] = asyncio.create_task(self._send(eviction))

    async def over(self) -> None:
        """Once none is under way."""
        await asyncio.gather(*self._leaving.values())

    async def _send(self, eviction: Eviction) -> None:
        pod = f"{eviction.pod.namespace}/{eviction.pod.name}"
        try:
            await self._evict(eviction)
            result = "evicted"
            log.info("node.evicted", pod=pod, strategy=eviction.strategy, why=eviction.why)
        except KubeError as error:
            result = "refused"
            log.warning("node.eviction_refused", pod=pod, strategy=eviction.strategy, why=describe(error))
        finally:
            self._leaving.pop(eviction.pod.uid)
        self._tally.evictions.labels(eviction.strategy, result).inc()
