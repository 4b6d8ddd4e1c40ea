"""The smallest change that is made, and the largest in one step."""

from typing import Annotated

from pydantic import Field

from trimtab.api.duration import Duration
from trimtab.api.fields import DurationRange, Number
from trimtab.api.model import ApiModel


class StepLimits(ApiModel):
    """The largest change in one step, as a share of the request."""

    increase: Annotated[Number, Field(ge=0.01, le=100)] = 2.0
    """The largest increase in one change; 2 allows three times the request. After an OOM kill, memory may grow
    more."""

    decrease: Annotated[Number, Field(ge=0, le=0.9)] = 0.5
    """The largest decrease in one change; 0.5 allows half the request, 0 never lowers it."""


class MemoryStepLimits(StepLimits):
    """The largest change of memory in one step, as a share of the request; too little memory kills the container."""

    decrease: Annotated[Number, Field(ge=0, le=0.9)] = 0.3
    """The largest decrease in one change; 0.3 leaves 70 % of the request, 0 never lowers it."""


class ChangePolicy(ApiModel):
    """The smallest change that is made, and the largest in one step."""

    minimum: Annotated[Number, Field(ge=0, le=1)] = 0.2
    """The smallest change that is made, as a share of the target; 0.2 leaves a request alone that is within a fifth of
    its target. A change that restarts pods has to be a quarter larger."""

    stabilization: Annotated[Duration, DurationRange("0s", "24h")] = Duration.parse("24h")
    """A request is lowered only to the highest target of this period, up to 24h, so that capacity released at night
    is not missing in the morning; 0s lowers it at once. Increases are never delayed. The strategy trimtab sizes CPU
    for the whole period instead if pods are resized in place. Pods are restarted to be made smaller only once in this
    period."""

    cpu: StepLimits = StepLimits()
    """The largest change of CPU in one step."""

    memory: MemoryStepLimits = MemoryStepLimits()
    """The largest change of memory in one step."""
