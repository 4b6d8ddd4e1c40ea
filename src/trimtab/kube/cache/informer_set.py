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

from trimtab.kube.cache.failure_aggregator import Breaks
from trimtab.kube.cache.informer import Informer, Patience, Scope
from trimtab.kube.cache.projection import R, Shape
from trimtab.kube.cache.store import Cache, Index
from trimtab.kube.errors import Forbidden, KubeError, describe
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.discovery import Discovery, discover
from trimtab.kube.rest.resources import Resource

log = structlog.get_logger(__name__)

ABSENT = "the server does not have it"
"""The trouble with a resource that is not installed, or no more."""


@dataclass(slots=True)
class _Followed:
    resource: Resource
    informer: Informer[Any]
    optional: bool
    task: asyncio.Task[Never] | None = None
    missed: bool = False
    """Whether the last look did not find it."""

    @property
    def trouble(self) -> str:
        if self.task is None:
            return ABSENT
        found = self.informer.trouble
        fix = "; grant list and watch of it" if isinstance(found, Forbidden) else ""
        return describe(found) + fix if found else ""

    def start(self, group: asyncio.TaskGroup) -> None:
        self.task = group.create_task(self.informer.run())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
            self.task = None
            self.informer.forget()


class Follower(Protocol):
    """Who keeps caches of resources true; each method as `Following` has it."""

    def follow(
        self,
        resource: Resource,
        shape: Shape[R],
        *,
        scope: Scope | None = None,
        indexes: Mapping[str, Index[R]] | None = None,
        optional: bool = False,
    ) -> Cache[R]: ...

    def on_discovery(self, listener: Callable[[Discovery], None]) -> None: ...

    def troubles(self) -> Mapping[str, str]: ...

    def unread(self, resource: Resource) -> str: ...

    async def settled(self) -> None: ...

    async def run(self) -> Never: ...


class Following:
    """A set of informers; add with `follow`, then `run` it as a task."""

    def __init__(self, client: Client, *, look_every: float = 30.0, patience: Patience | None = None) -> None:
        self._client = client
        self._look_every = look_every
        self._patience = patience or Patience()
        self._breaks = Breaks()
        self._followed: list[_Followed] = []
        self._listeners: list[Callable[[Discovery], None]] = []
        self._looked = asyncio.Event()

    def follow(
        self,
        resource: Resource,
        shape: Shape[R],
        *,
        scope: Scope | None = None,
        indexes: Mapping[str, Index[R]] | None = None,
        optional: bool = False,
    ) -> Cache[R]:
        """Keep a cache of a resource while the server has it; one that is `optional` need not ever be."""
        informer = Informer(
            self._client,
            resource,
            shape,
            scope=scope,
            indexes=indexes,
            patience=self._patience,
            breaks=self._breaks,
        )
        self._followed.append(_Followed(resource, informer, optional))
        return informer.cache

    def on_discovery(self, listener: Callable[[Discovery], None]) -> None:
        """Tell what the server has at each look, so that more can be followed."""
        self._listeners.append(listener)

    def troubles(self) -> dict[str, str]:
        """Why caches are empty or behind, by resource; nothing when all is well."""
        return {str(followed.resource): followed.trouble for followed in self._followed if followed.trouble}

    def unread(self, resource: Resource) -> str:
        """Why it is not known what there is of a resource that the server has; empty where it is, or has none."""
        waiting = [
            each for each in self._followed if each.resource == resource and not each.informer.is_synced
        ]
        return next((each.trouble or "it is being listed" for each in waiting if each.task is not None), "")

    async def settled(self) -> None:
        """Wait until what the server has is in the caches, or is optional and was refused."""
        await self._looked.wait()
        for followed in self._followed:
            if not followed.optional:
                await followed.informer.synced()
            elif followed.task is not None:
                await followed.informer.answered()

    async def run(self) -> Never:
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    await self._look(group)
                except KubeError as error:
                    log.warning("following.look_failed", error=describe(error))
                await asyncio.sleep(self._look_every if self._looked.is_set() else 1.0)

    async def _look(self, group: asyncio.TaskGroup) -> None:
        found = await discover(self._client)
        for listener in self._listeners:
            listener(found)
        for followed in self._followed:
            has = found.has(followed.resource)
            if has and followed.task is None:
                followed.start(group)
            elif has is False and followed.missed and followed.task is not None:
                log.info("following.gone", resource=str(followed.resource))
                await followed.stop()
            followed.missed = has is False
        self._looked.set()
