"""A cluster as it is at one moment: workloads with their pods, and everything that has a say in their size.

Each resource is listed once and nothing is watched. Who may not read all namespaces gets those that may be read: what
was refused is kept beside what was found (`refused`, `troubles`), so that a partial picture never passes for a whole.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from trimtab.aio import side_by_side
from trimtab.errors import TrimtabError
from trimtab.kube.cache.projection import Folding, Shape
from trimtab.kube.cache.store import Cache
from trimtab.kube.errors import Forbidden, NotFound
from trimtab.kube.kinds.hpas import Hpa, hpas
from trimtab.kube.kinds.metadata import Metadata, metadata
from trimtab.kube.kinds.nodes import nodes
from trimtab.kube.kinds.ownership import OWNER, Ownership, owner_uid
from trimtab.kube.kinds.pods import Pod, pods
from trimtab.kube.kinds.quotas import limit_ranges, quotas
from trimtab.kube.kinds.workloads import BUILT_IN, Workload, WorkloadKey, kind_name, workloads
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.discovery import discover
from trimtab.kube.rest.list_pages import records
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
from trimtab.operator.cluster_state import target_of
from trimtab.recommender.cluster_constraints import Neighbourhood
from trimtab.scan.lister import EVERYWHERE, Listing
from trimtab.sizing.constraints import Surroundings
from trimtab.usage.pod_ownership import Owners

_NAME = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")
RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
WITHOUT_OWNER = "!pod-template-hash,!rollouts-pod-template-hash"
"""Of ReplicaSets only those that no Deployment or Rollout made are workloads; of the others the metadata will do."""


class Picture:
    """What was found, and what was refused."""

    def __init__(self) -> None:
        self.scopes: Sequence[str | None] = EVERYWHERE
        """The namespaces that were looked at, or all at once."""
        self.refused: dict[str, str] = {}
        """Namespaces whose pods we may not see, and what the server said."""
        self.troubles: dict[str, str] = {}
        """Resources of which some or all are missing, and why."""
        self.pods: Cache[Pod] = Cache({OWNER: owner_uid})
        self._between: Cache[Metadata] = Cache({OWNER: owner_uid})
        self._ownership = Ownership(self._between)
        self._hpas: Cache[Hpa] = Cache({"target": target_of})
        self._neighbourhood = Neighbourhood()

    def kinds(self) -> tuple[str, ...]:
        """The kinds of workload that the cluster has, as users spell them."""
        return tuple(kind_name(resource.kind, resource.group) for resource in self._ownership.kinds())

    def workloads(self) -> list[Workload]:
        """Those that no other workload owns."""
        return list(self._ownership.tops())

    def owned(self) -> list[Workload]:
        """List the workloads that another workload owns."""
        return [each for each in self._ownership if self._ownership.above(each) is not None]

    def top_of(self, workload: Workload) -> Workload:
        """Find the workload that owns another, or itself."""
        return self._ownership.above(workload) or workload

    def makes(self, workload: Workload) -> tuple[WorkloadKey, ...]:
        """List the workloads that a workload owns."""
        return tuple(
            each.key
            for each in self._ownership.below(workload)
            if isinstance(each, Workload) and each.uid != workload.uid
        )

    def pods_of(self, workload: Workload) -> tuple[Pod, ...]:
        members = self._ownership.below(workload)
        return tuple(pod for member in members for pod in self.pods.find(OWNER, member.uid))

    def unowned(self) -> list[Pod]:
        """Pods that belong to no workload that we know."""
        return [pod for pod in self.pods if self._ownership.above(pod) is None]

    def around(self, workload: Workload, *, replicas: int) -> Surroundings:
        members = self._ownership.below(workload)
        keys = [member.key for member in members if isinstance(member, Workload)]
        found = [hpa for key in keys for hpa in self._hpas.find("target", key)]
        return self._neighbourhood.around(workload, replicas=replicas, hpas=found)

    def owners(self) -> Owners:
        """Who owns whom, to tell whose usage is read: of pods that are gone as well."""
        return Owners(self._ownership, replica_sets=self._between, pods=self.pods)

    async def fill(self, client: Client) -> None:
        """List everything but the pods."""
        shared = Folding()
        custom = await _custom_kinds(client)
        kinds: dict[Resource, Cache[Workload]] = {
            resource: Cache({OWNER: owner_uid}) for resource in (*BUILT_IN, *custom)
        }
        ranges, quota, machines = Cache(), Cache(), Cache()  # type: ignore[var-annotated]
        listing = Listing(client, self.scopes, self.troubles)
        async with side_by_side() as group:
            for resource, cache in kinds.items():
                labels = WITHOUT_OWNER if resource == REPLICA_SETS else ""
                group.create_task(listing.fill(cache, resource, workloads(resource, shared), labels=labels))
            for other, resource, shape in (
                (self._between, REPLICA_SETS, metadata(shared)),
                (self._hpas, HPAS, hpas(shared)),
                (ranges, LIMIT_RANGES, limit_ranges(shared)),
                (quota, RESOURCE_QUOTAS, quotas(shared)),
                (machines, NODES, nodes(shared)),
            ):
                group.create_task(listing.fill(other, resource, shape))
        await self._take_orphans(client, kinds[REPLICA_SETS], workloads(REPLICA_SETS, shared))
        for resource, cache in kinds.items():
            self._ownership.add(resource, cache)
        daemons = [found for found in self.workloads() if found.kind == "DaemonSet"]
        self._neighbourhood = Neighbourhood(
            nodes=machines, daemon_sets=daemons, limit_ranges=ranges, quotas=quota
        )

    async def _take_orphans(self, client: Client, known: Cache[Workload], shape: Shape[Workload]) -> None:
        """Read the ReplicaSets that a Deployment left behind (`--cascade=orphan`): their label is that of owned ones."""
        for each in list(self._between):
            is_known = known.get(each.name, each.namespace) is not None
            if each.owner is None and not is_known and self.pods.find(OWNER, each.uid):
                fields = f"metadata.name={each.name}"
                async for found in records(
                    client, REPLICA_SETS, shape, namespace=each.namespace, fields=fields
                ):
                    known.put(found)


async def look(client: Client, *, namespaces: Sequence[str] | None = None) -> Picture:
    """The picture of these namespaces, or of all that may be read."""
    for namespace in namespaces or ():
        if not _NAME.fullmatch(namespace):  # an empty one would mean all of them to the API server
            raise TrimtabError(f"--namespace {namespace!r}: is no name of a namespace, such as shop")
    picture = Picture()
    picture.scopes = await _readable(client, namespaces, picture)
    await picture.fill(client)
    for name in namespaces or ():
        if name not in picture.refused and not _is_used(picture, name):
            await _exists(client, name)
    return picture


async def _readable(
    client: Client, namespaces: Sequence[str] | None, picture: Picture
) -> Sequence[str | None]:
    """Where pods may be listed; they are in the picture then."""
    shape = pods()
    if namespaces is None:
        try:
            await _take_pods(client, None, shape, picture.pods)
        except Forbidden:
            namespaces = await _namespaces(client)
        else:
            return EVERYWHERE
    readable = []
    for namespace in namespaces:
        try:
            await _take_pods(client, namespace, shape, picture.pods)
        except Forbidden as error:
            picture.refused[namespace] = error.message
        else:
            readable.append(namespace)
    if not readable:
        why = next(iter(picture.refused.values()), "there is no namespace")
        raise TrimtabError(f"{client.connection.context}: no pods to see: {why}; see `trimtab doctor`")
    return readable


async def _take_pods(client: Client, namespace: str | None, shape: Shape[Pod], into: Cache[Pod]) -> None:
    async for pod in records(client, PODS, shape, namespace=namespace, fields=RUNNING):
        into.put(pod)


async def _namespaces(client: Client) -> list[str]:
    """All, or where even their names are not for us, the one of the context."""
    try:
        return [found.name async for found in records(client, NAMESPACES, metadata())]
    except Forbidden:
        return [client.connection.namespace]


async def _custom_kinds(client: Client) -> list[Resource]:
    """What scales besides the built-in kinds, as the operator takes it: a Rollout, a CloneSet."""
    known = {(resource.group, resource.kind) for resource in BUILT_IN}
    found = (await discover(client)).scalable
    return [
        resource
        for resource in found
        if resource.namespaced and resource.group and (resource.group, resource.kind) not in known
    ]


def _is_used(picture: Picture, namespace: str) -> bool:
    found: Collection[Pod] = picture.pods.in_namespace(namespace)
    return bool(found) or any(workload.namespace == namespace for workload in picture.workloads())


async def _exists(client: Client, namespace: str) -> None:
    try:
        await client.get(NAMESPACES, namespace)
    except NotFound:
        raise TrimtabError(f"--namespace {namespace}: there is no such namespace") from None
    except Forbidden:
        return
