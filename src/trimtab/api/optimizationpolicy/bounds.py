"""The minimum and maximum of recommendations, and rules for single containers of a workload, such as sidecars that others
manage or a cache with its own bounds.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from trimtab.api.fields import TextPattern, UniqueItems
from trimtab.api.model import ApiModel, ValidationRule
from trimtab.api.quantity import Quantity


class Bounds(ApiModel):
    """The minimum and maximum of recommendations for a container."""

    rules = (
        ValidationRule(
            field="max",
            message="must be more than 0",
            predicate=lambda self: self.max is None or self.max.amount > 0,
            cel="!has(self.max) || quantity(string(self.max)).isGreaterThan(quantity('0'))",
        ),
        ValidationRule(
            field="min",
            message="must not exceed max",
            detail="{min} > {max}",
            predicate=lambda self: self.max is None or self.min <= self.max,
            cel="!has(self.max) || quantity(string(self.min)).compareTo(quantity(string(self.max))) <= 0",
        ),
    )

    min: Quantity
    """The minimum: never recommend less."""

    max: Quantity | None = None
    """The maximum: never recommend more; no upper bound when left out."""


class CPUBounds(Bounds):
    """The minimum and maximum of CPU recommendations for a container."""

    min: Quantity = Quantity.parse("10m")
    """The minimum: never recommend less."""


class MemoryBounds(Bounds):
    """The minimum and maximum of memory recommendations for a container."""

    min: Quantity = Quantity.parse("32Mi")
    """The minimum: never recommend less."""


class ResourceBounds(ApiModel):
    """Bounds for every container, whatever its usage."""

    cpu: CPUBounds = CPUBounds()
    """The bounds for CPU, such as min 100m and max 4."""

    memory: MemoryBounds = MemoryBounds()
    """The bounds for memory, such as min 128Mi and max 8Gi."""


EVERY_CONTAINER = "*"


class ControlledResource(StrEnum):
    """The resources that can be sized."""

    CPU = "cpu"
    MEMORY = "memory"


class ContainerBounds(ApiModel):
    """Bounds for these containers instead of the policy's."""

    cpu: CPUBounds | None = None
    """The bounds for CPU; the policy's when left out."""

    memory: MemoryBounds | None = None
    """The bounds for memory; the policy's when left out."""


class ContainerRule(ApiModel):
    """The rule for the containers with a name."""

    name: Annotated[
        str,
        TextPattern(
            r"^[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?$",
            "the name of a container, in which * stands for anything, such as istio-*",
            63,
        ),
    ]
    """The name of a container, in which * matches anything. If several rules match a container, the one with its
    exact name applies, else the longest."""

    controlled_resources: Annotated[tuple[ControlledResource, ...], Field(max_length=2), UniqueItems()] = (
        ControlledResource.CPU,
        ControlledResource.MEMORY,
    )
    """The resources that are sized; [memory] does not change CPU, and [] does not change the container at all."""

    resource_bounds: ContainerBounds = ContainerBounds()
    """The minimum and maximum of recommendations for it, instead of the policy's."""
