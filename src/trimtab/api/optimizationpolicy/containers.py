"""Rules for single containers of a workload, such as sidecars that others manage or a cache with its own bounds."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from trimtab.api.fields import TextPattern, UniqueItems
from trimtab.api.model import ApiModel
from trimtab.api.optimizationpolicy.bounds import CPUBounds, MemoryBounds

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
