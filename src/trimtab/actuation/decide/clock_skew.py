"""Marks that a clock which was ahead has left: who waits for what they say would wait until the true time comes to it.

What cannot have happened yet is taken to have happened just now, and the marks are written so, once: the waits that
follow from them are then as long as they were meant to be. Left out: a clock that was behind, by which waits are over
too soon and nothing stands still.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from trimtab.actuation.change_annotations import AppliedSizes, ChangeAnnotations, OngoingChange

MAX_CLOCK_SKEW = 300
"""Seconds that the clocks of two replicas may be apart."""

M = TypeVar("M", OngoingChange, AppliedSizes)


def clamp_future_times(marks: ChangeAnnotations, *, now: int) -> ChangeAnnotations:
    """The marks as this clock would have written them; the same ones where nothing is wrong with them."""
    reverted = marks.reverted
    if reverted and reverted.at > now + MAX_CLOCK_SKEW:
        shift = now - reverted.at
        relief_until = reverted.relief_until and reverted.relief_until + shift
        reverted = replace(reverted, at=now, until=reverted.until + shift, relief_until=relief_until)
    return ChangeAnnotations(
        change=_clamp_times(marks.change, "started", "since", "settled", "renews", "gave_up", now=now),
        applied=_clamp_times(marks.applied, "at", "until", "restarted", now=now),
        reverted=reverted,
    )


def _clamp_times(mark: M | None, *times: str, now: int) -> M | None:
    ahead = [name for name in times if getattr(mark, name, 0) > now + MAX_CLOCK_SKEW]
    return replace(mark, **dict.fromkeys(ahead, now)) if mark and ahead else mark
