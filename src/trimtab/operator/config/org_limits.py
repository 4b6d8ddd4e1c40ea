"""The limits that an organisation sets for all policies.

The webhook denies policies that exceed them, so that authors learn of it at once. A policy can still come to exceed
them: the webhook was unavailable, or the limits were tightened later. The reconciler therefore checks every policy
again before it acts. Pure. `trimtab.api` validates policies by themselves.
"""

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from trimtab.actuation.resources import SizeLimits
from trimtab.api.fields import Int, NamespaceName, Number, PluginName, UniqueItems
from trimtab.api.model import ApiModel
from trimtab.api.optimizationpolicy import (
    PERCENTILE_STRATEGY,
    Bounds,
    ContainerBounds,
    OptimizationPolicySpec,
    PolicyMode,
    ResourceBounds,
)
from trimtab.api.optimizationpolicy.metrics_config import DEFAULT_SAFETY_FACTOR
from trimtab.api.quantity import Quantity
from trimtab.sizing.strategy import STRATEGIES

_SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")


class OrganisationLimits(ApiModel):
    """The limits that no policy may exceed."""

    renamed: ClassVar = {"untouchedNamespaces": "excludedNamespaces"}

    max_cpu: Quantity | None = None
    """The maximum CPU that a policy or an Intent may let a container have. A policy without a maximum gets this one; a policy
    with a higher one is denied. There is no limit if this is left out."""

    max_memory: Quantity | None = None
    """The maximum memory that a policy or an Intent may let a container have, with the same rules as maxCpu."""

    max_safety_factor: Annotated[Number, Field(ge=1, le=10)] = 10.0
    """The largest metricsConfig.safetyFactor of a policy, and the largest factor or margin (1.5 for a margin of 0.5) in its
    strategy.settings."""

    forbidden_modes: Annotated[tuple[PolicyMode, ...], UniqueItems()] = ()
    """The modes that no policy may have; [Auto] restricts the operator to recommendations, and Intents to reports."""

    forbidden_strategies: Annotated[tuple[PluginName, ...], UniqueItems()] = ()
    """The strategies that no policy may name."""

    excluded_namespaces: Annotated[tuple[NamespaceName, ...], UniqueItems()] = _SYSTEM_NAMESPACES
    """The namespaces in which nothing is ever changed, whatever a policy says. Your own list replaces the default, so
    include the system namespaces."""

    reserved_weight: Annotated[Int, Field(ge=2, le=1000)] | None = None
    """The weight from which on weights are for policies in the operator's namespace only, so that no tenant overrules
    them, not even with mode Disabled. A policy elsewhere with such a weight is denied; no weight is reserved if this is
    left out."""

    def find_problems(self, spec: OptimizationPolicySpec) -> list[str]:
        """List what a policy asks for beyond the limits, each in one line that names the field and the fix."""
        return list(self._iter_problems(spec))

    def _iter_problems(self, spec: OptimizationPolicySpec) -> Iterator[str]:
        if spec.mode in self.forbidden_modes:
            allowed = ", ".join(mode for mode in PolicyMode if mode not in self.forbidden_modes)
            yield f"spec.mode: {spec.mode} is forbidden by your organisation; use {allowed or 'no policy'}"
        if spec.strategy_name in self.forbidden_strategies:
            yield f"spec.strategy.name: {spec.strategy_name} is forbidden by your organisation; use another"
        for path, factor in _iter_usage_factors(spec):
            if factor > self.max_safety_factor:
                yield (
                    f"spec.{path}: {factor:g} is above the limit of your "
                    f"organisation; use at most {self.max_safety_factor:g}"
                )
        for path, stated, most in self._iter_bounds(spec):
            yield from _check_bound(path, stated, most)

    @property
    def size_limits(self) -> SizeLimits:
        """The limits for sizes that annotations ask for."""
        return SizeLimits(
            cpu=None if self.max_cpu is None else self.max_cpu.millicores,
            memory=None if self.max_memory is None else self.max_memory.bytes,
        )

    def default_maxima(self, spec: OptimizationPolicySpec) -> dict[str, Quantity]:
        """Return the maxima that apply to a policy because it sets none itself, by their path in `spec`."""
        return {f"{path}/max": most for path, stated, most in self._iter_bounds(spec) if stated.max is None}

    def _iter_bounds(self, spec: OptimizationPolicySpec) -> Iterator[tuple[str, Bounds, Quantity]]:
        """Iterate over all bounds that a policy sets, by their path in `spec`, each with the largest permitted value."""
        stated: list[tuple[str, ResourceBounds | ContainerBounds]] = [
            ("resourceBounds", spec.resource_bounds)
        ]
        stated += [
            (f"containers/{place}/resourceBounds", each.resource_bounds)
            for place, each in enumerate(spec.containers)
        ]
        for path, bounds in stated:
            if self.max_cpu is not None and bounds.cpu is not None:
                yield f"{path}/cpu", bounds.cpu, self.max_cpu
            if self.max_memory is not None and bounds.memory is not None:
                yield f"{path}/memory", bounds.memory, self.max_memory


def _iter_usage_factors(spec: OptimizationPolicySpec) -> Iterator[tuple[str, float]]:
    """Iterate over the factors by which a policy multiplies what was used, by their path in `spec`."""
    settings, factor = spec.strategy.settings, spec.metrics_config.safety_factor
    if factor is None and spec.strategy_name == PERCENTILE_STRATEGY and "safety_factor" not in settings:
        factor = DEFAULT_SAFETY_FACTOR
    if factor is not None:
        yield "metricsConfig.safetyFactor", factor
    for field, stated in STRATEGIES.list_usage_factors(spec.strategy_name, settings).items():
        yield f"strategy.settings.{field}, as a factor", stated


def _check_bound(path: str, stated: Bounds, most: Quantity) -> Iterator[str]:
    path = re.sub(r"\.(\d+)", r"[\1]", f"spec.{path.replace('/', '.')}")
    if stated.max is not None and stated.max > most:
        yield f"{path}.max: {stated.max} is above the limit of your organisation; use at most {most}"
    elif stated.min > most:
        yield f"{path}.min: {stated.min} is above the limit of your organisation; use at most {most}"
