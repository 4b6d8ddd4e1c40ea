"""Who owns whom: from a pod up to its workload, and from a workload down to its pods' owners.

A workload is the topmost object of a kind that we know. What owns it in turn (a custom resource of some operator that
does not scale) is not of interest. Owners are told apart by uid, for a name may have been taken over.
"""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.kube.cache.projection import OwnerReference
from trimtab.kube.cache.store import Cache
from trimtab.kube.kinds.metadata import Metadata
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey, qualify_kind
from trimtab.kube.rest.resources import Resource

_MAX_DEPTH = 8
"""Owners above an object that are looked at: owner references can form a circle."""

OWNER_INDEX = "owner"
"""The index of each cache here."""


def owner_uid(found: Workload | Metadata | Pod) -> str | None:
    """What the index `OWNER` holds a record under."""
    return found.owner.uid if found.owner else None


class Ownership:
    """Workloads of many kinds, and the ReplicaSets that stand between them and their pods."""

    def __init__(self, intermediates: Cache[Metadata]) -> None:
        self._intermediates = intermediates
        self._workloads: dict[Resource, Cache[Workload]] = {}

    def add(self, resource: Resource, cache: Cache[Workload]) -> None:
        self._workloads[resource] = cache

    def list_resources(self) -> tuple[Resource, ...]:
        return tuple(self._workloads)

    def get(self, key: WorkloadKey) -> Workload | None:
        for resource, cache in self._workloads.items():
            if qualify_kind(resource.kind, resource.group) == key.kind and (
                found := cache.get(key.name, key.namespace)
            ):
                return found
        return None

    def __iter__(self) -> Iterator[Workload]:
        """All workloads, those that others own included."""
        for cache in self._workloads.values():
            yield from cache

    def iter_top_level(self, namespace: str | None = None) -> Iterator[Workload]:
        """The workloads that no other workload owns, of a namespace or of all."""
        for cache in self._workloads.values():
            for found in cache if namespace is None else cache.in_namespace(namespace):
                if found.owner is None or self.find_top_workload(found) is None:
                    yield found

    def find_top_workload(self, found: Workload | Metadata | Pod) -> Workload | None:
        """The workload at the top of what owns an object; None when none does."""
        top, owner = None, found.owner
        for _ in range(_MAX_DEPTH):
            record = self._find(found.namespace, owner) if owner else None
            if record is None:
                break
            top, owner = (record if isinstance(record, Workload) else top), record.owner
        return top

    def collect_owned(self, workload: Workload) -> list[Workload | Metadata]:
        """A workload and all that it owns, save pods."""
        members: dict[str, Workload | Metadata] = {workload.uid: workload}
        queue = [workload.uid]
        while queue:
            uid = queue.pop()
            children: list[Workload | Metadata] = [*self._intermediates.find(OWNER_INDEX, uid)]
            for cache in self._workloads.values():
                children += cache.find(OWNER_INDEX, uid)
            for child in children:
                if child.uid not in members:
                    members[child.uid] = child
                    queue.append(child.uid)
        return list(members.values())

    def _find(self, namespace: str, owner: OwnerReference) -> Workload | Metadata | None:
        for resource, cache in self._workloads.items():
            if resource.kind == owner.kind:
                found = cache.get(owner.name, namespace)
                if found is not None and found.uid == owner.uid:
                    return found
        between = self._intermediates.get(owner.name, namespace)
        return between if between is not None and between.uid == owner.uid else None
