"""One resource of one container, with all that a guard may look at; and what a guard answers.

A guard is a small function from an amount and a case to the next amount. It answers None where it has nothing to
say, so that an explanation holds only what mattered.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import intern

import msgspec

from trimtab.sizing.constraints import AllowedRange, Constraints
from trimtab.sizing.proposal import ResourceTarget
from trimtab.sizing.qos import GUARANTEED
from trimtab.sizing.recommendation import Factor, format_amount
from trimtab.sizing.safe_minimum import SizedResource

LET_LIMITS_FOLLOW_REMEDY = "let limits follow by updateStrategy.updateRequestsOnly: false and limitPolicy"
"""What the author of a policy does where a limit that stays is in the way."""


class GuardContext(SizedResource, frozen=True, gc=False, kw_only=True):
    """One resource of one container, with what was proposed for it and what it stands among."""

    container: str
    proposed: ResourceTarget
    constraints: Constraints
    container_range: AllowedRange
    pod_range: AllowedRange
    others_request: int
    """What those beside it request of this resource,"""
    others_limit: int
    """and the sum of their limits."""
    other_resource_request: int
    """What it and those request of the other resource."""
    running_request: int
    """What all that stay request together."""
    restarts_container: bool = False
    """Whether a change of this resource restarts the container."""

    @property
    def must_stay_guaranteed(self) -> bool:
        """Whether limit and request are to be one."""
        return self.rules.keep_qos and self.constraints.qos_class == GUARANTEED


class GuardStep(msgspec.Struct, frozen=True, gc=False):
    """A guard's answer: another amount."""

    amount: int
    why: str
    source: str


class NoChange(msgspec.Struct, frozen=True, gc=False):
    """A guard's answer: leave this resource as it is."""

    why: str
    source: str


Guard = Callable[[int, GuardContext], GuardStep | NoChange | None]


class ExplanationBuilder:
    """What the guards leave behind."""

    def __init__(self, facts: tuple[Factor, ...]) -> None:
        self.factors = list(facts)
        self.no_change_reasons: list[str] = []

    def add_step(
        self, case: GuardContext, name: str, before: int | None, after: int | None, *, why: str, source: str
    ) -> None:
        resource = case.resource
        moved = f"{format_amount(resource, before)} -> {format_amount(resource, after)}"
        self._add(f"{resource} {name}", f"{moved}: {why}", source)

    def add_unchanged(
        self, case: GuardContext, name: str, amount: int | None, *, why: str, source: str
    ) -> None:
        """Note why an amount stays although the policy asks for another."""
        resource = case.resource
        self._add(f"{resource} {name}", f"stays at {format_amount(resource, amount)}: {why}", source)

    def add_no_change(self, case: GuardContext, hold: NoChange) -> None:
        kept = format_amount(case.resource, case.request)
        self._add(f"{case.resource} held", f"stays at {kept}: {hold.why}", hold.source)
        self.no_change_reasons.append(f"{case.resource}: {hold.why}")

    def _add(self, name: str, detail: str, source: str) -> None:
        # There are few guards and sources, and many containers that are told of them.
        self.factors.append(Factor(intern(name), detail, intern(source)))
