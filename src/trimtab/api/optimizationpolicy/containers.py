"""What holds for some containers of a workload only: sidecars that others look after, a cache with bounds of its own."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from trimtab.api.fields import TextPattern, UniqueItems
from trimtab.api.model import ApiModel
from trimtab.api.optimizationpolicy.bounds import CPUBounds, MemoryBounds

EVERY_CONTAINER = "*"


class ControlledResource(StrEnum):
    """What is sized."""

    CPU = "cpu"
    MEMORY = "memory"


class ContainerBounds(ApiModel):
    """Bounds that hold for these containers in place of the policy's."""

    cpu: CPUBounds | None = None
    """Bounds for CPU; the policy's when left out."""

    memory: MemoryBounds | None = None
    """Bounds for memory; the policy's when left out."""


class ContainerRule(ApiModel):
    """What holds for the containers of a name."""

    name: Annotated[
        str,
        TextPattern(
            r"^[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?$",
            "the name of a container, in which * stands for anything, such as istio-*",
            63,
        ),
    ]
    """The name of a container; * stands for anything in it. Of several rules that are about a container the one with its
    very name holds, else the longest."""

    controlled_resources: Annotated[tuple[ControlledResource, ...], Field(max_length=2), UniqueItems()] = (
        ControlledResource.CPU,
        ControlledResource.MEMORY,
    )
    """What is sized; [memory] leaves CPU as it is, and [] leaves the container alone."""

    resource_bounds: ContainerBounds = ContainerBounds()
    """The least and the most that is ever recommended for it, in place of the policy's."""
