"""Repair times in the annotations that a clock running ahead has written.

Waiting for such a time would last until the true time reaches it. A time in the future is taken as now and
written once, so that the waits that follow are as long as they should be. A clock that ran behind is not
handled: waits end too soon, but nothing stalls.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from trimtab.actuation.change_annotations import AppliedSizes, ChangeAnnotations, OngoingChange
from trimtab.actuation.deadlines import DEADLINES

M = TypeVar("M", OngoingChange, AppliedSizes)


def clamp_future_times(annotations: ChangeAnnotations, *, now: int) -> ChangeAnnotations:
    """Return the annotations with future times set to now; equal ones if there is nothing to repair."""
    reverted = annotations.reverted
    if reverted and reverted.at > now + DEADLINES.clock_skew:
        shift = now - reverted.at
        relief_until = reverted.relief_until and reverted.relief_until + shift
        reverted = replace(reverted, at=now, until=reverted.until + shift, relief_until=relief_until)
    return ChangeAnnotations(
        change=_clamp_times(annotations.change, "started", "since", "settled", "renews", "gave_up", now=now),
        applied=_clamp_times(annotations.applied, "at", "until", "restarted", now=now),
        reverted=reverted,
    )


def _clamp_times(record: M | None, *times: str, now: int) -> M | None:
    ahead = [name for name in times if getattr(record, name, 0) > now + DEADLINES.clock_skew]
    return replace(record, **dict.fromkeys(ahead, now)) if record and ahead else record
