"""The least and the most that is ever recommended for a container."""

from trimtab.api.model import ApiModel, ValidationRule
from trimtab.api.quantity import Quantity


class Bounds(ApiModel):
    """The least and the most that is ever recommended for a container."""

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
    """Never recommend less than this."""

    max: Quantity | None = None
    """Never recommend more than this; no upper bound when left out."""


class CPUBounds(Bounds):
    """The least and the most CPU that is ever recommended for a container."""

    min: Quantity = Quantity.parse("10m")
    """Never recommend less than this."""


class MemoryBounds(Bounds):
    """The least and the most memory that is ever recommended for a container."""

    min: Quantity = Quantity.parse("32Mi")
    """Never recommend less than this."""


class ResourceBounds(ApiModel):
    """Bounds that hold for every container, whatever was observed."""

    cpu: CPUBounds = CPUBounds()
    """Bounds for CPU, such as min 100m and max 4."""

    memory: MemoryBounds = MemoryBounds()
    """Bounds for memory, such as min 128Mi and max 8Gi."""
