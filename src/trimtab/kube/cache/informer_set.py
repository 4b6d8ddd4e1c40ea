"""Follows many resources at once, of which some may not be there: not installed, not granted, gone again.

Each has an informer that runs as long as the server has the resource. What is installed later is picked up at the next
look at the server's discovery; what is removed is forgotten, and its cache tells so like any deletion. One look is not
enough for that: a server that has just started answers a moment before it tells of custom kinds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Never, Protocol

import structlog

from trimtab.kube.cache.failure_aggregator import FailureAggregator
from trimtab.kube.cache.informer import Informer, Scope, WatchTimeouts
from trimtab.kube.cache.projection import Projection, R
from trimtab.kube.cache.store import Cache, Index
from trimtab.kube.errors import Forbidden, KubeError, describe
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.discovery import Discovery, discover
from trimtab.kube.rest.resources import Resource

log = structlog.get_logger(__name__)

NOT_SERVED = "the server does not have it"
"""The trouble with a resource that is not installed, or no more."""


@dataclass(slots=True)
class _WatchedResource:
    resource: Resource
    informer: Informer[Any]
    optional: bool
    task: asyncio.Task[Never] | None = None
    was_missing: bool = False
    """Whether the last look did not find it."""

    @property
    def error_message(self) -> str:
        if self.task is None:
            return NOT_SERVED
        found = self.informer.last_error
        fix = "; grant list and watch of it" if isinstance(found, Forbidden) else ""
        return describe(found) + fix if found else ""

    def start(self, group: asyncio.TaskGroup) -> None:
        self.task = group.create_task(self.informer.run())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
            self.task = None
            self.informer.reset()


class InformerPort(Protocol):
    """Who keeps caches of resources true; each method as `Following` has it."""

    def watch_resource(
        self,
        resource: Resource,
        projection: Projection[R],
        *,
        scope: Scope | None = None,
        indexes: Mapping[str, Index[R]] | None = None,
        optional: bool = False,
    ) -> Cache[R]: ...

    def on_discovery(self, listener: Callable[[Discovery], None]) -> None: ...

    def errors_by_resource(self) -> Mapping[str, str]: ...

    def unsynced_reason(self, resource: Resource) -> str: ...

    async def wait_synced(self) -> None: ...

    async def run(self) -> Never: ...


class InformerSet:
    """A set of informers; add with `follow`, then `run` it as a task."""

    def __init__(
        self, client: Client, *, discovery_interval: float = 30.0, timeouts: WatchTimeouts | None = None
    ) -> None:
        self._client = client
        self._discovery_interval = discovery_interval
        self._timeouts = timeouts or WatchTimeouts()
        self._failures = FailureAggregator()
        self._watched: list[_WatchedResource] = []
        self._listeners: list[Callable[[Discovery], None]] = []
        self._discovered = asyncio.Event()

    def watch_resource(
        self,
        resource: Resource,
        projection: Projection[R],
        *,
        scope: Scope | None = None,
        indexes: Mapping[str, Index[R]] | None = None,
        optional: bool = False,
    ) -> Cache[R]:
        """Keep a cache of a resource while the server has it; one that is `optional` need not ever be."""
        informer = Informer(
            self._client,
            resource,
            projection,
            scope=scope,
            indexes=indexes,
            timeouts=self._timeouts,
            failures=self._failures,
        )
        self._watched.append(_WatchedResource(resource, informer, optional))
        return informer.cache

    def on_discovery(self, listener: Callable[[Discovery], None]) -> None:
        """Tell what the server has at each look, so that more can be followed."""
        self._listeners.append(listener)

    def errors_by_resource(self) -> dict[str, str]:
        """Why caches are empty or behind, by resource; nothing when all is well."""
        return {
            str(followed.resource): followed.error_message
            for followed in self._watched
            if followed.error_message
        }

    def unsynced_reason(self, resource: Resource) -> str:
        """Why it is not known what there is of a resource that the server has; empty where it is, or has none."""
        waiting = [
            each for each in self._watched if each.resource == resource and not each.informer.is_synced
        ]
        return next(
            (each.error_message or "it is being listed" for each in waiting if each.task is not None), ""
        )

    async def wait_synced(self) -> None:
        """Wait until what the server has is in the caches, or is optional and was refused."""
        await self._discovered.wait()
        for followed in self._watched:
            if not followed.optional:
                await followed.informer.wait_synced()
            elif followed.task is not None:
                await followed.informer.wait_synced_or_failed()

    async def run(self) -> Never:
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    await self._discover(group)
                except KubeError as error:
                    log.warning("following.look_failed", error=describe(error))
                await asyncio.sleep(self._discovery_interval if self._discovered.is_set() else 1.0)

    async def _discover(self, group: asyncio.TaskGroup) -> None:
        found = await discover(self._client)
        for listener in self._listeners:
            listener(found)
        for followed in self._watched:
            has = found.has_resource(followed.resource)
            if has and followed.task is None:
                followed.start(group)
            elif has is False and followed.was_missing and followed.task is not None:
                log.info("following.gone", resource=str(followed.resource))
                await followed.stop()
            followed.was_missing = has is False
        self._discovered.set()
