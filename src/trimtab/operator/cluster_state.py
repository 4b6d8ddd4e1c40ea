"""The live picture of a cluster: workloads with their pods, and everything that has a say in their size.

What it follows, informers as a rule, feeds it. Whatever happens, whoever asked is told which workload to look at again, and by key only: what
happened is for them to see. Nothing is told before the whole picture is there; then every workload is, once.

What a cluster need not have (VPA, a custom kind, our own CRDs) or does not grant is empty here, with the reason in
`troubles`, and fills when it is installed. Left out: how usage is read, and what is done about any of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Never, TypeVar

from trimtab.kube.cache.informer import Scope
from trimtab.kube.cache.informer_set import Follower
from trimtab.kube.cache.projection import Folding, Labels
from trimtab.kube.cache.store import Cache
from trimtab.kube.kinds.custom import QosPolicy, qos_policies
from trimtab.kube.kinds.hpas import Hpa, Target, hpas
from trimtab.kube.kinds.metadata import Metadata, metadata
from trimtab.kube.kinds.nodes import Node, nodes
from trimtab.kube.kinds.ownership import OWNER, Ownership, owner_uid
from trimtab.kube.kinds.pods import Pod, pods
from trimtab.kube.kinds.policies import Policy, policies
from trimtab.kube.kinds.quotas import Amounts, LimitRange, Quota, limit_ranges, quotas
from trimtab.kube.kinds.vpas import Vpa, vpas
from trimtab.kube.kinds.workloads import BUILT_IN, Workload, WorkloadKey, kind_name, workloads
from trimtab.kube.rest.discovery import Discovery
from trimtab.kube.rest.resources import (
    HPAS,
    LIMIT_RANGES,
    NAMESPACES,
    NODE_QOS_POLICIES,
    NODES,
    OPTIMIZATION_POLICIES,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    VPAS,
    Resource,
)
from trimtab.operator.policy.matching import Selection
from trimtab.usage.pod_ownership import Owners, WorkloadContainer
from trimtab.usage.usage import PodContainer

Scaler = TypeVar("Scaler", Hpa, Vpa)

_RUNNING = Scope(fields="status.phase!=Succeeded,status.phase!=Failed")
FAILED = Scope(
    called="failed pods of jobs", labels="batch.kubernetes.io/job-name", fields="status.phase=Failed"
)
"""A Job's pod that is never started again ends with its container; only then it tells of what, as for lack of memory."""
_WITHOUT_OWNER = Scope(
    called="replicasets.apps on their own", labels="!pod-template-hash,!rollouts-pod-template-hash"
)
"""Of ReplicaSets only those that no Deployment or Rollout made are workloads; of the others the metadata will do."""


