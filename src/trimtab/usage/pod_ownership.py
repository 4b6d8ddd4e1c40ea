"""From a pod to the workload at the top: the one that a user wrote, and whose template sizing changes.

A pod that is there is followed by its owner references; one that is gone, by its name. What stands between (ReplicaSets,
Jobs) changes with every rollout and run, so it is passed over wherever it has an owner itself. What stands above
a workload (an operator's own object) is not: it has no containers. Pure: records in, names out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trimtab.kube.cache.projection import OwnerReference
from trimtab.kube.kinds.metadata import Metadata
from trimtab.kube.kinds.pods import Container, Pod, Role
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.usage.pod_names import PodNameIndex

_INTERMEDIATE_KINDS = {"ReplicaSet", "Job"}
_MAX_OWNER_DEPTH = 8
"""Owners of owners: more is a circle."""


class WorkloadContainer(NamedTuple):
    """A container of a workload, by its names: what is sized."""

    namespace: str
    kind: str
    name: str
    container: str

    @classmethod
    def from_workload(cls, workload: WorkloadKey, container: str) -> WorkloadContainer:
        return cls(workload.namespace, workload.kind, workload.name, container)

    @property
    def workload(self) -> WorkloadKey:
        return WorkloadKey(self.kind, self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.workload} {self.container}"


class _OwnerRecord(NamedTuple):
    key: WorkloadKey
    owner: OwnerReference | None


class PodOwnerIndex:
    """What is known of who owns whom.

    Of workloads give all, of ReplicaSets and Jobs at least the metadata, and of pods those that are there.
    """

    def __init__(
        self,
        workloads: Iterable[Workload],
        *,
        replica_sets: Iterable[Metadata] = (),
        jobs: Iterable[Metadata] = (),
        pods: Iterable[Pod] = (),
    ) -> None:
        self._by_uid: dict[str, _OwnerRecord] = {}
        self._roles: dict[WorkloadContainer, Role] = {}
        self._pods: dict[tuple[str, str], WorkloadKey] = {}
        self._pod_names = PodNameIndex()
        workloads = tuple(workloads)
        for workload in workloads:
            self._by_uid[workload.uid] = _OwnerRecord(workload.key, workload.owner)
        for kind, between in (("ReplicaSet", replica_sets), ("Job", jobs)):
            for record in between:
                key = WorkloadKey(kind, record.namespace, record.name)
                self._by_uid.setdefault(record.uid, _OwnerRecord(key, record.owner))
        self._pod_names.add({known.key for known in self._by_uid.values()})
        self._by_key = {known.key: known for known in self._by_uid.values()}
        for workload in workloads:
            self._record_roles(
                self._resolve_top(_OwnerRecord(workload.key, workload.owner)), workload.containers
            )
        for pod in pods:
            self._pods[pod.namespace, pod.name] = top = self.resolve_pod(pod)
            self._record_roles(top, pod.containers)

    def resolve_pod(self, pod: Pod) -> WorkloadKey:
        """The workload of a pod that is there; a pod that nobody controls is its own."""
        bare = WorkloadKey("Pod", pod.namespace, pod.name)
        owner = pod.owner
        if owner is None or owner.kind == "Node":  # a static pod, which the kubelet makes from a file
            return bare
        known = self._by_uid.get(owner.uid)
        if known:
            return self._resolve_top(known)
        if owner.kind in _INTERMEDIATE_KINDS and (
            by_name := self._pod_names.find_owner(pod.namespace, pod.name)
        ):
            return self._resolve_top(self._by_key[by_name])
        return WorkloadKey(owner.kind, pod.namespace, owner.name)

    def find_workload(self, namespace: str, pod: str) -> WorkloadKey | None:
        """The workload of a pod, there or gone; None when it cannot be told."""
        if alive := self._pods.get((namespace, pod)):
            return alive
        by_name = self._pod_names.find_owner(namespace, pod)
        return self._resolve_top(self._by_key[by_name]) if by_name else None

    def container_role(self, container: WorkloadContainer) -> Role:
        """Whether it is a container of its own right, runs before those, or is a native sidecar of theirs."""
        return self._roles.get(container, "main")

    def _resolve_top(self, known: _OwnerRecord) -> WorkloadKey:
        for _ in range(_MAX_OWNER_DEPTH):
            owner = known.owner
            if owner is None:
                break
            above = self._by_uid.get(owner.uid)
            if above is None:
                # A kind that we do not watch, as a Rollout may be: its replica sets come and go all the same.
                if known.key.kind in _INTERMEDIATE_KINDS:
                    return WorkloadKey(owner.kind, known.key.namespace, owner.name)
                break
            known = above
        return known.key

    def _record_roles(self, workload: WorkloadKey, containers: Iterable[Container]) -> None:
        for container in containers:
            self._roles[WorkloadContainer.from_workload(workload, container.name)] = container.role
