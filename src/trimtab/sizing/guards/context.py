"""One resource of one container, with all that a guard may look at; and what a guard answers.

A guard is a small function from an amount and a case to the next amount. It answers None where it has nothing to
say, so that an explanation holds only what mattered.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import intern

import msgspec

from trimtab.sizing.constraints import Range, Surroundings
from trimtab.sizing.proposal import Ask
from trimtab.sizing.qos import GUARANTEED
from trimtab.sizing.recommendation import Factor, amount_text
from trimtab.sizing.safe_minimum import SizedResource

LET_LIMITS_FOLLOW = "let limits follow by updateStrategy.updateRequestsOnly: false and limitPolicy"
"""What the author of a policy does where a limit that stays is in the way."""


class Case(SizedResource, frozen=True, gc=False, kw_only=True):
    """One resource of one container, with what was proposed for it and what it stands among."""

    container: str
    ask: Ask
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
    restarts: bool = False
    """Whether a change of this resource restarts the container."""

    @property
    def stays_guaranteed(self) -> bool:
        """Whether limit and request are to be one."""
        return self.rules.keep_qos and self.around.qos == GUARANTEED


class Step(msgspec.Struct, frozen=True, gc=False):
    """A guard's answer: another amount."""

    amount: int
    why: str
    source: str


class Hold(msgspec.Struct, frozen=True, gc=False):
    """A guard's answer: leave this resource as it is."""

    why: str
    source: str


Guard = Callable[[int, Case], Step | Hold | None]


class Trail:
    """What the guards leave behind."""

    def __init__(self, facts: tuple[Factor, ...]) -> None:
        self.factors = list(facts)
        self.holds: list[str] = []

    def step(
        self, case: Case, name: str, before: int | None, after: int | None, *, why: str, source: str
    ) -> None:
        resource = case.resource
        moved = f"{amount_text(resource, before)} -> {amount_text(resource, after)}"
        self._tell(f"{resource} {name}", f"{moved}: {why}", source)

    def stay(self, case: Case, name: str, amount: int | None, *, why: str, source: str) -> None:
        """Note why an amount stays although the policy asks for another."""
        resource = case.resource
        self._tell(f"{resource} {name}", f"stays at {amount_text(resource, amount)}: {why}", source)

    def hold(self, case: Case, hold: Hold) -> None:
        kept = amount_text(case.resource, case.request)
        self._tell(f"{case.resource} held", f"stays at {kept}: {hold.why}", hold.source)
        self.holds.append(f"{case.resource}: {hold.why}")

    def _tell(self, name: str, detail: str, source: str) -> None:
        # There are few guards and sources, and many containers that are told of them.
        self.factors.append(Factor(intern(name), detail, intern(source)))
