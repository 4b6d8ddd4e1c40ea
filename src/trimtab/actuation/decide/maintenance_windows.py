"""Maintenance windows: whether changes may be made now, and if not, when next and when last; and for how long they could."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trimtab.api.optimizationpolicy import MaintenanceWindow, Weekday

_DAYS = tuple(Weekday)


def next_opening(windows: Sequence[MaintenanceWindow], *, now: int) -> int | None:
    """The next moment at which a window is open: now itself when one is, None when none ever opens."""
    if not windows:
        return now
    spans = [span for window in windows for span in _iter_spans(window, now)]
    return min((max(start, now) for start, end in spans if end > now), default=None)


def last_opening(windows: Sequence[MaintenanceWindow], *, now: int) -> int:
    """When a window last opened, since yesterday; 0 when none did."""
    starts = [start for window in windows for start, _ in _iter_spans(window, now)]
    return max((start for start in starts if start <= now), default=0)


def open_seconds(windows: Sequence[MaintenanceWindow], *, since: int, now: int) -> int:
    """For how many seconds since that time, or yesterday, a window was open."""
    if not windows:
        return now - since
    total = 0
    for opens, closes in sorted(span for window in windows for span in _iter_spans(window, now)):
        total += max(0, min(closes, now) - max(opens, since))
        since = max(since, closes)
    return total


def _iter_spans(window: MaintenanceWindow, now: int) -> Iterator[tuple[int, int]]:
    """When the window is open, from yesterday's to that in a week."""
    try:
        zone = ZoneInfo(window.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # unknown, no name of one (Europe//Berlin), a folder
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
