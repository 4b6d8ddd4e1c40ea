"""Find the top-level workload of a pod: the object that users write and whose template sizing changes.

An existing pod is resolved by its owner references, a deleted one by its name. Intermediate owners
(ReplicaSets, Jobs) change with every rollout and run, so they are skipped if they have an owner themselves.
An owner above a workload, such as an operator's custom resource, is ignored because it has no containers.
Pure: records in, names out.
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
"""The maximum length of an owner chain; a longer one is a cycle."""


class WorkloadContainer(NamedTuple):
    """The names that identify a container of a workload, which is the unit of sizing."""

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
    """An index from pods to their workloads.

    It needs all workloads, at least the metadata of ReplicaSets and Jobs, and the existing pods.
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
        """Return the workload of an existing pod; a pod without a controller is its own workload."""
        bare = WorkloadKey("Pod", pod.namespace, pod.name)
        owner = pod.owner
        if owner is None or owner.kind == "Node":  # the kubelet creates static pods from files
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
        """Return the workload of an existing or deleted pod; None if it is ambiguous or unknown."""
        if existing := self._pods.get((namespace, pod)):
            return existing
        by_name = self._pod_names.find_owner(namespace, pod)
        return self._resolve_top(self._by_key[by_name]) if by_name else None

    def container_role(self, container: WorkloadContainer) -> Role:
        """Return if the container is a regular one, an init container or a native sidecar."""
        return self._roles.get(container, "main")

    def _resolve_top(self, known: _OwnerRecord) -> WorkloadKey:
        for _ in range(_MAX_OWNER_DEPTH):
            owner = known.owner
            if owner is None:
                break
            above = self._by_uid.get(owner.uid)
            if above is None:
                # The owner is of a kind that is not watched, such as a Rollout; its ReplicaSets still come and go.
                if known.key.kind in _INTERMEDIATE_KINDS:
                    return WorkloadKey(owner.kind, known.key.namespace, owner.name)
                break
            known = above
        return known.key

    def _record_roles(self, workload: WorkloadKey, containers: Iterable[Container]) -> None:
        for container in containers:
            self._roles[WorkloadContainer.from_workload(workload, container.name)] = container.role
