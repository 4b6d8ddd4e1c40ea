"""The state of the cluster, as a set of informers has it: workloads with their pods, and everything that affects their size.

Every change enqueues the affected workload by key; the reconciler reads the current state itself. Nothing is enqueued
before the initial sync; then every workload is, once. A reader that watches nothing, such as a scan, fills the same
state once (`trimtab.scan.cluster_snapshot`).

Resources that a cluster may not have (VPA, a custom kind, Trimtab's own CRDs) or may not permit are empty, with the
reason in `errors_by_resource`, and fill when they are installed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Never, TypeVar

import msgspec

from trimtab.actuation.change_annotations import RECOMMENDATION_ANNOTATION
from trimtab.kube.cache.informer import Scope
from trimtab.kube.cache.informer_set import NOT_SERVED, InformerPort
from trimtab.kube.cache.projection import Labels, ProjectionCache
from trimtab.kube.cache.store import Cache
from trimtab.kube.kinds.custom import QosPolicy, qos_policy_projection
from trimtab.kube.kinds.hpas import AutoscalerTarget, HorizontalPodAutoscaler, hpa_projection
from trimtab.kube.kinds.metadata import Metadata, metadata_projection
from trimtab.kube.kinds.nodes import Node, node_projection
from trimtab.kube.kinds.ownership import OWNER_INDEX, Ownership, owner_uid
from trimtab.kube.kinds.pods import Pod, pod_projection
from trimtab.kube.kinds.policies import Policy, policy_projection
from trimtab.kube.kinds.quotas import (
    LimitRange,
    ResourceList,
    ResourceQuota,
    limit_range_projection,
    resource_quota_projection,
)
from trimtab.kube.kinds.vpas import VerticalPodAutoscaler, vpa_projection
from trimtab.kube.kinds.workloads import BUILT_IN, Workload, WorkloadKey, qualify_kind, workload_projection
from trimtab.kube.rest.discovery import Discovery
from trimtab.kube.rest.resources import (
    HPAS,
    INTENTS,
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
from trimtab.kube.rest.watched_namespaces import name_in_namespace
from trimtab.operator.policy_matching import PolicyMatcher
from trimtab.recommender.workload import ClusterConstraints
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.usage import PodContainer

Scaler = TypeVar("Scaler", HorizontalPodAutoscaler, VerticalPodAutoscaler)

RUNNING_PODS = Scope(fields="status.phase!=Succeeded,status.phase!=Failed")
"""The scope of pods that hold resources; finished ones may outnumber them."""
FAILED_JOB_PODS = Scope(
    display_name="failed pods of jobs", labels="batch.kubernetes.io/job-name", fields="status.phase=Failed"
)
"""The scope of failed Job pods: with restartPolicy Never, only the failed pod reports an OOM kill."""
STANDALONE_REPLICA_SETS = Scope(
    display_name="replicasets.apps on their own", labels="!pod-template-hash,!rollouts-pod-template-hash"
)
"""The scope of ReplicaSets that are workloads themselves; for those of a Deployment or Rollout, metadata is enough."""


_BOUNDS = (HPAS, LIMIT_RANGES, RESOURCE_QUOTAS, REPLICA_SETS, PODS)
"""The resources without which a change of a workload could be wrong; a namespace whose Role is incomplete has them unread."""


class ClusterState:
    """The current objects of a cluster; `run` it as a task and await `wait_synced`."""

    def __init__(
        self,
        informers: InformerPort,
        *,
        operator_namespace: str = "",
        reserved_weight: Callable[[], int | None] = lambda: None,
        enqueue: Callable[[WorkloadKey], None] = lambda _key: None,
        annotations: Iterable[str] = (),
    ) -> None:
        """Create an empty state; the defaults are for readers without policies and without a work queue.

        `annotations` are the keys of annotations that are kept besides our own.
        """
        self._operator_namespace = operator_namespace
        self._reserved_weight = reserved_weight
        self._enqueue = enqueue
        self._projections = shared = ProjectionCache(annotations=annotations)
        self._informers = informers
        follow = informers.watch_resource
        self.namespaces: Cache[Metadata] = follow(NAMESPACES, metadata_projection(shared))
        self.nodes: Cache[Node] = follow(NODES, node_projection(shared))
        self.pods: Cache[Pod] = follow(
            PODS, pod_projection(shared), scope=RUNNING_PODS, indexes={OWNER_INDEX: owner_uid}
        )
        self._failed_pods: Cache[Pod] = follow(
            PODS, pod_projection(shared), scope=FAILED_JOB_PODS, indexes={OWNER_INDEX: owner_uid}
        )
        self.policies: Cache[Policy] = follow(OPTIMIZATION_POLICIES, policy_projection(shared), optional=True)
        self.node_policies: Cache[QosPolicy] = follow(
            NODE_QOS_POLICIES, qos_policy_projection(), optional=True
        )
        self.hpas: Cache[HorizontalPodAutoscaler] = follow(
            HPAS, hpa_projection(shared), indexes={"target": scale_target}
        )
        self.vpas: Cache[VerticalPodAutoscaler] = follow(
            VPAS, vpa_projection(shared), indexes={"target": scale_target}, optional=True
        )
        self.limit_ranges: Cache[LimitRange] = follow(LIMIT_RANGES, limit_range_projection(shared))
        self.quotas: Cache[ResourceQuota] = follow(RESOURCE_QUOTAS, resource_quota_projection(shared))
        self._replica_sets: Cache[Metadata] = follow(
            REPLICA_SETS, metadata_projection(shared), indexes={OWNER_INDEX: owner_uid}
        )
        self.ownership = Ownership(self._replica_sets)
        """The owners of pods and workloads, up to the workloads that Trimtab sizes."""
        self._synced = asyncio.Event()
        self._matcher: PolicyMatcher | None = None
        self._changed_policies: list[Policy] = []
        for resource in BUILT_IN:
            self._watch_workloads(resource)
        self._subscribe()

    def errors_by_resource(self) -> Mapping[str, str]:
        """Return the errors of resources that could not be read."""
        return self._informers.errors_by_resource()

    def unsynced_reason(self, resource: Resource, namespace: str) -> str:
        """Return the reason why the objects of a resource, such as policies, that affect a namespace are not synced; empty
        if they are.
        """
        return self._informers.unsynced_reason(resource, namespace)

    def unsynced_bounds_reason(self, namespace: str) -> str:
        """Return the reason why what bounds the workloads of a namespace is not synced; empty if it is."""
        for each in _BOUNDS:
            if why := self.unsynced_reason(each, namespace):
                return f"objects of kind {each.kind} may bound it and cannot be read: {why}"
        return ""

    @property
    def cluster_name(self) -> str:
        """The cluster's name in the store: the uid of kube-system, which every cluster has and none shares, or else that of
        the operator's own namespace.
        """
        system = self.namespaces.get("kube-system") or self.namespaces.get(self._operator_namespace)
        return system.uid if system else "cluster"

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    async def wait_synced(self, timeout: float | None = None) -> None:
        """Wait for the initial sync; raise TimeoutError if it takes too long. `errors_by_resource` has the reasons."""
        async with asyncio.timeout(timeout):
            await self._synced.wait()

    def workload_kinds(self) -> tuple[Resource, ...]:
        """Return the resources that hold workloads, including discovered ones."""
        return self.ownership.list_resources()

    def get(self, key: WorkloadKey) -> Workload | None:
        return self.ownership.get(key)

    def list_workloads(self, namespace: str | None = None) -> Iterator[Workload]:
        """Iterate over the workloads without an owning workload, in one namespace or in all."""
        return self.ownership.iter_top_level(namespace)

    def find_workload(self, pod: Pod) -> Workload | None:
        """Return the workload at the top of a pod's owners."""
        return self.ownership.find_top_workload(pod)

    def list_pods(self, workload: Workload) -> list[Pod]:
        return self._pods_in(self.pods, workload)

    def update(self, record: Workload | Pod) -> None:
        """Show a record that a write returned, until the informer has it or a newer one."""
        if isinstance(record, Pod):
            self.pods.update(record)
        else:
            self.ownership.update(record)

    def outdated_reason(self, workload: Workload) -> str:
        """Return why the records of a workload and its pods are not kept current; empty if they are."""
        errors = self.errors_by_resource()
        names = [str(each) for each in (workload.resource, PODS)]
        # Of a namespace that may be read in part, even a competing controller or a bound may be unknown.
        known = (workload.resource, OPTIMIZATION_POLICIES, VPAS, INTENTS, *_BOUNDS)
        names += [name_in_namespace(each, workload.namespace) for each in known]
        names.append(name_in_namespace(OPTIMIZATION_POLICIES, self._operator_namespace))
        lost = (name for name in names if name in errors)
        return next((f"{name} cannot be watched: {errors[name]}" for name in lost), "")

    def unknown_owner_reason(self, namespace: str) -> str:
        """Return why it is not known which policies and Intents there are for a namespace; empty if it is."""
        errors = self.errors_by_resource()
        for each in (OPTIMIZATION_POLICIES, INTENTS):
            # What was read once and cannot be watched may be outdated.
            names = str(each), name_in_namespace(each, namespace)
            lost = (errors[name] for name in names if errors.get(name, NOT_SERVED) != NOT_SERVED)
            if why := self.unsynced_reason(each, namespace) or next(lost, ""):
                return why
        return ""

    def list_owned(self, workload: Workload) -> tuple[WorkloadKey, ...]:
        """Return the workloads that a workload owns, such as the StatefulSets of a custom resource."""
        members = self.ownership.collect_workloads(workload)
        return tuple(each.key for each in members if each.uid != workload.uid)

    def list_failed_pods(self, workload: Workload) -> list[Pod]:
        """Return the failed pods of a Job, or of a CronJob's Jobs."""
        # Most clusters have no failed pods: skip the walk through everything that the workload owns.
        return self._pods_in(self._failed_pods, workload) if len(self._failed_pods) else []

    def _pods_in(self, cache: Cache[Pod], workload: Workload) -> list[Pod]:
        members = self.ownership.collect_owned(workload)
        return [pod for member in members for pod in cache.find(OWNER_INDEX, member.uid)]

    def build_constraints(self) -> ClusterConstraints:
        """Return the limits of all namespaces and nodes at present."""
        return ClusterConstraints(
            nodes=self.nodes,
            daemon_sets=(each for each in self.list_workloads() if each.kind == "DaemonSet"),
            limit_ranges=self.limit_ranges,
            quotas=self.quotas,
        )

    def build_owner_index(self) -> PodOwnerIndex:
        """Return an index from pods, including deleted ones, to the workloads that own them."""
        return PodOwnerIndex(self.ownership, replica_sets=self._replica_sets, pods=self.pods)

    def list_hpas(self, workload: Workload) -> list[HorizontalPodAutoscaler]:
        """Return the HPAs that scale a workload, or one that it owns."""
        return self._find_scalers(self.hpas, workload) if len(self.hpas) else []

    def list_vpas(self, key: WorkloadKey) -> list[VerticalPodAutoscaler]:
        """Return the VPAs that target a workload, existing or not, or one that it owns."""
        if not len(self.vpas):  # the usual case: skip the walk through everything the workload owns
            return []
        workload = self.get(key)
        return self._find_scalers(self.vpas, workload) if workload else self.vpas.find("target", key)

    def active_vpa(self, key: WorkloadKey) -> str:
        """Return the name of a VPA that changes this workload's pods; empty if there is none."""
        return next((vpa.name for vpa in self.list_vpas(key) if vpa.updates_pods), "")

    def find_top_owner(self, key: WorkloadKey) -> WorkloadKey:
        """Return the workload at the top of a workload's owners; itself if it has none or does not exist."""
        found = self.get(key)
        above = self.ownership.find_top_workload(found) if found else None
        return above.key if above else key

    @property
    def policy_matcher(self) -> PolicyMatcher:
        """The matcher that finds the policies of a workload, from the current policies and namespaces."""
        # Built when it is first used after a change: changes come in batches, and each matcher reads all
        # policies. The reserved weight is configuration, which is reloaded without an event.
        if self._matcher is None or self._matcher.reserved_weight != self._reserved_weight():
            self._matcher = self._build_matcher(self.policies)
        return self._matcher

    def _build_matcher(self, among: Iterable[Policy]) -> PolicyMatcher:
        labels: dict[str, Labels] = {found.name: found.labels for found in self.namespaces}
        return PolicyMatcher(
            among,
            namespaces=labels,
            operator_namespace=self._operator_namespace,
            reserved_weight=self._reserved_weight(),
        )

    def _find_scalers(self, cache: Cache[Scaler], workload: Workload) -> list[Scaler]:
        members = self.ownership.collect_workloads(workload)
        return [found for member in members for found in cache.find("target", member.key)]

    async def run(self) -> Never:
        """Keep the state current until cancelled."""
        async with asyncio.TaskGroup() as group:
            informers = group.create_task(self._informers.run())
            await self._informers.wait_synced()
            self._synced.set()
            for found in list(self.list_workloads()):
                self._notify(found.key)
            await informers
        raise AssertionError("unreachable")

    def _subscribe(self) -> None:
        self._informers.on_discovery(self._on_discovery)
        self.namespaces.on_change(self._namespace_changed)
        self.pods.on_change(self._owned_changed)
        self._failed_pods.on_change(self._owned_changed)
        self._replica_sets.on_change(self._owned_changed)
        self.policies.on_change(self._policy_changed)
        self.hpas.on_change(self._scaler_changed)
        self.vpas.on_change(self._scaler_changed)
        self.limit_ranges.on_change(self._limit_range_changed)
        self.quotas.on_change(self._quota_changed)

    def _on_discovery(self, found: Discovery) -> None:
        watched = {
            (known.group, known.kind)
            for known in self.workload_kinds()
            if found.has_resource(known) is not False
        }
        for resource in found.scalable:
            # ReplicationController, the one in the core group, is obsolete and not worth another RBAC rule.
            if resource.namespaced and resource.group and (resource.group, resource.kind) not in watched:
                self._watch_workloads(resource, optional=True)

    def _watch_workloads(self, resource: Resource, *, optional: bool = False) -> None:
        cache = self._informers.watch_resource(
            resource,
            workload_projection(resource, self._projections),
            # Those of Deployments outnumber all other workloads, and are followed by their metadata alone.
            scope=STANDALONE_REPLICA_SETS if resource == REPLICA_SETS else None,
            indexes={OWNER_INDEX: owner_uid},
            optional=optional,
        )
        self.ownership.add(resource, cache)
        cache.on_change(self._workload_changed)

    def _notify(self, key: WorkloadKey) -> None:
        # During the initial list, every object would enqueue its workload; `run` enqueues all of them
        # afterwards.
        if self._synced.is_set():
            self._enqueue(key)

    def _notify_namespace(self, namespace: str) -> None:
        for found in self.list_workloads(namespace):
            self._notify(found.key)

    def _workload_changed(self, old: Workload | None, new: Workload | None, /) -> None:
        # Two leaders with different recommendations would answer each other's annotation at once, for ever.
        if old and new and _has_new_recommendation_only(old, new):
            return
        # Before the sync, walking up the owners of every listed object would cost a start more than it brings.
        if self._synced.is_set() and (found := new or old):
            self._notify((self.ownership.find_top_workload(found) or found).key)

    def _owned_changed(self, old: Metadata | Pod | None, new: Metadata | Pod | None, /) -> None:
        if (
            self._synced.is_set()
            and (found := new or old)
            and (top := self.ownership.find_top_workload(found))
        ):
            self._notify(top.key)

    def _scaler_changed(self, old: Scaler | None, new: Scaler | None, /) -> None:
        if old and new and _scaler_spec(old) == _scaler_spec(new):
            return  # only the status changed
        # The old target too: it is free from its autoscaler now, and no event of its own would reconcile
        # it.
        for key in {scale_target(found) for found in (old, new) if found}:
            self._notify(self.find_top_owner(key))

    def _namespace_changed(self, old: Metadata | None, new: Metadata | None, /) -> None:
        # Policies select namespaces by labels; other changes, such as annotations, would enqueue all
        # workloads without need.
        if old is None or new is None or old.labels != new.labels:
            self._matcher = None
            if found := new or old:
                self._notify_namespace(found.name)

    def _limit_range_changed(self, old: LimitRange | None, new: LimitRange | None, /) -> None:
        if found := new or old:
            self._notify_namespace(found.namespace)

    def _quota_changed(self, old: ResourceQuota | None, new: ResourceQuota | None, /) -> None:
        # The used amounts change with every pod; only the hard limits matter.
        if (found := new or old) and _hard_limits(old) != _hard_limits(new):
            self._notify_namespace(found.namespace)

    def _policy_changed(self, old: Policy | None, new: Policy | None, /) -> None:
        if old and new and new.is_equivalent_to(old):
            return  # only the status changed, and this operator wrote it
        self._matcher = None
        if self._synced.is_set():
            if not self._changed_policies:
                # Policies often change together: after the batch, each workload is enqueued once.
                asyncio.get_running_loop().call_soon(self._notify_matched)
            # The old version too: workloads that it selected, and the new one does not, have to be
            # reconciled.
            self._changed_policies += [found for found in (old, new) if found]

    def _notify_matched(self) -> None:
        changed, self._changed_policies = self._changed_policies, []
        matcher = self._build_matcher(changed)
        for found in list(self.list_workloads()):
            if matcher.match(found):
                self._notify(found.key)


