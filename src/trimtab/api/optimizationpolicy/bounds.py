"""The minimum and maximum of recommendations."""

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
