"""An informer set without a server: a test puts records into its caches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Never

from trimtab.kube.cache.informer import Scope
from trimtab.kube.cache.informer_set import GRANT_RIGHTS
from trimtab.kube.cache.projection import Projection, R
from trimtab.kube.cache.store import Cache, Index
from trimtab.kube.rest.discovery import Discovery
from trimtab.kube.rest.resources import Resource
from trimtab.kube.rest.watched_namespaces import name_in_namespace
from trimtab.operator.cluster_state import FAILED_JOB_PODS


class FakeInformerSet:
    """Caches of every watched resource; each record goes to all caches of its resource but that of failed Job pods."""

    def __init__(self) -> None:
        self._caches: dict[Resource, list[Cache[Any]]] = {}
        self._forbidden: dict[tuple[Resource, str], str] = {}

    def watch_resource(
        self,
        resource: Resource,
        projection: Projection[R],
        *,
        scope: Scope | None = None,
        indexes: Mapping[str, Index[R]] | None = None,
        optional: bool = False,
    ) -> Cache[R]:
        del projection, optional
        cache: Cache[R] = Cache(indexes)
        if scope != FAILED_JOB_PODS:
            self._caches.setdefault(resource, []).append(cache)
        return cache

    def put(self, resource: Resource, record: Any) -> None:
        """Add or replace a record, as an informer does at an event of its watch."""
        for cache in self._caches[resource]:
            cache.put(record)

    def remove(self, resource: Resource, record: Any) -> None:
        """Remove a record, as an informer does when the object is deleted."""
        for cache in self._caches[resource]:
            cache.remove(record)

    def on_discovery(self, listener: Callable[[Discovery], None]) -> None:
        """Discover nothing."""

    def forbid(self, resource: Resource, namespace: str) -> None:
        """Refuse a resource in one namespace from now on, as for an operator whose Role there does not grant it."""
        self._forbidden[resource, namespace] = f"{resource} is forbidden in {namespace}; {GRANT_RIGHTS}"

    def errors_by_resource(self) -> Mapping[str, str]:
        return {name_in_namespace(*place): why for place, why in self._forbidden.items()}

    def unsynced_reason(self, resource: Resource, namespace: str) -> str:
        return self._forbidden.get((resource, namespace), "")

    async def wait_synced(self) -> None:
        """Return at once."""

    async def run(self) -> Never:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")
