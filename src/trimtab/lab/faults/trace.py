"""The trace of a run: who did what when, as text that a person can read and compare.

Two runs of one seed have equal traces, to the byte; the digest of all entries is compared, while only the last are
kept in memory.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

MAX_ENTRIES = 20_000

STARTED, STOPPED, KILLED, FAILED = "started", "stopped", "killed", "failed"
"""The kinds of entries about processes."""


class TraceEntry(NamedTuple):
    """Something that happened in a run."""

    at: float
    """The simulated time in seconds since 1970."""
    actor: str
    """The process, `fault`, `cluster`, or `log`."""
    kind: str
    """The verb of a write, the kind of a fault, the reason of an event, or what became of a process."""
    target: str
    """The workload, or the target of a fault; empty if it is about neither."""
    text: str

    def __str__(self) -> str:
        return f"{format_time(self.at)}  {self.actor:<10}  {self.text}"


class RunTrace:
    """Everything that happened in a run; only the last entries are kept."""

    def __init__(self, now: Callable[[], float], *, max_entries: int = MAX_ENTRIES) -> None:
        self._now = now
        self._entries: deque[TraceEntry] = deque(maxlen=max_entries)
        self._digest = hashlib.blake2b(digest_size=16)
        self.count = 0
        """The number of entries that were ever added."""

    def add(self, actor: str, text: str, *, kind: str, target: str = "", at: float | None = None) -> None:
        """Add an entry about what an actor did, now or at another time."""
        at = self._now() if at is None else at
        self.count += 1
        self._digest.update(f"{at!r} {actor} {text}\n".encode())
        self._entries.append(TraceEntry(at, actor, kind, target, text))

    @property
    def digest(self) -> str:
        """The digest of all entries."""
        return self._digest.hexdigest()

    @property
    def entries(self) -> tuple[TraceEntry, ...]:
        """The entries that are kept."""
        return tuple(self._entries)


def render_trace(entries: Sequence[TraceEntry], *, count: int) -> str:
    """Render entries as text, one line each; `count` is their number with those that were not kept."""
    dropped = count - len(entries)
    head = [f"({dropped} earlier entries are not kept)"] if dropped else []
    return "\n".join([*head, *map(str, entries)])


def format_time(at: float) -> str:
    """Format a simulated time."""
    return datetime.fromtimestamp(at, UTC).strftime("%a %d %b %H:%M:%S.%f")[:-4]
