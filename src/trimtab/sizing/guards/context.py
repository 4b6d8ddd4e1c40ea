"""The input of a guard, one resource of one container, and the possible answers.

A guard is a small function from an amount and its context to the next amount. It returns None if it changes
nothing, so that an explanation holds only what mattered.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import intern

import msgspec

from trimtab.api.optimizationpolicy import LimitMode
from trimtab.api.quantity import format_step
from trimtab.kube.kinds.pod_requests import GUARANTEED
from trimtab.kube.kinds.pods import RequestLimit
from trimtab.sizing.constraints import AllowedRange, Constraints
from trimtab.sizing.evidence import SizedResource, is_oom_prone
from trimtab.sizing.proposal import ResourceTarget
from trimtab.sizing.recommendation import Factor

LET_LIMITS_FOLLOW_REMEDY = "let limits follow by updateStrategy.updateRequestsOnly: false and limitPolicy"
"""The remedy that is shown to the author of a policy if a kept limit blocks a change."""


class GuardContext(SizedResource, frozen=True, gc=False, kw_only=True):
    """One resource of one container, with its proposed target and its constraints."""

    container: str
    proposed: ResourceTarget
    constraints: Constraints
    container_range: AllowedRange
    pod_range: AllowedRange
    quota: RequestLimit
    """The amounts that the ResourceQuotas of the namespace have left."""
    others_request: int
    """The sum of the requests of this resource by the containers beside it."""
    others_limit: int
    """The sum of the limits of this resource of the containers beside it."""
    other_resource_request: int
    """The sum of the requests of the other resource by this container and those beside it."""

    @property
    def keeps_limit(self) -> bool:
        """True if the policy keeps the limit as it is now; a container that is killed at its limit may get a higher one."""
        is_raised = self.rule.raises_kept_limit and self.limit is not None and is_oom_prone(self)
        return self.rule.limit is LimitMode.KEEP and not is_raised

    @property
    def must_stay_guaranteed(self) -> bool:
        """True if limit and request must be equal."""
        return self.rules.keep_qos and self.constraints.qos_class == GUARANTEED


class GuardStep(msgspec.Struct, frozen=True, gc=False):
    """The answer of a guard that changes the amount."""

    amount: int
    why: str
    source: str


class NoChange(msgspec.Struct, frozen=True, gc=False):
    """The answer of a guard that leaves this resource as it is."""

    why: str
    source: str


Guard = Callable[[int, GuardContext], GuardStep | NoChange | None]


class ExplanationBuilder:
    """Collects the factors of an explanation."""

    def __init__(self, facts: tuple[Factor, ...]) -> None:
        self.factors = list(facts)
        self._held_by_reason: dict[str, list[str]] = {}

    def add_step(
        self,
        context: GuardContext,
        name: str,
        before: int | None,
        after: int | None,
        *,
        why: str,
        source: str,
    ) -> None:
        resource = context.resource
        moved = f"{format_step(resource, before)} -> {format_step(resource, after)}"
        self._add(f"{resource} {name}", f"{moved}: {why}", source)

    def add_unchanged(
        self, context: GuardContext, name: str, amount: int | None, *, why: str, source: str
    ) -> None:
        """Add the reason why an amount stays although the policy asks for another."""
        resource = context.resource
        self._add(f"{resource} {name}", f"stays at {format_step(resource, amount)}: {why}", source)

    def add_no_change(self, context: GuardContext, hold: NoChange) -> None:
        kept = format_step(context.resource, context.request)
        self._add(f"{context.resource} held", f"stays at {kept}: {hold.why}", hold.source)
        held = self._held_by_reason.setdefault(hold.why, [])
        if context.resource not in held:
            held.append(context.resource)

    @property
    def no_change_reason(self) -> str:
        """The reasons why resources stay as they are, each one once; an empty text if none is held."""
        return "; ".join(f"{' and '.join(held)}: {why}" for why, held in self._held_by_reason.items())

    def _add(self, name: str, detail: str, source: str) -> None:
        # There are few names and sources and many containers, so that interning saves memory.
        self.factors.append(Factor(intern(name), detail, intern(source)))


class NullExplanation(ExplanationBuilder):
    """Collects nothing: of a second run with other rules, only the amounts are used."""

    def add_step(
        self,
        context: GuardContext,
        name: str,
        before: int | None,
        after: int | None,
        *,
        why: str,
        source: str,
    ) -> None:
        pass

    def add_unchanged(
        self, context: GuardContext, name: str, amount: int | None, *, why: str, source: str
    ) -> None:
        pass

    def add_no_change(self, context: GuardContext, hold: NoChange) -> None:
        pass
