"""OptimizationPolicy: which workloads to right-size, from what evidence, within which bounds, and how boldly.

One policy covers many workloads, by namespace, label and type; where two overlap the heavier one wins. All
defaults are the careful ones: an empty policy recommends and touches nothing.
"""

from trimtab.api.optimizationpolicy.bounds import Bounds, CPUBounds, ResourceBounds
from trimtab.api.optimizationpolicy.changes import Changes, Steps
from trimtab.api.optimizationpolicy.containers import (
    EVERY_CONTAINER,
    ContainerBounds,
    ContainerRule,
    ControlledResource,
)
from trimtab.api.optimizationpolicy.limits import CpuLimitRule, LimitMode, LimitRule
from trimtab.api.optimizationpolicy.metrics_config import MetricsConfig, StrategyChoice
from trimtab.api.optimizationpolicy.policy import Mode, OptimizationPolicy, OptimizationPolicySpec
from trimtab.api.optimizationpolicy.selection import Namespaces, Selector, WorkloadTypes
from trimtab.api.optimizationpolicy.status import MOST_LISTED, OptimizationPolicyStatus, WorkloadState
from trimtab.api.optimizationpolicy.updates import (
    BesideHpa,
    Canary,
    MaintenanceWindow,
    StartupBoost,
    TemplateUpdate,
    UpdateStrategy,
    Weekday,
)

__all__ = [
    "EVERY_CONTAINER",
    "MOST_LISTED",
    "BesideHpa",
    "Bounds",
    "CPUBounds",
    "Canary",
    "Changes",
    "ContainerBounds",
    "ContainerRule",
    "ControlledResource",
    "CpuLimitRule",
    "LimitMode",
    "LimitRule",
    "MaintenanceWindow",
    "MetricsConfig",
    "Mode",
    "Namespaces",
    "OptimizationPolicy",
    "OptimizationPolicySpec",
    "OptimizationPolicyStatus",
    "ResourceBounds",
    "Selector",
    "StartupBoost",
    "Steps",
    "StrategyChoice",
    "TemplateUpdate",
    "UpdateStrategy",
    "Weekday",
    "WorkloadState",
    "WorkloadTypes",
]
