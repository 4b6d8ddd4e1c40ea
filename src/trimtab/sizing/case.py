"""One resource of one container, with all that a guard may look at; and what a guard answers.

A guard is a small function from an amount and a case to the next amount. It answers None where it has nothing to
say, so that an explanation holds only what mattered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec

from trimtab.kube.pods import Role
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.proposal import Ask
from trimtab.sizing.qos import GUARANTEED
from trimtab.sizing.recommendation import ResourceName
from trimtab.sizing.rules import ResourceRules, Rules
from trimtab.sizing.surroundings import Range, Surroundings

AS_IT_IS = sys.maxsize
"""A floor that nothing reaches: not to be made smaller at all."""


class Case(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One resource of one container."""

    resource: ResourceName
    container: str
    role: Role
    request: int | None
    """What counts as its request now: the limit where only that is given, None where it has neither."""
    limit: int | None
    ask: Ask
    rule: ResourceRules
    rules: Rules
    evidence: Evidence
    around: Surroundings
    container_range: Range
    pod_range: Range
    others: int
    """What those beside it request of this resource,"""
    others_limit: int
    """and the sum of their limits."""
    beside: int
    """What it and those request of the other resource."""
    staying: int
    """What all that stay request together."""
    now: float

    @property
    def stays_guaranteed(self) -> bool:
        """Whether limit and request are to be one."""
        return self.rules.keep_qos and self.around.qos == GUARANTEED


class Step(msgspec.Struct, frozen=True, gc=False):
    """A guard's answer: another amount."""

    amount: int
    why: str
    source: str


class Floor(msgspec.Struct, frozen=True, gc=False):
    """A guard's answer: not to be made smaller than this."""

    amount: int
    why: str
    source: str


class Hold(msgspec.Struct, frozen=True, gc=False):
    """A guard's answer: leave this resource as it is."""

    why: str
    source: str


Guard = Callable[[int, Case], Step | Hold | None]
FloorGuard = Callable[[Case], Floor | None]
