"""A cluster as it is at one moment: workloads with their pods, and everything that has a say in their size.

Each resource is listed once and nothing is watched. Who may not read all namespaces gets those that may be read: what
was refused is kept beside what was found (`refused`, `troubles`), so that a partial picture never passes for a whole.
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
"""Of ReplicaSets only those that no Deployment or Rollout made are workloads; of the others the metadata will do."""


class ClusterSnapshot:
    """What was found, and what was refused."""

    def __init__(self) -> None:
        self.scopes: Sequence[str | None] = ALL_NAMESPACES
        """The namespaces that were looked at, or all at once."""
        self.forbidden_namespaces: dict[str, str] = {}
        """Namespaces whose pods we may not see, and what the server said."""
        self.errors_by_resource: dict[str, str] = {}
        """Resources of which some or all are missing, and why."""
        self.pods: Cache[Pod] = Cache({OWNER_INDEX: owner_uid})
        self._replica_sets: Cache[Metadata] = Cache({OWNER_INDEX: owner_uid})
        self._ownership = Ownership(self._replica_sets)
        self._hpas: Cache[HorizontalPodAutoscaler] = Cache({"target": scale_target})
        self._constraints = ClusterConstraints()

    def workload_kinds(self) -> tuple[str, ...]:
        """The kinds of workload that the cluster has, as users spell them."""
        return tuple(
            qualify_kind(resource.kind, resource.group) for resource in self._ownership.list_resources()
        )

    def list_workloads(self) -> list[Workload]:
        """Those that no other workload owns."""
        return list(self._ownership.iter_top_level())

    def list_owned(self) -> list[Workload]:
        """List the workloads that another workload owns."""
        return [each for each in self._ownership if self._ownership.find_top_workload(each) is not None]

    def find_top_owner(self, workload: Workload) -> Workload:
        """Find the workload that owns another, or itself."""
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
        """Pods that belong to no workload that we know."""
        return [pod for pod in self.pods if self._ownership.find_top_workload(pod) is None]

    def constraints_for(self, workload: Workload, *, replicas: int) -> Constraints:
        members = self._ownership.collect_owned(workload)
        keys = [member.key for member in members if isinstance(member, Workload)]
        found = [hpa for key in keys for hpa in self._hpas.find("target", key)]
        return self._constraints.constraints_for(workload, replicas=replicas, hpas=found)

    def build_owner_index(self) -> PodOwnerIndex:
        """Who owns whom, to tell whose usage is read: of pods that are gone as well."""
        return PodOwnerIndex(self._ownership, replica_sets=self._replica_sets, pods=self.pods)

    async def fill(self, client: Client) -> None:
        """List everything but the pods."""
        shared = ProjectionCache()
        custom = await _discover_custom_kinds(client)
        kinds: dict[Resource, Cache[Workload]] = {
            resource: Cache({OWNER_INDEX: owner_uid}) for resource in (*BUILT_IN, *custom)
        }
        ranges, quota, machines = Cache(), Cache(), Cache()  # type: ignore[var-annotated]
        listing = ResourceLister(client, self.scopes, self.errors_by_resource)
        async with task_group() as group:
            for resource, cache in kinds.items():
                labels = UNOWNED_REPLICA_SETS if resource == REPLICA_SETS else ""
                group.create_task(
                    listing.fill(cache, resource, workload_projection(resource, shared), labels=labels)
                )
            for other, resource, shape in (
                (self._replica_sets, REPLICA_SETS, metadata_projection(shared)),
                (self._hpas, HPAS, hpa_projection(shared)),
                (ranges, LIMIT_RANGES, limit_range_projection(shared)),
                (quota, RESOURCE_QUOTAS, resource_quota_projection(shared)),
                (machines, NODES, node_projection(shared)),
            ):
                group.create_task(listing.fill(other, resource, shape))
        await self._read_orphans(client, kinds[REPLICA_SETS], workload_projection(REPLICA_SETS, shared))
        for resource, cache in kinds.items():
            self._ownership.add(resource, cache)
        daemons = [found for found in self.list_workloads() if found.kind == "DaemonSet"]
        self._constraints = ClusterConstraints(
            nodes=machines, daemon_sets=daemons, limit_ranges=ranges, quotas=quota
        )

    async def _read_orphans(
        self, client: Client, known: Cache[Workload], shape: Projection[Workload]
    ) -> None:
        """Read the ReplicaSets that a Deployment left behind (`--cascade=orphan`): their label is that of owned ones."""
        for each in list(self._replica_sets):
            is_known = known.get(each.name, each.namespace) is not None
            if each.owner is None and not is_known and self.pods.find(OWNER_INDEX, each.uid):
                fields = f"metadata.name={each.name}"
                async for found in list_records(
                    client, REPLICA_SETS, shape, namespace=each.namespace, fields=fields
                ):
                    known.put(found)


async def take_snapshot(client: Client, *, namespaces: Sequence[str] | None = None) -> ClusterSnapshot:
    """The picture of these namespaces, or of all that may be read."""
    for namespace in namespaces or ():
        if not _NAME.fullmatch(namespace):  # an empty one would mean all of them to the API server
            raise TrimtabError(f"--namespace {namespace!r}: is no name of a namespace, such as shop")
    picture = ClusterSnapshot()
    picture.scopes = await _list_readable(client, namespaces, picture)
    await picture.fill(client)
    for name in namespaces or ():
        if name not in picture.forbidden_namespaces and not _is_used(picture, name):
            await _check_exists(client, name)
    return picture


async def _list_readable(
    client: Client, namespaces: Sequence[str] | None, snapshot: ClusterSnapshot
) -> Sequence[str | None]:
    """Where pods may be listed; they are in the picture then."""
    shape = pod_projection()
    if namespaces is None:
        try:
            await _read_pods(client, None, shape, snapshot.pods)
        except Forbidden:
            namespaces = await _list_namespaces(client)
        else:
            return ALL_NAMESPACES
    readable = []
    for namespace in namespaces:
        try:
            await _read_pods(client, namespace, shape, snapshot.pods)
        except Forbidden as error:
            snapshot.forbidden_namespaces[namespace] = error.message
        else:
            readable.append(namespace)
    if not readable:
        why = next(iter(snapshot.forbidden_namespaces.values()), "there is no namespace")
        raise TrimtabError(f"{client.connection.context}: no pods to see: {why}; see `trimtab doctor`")
    return readable


async def _read_pods(client: Client, namespace: str | None, shape: Projection[Pod], into: Cache[Pod]) -> None:
    async for pod in list_records(client, PODS, shape, namespace=namespace, fields=RUNNING_PODS):
        into.put(pod)


async def _list_namespaces(client: Client) -> list[str]:
    """All, or where even their names are not for us, the one of the context."""
    try:
        return [found.name async for found in list_records(client, NAMESPACES, metadata_projection())]
    except Forbidden:
        return [client.connection.namespace]


async def _discover_custom_kinds(client: Client) -> list[Resource]:
    """What scales besides the built-in kinds, as the operator takes it: a Rollout, a CloneSet."""
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
        raise TrimtabError(f"--namespace {namespace}: there is no such namespace") from None
    except Forbidden:
        return
