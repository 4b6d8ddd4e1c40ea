"""Format amounts, times and states for the pages; amounts as in the scan's reports."""

from __future__ import annotations

from datetime import UTC, datetime

from trimtab.api.quantity import format_short
from trimtab.plural import pluralize
from trimtab.scan.model import SHORT_KINDS
from trimtab.scan.pricing import format_money, format_share

NO_VALUE = "\u2013"
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

TONES = {
    "Applied": "good",
    "Applying": "busy",
    "Pending": "busy",
    "Recommended": "busy",
    "Reverted": "warn",
    "Failed": "bad",
    "Skipped": "quiet",
    "Unmanaged": "quiet",
    "applied": "good",
    "applying": "busy",
    "recommended": "busy",
    "reverted": "warn",
    "refused": "warn",
    "killed": "bad",
    "held": "quiet",
    "released": "quiet",
}


def state_style(state: str) -> str:
    """Return the style of a state: good, busy, warn, bad or quiet."""
    return TONES.get(state, "quiet")


def cores(amount: float | None) -> str:
    return NO_VALUE if amount is None else format_short("cpu", amount * 1000)


def size(amount: float | None) -> str:
    return NO_VALUE if amount is None else format_short("memory", amount)


def money(amount: float, currency: str = "$") -> str:
    return format_money(amount, currency)


def share(part: float | None, whole: float | None) -> str:
    return NO_VALUE if part is None or not whole else format_share(part, whole)


def meter_percent(part: float | None, whole: float | None) -> int:
    """Return the percentage for a meter, from 0 to 100."""
    return 0 if not part or not whole else max(0, min(100, round(100 * part / whole)))


def rate(amount: float | None) -> str:
    """Format a share that may be small."""
    return NO_VALUE if amount is None else f"{amount:.1%}"


def number(amount: float | None) -> str:
    return NO_VALUE if amount is None else f"{amount:,.4g}"


def ago(then: float | None, now: float) -> str:
    """Format an age such as `3 min ago`, in days at most."""
    if then is None:
        return NO_VALUE
    passed = max(0.0, now - then)
    if passed < MINUTE:
        return "just now"
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if passed >= unit:
            return f"{passed / unit:.0f} {name} ago"
    return "just now"


def utc_time(then: float) -> str:
    """Format a time for people, in UTC."""
    return datetime.fromtimestamp(then, UTC).strftime("%a %d %b, %H:%M")


def machine_time(then: float) -> str:
    """Format a time for a `time` element."""
    return datetime.fromtimestamp(then, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def short_kind(kind: str) -> str:
    return SHORT_KINDS.get(kind, kind.partition(".")[0].lower())


FILTERS = {
    function.__name__: function
    for function in (
        state_style,
        pluralize,
        cores,
        size,
        money,
        share,
        meter_percent,
        rate,
        number,
        ago,
        utc_time,
        machine_time,
        short_kind,
    )
}
