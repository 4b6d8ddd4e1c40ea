"""The timing rules that all packages share: intervals, cool-downs, back-off, and problems that are logged once.

The time is always an argument. A wall clock can be set back: a recorded time that lies in the future counts as long ago, so
that work is done at once and not only when the old time has come again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Container, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


def is_recent(at: float, now: float, *, within: float) -> bool:
    """Return whether `at` is less than `within` seconds ago; a time in the future is not."""
    return 0 <= now - at < within


class Interval:
    """A piece of work that is due again some seconds after it was last done."""

    __slots__ = ("last", "seconds")

    def __init__(self, seconds: float, *, last: float = -math.inf) -> None:
        """Create an interval; without `last` the work is due at once."""
        self.seconds = seconds
        self.last = last

    def due(self, now: float) -> bool:
        return not is_recent(self.last, now, within=self.seconds)

    def restart(self, now: float) -> None:
        """Record that the work was done."""
        self.last = now


class Cooldown(Generic[K]):
    """The keys that are not tried again for some seconds after a failure."""

    __slots__ = ("_started", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._started: dict[K, float] = {}

    def start(self, key: K, now: float) -> None:
        self._started[key] = now

    def active(self, now: float) -> dict[K, float]:
        """Return the keys in their cool-down, each with the time at which it ends."""
        self._started = {
            key: at for key, at in self._started.items() if is_recent(at, now, within=self.seconds)
        }
        return {key: at + self.seconds for key, at in self._started.items()}


class LogOnce:
    """The current problem of each subject, so that a lasting one is logged once, and again when it returns."""

    __slots__ = ("_problems",)

    def __init__(self) -> None:
        self._problems: dict[Hashable, str] = {}

    def is_new(self, problem: str, *, about: Hashable = None) -> bool:
        """Record the problem of a subject; return whether it differs from the one that was recorded before."""
        before = self._problems.get(about)
        self._problems[about] = problem
        return problem != before

    def current(self, about: Hashable = None) -> str:
        """Return the problem of a subject; empty if there is none."""
        return self._problems.get(about, "")

    def clear(self, about: Hashable = None) -> None:
        """Record that a subject has no problem."""
        self._problems.pop(about, None)

    def clear_all_but(self, subjects: Container[Hashable]) -> None:
        """Record that no other subjects have problems."""
        self._problems = {about: problem for about, problem in self._problems.items() if about in subjects}


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter, so that many clients do not retry in step."""

    first: float = 0.25
    factor: float = 2.0
    ceiling: float = 30.0
    jitter: float = 0.5

    def delay(self, failures: int, *, rng: random.Random | None = None) -> float:
        """Return the seconds to wait after this number of consecutive failures (1 for the first); no jitter without `rng`."""
        exponent = min(failures - 1, 64)
        spread = self.jitter * rng.random() if rng else 0.0
        return min(self.ceiling, self.first * self.factor**exponent) * (1 + spread)
