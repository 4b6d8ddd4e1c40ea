"""The rules of a policy for every recommendation, in millicores, bytes and seconds, parsed once per policy.

User settings come from the OptimizationPolicy. `SafetyDefaults` holds what is the same for all policies.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from trimtab.api.optimizationpolicy import (
    EVERY_CONTAINER,
    Bounds,
    ContainerRule,
    ControlledResource,
    CPULimitRule,
    HpaMode,
    LimitMode,
    LimitRule,
    OptimizationPolicySpec,
    StepLimits,
    UsageShiftMode,
)
from trimtab.api.quantity import MIB, Quantity, ResourceName
from trimtab.kube.kinds.pod_requests import BEST_EFFORT, BURSTABLE
from trimtab.kube.kinds.pods import Container

_UNLIMITED_INCREASE = 1e6
"""A factor of the request that no change reaches."""


class SafetyDefaults(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The safety margins that do not come from the policy: the operator's configuration and `scan` set them."""

    min_samples: int = 10
    """The least samples that a recommendation needs."""
    min_cpu_change: int = 5
    """The least change of CPU that is worth making, in millicores."""
    min_memory_change: int = 8 * MIB
    """The least change of memory that is worth making, in bytes."""
    oom_history: float = 8 * 86400.0
    """Seconds for which an OOM kill counts as proof that the memory of that time was too little (the
    operator's `learning.history`).
    """