class Catalog:
    """What is in a cluster now; `run` it as a task, and wait for `ready`."""

    def __init__(
        self,
        following: Follower,
        *,
        home: str,
        look_again: Callable[[WorkloadKey], None],
    ) -> None:
        self._home = home
        self._look_again = look_again
        self._folding = shared = Folding()
        self._following = following
        follow = following.follow
        self.namespaces: Cache[Metadata] = follow(NAMESPACES, metadata(shared))
        self.nodes: Cache[Node] = follow(NODES, nodes(shared))
        self.pods: Cache[Pod] = follow(PODS, pods(shared), scope=_RUNNING, indexes={OWNER: owner_uid})
        self._failed: Cache[Pod] = follow(PODS, pods(shared), scope=FAILED, indexes={OWNER: owner_uid})
        self.policies: Cache[Policy] = follow(OPTIMIZATION_POLICIES, policies(shared), optional=True)
        self.node_policies: Cache[QosPolicy] = follow(NODE_QOS_POLICIES, qos_policies(), optional=True)
        self.hpas: Cache[Hpa] = follow(HPAS, hpas(shared), indexes={"target": target_of})
        self.vpas: Cache[Vpa] = follow(VPAS, vpas(shared), indexes={"target": target_of}, optional=True)
        self.limit_ranges: Cache[LimitRange] = follow(LIMIT_RANGES, limit_ranges(shared))
        self.quotas: Cache[Quota] = follow(RESOURCE_QUOTAS, quotas(shared))
        self._replica_sets: Cache[Metadata] = follow(
            REPLICA_SETS, metadata(shared), indexes={OWNER: owner_uid}
        )
        self._ownership = Ownership(self._replica_sets)
        self._ready = asyncio.Event()
        self._selection: Selection | None = None
        self._changed_policies: list[Policy] = []
        for resource in BUILT_IN:
            self._follow_workloads(resource)
        self._listen()

    # Reading

    def troubles(self) -> Mapping[str, str]:
        """What is missing from the picture and why, by resource."""
        return self._following.troubles()

    def unread(self, resource: Resource) -> str:
        """Why it is not known what there is of a resource, such as policies; empty where it is."""
        return self._following.unread(resource)

    @property
    def cluster_name(self) -> str:
        """What the cluster is known by in the store: the uid of a namespace that each has and none shares."""
        system = self.namespaces.get("kube-system")
        return system.uid if system else "cluster"

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until the picture is whole; TimeoutError when that takes too long: `troubles` knows why."""
        async with asyncio.timeout(timeout):
            await self._ready.wait()

    def kinds(self) -> tuple[Resource, ...]:
        """The resources that hold workloads, those that were discovered included."""
        return self._ownership.kinds()

    def get(self, key: WorkloadKey) -> Workload | None:
        return self._ownership.get(key)

    def workloads(self, namespace: str | None = None) -> Iterator[Workload]:
        """The workloads that no other workload owns, of a namespace or of all."""
        return self._ownership.tops(namespace)

    def workload_of(self, pod: Pod) -> Workload | None:
        """The workload at the top of a pod's owners."""
        return self._ownership.above(pod)

    def pods_of(self, workload: Workload) -> list[Pod]:
        return self._pods_in(self.pods, workload)

    def failed_of(self, workload: Workload) -> list[Pod]:
        """The pods of a Job, or of a CronJob's jobs, that have failed for good."""
        return self._pods_in(self._failed, workload) if len(self._failed) else []

    def _pods_in(self, cache: Cache[Pod], workload: Workload) -> list[Pod]:
        members = self._ownership.below(workload)
        return [pod for member in members for pod in cache.find(OWNER, member.uid)]

    def owners(self) -> Owners:
        """Who owns whom, to tell whose usage is read: of pods that are gone as well."""
        return Owners(self._ownership, replica_sets=self._replica_sets, pods=self.pods)

    def hpas_of(self, workload: Workload) -> list[Hpa]:
        """The autoscalers that scale a workload, or one that it owns."""
        return self._scalers(self.hpas, workload)

    def vpas_of(self, key: WorkloadKey) -> list[Vpa]:
        """The VerticalPodAutoscalers that are about a workload, be it there or not, or about one that it owns."""
        if not len(self.vpas):  # as in most clusters: then nobody is to look through all that a workload owns
            return []
        workload = self.get(key)
        return self._scalers(self.vpas, workload) if workload else self.vpas.find("target", key)

    def applied_by(self, key: WorkloadKey) -> str:
        """The name of a VerticalPodAutoscaler that changes this workload's pods; empty when none does."""
        return next((vpa.name for vpa in self.vpas_of(key) if vpa.applies), "")

    def top(self, key: WorkloadKey) -> WorkloadKey:
        """The workload at the top of a workload's owners; itself where none owns it, or it is not there."""
        found = self.get(key)
        above = self._ownership.above(found) if found else None
        return above.key if above else key

    @property
    def selection(self) -> Selection:
        """Which policies select what, as things stand."""
        if self._selection is None:
            self._selection = self._select(self.policies)
        return self._selection

    def _select(self, among: Iterable[Policy]) -> Selection:
        labels: dict[str, Labels] = {found.name: found.labels for found in self.namespaces}
        return Selection(among, namespaces=labels, home=self._home)

    def _scalers(self, cache: Cache[Scaler], workload: Workload) -> list[Scaler]:
        members = self._ownership.below(workload)
        keys = [member.key for member in members if isinstance(member, Workload)]
        return [found for key in keys for found in cache.find("target", key)]

    # Following

    async def run(self) -> Never:
        """Keep the picture true until cancelled."""
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._following.run())
            await self._following.settled()
            self._ready.set()
            for found in list(self.workloads()):
                self._tell(found.key)
            await following
        raise AssertionError("unreachable")

    def _listen(self) -> None:
        self._following.on_discovery(self._discovered)
        self.namespaces.on_change(self._namespace_changed)
        self.pods.on_change(self._owned_changed)
        self._failed.on_change(self._owned_changed)
        self._replica_sets.on_change(self._owned_changed)
        self.policies.on_change(self._policy_changed)
        self.hpas.on_change(self._scaler_changed)
        self.vpas.on_change(self._scaler_changed)
        self.limit_ranges.on_change(self._limit_range_changed)
        self.quotas.on_change(self._quota_changed)

    def _discovered(self, found: Discovery) -> None:
        followed = {(known.group, known.kind) for known in self.kinds() if found.has(known) is not False}
        for resource in found.scalable:
            # The one in the core group, ReplicationController, is a relic: not worth a right that all would grant.
            if resource.namespaced and resource.group and (resource.group, resource.kind) not in followed:
                self._follow_workloads(resource, optional=True)

    def _follow_workloads(self, resource: Resource, *, optional: bool = False) -> None:
        cache = self._following.follow(
            resource,
            workloads(resource, self._folding),
            scope=_WITHOUT_OWNER if resource == REPLICA_SETS else None,
            indexes={OWNER: owner_uid},
            optional=optional,
        )
        self._ownership.add(resource, cache)
        cache.on_change(self._workload_changed)

    # Telling

    def _tell(self, key: WorkloadKey) -> None:
        if self._ready.is_set():
            self._look_again(key)

    def _tell_namespace(self, namespace: str) -> None:
        for found in self.workloads(namespace):
            self._tell(found.key)

    def _workload_changed(self, old: Workload | None, new: Workload | None, /) -> None:
        if found := new or old:
            self._tell((self._ownership.above(found) or found).key)

    def _owned_changed(self, old: Metadata | Pod | None, new: Metadata | Pod | None, /) -> None:
        if (found := new or old) and (top := self._ownership.above(found)):
            self._tell(top.key)

    def _scaler_changed(self, old: Scaler | None, new: Scaler | None, /) -> None:
        if old and new and _asks(old) == _asks(new):
            return  # it wrote what it saw, or we what we recommend
        for key in {target_of(found) for found in (old, new) if found}:
            self._tell(self.top(key))

    def _namespace_changed(self, old: Metadata | None, new: Metadata | None, /) -> None:
        if old is None or new is None or old.labels != new.labels:
            self._selection = None
            if found := new or old:
                self._tell_namespace(found.name)

    def _limit_range_changed(self, old: LimitRange | None, new: LimitRange | None, /) -> None:
        if found := new or old:
            self._tell_namespace(found.namespace)

    def _quota_changed(self, old: Quota | None, new: Quota | None, /) -> None:
        # What is used changes with every pod; only what is allowed is news.
        if (found := new or old) and _allowed(old) != _allowed(new):
            self._tell_namespace(found.namespace)

    def _policy_changed(self, old: Policy | None, new: Policy | None, /) -> None:
        if old and new and new.says_the_same_as(old):
            return  # only its status was written, and by us
        self._selection = None
        if self._ready.is_set():
            if not self._changed_policies:
                # Many policies tend to change together: once this batch is in, each workload is looked at once.
                asyncio.get_running_loop().call_soon(self._tell_selected)
            self._changed_policies += [found for found in (old, new) if found]

    def _tell_selected(self) -> None:
        changed, self._changed_policies = self._changed_policies, []
        selection = self._select(changed)
        for found in list(self.workloads()):
            if selection.of(found):
                self._tell(found.key)


