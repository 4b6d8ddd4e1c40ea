"""What was observed of one container besides the strategy's samples: how much is known, its peaks, kills and heap.

A workload's replicas are one container here: peaks are the highest over all of them, counts their sum.
"""

from __future__ import annotations

import msgspec


class Kill(msgspec.Struct, frozen=True, gc=False, order=True):
    """The kernel killed the container for memory."""

    at: float
    """Seconds since 1970."""
    memory: int
    """Bytes that it had: its limit, or what it used where it has none."""


class Heap(msgspec.Struct, frozen=True, gc=False):
    """A heap that its process bounds by itself, whatever the container has."""

    most: int
    """Bytes that it may grow to."""
    source: str
    """Where that is said: `-Xmx in args`."""


class Evidence(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is known of one container. None: not known."""

    samples: int = 0
    ran: float = 0.0
    """Seconds that the samples stand for: of the past there are fewer than of the present. Of replicas, in which any ran."""
    first: float = 0.0
    """Seconds since 1970 of the first sample that counts,"""
    last: float = 0.0
    """and of the last."""
    coverage: float = 1.0
    """The share of the samples that should be there, while it ran, that are."""
    runs_on: bool = True
    """It runs all the time, so that samples should be fresh; a Job's container does not."""
    cpu_peak: int | None = None
    """The highest recent CPU in millicores,"""
    cpu_peak_week: int | None = None
    """The highest CPU of the last week, in millicores."""
    memory_peak: int | None = None
    """and the highest recent working set in bytes."""
    cpu_start: int | None = None
    """The highest of both while a container starts, if that is told apart."""
    memory_start: int | None = None
    throttled: float | None = None
    """The share of scheduling periods in which its CPU limit stopped it."""
    kills: tuple[Kill, ...] = ()
    """Its OOM kills, the oldest first."""
    heap: Heap | None = None
    sawtooth: bool = False
    """Its memory climbs and falls as a garbage collector's does."""
