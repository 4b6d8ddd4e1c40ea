"""Which changes are worth making, and how far one may go."""

from typing import Annotated

from pydantic import Field

from trimtab.api.duration import Duration
from trimtab.api.fields import DurationRange, Number
from trimtab.api.model import ApiModel


class StepLimits(ApiModel):
    """How far one change may go, as a share of the request."""

    increase: Annotated[Number, Field(ge=0.01, le=100)] = 2.0
    """The most that is added in one change; 2 allows three times the request. More is given after an OOM."""

    decrease: Annotated[Number, Field(ge=0, le=0.9)] = 0.5
    """The most that is taken away in one change; 0.5 allows half the request, 0 never makes it smaller."""


class MemoryStepLimits(StepLimits):
    """How far one change of memory may go, as a share of the request; too little of it kills."""

    decrease: Annotated[Number, Field(ge=0, le=0.9)] = 0.3
    """The most that is taken away in one change; 0.3 leaves 70 % of the request, 0 never makes it smaller."""


class ChangePolicy(ApiModel):
    """Which changes are worth making, and how far one may go."""

    minimum: Annotated[Number, Field(ge=0, le=1)] = 0.1
    """A change of less than this share of the request is left undone; 0.1 ignores changes below a tenth. A change that
    restarts pods has to be twice as large."""

    stabilization: Annotated[Duration, DurationRange("0s", "24h")] = Duration.parse("24h")
    """A request is made smaller only to the highest that was proposed in so long a time, up to 24h, so that what is
    given back at night is not missing in the morning; 0s makes it smaller at once. More is given at once. The strategy
    trimtab sizes CPU for all of that time instead, where pods are resized in place. Pods restart to be made smaller
    only once in that time."""

    cpu: StepLimits = StepLimits()
    """How far one change of CPU may go."""

    memory: MemoryStepLimits = MemoryStepLimits()
    """How far one change of memory may go."""
