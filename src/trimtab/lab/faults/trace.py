"""The trace of a run: who did what when, as text that a person can read and compare.

Two runs of one seed have equal traces, to the byte; the digest of all lines is compared, while only the last lines are
kept in memory.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

MAX_LINES = 20_000


class RunTrace:
    """The lines of a run, each with its simulated time, its actor and a text."""

    def __init__(self, now: Callable[[], float], *, max_lines: int = MAX_LINES) -> None:
        self._now = now
        self._lines: deque[tuple[float, str, str]] = deque(maxlen=max_lines)
        self._digest = hashlib.blake2b(digest_size=16)
        self.count = 0
        """The number of lines that were ever added."""

    def add(self, actor: str, text: str) -> None:
        """Add a line about what an actor did now."""
        at = self._now()
        self.count += 1
        self._digest.update(f"{at!r} {actor} {text}\n".encode())
        self._lines.append((at, actor, text))

    @property
    def digest(self) -> str:
        """The digest of all lines."""
        return self._digest.hexdigest()

    def render(self) -> str:
        """Render the kept lines as text, one line each."""
        dropped = self.count - len(self._lines)
        head = [f"({dropped} earlier lines are not kept)"] if dropped else []
        return "\n".join(
            [*head, *(f"{format_time(at)}  {actor:<10}  {text}" for at, actor, text in self._lines)]
        )


def format_time(at: float) -> str:
    """Format a simulated time."""
    return datetime.fromtimestamp(at, UTC).strftime("%a %d %b %H:%M:%S.%f")[:-4]
