"""Rate limits and retries of requests."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.kube.errors import (
    ApiError,
    Conflict,
    DisruptionBlocked,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    KubeError,
    NotFound,
    Status,
    TimedOut,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from trimtab.kube.rest.retry import RateLimiter, RetryPolicy


def delay(error: KubeError, *, attempt: int = 1, repeatable: bool = True) -> float | None:
    return RetryPolicy().delay(error, attempt=attempt, repeatable=repeatable, rng=random.Random(1))


@pytest.mark.parametrize("kind", [Forbidden, NotFound, Conflict, Invalid, Gone, DisruptionBlocked])
def test_retry_gives_up_on_a_rejection(kind: type[ApiError]) -> None:
    assert delay(kind(Status(message="no"))) is None


@pytest.mark.parametrize("kind", [TooManyRequests, InternalError, Unavailable])
def test_retry_repeats_temporary_failures(kind: type[ApiError]) -> None:
    assert delay(kind(Status(message="busy"))) is not None


def test_retry_waits_as_long_as_the_server_asks() -> None:
    wait = delay(TooManyRequests(Status(message="busy"), retry_after=7.0))
    assert wait is not None
    assert wait >= 7.0


def test_retry_raises_instead_of_a_long_wait() -> None:
    assert delay(TooManyRequests(Status(message="busy"), retry_after=86400.0)) is None


def test_retry_does_not_repeat_an_unanswered_request_with_an_effect() -> None:
    assert delay(TimedOut("late", sent=True), repeatable=False) is None
    assert delay(InternalError(Status(message="oops")), repeatable=False) is None


def test_retry_repeats_any_request_that_was_never_sent() -> None:
    assert delay(Unreachable("refused", sent=False), repeatable=False) is not None
    assert delay(TooManyRequests(Status(message="busy")), repeatable=False) is not None


def test_patience_ends() -> None:
    assert delay(Unavailable(Status(message="down")), attempt=5) is None


@settings(max_examples=200)
@given(
    st.floats(0.5, 500),
    st.integers(1, 50),
    st.lists(st.floats(0, 3), min_size=1, max_size=200),
)
def test_rate_limiter_allows_at_most_burst_plus_rate(
    per_second: float, burst: int, gaps: list[float]
) -> None:
    limit = RateLimiter(per_second=per_second, burst=burst)
    now, sent = 0.0, []
    for gap in gaps:
        now += gap
        sent.append(now + limit.reserve(now))
    assert sent == sorted(sent)
    for first in range(len(sent)):
        for last in range(first, len(sent)):
            assert last - first + 1 <= burst + per_second * (sent[last] - sent[first]) + 1e-6


def test_rate_limiter_does_not_delay_an_idle_client() -> None:
    limit = RateLimiter(per_second=10, burst=5)
    assert all(limit.reserve(now) == 0.0 for now in range(100))
