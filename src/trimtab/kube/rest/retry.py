"""How fast we ask, and when we ask again: the client-side rate limit and the retry rule.

Both are pure arithmetic on a time that is passed in; the client does the sleeping.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from trimtab.kube.errors import ApiError, KubeError, TooManyRequests, Unreachable


@dataclass(slots=True)
class RateLimiter:
    """A token bucket by virtual scheduling: each request books the next free moment, in order of asking."""

    per_second: float = 50.0
    burst: int = 100
    _next_free: float = field(default=float("-inf"), init=False)

    def reserve(self, now: float) -> float:
        """Book one request; the answer is how many seconds to wait before sending it."""
        interval = 1.0 / self.per_second
        start = max(self._next_free, now - (self.burst - 1) * interval)
        self._next_free = start + interval
        return max(0.0, start - now)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with jitter, so that many clients do not come back in step."""

    first: float = 0.25
    factor: float = 2.0
    ceiling: float = 30.0
    jitter: float = 0.5

    def delay(self, failures: int, *, rng: random.Random) -> float:
        """Seconds to wait after the given number of failures in a row (1 for the first)."""
        exponent = min(failures - 1, 64)
        return min(self.ceiling, self.first * self.factor**exponent) * (1 + self.jitter * rng.random())


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Which failures are worth another try of the very same request.

    Refusals (403, 404, 409, 422, …) are the caller's to handle. What may pass by itself (429, 5xx, no
    answer) is tried again, except where the server may have acted already and acting twice is not the
    same as acting once.
    """

    attempts: int = 5
    backoff: Backoff = Backoff()
    max_retry_after: float = 60.0
    """Seconds that a server may ask us to wait; where it asks for more, the caller hears of it instead."""

    def delay(self, error: KubeError, *, attempt: int, repeatable: bool, rng: random.Random) -> float | None:
        """Seconds until the next try, or None when there should be none."""
        if not error.transient or attempt >= self.attempts:
            return None
        if not repeatable and not _is_safe_to_repeat(error):
            return None
        wished = (error.retry_after if isinstance(error, ApiError) else None) or 0.0
        return None if wished > self.max_retry_after else max(wished, self.backoff.delay(attempt, rng=rng))


def _is_safe_to_repeat(error: KubeError) -> bool:
    if isinstance(error, Unreachable):
        return not error.sent
    return isinstance(error, TooManyRequests) or (
        isinstance(error, ApiError) and error.retry_after is not None
    )
