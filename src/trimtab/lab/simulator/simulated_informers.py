"""Show a simulated cluster to the operator: an informer set that reads the world, and a client for whole objects.

`ClusterState` is the production one. Each resource that it watches is a cache, which `sync` updates with everything that
changed in the world; resources that are not simulated (HPAs, quotas) stay empty. `SimulatedObjectClient` keeps objects
that are written whole, such as the status of a policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Never, Protocol

import msgspec

from trimtab.kube.cache.informer import Scope
from trimtab.kube.cache.projection import Projection, R
from trimtab.kube.cache.store import Cache, Index
from trimtab.kube.errors import NotFound, Status
from trimtab.kube.kinds.metadata import Metadata
from trimtab.kube.kinds.workloads import WorkloadKey, qualify_kind
from trimtab.kube.rest.client import FIELD_MANAGER, Object, PatchType
from trimtab.kube.rest.discovery import Discovery
from trimtab.kube.rest.resources import NAMESPACES, NODES, PODS, Resource
from trimtab.lab.simulator.objects import RESOURCES, SimulatedPod, derive_uid
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.operator.cluster_state import FAILED_JOB_PODS


class SimulatedInformerSet:
    """The caches of all watched resources; they change at `sync` only, as caches lag behind a real cluster."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._caches: dict[Resource, list[Cache[Any]]] = {}
        self._written: dict[tuple[Resource, str, str], Object] = {}
        """The statuses that were written since the last `sync`."""

    def watch_resource(
        self,
        resource: Resource,
        projection: Projection[R],
        *,
        scope: Scope | None = None,
        indexes: Mapping[str, Index[R]] | None = None,
        optional: bool = False,
    ) -> Cache[R]:
        del projection, optional  # the world has records already, and serves every resource
        cache: Cache[R] = Cache(indexes)
        if scope != FAILED_JOB_PODS:  # every pod here restarts: in this cache, all would count as failed
            self._caches.setdefault(resource, []).append(cache)
        return cache

    def on_discovery(self, listener: Callable[[Discovery], None]) -> None:
        """Discover nothing: all kinds are known from the start."""

    def errors_by_resource(self) -> Mapping[str, str]:
        return {}

    def unsynced_reason(self, resource: Resource, namespace: str) -> str:
        del resource, namespace
        return ""

    async def wait_synced(self) -> None:
        return None

    async def run(self) -> Never:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    def add_static_objects(self) -> None:
        """Add the objects that never change."""
        for resource, record in list_static_objects(self._world):
            self.put(resource, record)
        self.sync()

    def sync(self) -> None:
        """Update the caches with all changes since the last call."""
        world = self._world
        for pod in world.deleted_pods:
            for cache in self._caches[PODS]:
                cache.remove(pod.to_record(""))
        world.deleted_pods.clear()
        changed, world.changed = world.changed, {}
        for member in changed.values():
            if isinstance(member, SimulatedPod):
                self.put(PODS, member.to_record(world.node_name(member)))
            else:
                self.put(RESOURCES[member.spec.kind], member.to_record())
        written, self._written = self._written, {}
        for (resource, namespace, name), status in written.items():
            self._put_status(resource, namespace, name, status)

    def set_status(self, resource: Resource, namespace: str, name: str, status: Object) -> None:
        """Show a status that was written at the next `sync`, as a watch would."""
        self._written[resource, namespace, name] = status

    def _put_status(self, resource: Resource, namespace: str, name: str, status: Object) -> None:
        for cache in self._caches.get(resource, ()):
            found = cache.get(name, namespace)
            # A policy's record has no status: the operator reads that from the API server.
            if found is not None and hasattr(found, "status"):
                text = msgspec.json.encode(status)
                cache.put(msgspec.structs.replace(found, status=text, version=found.version + 1))

    def put(self, resource: Resource, record: Any) -> None:
        for cache in self._caches[resource]:
            cache.put(record)

    def remove(self, resource: Resource, record: Any) -> None:
        for cache in self._caches[resource]:
            cache.remove(record)


class StatusViewer(Protocol):
    """Shows the statuses that are written to those who watch the objects."""

    def set_status(self, resource: Resource, namespace: str, name: str, status: Object) -> None: ...


class SimulatedObjectClient:
    """Implements `trimtab.kube.rest.object_client.ObjectClient` as far as the operator writes whole objects."""

    def __init__(self, world: SimulatedWorld, informers: StatusViewer) -> None:
        self._world = world
        self._informers = informers
        self.statuses: dict[tuple[str, str, str], Object] = {}
        """The objects by kind, namespace and name."""

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Object:
        del subresource
        status = self.statuses.get((resource.kind, namespace or "", name), {})
        return {"metadata": {"name": name, "namespace": namespace}, "status": status}

    async def list_objects(
        self, resource: Resource, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> list[Object]:
        del resource, namespace, labels, fields
        return []

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        type: PatchType,  # noqa: A002 - Kubernetes' own word for it
        namespace: str | None = None,
        subresource: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        manager: str = FIELD_MANAGER,
    ) -> Object:
        del type, force, dry_run
        if subresource == "status":
            # A merge patch removes a field by null, and an apply has none.
            status = {key: value for key, value in body["status"].items() if value is not None}
            self.statuses[resource.kind, namespace or "", name] = status
            self._informers.set_status(resource, namespace or "", name, status)
            return dict(body)
        key = WorkloadKey(qualify_kind(resource.kind, resource.group), namespace or "", name)
        workload = self._world.workloads.get(key)
        if workload is None:
            raise NotFound(Status(message=f"{key} not found", reason="NotFound", code=NotFound.code))
        workload.annotations[manager] = dict(body["metadata"]["annotations"])
        self._world.mark_changed(workload)
        return dict(body)

    async def apply(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        subresource: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        manager: str = FIELD_MANAGER,
    ) -> Object:
        metadata = body["metadata"]
        return await self.patch(
            resource,
            metadata["name"],
            body,
            type=PatchType.APPLY,
            namespace=metadata.get("namespace"),
            subresource=subresource,
            force=force,
            dry_run=dry_run,
            manager=manager,
        )


def list_static_objects(world: SimulatedWorld) -> Iterator[tuple[Resource, Any]]:
    """List the nodes and namespaces of a world, each with its resource."""
    for node in world.nodes.to_records():
        yield NODES, node
    for name in sorted({"kube-system"} | {key.namespace for key in world.workloads}):
        yield NAMESPACES, _build_namespace_record(name)


def _build_namespace_record(name: str) -> Metadata:
    return Metadata(
        namespace="",
        name=name,
        uid=derive_uid("namespace", name),
        version=1,
        generation=1,
        created=0,
        deleting=False,
        owner=None,
        labels=tuple(build_namespace_labels(name).items()),
        annotations=(),
    )


def build_namespace_labels(name: str) -> dict[str, str]:
    """Return the labels that every namespace has; simulated ones have no others."""
    return {"kubernetes.io/metadata.name": name}
