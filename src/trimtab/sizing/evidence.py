"""The evidence about one container besides the strategy's samples: its history, peaks, OOM kills and heap.

A workload's replicas are one container here: peaks are the highest over all of them, counts their sum.
"""

from __future__ import annotations

import msgspec


class OomKills(msgspec.Struct, frozen=True, gc=False):
    """All OOM kills of a container at one size. Sizes less than about 5 % apart count as one."""

    memory: int
    """The bytes that the container had when it was killed: its limit, else its request, else its usage."""
    count: int
    """The number of kills; replicas killed in the same second count once."""
    first: float
    """The time of the first kill at this size, in seconds since 1970."""
    last: float
    """The time of the last kill at this size."""


class Heap(msgspec.Struct, frozen=True, gc=False):
    """A heap that the process bounds by itself, whatever the container has."""

    max_bytes: int
    """The most bytes to which the heap may grow."""
    source: str
    """The setting that bounds the heap, such as `-Xmx in args`."""


class Evidence(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The evidence about one container; None is unknown."""

    samples: int = 0
    run_seconds: float = 0.0
    """Seconds that the samples cover; samples of the past cover more each. For replicas, seconds in which any
    ran.
    """
    first_sample_at: float = 0.0
    """The time of the first sample, in seconds since 1970."""
    last_sample_at: float = 0.0
    """The time of the last sample, in seconds since 1970."""
    coverage: float = 1.0
    """The share of expected samples that are there while the container ran, of the last day or
    week, whichever is lower.
    """
    is_long_running: bool = True
    """True if the container runs all the time, so that samples should be fresh; a Job's container does not.
    """
    cpu_peak: int | None = None
    """The highest CPU of the last day or so (24 to 36 hours), in millicores."""
    cpu_peak_week: int | None = None
    """The highest CPU of the last week, in millicores."""
    memory_peak: int | None = None
    """The highest working set of the last week, in bytes."""
    throttled_share: float | None = None
    """The share of scheduling periods in which the CPU limit throttled the container."""
    kills: tuple[OomKills, ...] = ()
    """The OOM kills, one record per size, ordered by their first kill. A month without a kill, or a new
    image, clears them.
    """
    recent_memory: int = 0
    """The largest memory that the container had for an hour or longer in about the last week, killed or
    not; 0 if unknown.
    """
    earlier_memory: int = 0
    """The largest memory that the container had for an hour or longer in the last month, or that its template
    gives it.
    """
    heap: Heap | None = None

    @property
    def observed_seconds(self) -> float:
        """The observed seconds. Gaps do not count, except between the runs of a Job."""
        between = self.last_sample_at - self.first_sample_at
        return min(self.run_seconds, between) if self.is_long_running else between

    @property
    def last_kill_at(self) -> float | None:
        """The time of the last OOM kill; None if there was none."""
        return max((kills.last for kills in self.kills), default=None)
