"""What becomes of limits when requests change."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from trimtab.api.fields import Number
from trimtab.api.model import ApiModel, ValidationRule
from trimtab.api.quantity import Quantity


class LimitMode(StrEnum):
    """What becomes of a limit when its request changes."""

    KEEP = "Keep"
    KEEP_RATIO = "KeepRatio"
    MULTIPLIER = "Multiplier"
    HEADROOM = "Headroom"
    REMOVE = "Remove"


class LimitRule(ApiModel):
    """What becomes of the limit of one resource; only Multiplier and Headroom give one to a container without."""

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            field="multiplier",
            message="must be given when mode is Multiplier, and only then",
            predicate=lambda self: (self.mode is LimitMode.MULTIPLIER) == (self.multiplier is not None),
            cel="(self.mode == 'Multiplier') == has(self.multiplier)",
        ),
        ValidationRule(
            field="headroom",
            message="must be given when mode is Headroom, and only then",
            predicate=lambda self: (self.mode is LimitMode.HEADROOM) == (self.headroom is not None),
            cel="(self.mode == 'Headroom') == has(self.headroom)",
        ),
    )

    mode: LimitMode = LimitMode.KEEP_RATIO
    """Keep leaves the limit alone, and the request stays below it; KeepRatio keeps limit to request as it was;
    Multiplier sets request times multiplier; Headroom sets request plus headroom; Remove takes the limit away."""

    multiplier: Annotated[Number, Field(ge=1, le=100)] | None = None
    """The limit as a multiple of the request, such as 1.5; with mode Multiplier."""

    headroom: Quantity | None = None
    """How much the limit is above the request, such as 256Mi; with mode Headroom."""


class CPULimitRule(LimitRule):
    """What becomes of a CPU limit; only Multiplier and Headroom give one to a container without."""

    rules = (
        *LimitRule.rules,
        ValidationRule(
            field="allowBelowPeak",
            message="has no effect when mode is Keep or Remove",
            predicate=lambda self: (
                not self.allow_below_peak or self.mode not in {LimitMode.KEEP, LimitMode.REMOVE}
            ),
            cel="!self.allowBelowPeak || !(self.mode in ['Keep', 'Remove'])",
        ),
    )

    allow_below_peak: bool = False
    """Let the limit come below the highest CPU of the last week and a margin of 20 %. The container is throttled at such
    peaks."""


class LimitPolicy(ApiModel):
    """What becomes of limits, for CPU and memory apart: throttled CPU is slow, a lack of memory is fatal."""

    cpu: CPULimitRule = CPULimitRule()
    """What becomes of CPU limits."""

    memory: LimitRule = LimitRule()
    """What becomes of memory limits."""


KEEP_LIMIT = LimitRule(mode=LimitMode.KEEP)
KEEP_LIMITS = LimitPolicy(cpu=CPULimitRule(mode=LimitMode.KEEP), memory=KEEP_LIMIT)
