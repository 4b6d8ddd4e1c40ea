"""Ownership: from a pod up to its workload, and from a workload down to the owners of its pods.

A workload is the topmost object of a kind that is watched. Its own owner (a custom resource that does not scale) is
ignored. Owners are compared by uid, because a name may have been reused.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping

from trimtab.kube.cache.projection import OwnerReference
from trimtab.kube.cache.store import Cache
from trimtab.kube.kinds.metadata import Metadata
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey, qualify_kind
from trimtab.kube.rest.resources import Resource

_MAX_DEPTH = 8
"""The maximum number of owners to follow: owner references can form a cycle."""

OWNER_INDEX = "owner"
"""The name of the index by owner in each of these caches."""


def owner_uid(found: Workload | Metadata | Pod) -> str | None:
    """Return the value of a record in the index `OWNER_INDEX`."""
    return found.owner.uid if found.owner else None


class Ownership:
    """Workloads of many kinds, and the ReplicaSets between them and their pods."""

    def __init__(self, intermediates: Cache[Metadata]) -> None:
        self._intermediates = intermediates
        self._workloads: dict[Resource, Cache[Workload]] = {}
        self._children: list[Mapping[Hashable, Collection[Workload | Metadata]]] = [
            intermediates.read_index(OWNER_INDEX)
        ]
        """The objects by the uid of their owner, of each resource."""

    def add(self, resource: Resource, cache: Cache[Workload]) -> None:
        self._workloads[resource] = cache
        self._children.append(cache.read_index(OWNER_INDEX))

    def list_resources(self) -> tuple[Resource, ...]:
        return tuple(self._workloads)

    def get(self, key: WorkloadKey) -> Workload | None:
        for resource, cache in self._workloads.items():
            if qualify_kind(resource.kind, resource.group) == key.kind and (
                found := cache.get(key.name, key.namespace)
            ):
                return found
        return None

    def update(self, workload: Workload) -> None:
        """Replace the record of a workload by a newer one that a write returned."""
        if cache := self._workloads.get(workload.resource):
            cache.update(workload)

    def __iter__(self) -> Iterator[Workload]:
        """Iterate over all workloads, including those that others own."""
        for cache in self._workloads.values():
            yield from cache

    def iter_top_level(self, namespace: str | None = None) -> Iterator[Workload]:
        """Iterate over the workloads that no other workload owns, in one namespace or in all."""
        for cache in self._workloads.values():
            for found in cache if namespace is None else cache.in_namespace(namespace):
                if found.owner is None or self.find_top_workload(found) is None:
                    yield found

    def find_top_workload(self, found: Workload | Metadata | Pod) -> Workload | None:
        """Return the topmost workload that owns an object; None if there is none."""
        top, owner = None, found.owner
        for _ in range(_MAX_DEPTH):
            record = self._find(found.namespace, owner) if owner else None
            if record is None:
                break
            top, owner = (record if isinstance(record, Workload) else top), record.owner
        return top

    def collect_owned(self, workload: Workload) -> list[Workload | Metadata]:
        """Return a workload and all that it owns, except pods."""
        members: dict[str, Workload | Metadata] = {workload.uid: workload}
        queue = [workload.uid]
        while queue:
            uid = queue.pop()
            # Most resources have no owned objects at all, and each reconcile walks down several times.
            for index in self._children:
                for child in index.get(uid, ()) if index else ():
                    if child.uid not in members:
                        members[child.uid] = child
                        queue.append(child.uid)
        return list(members.values())

    def collect_workloads(self, workload: Workload) -> list[Workload]:
        """Return a workload and the workloads that it owns."""
        return [each for each in self.collect_owned(workload) if isinstance(each, Workload)]

    def _find(self, namespace: str, owner: OwnerReference) -> Workload | Metadata | None:
        for resource, cache in self._workloads.items():
            if resource.kind == owner.kind:
                found = cache.get(owner.name, namespace)
                if found is not None and found.uid == owner.uid:
                    return found
        between = self._intermediates.get(owner.name, namespace)
        return between if between is not None and between.uid == owner.uid else None