def _hard_limits(quota: ResourceQuota | None) -> tuple[ResourceList, ResourceList] | None:
    return (quota.hard_requests, quota.hard_limits) if quota else None


def _has_new_recommendation_only(old: Workload, new: Workload) -> bool:
    """Return whether two records of a workload differ only in the recommendation, which both have."""
    texts = {dict(each.annotations).get(RECOMMENDATION_ANNOTATION) for each in (old, new)}
    return (
        None not in texts and len(texts) == 2 and _without_recommendation(old) == _without_recommendation(new)
    )


def _without_recommendation(workload: Workload) -> tuple[object, ...]:
    others = tuple(each for each in workload.annotations if each[0] != RECOMMENDATION_ANNOTATION)
    return msgspec.structs.astuple(msgspec.structs.replace(workload, annotations=others, version=0))


def _scaler_spec(found: HorizontalPodAutoscaler | VerticalPodAutoscaler) -> object:
    """Return the part of an autoscaler that affects sizing, without its status."""
    # The recommender of a VPA writes its status every minute; the generation changes only with the spec.
    if isinstance(found, VerticalPodAutoscaler):
        return found.uid, found.generation
    shares = [(share.resource, share.target, share.container) for share in found.utilization_targets]
    return found.target, found.min_replicas, found.max_replicas, shares


