"""Assess the risks of a container's current size, and the severity of a finding.

Money counts all replicas. A risk outranks any saving: waste costs money, an OOM kill costs availability.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

from trimtab.kube.kinds.pods import Container, Resources
from trimtab.scan.pricing import ResourcePrices
from trimtab.scan.usage_model import UsageTotals
from trimtab.sizing.evidence import Evidence, is_oom_prone, sized_resource
from trimtab.sizing.policy_rules import PolicyRules

Risk = Literal["OOM", "throttling"]

NEAR_LIMIT = 0.95
"""The share of a limit above which a container counts as at risk: of OOM by its memory limit, and of throttling by its
CPU limit where the source does not count throttled periods."""
THROTTLED_SHARE = 0.05
"""The share of throttled scheduling periods above which users begin to notice."""

HIGH_WASTE, MEDIUM_WASTE = 50.0, 5.0
"""The monthly waste, in dollars at `LIST_PRICES`, from which the severity is high or medium."""
LIST_PRICES = ResourcePrices()
"""The prices for severities, so that these do not depend on the user's currency."""


class Severity(IntEnum):
    """The severity of a finding; a higher value is worse."""

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
    """Return the risks of the current size; an OOM kill before the last memory increase does not count."""
    found: list[Risk] = []
    limit = container.resources.memory_limit
    is_killed = is_oom_prone(sized_resource(container, "memory", evidence=evidence, rules=rules, now=now))
    if is_killed or (limit and usage.memory_peak >= NEAR_LIMIT * limit):
        found.append("OOM")
    if _is_throttled(container.resources.cpu_limit, evidence.throttled_share, usage.cpu_peak):
        found.append("throttling")
    return tuple(found)


def _is_throttled(limit: int | None, throttled_share: float | None, cpu_peak: float) -> bool:
    if throttled_share is not None:
        return throttled_share > THROTTLED_SHARE
    # metrics-server does not count throttled periods, but nothing but its limit stops a container there.
    return limit is not None and cpu_peak >= NEAR_LIMIT * limit


def rate_severity(
    found: tuple[Risk, ...],
    current: Resources,
    recommended: Resources,
    *,
    instances: float,
    is_missing_requests: bool,
) -> Severity:
    """Rate the severity of one container's finding, counting all its replicas."""
    if "OOM" in found:
        return Severity.CRITICAL
    wasted = instances * (LIST_PRICES.price_requests(current) - LIST_PRICES.price_requests(recommended))
    if found or wasted >= HIGH_WASTE:
        return Severity.HIGH
    if wasted >= MEDIUM_WASTE or is_missing_requests:
        return Severity.MEDIUM
    return Severity.LOW if recommended != current else Severity.NONE
