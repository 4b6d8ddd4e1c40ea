"""The rules for limits when requests change."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from trimtab.api.fields import Number
from trimtab.api.model import ApiModel, ValidationRule
from trimtab.api.quantity import Quantity


class LimitMode(StrEnum):
    """The rule for a limit when its request changes."""

    KEEP = "Keep"
    KEEP_RATIO = "KeepRatio"
    MULTIPLIER = "Multiplier"
    HEADROOM = "Headroom"
    REMOVE = "Remove"


class LimitRule(ApiModel):
    """The rule for the limit of one resource; only Multiplier and Headroom add one to a container without."""

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
    """The rule for the limit. Keep leaves it unchanged, and the request stays below it; KeepRatio keeps the ratio of limit
    to request; Multiplier sets request times multiplier; Headroom sets request plus headroom; Remove removes it."""

    multiplier: Annotated[Number, Field(ge=1, le=100)] | None = None
    """The limit as a multiple of the request, such as 1.5; with mode Multiplier only."""

    headroom: Quantity | None = None
    """The amount that is added to the request, such as 256Mi; with mode Headroom only."""


class CPULimitRule(LimitRule):
    """The rule for a CPU limit; only Multiplier and Headroom add one to a container without."""

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
    """Allow a limit below the highest CPU usage of the last week plus 20 %. The container is throttled at such
    peaks."""


class LimitPolicy(ApiModel):
    """The rules for limits of CPU and memory: a container at its CPU limit is slow, one at its memory limit is
    killed.
    """

    cpu: CPULimitRule = CPULimitRule()
    """The rule for CPU limits."""

    memory: LimitRule = LimitRule()
    """The rule for memory limits."""


KEEP_LIMIT = LimitRule(mode=LimitMode.KEEP)
KEEP_LIMITS = LimitPolicy(cpu=CPULimitRule(mode=LimitMode.KEEP), memory=KEEP_LIMIT)
