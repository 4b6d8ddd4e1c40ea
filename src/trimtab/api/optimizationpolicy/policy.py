"""The policy as a whole: its parts, each in a file of its own, and how `kubectl get` shows it."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from trimtab.api.duration import Duration
from trimtab.api.fields import MAX_CONTAINERS, DurationRange, Int, UniqueItems
from trimtab.api.kind import AGE_COLUMN, READY_COLUMN, Kind, KindNames, PrinterColumn
from trimtab.api.model import ApiModel, ValidationRule
from trimtab.api.optimizationpolicy.bounds import ResourceBounds
from trimtab.api.optimizationpolicy.changes import ChangePolicy
from trimtab.api.optimizationpolicy.containers import ContainerRule
from trimtab.api.optimizationpolicy.limits import KEEP_LIMIT, KEEP_LIMITS, LimitPolicy, LimitRule
from trimtab.api.optimizationpolicy.metrics_config import MetricsConfig, StrategyChoice
from trimtab.api.optimizationpolicy.selection import PolicySelector
from trimtab.api.optimizationpolicy.status import OptimizationPolicyStatus
from trimtab.api.optimizationpolicy.updates import UpdateStrategy


class PolicyMode(StrEnum):
    """How far a policy goes."""

    AUTO = "Auto"
    RECOMMEND = "Recommend"
    DISABLED = "Disabled"


class OptimizationPolicySpec(ApiModel):
    """What is wanted."""

    rules = (
        ValidationRule(
            field="limitPolicy",
            message="limits stay as they are while updateStrategy.updateRequestsOnly is true; set that to false, "
            "or both modes to Keep",
            predicate=lambda self: (
                not self.update_strategy.update_requests_only or self.limit_policy in (None, KEEP_LIMITS)
            ),
            cel="!self.updateStrategy.updateRequestsOnly || !has(self.limitPolicy) "
            "|| (self.limitPolicy.cpu.mode == 'Keep' && self.limitPolicy.memory.mode == 'Keep')",
        ),
    )

    mode: PolicyMode = PolicyMode.RECOMMEND
    """Auto applies recommendations, Recommend only writes them down, Disabled does nothing and keeps the
    history."""

    weight: Annotated[Int, Field(ge=1, le=1000)] = 100
    """Which policy wins where several select a workload: the heaviest, and of equals the first by name."""

    selector: PolicySelector = PolicySelector()
    """Which workloads the policy is about; every workload when empty."""

    metrics_config: MetricsConfig = MetricsConfig()
    """Where usage is read, and how much of it a request is to cover."""

    strategy: StrategyChoice = StrategyChoice()
    """How sizes are derived from usage."""

    resource_bounds: ResourceBounds = ResourceBounds()
    """The least and the most that is ever recommended for a container."""

    containers: Annotated[
        tuple[ContainerRule, ...], Field(max_length=MAX_CONTAINERS), UniqueItems(keys=("name",))
    ] = ()
    """What holds for some containers only: which resources are sized, and bounds of their own."""

    update_strategy: UpdateStrategy = UpdateStrategy()
    """How a recommendation may be put into effect in mode Auto."""

    changes: ChangePolicy = ChangePolicy()
    """Which changes are worth making, and how far one may go."""

    limit_policy: LimitPolicy | None = None
    """What becomes of limits when updateStrategy.updateRequestsOnly is false; their ratio to requests is kept
    when left out."""

    reconciliation_interval: Annotated[Duration, DurationRange("10s", "24h")] = Duration.parse("5m")
    """How often each workload is looked at again, such as 5m."""

    def effective_limit_rule(self, resource: Literal["cpu", "memory"]) -> LimitRule:
        """What becomes of the limit of a resource, all settings considered."""
        if self.update_strategy.update_requests_only:
            return KEEP_LIMIT
        rule: LimitRule = getattr(self.limit_policy or LimitPolicy(), resource)
        return rule


class OptimizationPolicy(Kind):
    """Which workloads to right-size, from what evidence, within which bounds, and how boldly."""

    names = KindNames(
        plural="optimizationpolicies",
        short=("op",),
        namespaced=True,
        columns=(
            PrinterColumn("Mode", ".spec.mode"),
            PrinterColumn("Weight", ".spec.weight", "integer"),
            PrinterColumn("Strategy", ".spec.strategy.name", priority=1),
            PrinterColumn("Workloads", ".status.counts.monitored", "integer"),
            PrinterColumn("Updated", ".status.counts.updated", "integer"),
            PrinterColumn("Skipped", ".status.counts.skipped", "integer", priority=1),
            READY_COLUMN,
            AGE_COLUMN,
        ),
    )

    kind: Literal["OptimizationPolicy"] = "OptimizationPolicy"
    spec: OptimizationPolicySpec = OptimizationPolicySpec()
    status: OptimizationPolicyStatus = OptimizationPolicyStatus()
