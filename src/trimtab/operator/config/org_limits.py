"""What an organisation allows its policies, whoever writes them.

The webhook refuses what breaks these limits, so that the author is told at once. A policy can still come to break
them: the webhook was away, or the limits were tightened later. So reconciling asks the same question of every
policy before it acts. Pure. Left out: what is wrong with a policy in itself (`trimtab.api`).
"""

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from trimtab.api.fields import NamespaceName, Number, PluginName, UniqueItems
from trimtab.api.model import ApiModel
from trimtab.api.optimizationpolicy import (
    Bounds,
    ContainerBounds,
    OptimizationPolicySpec,
    PolicyMode,
    ResourceBounds,
)
from trimtab.api.quantity import Quantity

_SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")


class OrganisationLimits(ApiModel):
    """What no policy may go beyond."""

    max_cpu: Quantity | None = None
    """The most CPU that a policy may let a container have. A policy that states no maximum gets this one; one that
    states more is refused. No limit when left out."""

    max_memory: Quantity | None = None
    """The most memory, likewise."""

    max_safety_factor: Annotated[Number, Field(ge=1, le=10)] = 10.0
    """The largest metricsConfig.safetyFactor of a policy."""

    forbidden_modes: Annotated[tuple[PolicyMode, ...], UniqueItems()] = ()
    """Modes that no policy may have; [Auto] lets the operator recommend only."""

    forbidden_strategies: Annotated[tuple[PluginName, ...], UniqueItems()] = ()
    """Strategies that no policy may name."""

    untouched_namespaces: Annotated[tuple[NamespaceName, ...], UniqueItems()] = _SYSTEM_NAMESPACES
    """Namespaces in which nothing is ever changed, whatever a policy says. Naming your own replaces the default, so
    repeat those of the system."""

    def find_problems(self, spec: OptimizationPolicySpec) -> list[str]:
        """What a policy asks for and may not have, each in one line that names the field and the fix."""
        return list(self._iter_problems(spec))

    def _iter_problems(self, spec: OptimizationPolicySpec) -> Iterator[str]:
        if spec.mode in self.forbidden_modes:
            allowed = ", ".join(mode for mode in PolicyMode if mode not in self.forbidden_modes)
            yield f"spec.mode: {spec.mode} is forbidden by your organisation; use {allowed or 'no policy'}"
        if spec.strategy.name in self.forbidden_strategies:
            yield f"spec.strategy.name: {spec.strategy.name} is forbidden by your organisation; use another"
        if spec.metrics_config.safety_factor > self.max_safety_factor:
            yield (
                f"spec.metricsConfig.safetyFactor: {spec.metrics_config.safety_factor:g} is above the limit of your "
                f"organisation; use at most {self.max_safety_factor:g}"
            )
        for path, stated, most in self._iter_bounds(spec):
            yield from _check_bound(path, stated, most)

    def default_maxima(self, spec: OptimizationPolicySpec) -> dict[str, Quantity]:
        """Maxima that a policy leaves open and that hold for it all the same, by their path in `spec`."""
        return {f"{path}/max": most for path, stated, most in self._iter_bounds(spec) if stated.max is None}

    def _iter_bounds(self, spec: OptimizationPolicySpec) -> Iterator[tuple[str, Bounds, Quantity]]:
        """All bounds that a policy states, by their path in `spec`, with the most that they may be."""
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


def _check_bound(path: str, stated: Bounds, most: Quantity) -> Iterator[str]:
    path = re.sub(r"\.(\d+)", r"[\1]", f"spec.{path.replace('/', '.')}")
    if stated.max is not None and stated.max > most:
        yield f"{path}.max: {stated.max} is above the limit of your organisation; use at most {most}"
    elif stated.min > most:
        yield f"{path}.min: {stated.min} is above the limit of your organisation; use at most {most}"
