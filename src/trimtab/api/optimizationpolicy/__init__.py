"""OptimizationPolicy: the workloads to right-size, the usage to consider, the bounds, and the way changes are
applied.

One policy covers many workloads, by namespace, label and type; if two overlap, the one with the higher weight applies. All defaults
are safe: an empty policy recommends and changes nothing.
"""

from trimtab.api.optimizationpolicy.bounds import (
    EVERY_CONTAINER,
    Bounds,
    ContainerBounds,
    ContainerRule,
    ControlledResource,
    CPUBounds,
    ResourceBounds,
)
from trimtab.api.optimizationpolicy.limits import CPULimitRule, LimitMode, LimitRule
from trimtab.api.optimizationpolicy.metrics_config import (
    MetricsConfig,
    ResourceGoals,
    SizingGoal,
    StrategyChoice,
)
from trimtab.api.optimizationpolicy.policy import (
    DEFAULT_STRATEGY,
    PERCENTILE_STRATEGY,
    OptimizationPolicy,
    OptimizationPolicySpec,
    PolicyMode,
)
from trimtab.api.optimizationpolicy.selection import NamespaceFilter, PolicySelector, WorkloadTypeFilter
from trimtab.api.optimizationpolicy.status import (
    MAX_LISTED_WORKLOADS,
    OptimizationPolicyStatus,
    WorkloadState,
)
from trimtab.api.optimizationpolicy.updates import (
    Canary,
    ChangePolicy,
    HpaMode,
    MaintenanceWindow,
    StartupBoost,
    StepLimits,
    TemplateUpdate,
    UpdateStrategy,
    UsageShiftMode,
    Weekday,
)

__all__ = [
    "DEFAULT_STRATEGY",
    "EVERY_CONTAINER",
    "MAX_LISTED_WORKLOADS",
    "PERCENTILE_STRATEGY",
    "Bounds",
    "CPUBounds",
    "CPULimitRule",
    "Canary",
    "ChangePolicy",
    "ContainerBounds",
    "ContainerRule",
    "ControlledResource",
    "HpaMode",
    "LimitMode",
    "LimitRule",
    "MaintenanceWindow",
    "MetricsConfig",
    "NamespaceFilter",
    "OptimizationPolicy",
    "OptimizationPolicySpec",
    "OptimizationPolicyStatus",
    "PolicyMode",
    "PolicySelector",
    "ResourceBounds",
    "ResourceGoals",
    "SizingGoal",
    "StartupBoost",
    "StepLimits",
    "StrategyChoice",
    "TemplateUpdate",
    "UpdateStrategy",
    "UsageShiftMode",
    "Weekday",
    "WorkloadState",
    "WorkloadTypeFilter",
]