class ResourceRules(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The rules of one resource."""

    min_request: int = 1
    max_request: int | None = None
    limit: LimitMode = LimitMode.KEEP
    multiplier: float = 1.0
    headroom: int = 0
    raises_kept_limit: bool = False
    """True if a limit that is otherwise kept is raised after an OOM kill at it."""
    limit_below_peak: bool = False
    """True if the limit may be below the recent peak."""
    max_increase: float = 2.0
    max_decrease: float = 0.5
    min_change: int = 0
    bounds_field: str = "resourceBounds"
    """The field of the policy that sets the bounds."""
    is_controlled: bool = True
    """True if Trimtab sizes this resource."""


class ContainerRules(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The rules of the containers whose name matches a pattern."""

    name: str
    cpu: ResourceRules
    memory: ResourceRules


class PolicyRules(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """All rules of a policy for the sizes of its containers."""

    cpu: ResourceRules = ResourceRules()
    memory: ResourceRules = ResourceRules()
    minimum_change: float = 0.2
    stabilization: float = 0.0
    restarts_pods: bool = False
    """True if pods are replaced to get another size, by the policy or because the cluster cannot resize them.
    """
    minimum_history: float | None = None
    """The seconds of observation before which nothing is lowered; None if the evidence decides."""
    usage_shift: UsageShiftMode = UsageShiftMode.HOLD_DECREASES
    """The reaction to a sudden change of a usage pattern."""
    keep_qos: bool = True
    hpa_mode: HpaMode = HpaMode.RESCALE
    safety: SafetyDefaults = SafetyDefaults()
    containers: tuple[ContainerRules, ...] = ()
    """The rules of single containers, the most specific name first."""

    @property
    def holds_shifted(self) -> bool:
        """True if a container whose usage pattern changed suddenly is not made smaller."""
        return self.usage_shift is UsageShiftMode.HOLD_DECREASES

    @property
    def is_excluded(self) -> bool:
        """True if Trimtab sizes neither resource of the container."""
        return not (self.cpu.is_controlled or self.memory.is_controlled)

    def for_container(self, name: str) -> PolicyRules:
        """Return the rules of one container."""
        for each in self.containers:
            if fnmatchcase(name, each.name):
                return msgspec.structs.replace(self, cpu=each.cpu, memory=each.memory, containers=())
        return self

    def without_step_limits(self) -> PolicyRules:
        """Return the same rules without a limit on the size of one change."""

        def free(rules: ResourceRules) -> ResourceRules:
            # A decrease of 0 is no step limit: it forbids every decrease.
            return msgspec.structs.replace(
                rules, max_increase=_UNLIMITED_INCREASE, max_decrease=1.0 if rules.max_decrease else 0.0
            )

        return msgspec.structs.replace(
            self,
            cpu=free(self.cpu),
            memory=free(self.memory),
            containers=tuple(
                msgspec.structs.replace(each, cpu=free(each.cpu), memory=free(each.memory))
                for each in self.containers
            ),
        )

    def excluded_containers(self, containers: Iterable[Container]) -> frozenset[str]:
        """Return the names of the containers that Trimtab does not size."""
        return frozenset(each.name for each in containers if self.for_container(each.name).is_excluded)

    @classmethod
    def from_spec(cls, spec: OptimizationPolicySpec, safety: SafetyDefaults | None = None) -> PolicyRules:
        """Return the rules of a policy."""
        careful = safety or SafetyDefaults()
        bounds, changes = spec.resource_bounds, spec.changes
        cpu = _resource_rules(
            "cpu", bounds.cpu, spec.effective_limit_rule("cpu"), changes.cpu, careful.min_cpu_change
        )
        memory = _resource_rules(
            "memory",
            bounds.memory,
            spec.effective_limit_rule("memory"),
            changes.memory,
            careful.min_memory_change,
            raises_kept_limit=spec.raises_memory_limits_after_kills,
        )
        return cls(
            cpu=cpu,
            memory=memory,
            containers=tuple(
                _container_rules(each, cpu, memory)
                for each in sorted(spec.containers, key=_specificity_order)
            ),
            minimum_change=changes.minimum,
            stabilization=changes.stabilization.seconds,
            restarts_pods=spec.update_strategy.restarts_pods,
            minimum_history=history.seconds if (history := spec.metrics_config.minimum_history) else None,
            usage_shift=changes.usage_shift,
            keep_qos=spec.update_strategy.keep_qos_class,
            hpa_mode=spec.update_strategy.hpa_mode,
            safety=careful,
        )


def _specificity_order(rule: ContainerRule) -> tuple[bool, int, str]:
    # Exact names before patterns, and longer ones first: the order in which a policy lists them must not
    # matter.
    return EVERY_CONTAINER in rule.name, -len(rule.name), rule.name


def _container_rules(rule: ContainerRule, cpu: ResourceRules, memory: ResourceRules) -> ContainerRules:
    def override_rules(
        resource: ControlledResource, usual: ResourceRules, bounds: Bounds | None
    ) -> ResourceRules:
        if bounds is not None:
            least, most = _min_and_max(resource.value, bounds)
            said_in = f"containers[{rule.name}].resourceBounds"
            usual = msgspec.structs.replace(usual, min_request=least, max_request=most, bounds_field=said_in)
        return msgspec.structs.replace(usual, is_controlled=resource in rule.controlled_resources)

    bounds = rule.resource_bounds
    return ContainerRules(
        name=rule.name,
        cpu=override_rules(ControlledResource.CPU, cpu, bounds.cpu),
        memory=override_rules(ControlledResource.MEMORY, memory, bounds.memory),
    )


def _to_units(resource: ResourceName, quantity: Quantity) -> int:
    return quantity.millicores if resource == "cpu" else quantity.bytes


def _min_and_max(resource: ResourceName, bounds: Bounds) -> tuple[int, int | None]:
    """Return the bounds of a request; the least is 1, because a request of 0 is no request."""
    return max(_to_units(resource, bounds.min), 1), None if bounds.max is None else _to_units(
        resource, bounds.max
    )


def _resource_rules(
    resource: ResourceName,
    bounds: Bounds,
    limit: LimitRule,
    steps: StepLimits,
    smallest: int,
    *,
    raises_kept_limit: bool = False,
) -> ResourceRules:
    least, most = _min_and_max(resource, bounds)
    return ResourceRules(
        min_request=least,
        max_request=most,
        limit=limit.mode,
        multiplier=limit.multiplier or 1.0,
        limit_below_peak=isinstance(limit, CPULimitRule) and limit.allow_below_peak,
        raises_kept_limit=raises_kept_limit,
        headroom=0 if limit.headroom is None else _to_units(resource, limit.headroom),
        max_increase=steps.increase,
        max_decrease=steps.decrease,
        min_change=smallest,
    )


def describe_qos_obstacle(qos: str, *, keeps_qos: bool, keeps_limits: bool) -> str:
    """Return why a policy does not change the requests of such a pod, with the setting that permits it.

    The text is empty if the policy may change them.
    """
    if not keeps_qos or qos == BURSTABLE:
        return ""
    if qos == BEST_EFFORT:
        return (
            "the pod is BestEffort, and requests would change its QoS class; "
            "set its first requests yourself, or updateStrategy.keepQosClass: false"
        )
    if not keeps_limits:
        return ""
    return (
        "the pod is Guaranteed and its limits are kept, so its requests cannot change; "
        "set updateStrategy.updateRequestsOnly: false"
    )
