"""Maintenance windows: whether changes may be made now, the next and the last opening, and the time that was
open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, time, timedelta
from difflib import get_close_matches
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from trimtab.api.optimizationpolicy import MaintenanceWindow, Weekday

_DAYS = tuple(Weekday)


def next_opening(windows: Sequence[MaintenanceWindow], *, now: int) -> int | None:
    """Return the next time at which a window is open: now if one is, None if none ever opens."""
    if not windows:
        return now
    spans = [span for window in windows for span in _iter_spans(window, now)]
    return min((max(start, now) for start, end in spans if end > now), default=None)


def last_opening(windows: Sequence[MaintenanceWindow], *, now: int) -> int:
    """Return the time at which a window last opened since yesterday; 0 if none did."""
    starts = [start for window in windows for start, _ in _iter_spans(window, now)]
    return max((start for start in starts if start <= now), default=0)


def open_seconds(windows: Sequence[MaintenanceWindow], *, since: int, now: int) -> int:
    """Return for how many seconds since that time, or since yesterday, a window was open."""
    if not windows:
        return now - since
    total = 0
    for opens, closes in sorted(span for window in windows for span in _iter_spans(window, now)):
        total += max(0, min(closes, now) - max(opens, since))
        since = max(since, closes)
    return total


def describe_unknown_time_zone(name: str) -> str:
    """Return the problem of a time zone that does not exist, with the nearest name; an empty text if it exists."""
    if _find_time_zone(name) is not None:
        return ""
    # Case decides: a window in "europe/berlin" never opens on a file system that distinguishes case.
    by_lower = {zone.lower(): zone for zone in available_timezones()}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    remedy = f"did you mean {by_lower[near[0]]}?" if near else "write it like UTC or Europe/Berlin"
    return f'"{name}" is not a known time zone, so the window would never open; {remedy}'


def _find_time_zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    # The zone is unknown, malformed (Europe//Berlin) or a directory.
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _iter_spans(window: MaintenanceWindow, now: int) -> Iterator[tuple[int, int]]:
    """Yield the open periods of the window, from yesterday to a week ahead."""
    zone = _find_time_zone(window.time_zone)
    if zone is None:
        return
    today = datetime.fromtimestamp(now, zone).date()
    start, end = time.fromisoformat(window.start), time.fromisoformat(window.end)
    for ahead in range(-1, 9):
        day = today + timedelta(days=ahead)
        if window.days and _DAYS[day.weekday()] not in window.days:
            continue
        last = day if end > start else day + timedelta(days=1)
        opens, closes = (
            int(datetime.combine(at_day, at, tzinfo=zone).timestamp())
            for at_day, at in ((day, start), (last, end))
        )
        yield opens, closes
