"""By whom each workload is to be sized, and how, as policies and the configuration stand at this moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from trimtab.actuation.effective import PodSync
from trimtab.actuation.hold import read_hold
from trimtab.kube.pods import Pod
from trimtab.kube.policies import Policy
from trimtab.kube.resources import OPTIMIZATION_POLICIES
from trimtab.kube.workloads import Workload
from trimtab.operator.catalog import Catalog
from trimtab.operator.cohort import Sizing
from trimtab.operator.config import OperatorConfig
from trimtab.operator.mandate import Mandate, Mandates


class Orders:
    """Asked anew each time: both may change at any time."""

    def __init__(self, catalog: Catalog, config: Callable[[], OperatorConfig]) -> None:
        self._catalog = catalog
        self._config = config
        self._mandates = Mandates(config())

    @property
    def config(self) -> OperatorConfig:
        return self._config()

    def of(self, workload: Workload) -> Mandate | None:
        """On whose word a workload is sized; None when on nobody's."""
        namespace = self._catalog.namespaces.get(workload.namespace)
        verdict = self._catalog.selection.of(workload)
        found = self._current().of(workload, verdict, namespace=namespace.labels if namespace else ())
        # One that it gives way to may be among those that are not known, as one with mode Disabled.
        if found and found.policy is None and (why := self._catalog.unread(OPTIMIZATION_POLICIES)):
            return replace(found, problem=f"the OptimizationPolicies, which go first, cannot be read: {why}")
        return found

    def pod_sync(
        self,
        workload: Workload,
        mandate: Mandate | None,
        pods: Iterable[Pod],
        *,
        intent: str = "",
        resizes_in_place: bool = True,
    ) -> PodSync:
        """Return the terms on which new pods of a workload come to its size: by its policy, or by an Intent."""
        if mandate is None:
            return PodSync(enabled=bool(intent))
        return mandate.pod_sync(
            workload,
            pods,
            self.config,
            vpa=self._catalog.applied_by(workload.key),
            intent=intent,
            hold=read_hold(workload.annotations),
            resizes_in_place=resizes_in_place,
        )

    def of_policy(self, policy: Policy) -> Mandate:
        return self._current().of_policy(policy)

    def sizing(self, mandate: Mandate | None, *, asked: bool) -> Sizing | None:
        """How a workload is sized, by a policy or because a VPA asked; None when nobody does."""
        if mandate and not mandate.problem:
            return mandate.sizing
        return self._current().unselected if asked else None

    def forget_gone(self) -> None:
        """Let go of policies that are there no more."""
        self._current().forget_all_but({policy.uid for policy in self._catalog.policies})

    def _current(self) -> Mandates:
        if self._mandates.config is not self._config():
            self._mandates = Mandates(self._config())
        return self._mandates
