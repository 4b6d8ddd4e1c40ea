"""A snapshot of a cluster: workloads with their pods, and everything that constrains their size.

Each resource is listed once and nothing is watched. Without the right to read all namespaces, the snapshot covers the
readable ones and records the rest (`forbidden_namespaces`, `errors_by_resource`), so that a partial snapshot never
passes for a complete one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from trimtab.aio import task_group
from trimtab.errors import TrimtabError
from trimtab.kube.cache.projection import Projection, ProjectionCache
from trimtab.kube.cache.store import Cache
from trimtab.kube.errors import Forbidden, NotFound
from trimtab.kube.kinds.hpas import HorizontalPodAutoscaler, hpa_projection
from trimtab.kube.kinds.metadata import Metadata, metadata_projection
from trimtab.kube.kinds.nodes import node_projection
from trimtab.kube.kinds.ownership import OWNER_INDEX, Ownership, owner_uid
from trimtab.kube.kinds.pods import Pod, pod_projection
from trimtab.kube.kinds.quotas import limit_range_projection, resource_quota_projection
from trimtab.kube.kinds.workloads import BUILT_IN, Workload, WorkloadKey, qualify_kind, workload_projection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.discovery import discover
from trimtab.kube.rest.list_pages import list_records
from trimtab.kube.rest.resources import (
    HPAS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    Resource,
)
from trimtab.operator.cluster_state import scale_target
from trimtab.recommender.cluster_constraints import ClusterConstraints
from trimtab.scan.lister import ALL_NAMESPACES, ResourceLister
from trimtab.sizing.constraints import Constraints
from trimtab.usage.pod_ownership import PodOwnerIndex

_NAME = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")
RUNNING_PODS = "status.phase!=Succeeded,status.phase!=Failed"
UNOWNED_REPLICA_SETS = "!pod-template-hash,!rollouts-pod-template-hash"
"""The label selector of ReplicaSets that no Deployment or Rollout created; the others need only their metadata."""


class ClusterSnapshot:
    """The listed objects of a cluster, and what could not be listed."""

    def __init__(self) -> None:
        self.scopes: Sequence[str | None] = ALL_NAMESPACES
        """The namespaces that were listed; None stands for all of them."""
        self.forbidden_namespaces: dict[str, str] = {}
        """The namespaces whose pods may not be listed, each with the API server's message."""
        self.errors_by_resource: dict[str, str] = {}
        """The resources that are missing in part or in whole, each with the reason."""
        self.pods: Cache[Pod] = Cache({OWNER_INDEX: owner_uid})
        self._replica_sets: Cache[Metadata] = Cache({OWNER_INDEX: owner_uid})
        self._ownership = Ownership(self._replica_sets)
        self._hpas: Cache[HorizontalPodAutoscaler] = Cache({"target": scale_target})
        self._constraints = ClusterConstraints()

    def workload_kinds(self) -> tuple[str, ...]:
        """Return the workload kinds of the cluster, as users spell them."""
        return tuple(
            qualify_kind(resource.kind, resource.group) for resource in self._ownership.list_resources()
        )

    def list_workloads(self) -> list[Workload]:
        """List the workloads that no other workload owns."""
        return list(self._ownership.iter_top_level())

    def list_owned(self) -> list[Workload]:
        """List the workloads that another workload owns."""
        return [each for each in self._ownership if self._ownership.find_top_workload(each) is not None]

    def find_top_owner(self, workload: Workload) -> Workload:
        """Return the topmost owner of a workload, or the workload itself if it has none."""
        return self._ownership.find_top_workload(workload) or workload

    def list_owned_by(self, workload: Workload) -> tuple[WorkloadKey, ...]:
        """List the workloads that a workload owns."""
        return tuple(
            each.key
            for each in self._ownership.collect_owned(workload)
            if isinstance(each, Workload) and each.uid != workload.uid
        )

    def list_pods(self, workload: Workload) -> tuple[Pod, ...]:
        members = self._ownership.collect_owned(workload)
        return tuple(pod for member in members for pod in self.pods.find(OWNER_INDEX, member.uid))

    def list_unowned_pods(self) -> list[Pod]:
        """List the pods that belong to no known workload."""
        return [pod for pod in self.pods if self._ownership.find_top_workload(pod) is None]

    def constraints_for(self, workload: Workload, *, replicas: int) -> Constraints:
        members = self._ownership.collect_owned(workload)
        keys = [member.key for member in members if isinstance(member, Workload)]
        found = [hpa for key in keys for hpa in self._hpas.find("target", key)]
        return self._constraints.constraints_for(workload, replicas=replicas, hpas=found)

    def build_owner_index(self) -> PodOwnerIndex:
        """Build the index that assigns the usage of pods, deleted ones included, to workloads."""
        return PodOwnerIndex(self._ownership, replica_sets=self._replica_sets, pods=self.pods)

    async def fill(self, client: Client) -> None:
        """List everything but the pods."""
        shared = ProjectionCache()
        custom = await _discover_custom_kinds(client)
        kinds: dict[Resource, Cache[Workload]] = {
            resource: Cache({OWNER_INDEX: owner_uid}) for resource in (*BUILT_IN, *custom)
        }
        limit_ranges, quotas, nodes = Cache(), Cache(), Cache()  # type: ignore[var-annotated]
        lister = ResourceLister(client, self.scopes, self.errors_by_resource)
        async with task_group() as group:
            for resource, cache in kinds.items():
                labels = UNOWNED_REPLICA_SETS if resource == REPLICA_SETS else ""
                group.create_task(
                    lister.fill(cache, resource, workload_projection(resource, shared), labels=labels)
                )
            for other, resource, projection in (
                (self._replica_sets, REPLICA_SETS, metadata_projection(shared)),
                (self._hpas, HPAS, hpa_projection(shared)),
                (limit_ranges, LIMIT_RANGES, limit_range_projection(shared)),
                (quotas, RESOURCE_QUOTAS, resource_quota_projection(shared)),
                (nodes, NODES, node_projection(shared)),
            ):
                group.create_task(lister.fill(other, resource, projection))
        await self._read_orphans(client, kinds[REPLICA_SETS], workload_projection(REPLICA_SETS, shared))
        for resource, cache in kinds.items():
            self._ownership.add(resource, cache)
        daemon_sets = [found for found in self.list_workloads() if found.kind == "DaemonSet"]
        self._constraints = ClusterConstraints(
            nodes=nodes, daemon_sets=daemon_sets, limit_ranges=limit_ranges, quotas=quotas
        )

    async def _read_orphans(
        self, client: Client, known: Cache[Workload], projection: Projection[Workload]
    ) -> None:
        """Read the ReplicaSets that a Deployment left behind (`--cascade=orphan`): their label is that of owned ones."""
        for each in list(self._replica_sets):
            is_known = known.get(each.name, each.namespace) is not None
            if each.owner is None and not is_known and self.pods.find(OWNER_INDEX, each.uid):
                fields = f"metadata.name={each.name}"
                async for found in list_records(
                    client, REPLICA_SETS, projection, namespace=each.namespace, fields=fields
                ):
                    known.put(found)


