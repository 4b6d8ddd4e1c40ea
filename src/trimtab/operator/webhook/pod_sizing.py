"""Size pods at admission, from the current policies, Intents and configuration.

Every replica keeps the cluster state and can answer from memory, whoever leads. If the owner is not known yet, the pod is
admitted unchanged and resized later. The same holds while the state of competing controllers is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from trimtab.actuation.change_annotations import APPLIED_ANNOTATION, CHANGE_ANNOTATION
from trimtab.actuation.decide.pod_admission import admission_size
from trimtab.actuation.effective_size import PodSync
from trimtab.actuation.resources import Sizes, to_manifest
from trimtab.api.optimizationpolicy import PolicyMode
from trimtab.errors import TrimtabError
from trimtab.kube.cache.informer_set import NOT_SERVED
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.kube.kinds.pods import Pod, pod_projection
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.client import Object
from trimtab.kube.rest.resources import LIMIT_RANGES, OPTIMIZATION_POLICIES, RESOURCE_QUOTAS
from trimtab.kube.rest.watched_namespaces import name_in_namespace
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.intent_index import CompetingControllers
from trimtab.operator.policy.resolver import PolicyResolver, resolve_hold

_REQUIRED_KINDS: Final = (LIMIT_RANGES, RESOURCE_QUOTAS, OPTIMIZATION_POLICIES)
_POD_PROJECTION = pod_projection()

SizePod = Callable[[Pod], Sizes]
"""A function that returns the sizes for the containers of a pod."""


class PodSizer:
    """Decides the sizes of pods that are being created."""

    def __init__(
        self,
        cluster_state: ClusterState,
        competitors: CompetingControllers,
        policy_resolver: PolicyResolver,
    ) -> None:
        self._cluster_state = cluster_state
        self._competitors = competitors
        self._policy_resolver = policy_resolver

    def size_pod(self, pod: Pod) -> Sizes:
        """Return the containers that get other sizes than their manifest has; empty if nothing is to be done."""
        cluster_state = self._cluster_state
        workload = (
            self._find_workload(pod) if cluster_state.is_synced and self._is_synced(pod.namespace) else None
        )
        if workload is None or not dict(workload.annotations).keys() & {
            APPLIED_ANNOTATION,
            CHANGE_ANNOTATION,
        }:
            return {}  # the usual case: no need to look for competing controllers
        hold = resolve_hold(workload, self._policy_resolver.config)
        sync = self._find_pod_sync(workload, pod)
        if not sync.enabled:
            return {}
        return admission_size(
            pod,
            workload,
            # A person may set the size of any container.
            excluded=() if hold and hold.sizes else sync.excluded,
            limit_ranges=cluster_state.limit_ranges.in_namespace(pod.namespace),
            quotas=cluster_state.quotas.in_namespace(pod.namespace),
            size_limits=sync.limits,
        )

    def _is_synced(self, namespace: str) -> bool:
        """Return True if everything that decides about a pod of a namespace is synced."""
        errors = self._cluster_state.errors_by_resource()
        names = (name for kind in _REQUIRED_KINDS for name in (str(kind), name_in_namespace(kind, namespace)))
        return all(errors.get(name, NOT_SERVED) == NOT_SERVED for name in names)

    def _find_workload(self, pod: Pod) -> Workload | None:
        cluster_state, owner = self._cluster_state, pod.owner
        if (found := cluster_state.find_workload(pod)) or owner is None or owner.kind != "ReplicaSet":
            return found
        # During a rollout a new ReplicaSet creates pods before its informer event; its name contains the Deployment's.
        name, _, revision = owner.name.rpartition("-")
        if dict(pod.labels).get("pod-template-hash") != revision:
            return None
        return cluster_state.get(cluster_state.find_top_owner(WorkloadKey("Deployment", pod.namespace, name)))

    def _find_pod_sync(self, workload: Workload, pod: Pod) -> PodSync:
        """Return how new pods of a workload get its size, by its policy or by the Intent that controls it."""
        policy = self._policy_resolver.resolve(workload)
        if policy is not None and (policy.problem or policy.spec.mode is PolicyMode.DISABLED):
            policy = None
        if self._competitors.unsynced_reason(workload.namespace):
            return PodSync(enabled=False)
        intent = self._competitors.controlling_intent_name(workload.key)
        return self._policy_resolver.pod_sync(workload, policy, [pod], intent=intent)


class _PodSpecWire(msgspec.Struct, rename="camel", frozen=True):
    resources: dict[str, msgspec.Raw] | None = None
    containers: list[msgspec.Raw] = []
    init_containers: list[msgspec.Raw] = []


class _PodWire(msgspec.Struct, frozen=True):
    spec: _PodSpecWire = _PodSpecWire()


def build_pod_patch(stated: bytes, size_pod: SizePod) -> list[Object]:
    """Return the patch for a pod as JSON; empty for one that cannot be read or that has pod-level resources."""
    try:
        pod = _POD_PROJECTION.project(msgspec.json.decode(stated, type=_POD_PROJECTION.wire_type))
        spec = msgspec.json.decode(stated, type=_PodWire).spec
    except (*DECODE_ERRORS, TrimtabError):
        return []
    if pod.owner is None or spec.resources:
        return []
    sizes = size_pod(pod)
    places = [
        f"{group}/{number}"
        for group, found in (("containers", spec.containers), ("initContainers", spec.init_containers))
        for number in range(len(found))
    ]
    return [
        {"op": "add", "path": f"/spec/{place}/resources/{kind}/{resource}", "value": amount}
        for place, container in zip(places, pod.containers, strict=True)
        if container.role != "init" and container.name in sizes
        for kind, amounts in to_manifest(sizes[container.name]).items()
        for resource, amount in amounts.items()
    ]