def scale_target(found: Scaler) -> WorkloadKey:
    """Return the key of the workload that an autoscaler targets, existing or not."""
    target: AutoscalerTarget = found.target
    return WorkloadKey(qualify_kind(target.kind, target.group), found.namespace, target.name)


def container_start_times(pods: Iterable[Pod]) -> dict[PodContainer, float]:
    """Map the containers of ready pods, which should have samples, to the times of their last start."""
    return {
        PodContainer(pod.namespace, pod.name, state.name): float(
            # A container that restarted has no samples of its time before: it must not be reported as
            # unsampled at once.
            max(pod.started, state.last_termination.finished_at if state.last_termination else 0)
        )
        for pod in pods
        if pod.ready and not pod.deleting
        for state in pod.container_statuses
        if not state.is_terminated and not state.waiting_reason
    }


def running_containers(cluster_state: ClusterState) -> set[WorkloadContainer]:
    """Return the containers of ready pods, which should have samples."""
    # The same for most pods of a workload, which may have thousands.
    variants = {
        (workload, pod.containers)
        for pod in cluster_state.pods
        if pod.ready and (workload := cluster_state.find_workload(pod))
    }
    return {
        WorkloadContainer.from_workload(key, each.name)
        for workload, containers in variants
        for key in (workload.key,)
        for each in containers
        if each.role != "init"
    }
