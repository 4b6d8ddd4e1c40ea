"""The client-side rate limit and the retry rules.

Both are pure functions of a time that is passed in; the caller sleeps.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from trimtab.kube.errors import ApiError, KubeError, TooManyRequests, Unreachable
from trimtab.timing import Backoff


@dataclass(slots=True)
class RateLimiter:
    """A token bucket by virtual scheduling: each request reserves the next free time, in order of arrival."""

    per_second: float = 50.0
    burst: int = 100
    _next_free: float = field(default=float("-inf"), init=False)

    def reserve(self, now: float) -> float:
        """Reserve one request and return the seconds to wait before sending it."""
        interval = 1.0 / self.per_second
        start = max(self._next_free, now - (self.burst - 1) * interval)
        self._next_free = start + interval
        return max(0.0, start - now)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The failures after which the same request is sent again.

    The caller handles rejections (403, 404, 409, 422, …). Transient failures (429, 5xx, no response) are retried,
    unless the server may have acted already and the request is not idempotent.
    """

    attempts: int = 5
    backoff: Backoff = field(default_factory=Backoff)
    max_retry_after: float = 60.0
    """The longest Retry-After, in seconds, that is waited for; with a longer one the error is raised."""

    def delay(self, error: KubeError, *, attempt: int, repeatable: bool, rng: random.Random) -> float | None:
        """Return the seconds until the next attempt, or None if there should be none."""
        if not error.transient or attempt >= self.attempts:
            return None
        if not repeatable and not _is_safe_to_repeat(error):
            return None
        retry_after = (error.retry_after if isinstance(error, ApiError) else None) or 0.0
        return (
            None
            if retry_after > self.max_retry_after
            else max(retry_after, self.backoff.delay(attempt, rng=rng))
        )


def _is_safe_to_repeat(error: KubeError) -> bool:
    if isinstance(error, Unreachable):
        return not error.sent
    return isinstance(error, TooManyRequests) or (
        isinstance(error, ApiError) and error.retry_after is not None
    )
