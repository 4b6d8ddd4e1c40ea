"""Which containers are in danger as they are now, and how much a finding matters.

Money counts with all replicas. A danger outranks any saving: what is wasted is paid, what is killed is missed.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

from trimtab.kube.kinds.pods import Container, Resources
from trimtab.scan.pricing import ResourcePrices
from trimtab.scan.usage_totals import UsageTotals
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.safe_minimum import is_oom_prone, sized_resource

Risk = Literal["OOM", "throttling"]

NEAR_LIMIT = 0.95
"""Share of its memory limit from which on a container's next peak may be its last."""
THROTTLED_SHARE = 0.05
"""Share of scheduling periods in which a container is stopped that users begin to notice."""

HIGH_WASTE, MEDIUM_WASTE = 50.0, 5.0
"""Dollars a month at `LIST_PRICES` from which on waste is of high and of medium severity."""
LIST_PRICES = ResourcePrices()
"""The prices by which severity is judged, so that it does not depend on the currency that people pay in."""


class Severity(IntEnum):
    """How much a finding matters; more is worse."""

    NONE = 0
    LOW = 1
    MEDIUM = 2
    HIGH = 3
    CRITICAL = 4

    def __str__(self) -> str:
        return self.name.lower()


def assess_risks(
    container: Container, evidence: Evidence, usage: UsageTotals, *, rules: PolicyRules, now: float
) -> tuple[Risk, ...]:
    """What a container is in danger of with the size that it has: a kill that it got more memory after is over."""
    found: list[Risk] = []
    limit = container.resources.memory_limit
    is_killed = is_oom_prone(sized_resource(container, "memory", evidence=evidence, rules=rules, now=now))
    if is_killed or (limit and usage.memory_peak >= NEAR_LIMIT * limit):
        found.append("OOM")
    if evidence.throttled_share is not None and evidence.throttled_share > THROTTLED_SHARE:
        found.append("throttling")
    return tuple(found)


def rate_severity(
    found: tuple[Risk, ...],
    current: Resources,
    recommended: Resources,
    *,
    instances: float,
    lacks_requests: bool,
) -> Severity:
    """Judge one container, all its replicas counted."""
    if "OOM" in found:
        return Severity.CRITICAL
    wasted = instances * (LIST_PRICES.price_requests(current) - LIST_PRICES.price_requests(recommended))
    if found or wasted >= HIGH_WASTE:
        return Severity.HIGH
    if wasted >= MEDIUM_WASTE or lacks_requests:
        return Severity.MEDIUM
    return Severity.LOW if recommended != current else Severity.NONE
