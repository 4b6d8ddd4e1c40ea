"""Watch many resources, some of which may be missing: not installed, not granted, or removed later.

Each resource has an informer that runs as long as the server has the resource. A resource that is installed later is
picked up at the next discovery; one that is removed is dropped, and its cache reports the deletions. One missing
discovery is not enough for that: a server that has just started responds a moment before it lists custom kinds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Never, Protocol

import structlog

from trimtab.kube.cache.informer import FailureAggregator, Informer, Scope, WatchTimeouts
from trimtab.kube.cache.projection import Projection, R
from trimtab.kube.cache.store import Cache, Index
from trimtab.kube.errors import Forbidden, KubeError, NotFound, describe
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.discovery import Discovery, discover
from trimtab.kube.rest.resources import NAMESPACES, Resource
from trimtab.kube.rest.watched_namespaces import name_in_namespace

log = structlog.get_logger(__name__)

NOT_SERVED = "the server does not have this resource"
"""The error of a resource that is not installed, or no longer."""

GRANT_RIGHTS = "grant list and watch on it"
"""The remedy in the error of a resource that may not be read."""

GRANT_GET = "grant get on it"
"""The remedy in the error of a namespace that may not be read."""


@dataclass(slots=True)
class _WatchedResource:
    resource: Resource
    informer: Informer[Any]
    optional: bool
    namespace: str = ""
    """The only namespace that is watched; empty for all."""
    task: asyncio.Task[Never] | None = None
    was_missing: bool = False
    """The last discovery did not list the resource."""

    @property
    def name(self) -> str:
        """The name of the resource in errors; whether the server has it is the same in all namespaces."""
        if not self.namespace or self.task is None:
            return str(self.resource)
        return name_in_namespace(self.resource, self.namespace)

    @property
    def error_message(self) -> str:
        if self.task is None:
            return NOT_SERVED
        found = self.informer.last_error
        fix = f"; {GRANT_RIGHTS}" if self.is_forbidden else ""
        return describe(found) + fix if found else ""

    @property
    def is_forbidden(self) -> bool:
        return isinstance(self.informer.last_error, Forbidden)

    def start(self, group: asyncio.TaskGroup) -> None:
        self.task = group.create_task(self.informer.run())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
            self.task = None
            self.informer.reset()


class InformerPort(Protocol):
    """Keeps caches of resources current; the methods are those of `InformerSet`."""

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

    def unsynced_reason(self, resource: Resource, namespace: str) -> str: ...

    async def wait_synced(self) -> None: ...

    async def run(self) -> Never: ...


class InformerSet:
    """A set of informers; add resources with `watch_resource`, then `run` it as a task."""

    def __init__(
        self, client: Client, *, discovery_interval: float = 30.0, timeouts: WatchTimeouts | None = None
    ) -> None:
        self._client = client
        self._discovery_interval = discovery_interval
        self._timeouts = timeouts or WatchTimeouts()
        self._failures = FailureAggregator()
        self._watched: list[_WatchedResource] = []
        self._by_namespace: dict[tuple[Resource, str], list[_WatchedResource]] = {}
        """The same by resource and watched namespace, for a question that each reconcile asks."""
        self._namespace_errors: dict[str, str] = {}
        self._namespace_caches: list[tuple[Projection[Any], Cache[Any]]] = []
        """The caches of Namespaces that are read one by one, because the client may not list them."""
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
        """Keep a cache of a resource while the server has it; an `optional` resource may be missing for ever.

        For a client with a scope, each of its namespaces is watched. Cluster-scoped resources, which it may not read, stay
        unknown, apart from the namespaces themselves.
        """
        within = self._client.scope
        if within and not (scope and scope.namespace):
            cache: Cache[R] = Cache(indexes)
            if resource == NAMESPACES:
                self._namespace_caches.append((projection, cache))
                return cache
            for namespace in within.namespaces_of(resource):
                self._watch_namespace(
                    resource, projection, namespace, scope or Scope(), cache, optional=optional
                )
            return cache
        informer = Informer(
            self._client,
            resource,
            projection,
            scope=scope,
            indexes=indexes,
            timeouts=self._timeouts,
            failures=self._failures,
        )
        self._add(_WatchedResource(resource, informer, optional))
        return informer.cache

    def _watch_namespace(
        self,
        resource: Resource,
        projection: Projection[R],
        namespace: str,
        scope: Scope,
        cache: Cache[R],
        *,
        optional: bool,
    ) -> None:
        name = name_in_namespace(resource, namespace)
        if scope.display_name:
            name = f"{scope.display_name} in namespace {namespace}"
        informer = Informer(
            self._client,
            resource,
            projection,
            scope=replace(scope, namespace=namespace, display_name=name),
            cache=cache,
            timeouts=self._timeouts,
            failures=self._failures,
        )
        self._add(_WatchedResource(resource, informer, optional, namespace))

    def _add(self, watched: _WatchedResource) -> None:
        self._watched.append(watched)
        self._by_namespace.setdefault((watched.resource, watched.namespace), []).append(watched)

    def on_discovery(self, listener: Callable[[Discovery], None]) -> None:
        """Call the listener with the result of each discovery, so that it can add more resources."""
        self._listeners.append(listener)

    def errors_by_resource(self) -> dict[str, str]:
        """Return the reasons why caches are empty or outdated, by resource; empty if there are none."""
        missing = {name_in_namespace(NAMESPACES, name): why for name, why in self._namespace_errors.items()}
        return missing | {each.name: each.error_message for each in self._watched if each.error_message}

    def unsynced_reason(self, resource: Resource, namespace: str) -> str:
        """Return the reason why the objects of a served resource that affect a namespace are not known yet; empty if they
        are, or it is not served.
        """
        if resource == NAMESPACES and namespace in self._namespace_errors:
            return self._namespace_errors[namespace]
        scope = self._client.scope
        within = scope.namespaces_affecting(resource, namespace) if scope else ()
        relevant = (each for name in ("", *within) for each in self._by_namespace.get((resource, name), ()))
        return next(
            (
                each.error_message or "its first list is in progress"
                for each in relevant
                if each.task is not None and not each.informer.is_synced
            ),
            "",
        )

    async def wait_synced(self) -> None:
        """Wait until the caches hold what the server has; a rejected optional resource is not waited for."""
        await self._discovered.wait()
        for watched in self._watched:
            # A right that is missing in one namespace must not stop the work in the others.
            if not watched.optional and not watched.namespace:
                await watched.informer.wait_synced()
            elif watched.task is not None:
                await watched.informer.wait_synced_or_failed()

    async def run(self) -> Never:
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    await self._discover(group)
                except KubeError as error:
                    log.warning("informer_set.discovery_failed", error=describe(error))
                await asyncio.sleep(self._discovery_interval if self._discovered.is_set() else 1.0)

    async def _discover(self, group: asyncio.TaskGroup) -> None:
        found = await discover(self._client)
        for listener in self._listeners:
            listener(found)
        await self._read_namespaces()
        for watched in self._watched:
            is_served = found.has_resource(watched.resource)
            if is_served and watched.task is None:
                watched.start(group)
            # Stop after two discoveries without the resource: a restarting server lists custom kinds a little late.
            elif is_served is False and watched.was_missing and watched.task is not None:
                log.info("informer_set.resource_removed", resource=str(watched.resource))
                await watched.stop()
            watched.was_missing = is_served is False
        self._discovered.set()

    async def _read_namespaces(self) -> None:
        """Read the namespaces of the client's scope, which a Role may permit to get and not to list."""
        scope = self._client.scope
        for projection, cache in self._namespace_caches if scope else ():
            uids = set()
            for name in scope.namespaces_of(NAMESPACES) if scope else ():
                try:
                    found = await self._client.get(NAMESPACES, name, into=projection.wire_type)
                except (Forbidden, NotFound) as error:
                    self._failures.report(f"namespace {name}", error)
                    if isinstance(error, Forbidden):
                        self._namespace_errors[name] = f"{describe(error)}; {GRANT_GET}"
                    continue
                self._namespace_errors.pop(name, None)
                record = projection.project(found)
                cache.put(record)
                uids.add(record.uid)
            cache.keep_only(uids)
