"""Decide which changes are worth making, how large one may be, and how it is rounded."""

from __future__ import annotations

from math import ceil

from trimtab.api.format import format_step
from trimtab.api.quantity import MIB, ResourceName
from trimtab.sizing.guards.context import GuardContext, GuardStep

RESTART_FACTOR = 1.25
"""The factor by which a change must be larger to be worth a restart of pods."""


def apply_deadband(amount: int, case: GuardContext) -> GuardStep | None:
    """Keep a request that lies in the strategy's plausible range."""
    request, ask = case.request, case.proposed
    # A second band beside the policy's own would mask changes.minimum.
    if ask.damps_changes:
        return None
    if request is not None and amount != request and ask.lower <= request <= ask.upper:
        why = (
            f"lies between {_format_bound(case.resource, ask.lower)} and {_format_bound(case.resource, ask.upper)}: "
            "not worth a change"
        )
        return GuardStep(request, why, "strategy")
    return None


def apply_largest_step(amount: int, case: GuardContext) -> GuardStep | None:
    """Limit the size of one change; more may follow once this one has proved harmless."""
    request, rule = case.request, case.rule
    if request is None:
        return None
    # A share of a very small request is nothing, so that at least one unit is allowed: otherwise it could
    # never change.
    highest = max(int(request * (1 + rule.max_increase)), request + 1)
    if amount > highest:
        return GuardStep(
            highest, f"at most {rule.max_increase:.0%} more at once", f"policy changes.{case.resource}"
        )
    lowest = min(ceil(request * (1 - rule.max_decrease)), request - bool(rule.max_decrease))
    if amount < lowest:
        return GuardStep(
            lowest, f"at most {rule.max_decrease:.0%} less at once", f"policy changes.{case.resource}"
        )
    return None


def apply_minimum_change(amount: int, case: GuardContext) -> GuardStep | None:
    """Skip a change that is too small to be worth its cost, as a share of the target and as an amount.

    The whole distance counts: if only the next step did, a policy that allows small steps only would take
    none.
    """
    request = case.request
    if request is None or amount == request:
        return None
    if is_below_minimum_change(request, amount, case):
        return GuardStep(
            request,
            f"{abs(amount - request) / amount:.0%} from its target: too near to be worth a change",
            "policy changes.minimum",
        )
    return None


def is_below_minimum_change(before: int, after: int, case: GuardContext) -> bool:
    """Return whether a change is not worth making; one that restarts pods must be larger."""
    factor = RESTART_FACTOR if case.restarts_container else 1.0
    # A share of the target, not of the request: waste and shortage of the same share of the need count alike.
    return abs(after - before) < factor * max(case.rule.min_change, after * case.rules.minimum_change)


def apply_rounding(amount: int, case: GuardContext) -> GuardStep | None:
    """Round up to a readable number, so that the need stays covered; an unchanged amount is not rounded.

    A small decrease is not rounded up to the current amount or more.
    """
    rounded = round_up(case.resource, amount)
    if amount in {rounded, case.request} or amount < (case.request or 0) <= rounded:
        return None
    return GuardStep(rounded, "rounded up", "rounding")


def round_up(resource: ResourceName, amount: int) -> int:
    """Round memory up to a MiB; CPU to a millicore, from 100m on to two digits, and to half a step if the
    first digit is 1.
    """
    if resource == "memory":
        return -(-amount // MIB) * MIB
    if amount < 100:
        return amount
    step = _cpu_rounding_step(amount)
    return -(-amount // step) * step


def round_down(resource: ResourceName, amount: int) -> int:
    """Round to the largest readable amount that is not above this one, for what must fit into something."""
    if resource == "memory":
        return amount // MIB * MIB or amount
    return amount if amount < 100 else amount // _cpu_rounding_step(amount) * _cpu_rounding_step(amount)


def round_nearest(resource: ResourceName, amount: int) -> int:
    """Round to the nearest readable amount, for a ratio that must not creep up over many changes."""
    up, down = round_up(resource, amount), round_down(resource, amount)
    return down if amount - down < up - amount else up


def _cpu_rounding_step(amount: int) -> int:
    step: int = 10 ** (len(str(amount)) - 2)
    return step // 2 if amount < 20 * step else step


def _format_bound(resource: ResourceName, amount: float) -> str:
    return format_step(resource, round(amount)) if amount < 1e15 else "any amount"
