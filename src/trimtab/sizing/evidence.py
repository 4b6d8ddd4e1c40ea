"""What was observed of one container besides the strategy's samples: how much is known, its peaks, kills and heap.

A workload's replicas are one container here: peaks are the highest over all of them, counts their sum.
"""

from __future__ import annotations

import msgspec


class OomKills(msgspec.Struct, frozen=True, gc=False):
    """All OOM kills of a container at one size. Sizes less than about 5 % apart are one."""

    memory: int
    """The bytes that it had when it was killed: its limit, or where it has none its request or what it used."""
    count: int
    """The number of kills; of replicas that were killed in the same second, one is counted."""
    first: float
    """The time of the first kill at this size, in seconds since 1970."""
    last: float
    """The time of the last kill at this size."""


class Heap(msgspec.Struct, frozen=True, gc=False):
    """A heap that its process bounds by itself, whatever the container has."""

    max_bytes: int
    """Bytes that it may grow to."""
    source: str
    """Where that is said: `-Xmx in args`."""


class Evidence(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is known of one container. None: not known."""

    samples: int = 0
    run_seconds: float = 0.0
    """Seconds that the samples stand for: of the past there are fewer than of the present. Of replicas, in which any ran."""
    first_sample_at: float = 0.0
    """The time of the first sample, in seconds since 1970."""
    last_sample_at: float = 0.0
    """The time of the last sample, in seconds since 1970."""
    coverage: float = 1.0
    """The share of the samples that are there, of those that should be while it ran: that of the last day or that of the last
    week, whichever is lower."""
    is_long_running: bool = True
    """It runs all the time, so that samples should be fresh; a Job's container does not."""
    cpu_peak: int | None = None
    """The highest CPU of the last day or so (24 to 36 hours), in millicores."""
    cpu_peak_week: int | None = None
    """The highest CPU of the last week, in millicores."""
    memory_peak: int | None = None
    """The highest working set of the last week, in bytes."""
    startup_cpu_peak: int | None = None
    """The highest of both while a container starts, if that is told apart."""
    startup_memory_peak: int | None = None
    throttled_share: float | None = None
    """The share of scheduling periods in which its CPU limit stopped it."""
    kills: tuple[OomKills, ...] = ()
    """Its OOM kills, a record for each size, in the order of their first kills. After a month without a kill, or when its image
    changes, earlier ones are forgotten."""
    recent_memory: int = 0
    """The largest memory that it had for an hour or longer in about the last week, killed or not; 0 where not known."""
    earlier_memory: int = 0
    """The largest memory that it had for an hour or longer in the last month, or that its template gives it."""
    heap: Heap | None = None
    has_sawtooth_memory: bool = False
    """Its memory climbs and falls as a garbage collector's does."""

    @property
    def observed_seconds(self) -> float:
        """Seconds for which it was observed. Gaps do not count, except between the runs of a Job: those are its rest."""
        between = self.last_sample_at - self.first_sample_at
        return min(self.run_seconds, between) if self.is_long_running else between

    @property
    def last_kill_at(self) -> float | None:
        """The time of its last OOM kill; None where there was none."""
        return max((kills.last for kills in self.kills), default=None)