def _allowed(quota: Quota | None) -> tuple[Amounts, Amounts] | None:
    return (quota.hard_requests, quota.hard_limits) if quota else None


def _asks(found: Hpa | Vpa) -> object:
    """What an autoscaler wants, apart from how it fares."""
    if isinstance(found, Vpa):
        return found.uid, found.generation
    shares = [(share.resource, share.target, share.container) for share in found.utilisations]
    return found.target, found.min_replicas, found.max_replicas, shares


def target_of(found: Scaler) -> WorkloadKey:
    """Which workload an autoscaler is about, be it there or not."""
    target: Target = found.target
    return WorkloadKey(kind_name(target.kind, target.group), found.namespace, target.name)


def containers_of(catalog: Catalog, workload: Workload) -> list[WorkloadContainer]:
    """Those that are sized; a kind of somebody's own may have its template elsewhere, but not its pods."""
    found = workload.containers
    if not found and (pods := catalog.pods_of(workload)):
        found = pods[0].containers
    return [WorkloadContainer.of(workload.key, each.name) for each in found if each.role != "init"]


def containers_per_pod(pods: Sequence[Pod], workload: Workload) -> int:
    """Count the containers of a pod that run on after its start; what a mesh injects is in the pods only."""
    found = (workload.containers, *{pod.containers for pod in pods})  # whichever pod comes first
    return max(1, *(sum(each.role != "init" for each in containers) for containers in found))


def running_since(pods: Iterable[Pod]) -> dict[PodContainer, float]:
    """Map the containers of pods that are ready, each of which should have samples, to when they were last started."""
    return {
        PodContainer(pod.namespace, pod.name, state.name): float(
            max(pod.started, state.last_exit.at if state.last_exit else 0)
        )
        for pod in pods
        if pod.ready and not pod.deleting
        for state in pod.states
        if not state.ended and not state.waiting
    }


def running(catalog: Catalog) -> set[WorkloadContainer]:
    """Those of pods that are ready: they should have samples."""
    return {
        WorkloadContainer.of(workload.key, each.name)
        for pod in catalog.pods
        if pod.ready and (workload := catalog.workload_of(pod))
        for each in pod.containers
        if each.role != "init"
    }
