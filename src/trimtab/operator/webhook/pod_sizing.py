"""What pods are born with, as policies and the configuration stand at this moment.

Every replica keeps the live picture and can tell, whoever leads, from memory alone: an owner that is not known is not
waited for, and the pod is brought to its size later. So it is while we hear nothing of what might refuse the pod: who asks
us need not be within our own reach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trimtab.actuation.change_annotations import APPLIED_ANNOTATION, CHANGE_ANNOTATION
from trimtab.actuation.decide.pod_admission import admission_size
from trimtab.actuation.hold import Hold, read_hold
from trimtab.actuation.resources import Sizes
from trimtab.api.optimizationpolicy import PolicyMode
from trimtab.kube.cache.informer_set import NOT_SERVED
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.resources import LIMIT_RANGES, OPTIMIZATION_POLICIES, RESOURCE_QUOTAS
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.policy.competing_controllers import CompetingControllers
from trimtab.operator.policy.resolver import EffectivePolicy, PolicyResolver

_REQUIRED_KINDS: Final = (LIMIT_RANGES, RESOURCE_QUOTAS, OPTIMIZATION_POLICIES)


class PodSizer:
    """Ask it `of` a pod that is about to be made."""

    def __init__(
        self,
        cluster_state: ClusterState,
        competitors: CompetingControllers,
        config: Callable[[], OperatorConfig],
    ) -> None:
        self._cluster_state = cluster_state
        self._competitors = competitors
        self._config = config
        self._policy_resolver = PolicyResolver(cluster_state, config)
        self._matcher = cluster_state.policy_matcher

    def size_pod(self, pod: Pod) -> Sizes:
        """The containers that are to have other sizes than they were made with; none where nothing is to be done."""
        catalog = self._cluster_state
        workload = self._find_workload(pod) if catalog.is_synced and self._is_synced() else None
        if workload is None or not dict(workload.annotations).keys() & {
            APPLIED_ANNOTATION,
            CHANGE_ANNOTATION,
        }:
            return {}  # as of most: then nobody is asked who has the say over it
        hold = read_hold(workload.annotations)
        mandate = self._resolve_policy(workload, hold)
        if mandate is None:
            return {}
        return admission_size(
            pod,
            workload,
            # A person may decide on any container.
            excluded=() if hold and hold.sizes else mandate.rules.excluded_containers(pod.containers),
            limit_ranges=catalog.limit_ranges.in_namespace(pod.namespace),
            quotas=catalog.quotas.in_namespace(pod.namespace),
        )

    def _is_synced(self) -> bool:
        """Whether what decides about a pod is known as it is now."""
        troubles = self._cluster_state.errors_by_resource()
        return all(troubles.get(str(kind), NOT_SERVED) == NOT_SERVED for kind in _REQUIRED_KINDS)

    def _find_workload(self, pod: Pod) -> Workload | None:
        catalog, owner = self._cluster_state, pod.owner
        if (found := catalog.find_workload(pod)) or owner is None or owner.kind != "ReplicaSet":
            return found
        # At a deploy, a ReplicaSet makes its first pods before we have heard of it; it is named after its Deployment.
        name, _, revision = owner.name.rpartition("-")
        if dict(pod.labels).get("pod-template-hash") != revision:
            return None
        return catalog.get(catalog.find_top_owner(WorkloadKey("Deployment", pod.namespace, name)))

    def _resolve_policy(self, workload: Workload, hold: Hold | None) -> EffectivePolicy | None:
        """By which pods of this workload are resized in place, too; None where they are not."""
        catalog, config, key = self._cluster_state, self._config(), workload.key
        if catalog.policy_matcher is not self._matcher:
            # Made anew, for only who leads lets go of policies that are gone.
            self._policy_resolver, self._matcher = (
                PolicyResolver(catalog, self._config),
                catalog.policy_matcher,
            )
        mandate = self._policy_resolver.resolve(workload)
        if mandate is None or mandate.problem or mandate.spec.mode is PolicyMode.DISABLED:
            return None
        vpa, intent = catalog.active_vpa(key), self._competitors.controlling_intent_name(key)
        withheld = (
            mandate.blocked_reason(workload, config, vpa=vpa, intent=intent, hold=hold)
            or self._competitors.unsynced_reason()
        )
        return mandate if mandate.spec.update_strategy.allow_in_place_resize and not withheld else None
