"""The OptimizationPolicy kind and its printer columns; each part has its own module."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from trimtab.api.duration import Duration
from trimtab.api.fields import MAX_CONTAINERS, DurationRange, Int, UniqueItems
from trimtab.api.kind import AGE_COLUMN, READY_COLUMN, Kind, KindNames, PrinterColumn
from trimtab.api.model import ApiModel, ValidationRule
from trimtab.api.optimizationpolicy.bounds import ContainerRule, ResourceBounds
from trimtab.api.optimizationpolicy.limits import KEEP_LIMIT, KEEP_LIMITS, LimitPolicy, LimitRule
from trimtab.api.optimizationpolicy.metrics_config import (
    MetricsConfig,
    ResourceGoals,
    SizingGoal,
    StrategyChoice,
)
from trimtab.api.optimizationpolicy.selection import PolicySelector
from trimtab.api.optimizationpolicy.status import OptimizationPolicyStatus
from trimtab.api.optimizationpolicy.updates import ChangePolicy, UpdateStrategy


class PolicyMode(StrEnum):
    """The mode of a policy."""

    AUTO = "Auto"
    RECOMMEND = "Recommend"
    DISABLED = "Disabled"


DEFAULT_STRATEGY = "trimtab"
PERCENTILE_STRATEGY = "percentile"


class OptimizationPolicySpec(ApiModel):
    """The desired optimization."""

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
    """Auto applies recommendations, Recommend only reports them, Disabled does nothing and keeps the history."""

    weight: Annotated[Int, Field(ge=1, le=1000)] = 100
    """The weight that decides if several policies select a workload: the heaviest applies, among equals one in
    the operator's namespace, then the first by name."""

    selector: PolicySelector = PolicySelector()
    """The workloads that the policy selects; when empty, every workload of its namespace, or of the cluster if the
    policy is in the operator's namespace."""

    goal: SizingGoal = SizingGoal.BALANCED
    """The balance between cost and safety: Savings, Balanced or Reliability, or Batch for jobs that nobody waits for. It sets
    the risk that the strategy trimtab takes."""

    resource_goals: ResourceGoals = ResourceGoals()
    """Goals of single resources instead of goal."""

    metrics_config: MetricsConfig = MetricsConfig()
    """The source of usage, and the share of it that a request covers."""

    strategy: StrategyChoice = StrategyChoice()
    """The strategy that derives sizes from usage."""

    resource_bounds: ResourceBounds = ResourceBounds()
    """The minimum and maximum of recommendations for a container."""

    containers: Annotated[
        tuple[ContainerRule, ...], Field(max_length=MAX_CONTAINERS), UniqueItems(keys=("name",))
    ] = ()
    """The rules for single containers: the resources that are sized, and bounds of their own."""

    update_strategy: UpdateStrategy = UpdateStrategy()
    """The way recommendations are applied in mode Auto."""

    changes: ChangePolicy = ChangePolicy()
    """The smallest change that is made, and the largest in one step."""

    limit_policy: LimitPolicy | None = None
    """The rules for limits if updateStrategy.updateRequestsOnly is false; their ratio to requests is kept when left
    out. If it is true, only Keep is allowed, and keeps memory limits even after OOM kills."""

    reconciliation_interval: Annotated[Duration, DurationRange("10s", "24h")] | None = None
    """The interval between two reconciles of a workload, such as 5m; reconciliationInterval of the operator when left
    out."""

    @property
    def strategy_name(self) -> str:
        """The strategy that applies: the one that the policy names, or the one that its metricsConfig is for."""
        if self.strategy.name is not None:
            return self.strategy.name
        return PERCENTILE_STRATEGY if self.metrics_config.percentile_fields else DEFAULT_STRATEGY

    @property
    def ignored_fields(self) -> tuple[str, ...]:
        """The fields that the policy sets and its strategy ignores."""
        config, ignored = self.metrics_config, list[str]()
        # Policies that 0.1.0 stored have all of these fields, which their authors need not have set.
        if self.strategy_name != PERCENTILE_STRATEGY and not config.has_stored_defaults:
            ignored += [f"spec.metricsConfig.{name}" for name in config.percentile_fields]
        if self.strategy_name != DEFAULT_STRATEGY:
            own = self.resource_goals
            goals = {"goal": self.goal, "resourceGoals.cpu": own.cpu, "resourceGoals.memory": own.memory}
            ignored += [
                f"spec.{name}" for name, goal in goals.items() if goal not in {None, SizingGoal.BALANCED}
            ]
        return tuple(ignored)

    def effective_limit_rule(self, resource: Literal["cpu", "memory"]) -> LimitRule:
        """Return the rule for the limit of a resource, with all settings considered."""
        if self.update_strategy.update_requests_only:
            return KEEP_LIMIT
        rule: LimitRule = getattr(self.limit_policy or LimitPolicy(), resource)
        return rule

    @property
    def raises_memory_limits_after_kills(self) -> bool:
        """True if memory limits are kept, but raised after an OOM kill: the policy says nothing else about limits."""
        return self.update_strategy.update_requests_only and self.limit_policy is None


class OptimizationPolicy(Kind):
    """The workloads to right-size, the usage to consider, the bounds, and the way changes are applied."""

    names = KindNames(
        plural="optimizationpolicies",
        short=("op",),
        namespaced=True,
        columns=(
            PrinterColumn("Mode", ".spec.mode"),
            PrinterColumn("Weight", ".spec.weight", "integer"),
            PrinterColumn("Strategy", ".status.strategy", priority=1),
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