async def take_snapshot(client: Client, *, namespaces: Sequence[str] | None = None) -> ClusterSnapshot:
    """Take a snapshot of these namespaces, or of all that may be read."""
    for namespace in namespaces or ():
        if not _NAME.fullmatch(namespace):  # the API server takes an empty name as all namespaces
            raise TrimtabError(
                f"--namespace {namespace!r}: this is not a valid namespace name; write it like shop"
            )
    snapshot = ClusterSnapshot()
    snapshot.scopes = await _list_readable(client, namespaces, snapshot)
    await snapshot.fill(client)
    for name in namespaces or ():
        if name not in snapshot.forbidden_namespaces and not _is_used(snapshot, name):
            await _check_exists(client, name)
    return snapshot


async def _list_readable(
    client: Client, namespaces: Sequence[str] | None, snapshot: ClusterSnapshot
) -> Sequence[str | None]:
    """Put the readable pods into the snapshot, and return the namespaces that they were read from."""
    projection = pod_projection()
    if namespaces is None:
        try:
            await _read_pods(client, None, projection, snapshot.pods)
        except Forbidden:
            namespaces = await _list_namespaces(client)
        else:
            return ALL_NAMESPACES
    readable = []
    for namespace in namespaces:
        try:
            await _read_pods(client, namespace, projection, snapshot.pods)
        except Forbidden as error:
            snapshot.forbidden_namespaces[namespace] = error.message
        else:
            readable.append(namespace)
    if not readable:
        reason = next(iter(snapshot.forbidden_namespaces.values()), "there is no namespace")
        raise TrimtabError(
            f"{client.connection.context}: no pods could be listed: {reason}; run `trimtab doctor`"
        )
    return readable


async def _read_pods(
    client: Client, namespace: str | None, projection: Projection[Pod], into: Cache[Pod]
) -> None:
    async for pod in list_records(client, PODS, projection, namespace=namespace, fields=RUNNING_PODS):
        into.put(pod)


async def _list_namespaces(client: Client) -> list[str]:
    """List all namespaces, or the one of the context if namespaces may not be listed."""
    try:
        return [found.name async for found in list_records(client, NAMESPACES, metadata_projection())]
    except Forbidden:
        return [client.connection.namespace]


async def _discover_custom_kinds(client: Client) -> list[Resource]:
    """Discover the scalable custom kinds that the operator sizes too, such as Rollout or CloneSet."""
    known = {(resource.group, resource.kind) for resource in BUILT_IN}
    found = (await discover(client)).scalable
    return [
        resource
        for resource in found
        if resource.namespaced and resource.group and (resource.group, resource.kind) not in known
    ]


def _is_used(snapshot: ClusterSnapshot, namespace: str) -> bool:
    found: Collection[Pod] = snapshot.pods.in_namespace(namespace)
    return bool(found) or any(workload.namespace == namespace for workload in snapshot.list_workloads())


async def _check_exists(client: Client, namespace: str) -> None:
    try:
        await client.get(NAMESPACES, namespace)
    except NotFound:
        raise TrimtabError(
            f"--namespace {namespace}: the cluster has no such namespace; see `kubectl get namespaces`"
        ) from None
    except Forbidden:
        return
