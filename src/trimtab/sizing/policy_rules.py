"""What a policy asks of every recommendation, in millicores, bytes and seconds: read once for each policy.

What users set comes from the OptimizationPolicy. `Caution` holds what is the same for all and set by whoever runs the
operator; each default names the harm that it guards against.
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
)
from trimtab.api.quantity import Quantity
from trimtab.kube.kinds.pods import Container
from trimtab.sizing.recommendation import MIB, ResourceName

_UNLIMITED_INCREASE = 1e6
"""Times the request: further than any change goes."""
MEMORY_HEADROOM = 0.1
"""Memory is never lowered to less than what is needed and a tenth."""


class SafetyDefaults(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How careful to be, whatever the policy says."""

    min_samples: int = 10
    """Fewer samples than these say nothing."""
    max_sample_age: float = 900.0
    """Seconds after which the last sample of a running container is too old: the source is away, or lies."""
    min_coverage: float = 0.5
    """Share of the samples that should be there under which a container is not made smaller."""
    memory_headroom: float = MEMORY_HEADROOM
    """What is left above the highest recent memory when it is made smaller."""
    cpu_headroom: float = 0.2
    """What is left above the highest recent CPU when a CPU limit is made smaller: peaks are averages of minutes."""
    heap_overhead: float = 0.25
    """What a process with a heap needs besides, as a share of the heap: code, threads, buffers."""
    max_throttled_share: float = 0.05
    """Share of throttled periods over which CPU is not made smaller: the usage seen is not the usage wanted."""
    min_cpu_change: int = 5
    """Millicores under which a change of CPU is not worth making."""
    min_memory_change: int = 8 * MIB
    """Bytes under which a change of memory is not worth making."""
    restart_factor: float = 2.0
    """How many times larger a change must be to be worth a restart of pods."""
    min_pod_cpu: int = 0
    """Millicores that a pod has at least, shared out over its containers; 25 in VPA."""
    min_pod_memory: int = 0
    """Bytes that a pod has at least, shared out over its containers; 250 MiB in VPA."""
    oom_factor: float = 1.2
    """A container that was killed for memory gets this many times what it had,"""
    oom_min_increase: int = 100 * MIB
    """and at least so many bytes more."""
    oom_history: float = 8 * 86400.0
    """Seconds for which a kill counts: what it had then is not enough. The operator's `learning.history`."""
    max_oom_raises: int = 3
    """So often a container is given more after a kill and killed again; then it is taken for a leak."""


class ResourceRules(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What holds for one resource."""

    min_request: int = 1
    max_request: int | None = None
    limit: LimitMode = LimitMode.KEEP
    multiplier: float = 1.0
    headroom: int = 0
    limit_below_peak: bool = False
    """Whether the limit may come below the recent peak."""
    max_increase: float = 2.0
    max_decrease: float = 0.5
    min_change: int = 0
    bounds_field: str = "resourceBounds"
    """The field of the policy that has the bounds."""
    is_controlled: bool = True
    """Whether it is for us to size."""


class ContainerRules(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What holds for the containers of a name only."""

    name: str
    cpu: ResourceRules
    memory: ResourceRules


class PolicyRules(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """All that a policy asks of the sizes of its containers."""

    cpu: ResourceRules = ResourceRules()
    memory: ResourceRules = ResourceRules()
    minimum_change: float = 0.1
    stabilization: float = 0.0
    restarts_pods: bool = False
    """Whether pods are replaced to be given another size, by the policy or since the cluster cannot resize them."""
    minimum_history: float = 86400.0
    keep_qos: bool = True
    hpa_mode: HpaMode = HpaMode.RESCALE
    safety: SafetyDefaults = SafetyDefaults()
    containers: tuple[ContainerRules, ...] = ()
    """Those that name a container more exactly come first."""

    @property
    def is_excluded(self) -> bool:
        """Whether nothing of it is for us to size."""
        return not (self.cpu.is_controlled or self.memory.is_controlled)

    def for_container(self, name: str) -> PolicyRules:
        """What holds for one container."""
        for each in self.containers:
            if fnmatchcase(name, each.name):
                return msgspec.structs.replace(self, cpu=each.cpu, memory=each.memory, containers=())
        return self

    def without_step_limits(self) -> PolicyRules:
        """The same rules, where one change may go as far as it likes."""

        def free(rules: ResourceRules) -> ResourceRules:
            # A decrease of 0 is no step: it says that nothing is ever made smaller.
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
        """The names of those of which nothing is for us to size."""
        return frozenset(each.name for each in containers if self.for_container(each.name).is_excluded)

    @classmethod
    def from_spec(cls, spec: OptimizationPolicySpec, safety: SafetyDefaults | None = None) -> PolicyRules:
        """Read a policy."""
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
            minimum_history=spec.metrics_config.minimum_history.seconds,
            keep_qos=spec.update_strategy.keep_qos_class,
            hpa_mode=spec.update_strategy.beside_hpa,
            safety=careful,
        )


def _specificity_order(rule: ContainerRule) -> tuple[bool, int, str]:
    return EVERY_CONTAINER in rule.name, -len(rule.name), rule.name


def _container_rules(rule: ContainerRule, cpu: ResourceRules, memory: ResourceRules) -> ContainerRules:
    def own(resource: ControlledResource, usual: ResourceRules, bounds: Bounds | None) -> ResourceRules:
        if bounds is not None:
            least, most = _min_and_max(resource.value, bounds)
            said_in = f"containers[{rule.name}].resourceBounds"
            usual = msgspec.structs.replace(usual, min_request=least, max_request=most, bounds_field=said_in)
        return msgspec.structs.replace(usual, is_controlled=resource in rule.controlled_resources)

    bounds = rule.resource_bounds
    return ContainerRules(
        name=rule.name,
        cpu=own(ControlledResource.CPU, cpu, bounds.cpu),
        memory=own(ControlledResource.MEMORY, memory, bounds.memory),
    )


def _to_units(resource: ResourceName, quantity: Quantity) -> int:
    return quantity.millicores if resource == "cpu" else quantity.bytes


def _min_and_max(resource: ResourceName, bounds: Bounds) -> tuple[int, int | None]:
    """A request of nothing is no request."""
    return max(_to_units(resource, bounds.min), 1), None if bounds.max is None else _to_units(
        resource, bounds.max
    )


def _resource_rules(
    resource: ResourceName, bounds: Bounds, limit: LimitRule, steps: StepLimits, smallest: int
) -> ResourceRules:
    least, most = _min_and_max(resource, bounds)
    return ResourceRules(
        min_request=least,
        max_request=most,
        limit=limit.mode,
        multiplier=limit.multiplier or 1.0,
        limit_below_peak=isinstance(limit, CPULimitRule) and limit.allow_below_peak,
        headroom=0 if limit.headroom is None else _to_units(resource, limit.headroom),
        max_increase=steps.increase,
        max_decrease=steps.decrease,
        min_change=smallest,
    )
