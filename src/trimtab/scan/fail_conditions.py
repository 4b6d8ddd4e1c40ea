"""Conditions on which a build fails, as users write them: `waste>30%`, `waste>100`, `risk`, `oom>2`, `unset`.

A measure alone means "more than zero". A percentage is relative to all requests; otherwise waste is money per month
and every other measure is a number of containers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trimtab.errors import TrimtabError
from trimtab.scan.model import ScanResult
from trimtab.scan.pricing import format_money

_PATTERN = re.compile(r"([a-z]+)\s*(?:(>=?)\s*([0-9]+(?:\.[0-9]+)?)\s*(%?))?")
_EXAMPLES = "write it like waste>30%, waste>100, risk, oom>2, throttling or unset"

_MEASURES: Mapping[str, Callable[[ScanResult], float]] = {
    "waste": lambda scan: scan.wasted,
    "risk": lambda scan: scan.at_risk_total,
    "oom": lambda scan: scan.count_at_risk("OOM"),
    "throttling": lambda scan: scan.count_at_risk("throttling"),
    "unset": lambda scan: scan.without_requests,
}


@dataclass(frozen=True, slots=True)
class FailCondition:
    """A measure with the limit that it must not exceed."""

    measure: str
    limit: float = 0.0
    inclusive: bool = False
    """Fail at the limit itself too (`>=`)."""
    is_share: bool = False

    @classmethod
    def parse(cls, text: str) -> FailCondition:
        match = _PATTERN.fullmatch(text.strip().lower())
        if match is None or match[1] not in _MEASURES:
            raise TrimtabError(f"--fail-on {text}: unknown condition; {_EXAMPLES}")
        measure, comparison, number, percent = match.groups(default="")
        if percent and measure != "waste":
            raise TrimtabError(f"--fail-on {text}: only waste takes a percentage; {_EXAMPLES}")
        return cls(measure, float(number or 0), comparison == ">=", bool(percent))

    def find_violation(self, scans: Sequence[ScanResult]) -> str:
        """Describe the violation over all clusters together; return an empty text if there is none."""
        found = sum(_MEASURES[self.measure](scan) for scan in scans)
        cost = sum(scan.cost for scan in scans)
        if self.is_share:
            found = 100 * found / cost if cost else 0.0
        if not (found >= self.limit if self.inclusive else found > self.limit):
            return ""
        sign = ">=" if self.inclusive else ">"
        return f"{self.measure} is {self._format_amount(found, scans)}; --fail-on allows no {self.measure} {sign}{self._format_amount(self.limit, scans)}"

    def _format_amount(self, amount: float, scans: Sequence[ScanResult]) -> str:
        if self.is_share:
            return f"{amount:.4g}%"
        if self.measure == "waste":
            return f"{format_money(amount, scans[0].prices.currency)} a month"
        return f"{amount:g}"
