"""What pods are born with, as policies and the configuration stand at this moment.

Every replica keeps the live picture and can tell, whoever leads, from memory alone: an owner that is not known is not
waited for, and the pod is brought to its size later. So it is while we hear nothing of what might refuse the pod: who asks
us need not be within our own reach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trimtab.actuation.change_annotations import APPLIED, CHANGE
from trimtab.actuation.decide.pod_admission import birth_size
from trimtab.actuation.hold import Hold, read_hold
from trimtab.actuation.resources import Sizes
from trimtab.api.optimizationpolicy import Mode
from trimtab.kube.cache.informer_set import ABSENT
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.resources import LIMIT_RANGES, OPTIMIZATION_POLICIES, RESOURCE_QUOTAS
from trimtab.operator.cluster_state import Catalog
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.policy.competing_controllers import Rivals
from trimtab.operator.policy.resolver import Mandate, Orders

_DECIDE: Final = (LIMIT_RANGES, RESOURCE_QUOTAS, OPTIMIZATION_POLICIES)


class Births:
    """Ask it `of` a pod that is about to be made."""

    def __init__(self, catalog: Catalog, rivals: Rivals, config: Callable[[], OperatorConfig]) -> None:
        self._catalog = catalog
        self._rivals = rivals
        self._config = config
        self._orders = Orders(catalog, config)
        self._selection = catalog.selection

    def of(self, pod: Pod) -> Sizes:
        """The containers that are to have other sizes than they were made with; none where nothing is to be done."""
        catalog = self._catalog
        workload = self._workload_of(pod) if catalog.is_ready and self._is_heard() else None
        if workload is None or not dict(workload.annotations).keys() & {APPLIED, CHANGE}:
            return {}  # as of most: then nobody is asked who has the say over it
        hold = read_hold(workload.annotations)
        mandate = self._mandate(workload, hold)
        if mandate is None:
            return {}
        return birth_size(
            pod,
            workload,
            # A person may decide on any container.
            alone=() if hold and hold.sizes else mandate.rules.alone(pod.containers),
            limit_ranges=catalog.limit_ranges.in_namespace(pod.namespace),
            quotas=catalog.quotas.in_namespace(pod.namespace),
        )

    def _is_heard(self) -> bool:
        """Whether what decides about a pod is known as it is now."""
        troubles = self._catalog.troubles()
        return all(troubles.get(str(kind), ABSENT) == ABSENT for kind in _DECIDE)

    def _workload_of(self, pod: Pod) -> Workload | None:
        catalog, owner = self._catalog, pod.owner
        if (found := catalog.workload_of(pod)) or owner is None or owner.kind != "ReplicaSet":
            return found
        # At a deploy, a ReplicaSet makes its first pods before we have heard of it; it is named after its Deployment.
        name, _, revision = owner.name.rpartition("-")
        if dict(pod.labels).get("pod-template-hash") != revision:
            return None
        return catalog.get(catalog.top(WorkloadKey("Deployment", pod.namespace, name)))

    def _mandate(self, workload: Workload, hold: Hold | None) -> Mandate | None:
        """By which pods of this workload are resized in place, too; None where they are not."""
        catalog, config, key = self._catalog, self._config(), workload.key
        if catalog.selection is not self._selection:
            # Made anew, for only who leads lets go of policies that are gone.
            self._orders, self._selection = Orders(catalog, self._config), catalog.selection
        mandate = self._orders.of(workload)
        if mandate is None or mandate.problem or mandate.spec.mode is Mode.DISABLED:
            return None
        vpa, intent = catalog.applied_by(key), self._rivals.intent(key)
        withheld = (
            mandate.withheld(workload, config, vpa=vpa, intent=intent, hold=hold) or self._rivals.unread()
        )
        return mandate if mandate.spec.update_strategy.allow_in_place_resize and not withheld else None
