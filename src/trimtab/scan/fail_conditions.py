"""What a build should fail on, as users write it: `waste>30%`, `waste>100`, `risk`, `oom>2`, `unset`.

A word alone means more than nothing. A percent sign is a share of what is requested; without, waste is money a month
and everything else a number of containers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trimtab.errors import TrimtabError
from trimtab.scan.model import ScanResult
from trimtab.scan.render.units import format_money

_PATTERN = re.compile(r"([a-z]+)\s*(?:(>=?)\s*([0-9]+(?:\.[0-9]+)?)\s*(%?))?")
_EXAMPLES = "write it like waste>30%, waste>100, risk, oom>2, throttling or unset"

_MEASURES: Mapping[str, Callable[[ScanResult], float]] = {
    "waste": lambda survey: survey.wasted,
    "risk": lambda survey: survey.at_risk_total,
    "oom": lambda survey: survey.count_at_risk("OOM"),
    "throttling": lambda survey: survey.count_at_risk("throttling"),
    "unset": lambda survey: survey.without_requests,
}


@dataclass(frozen=True, slots=True)
class FailCondition:
    """How much of what is too much."""

    measure: str
    limit: float = 0.0
    inclusive: bool = False
    """Whether to fail at the very number too."""
    is_share: bool = False

    @classmethod
    def parse(cls, text: str) -> FailCondition:
        shape = _PATTERN.fullmatch(text.strip().lower())
        if shape is None or shape[1] not in _MEASURES:
            raise TrimtabError(f"--fail-on {text}: is not understood; {_EXAMPLES}")
        measure, comparison, number, percent = shape.groups(default="")
        if percent and measure != "waste":
            raise TrimtabError(f"--fail-on {text}: only waste has a share; {_EXAMPLES}")
        return cls(measure, float(number or 0), comparison == ">=", bool(percent))

    def find_violation(self, scans: Sequence[ScanResult]) -> str:
        """What was found, where that is too much in all clusters together; else empty."""
        found = sum(_MEASURES[self.measure](survey) for survey in scans)
        cost = sum(survey.cost for survey in scans)
        if self.is_share:
            found = 100 * found / cost if cost else 0.0
        if not (found >= self.limit if self.inclusive else found > self.limit):
            return ""
        sign = ">=" if self.inclusive else ">"
        return f"{self.measure} is {self._format_amount(found, scans)}, and fails at {sign}{self._format_amount(self.limit, scans)}"

    def _format_amount(self, amount: float, scans: Sequence[ScanResult]) -> str:
        if self.is_share:
            return f"{amount:.4g}%"
        if self.measure == "waste":
            return f"{format_money(amount, scans[0].prices.currency)} a month"
        return f"{amount:g}"
