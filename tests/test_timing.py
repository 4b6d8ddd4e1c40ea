"""Tests of the shared timing rules."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.timing import Backoff, Cooldown, Interval, LogOnce, is_recent

TIMES = st.floats(0, 1e10)
SECONDS = st.floats(0.1, 1e6)


@given(at=TIMES, now=TIMES, within=SECONDS)
@settings(max_examples=200)
def test_is_recent_rejects_future_and_old_times(at: float, now: float, within: float) -> None:
    assert is_recent(at, now, within=within) == (at <= now and now - at < within)


@given(seconds=SECONDS, start=TIMES)
def test_interval_is_due_at_once_unless_created_with_a_last_time(seconds: float, start: float) -> None:
    assert Interval(seconds).due(start)
    assert not Interval(seconds, last=start).due(start)


@given(seconds=SECONDS, times=st.lists(TIMES, min_size=1, max_size=20))
@settings(max_examples=200)
def test_interval_is_never_idle_for_longer_than_its_seconds(seconds: float, times: list[float]) -> None:
    """A clock that jumps, in either direction, does not postpone the work."""
    interval = Interval(seconds)
    for now in times:
        if interval.due(now):
            interval.restart(now)
        assert 0 <= now - interval.last < seconds


def test_interval_is_due_when_the_clock_was_set_back() -> None:
    interval = Interval(60.0, last=1000.0)
    assert not interval.due(1059.0)
    assert interval.due(1060.0)
    assert interval.due(999.0)


def test_cooldown_lists_keys_with_their_end_until_it_passed() -> None:
    cooldown = Cooldown[str](60.0)
    cooldown.start("a", 100.0)
    cooldown.start("b", 130.0)
    assert cooldown.active(150.0) == {"a": 160.0, "b": 190.0}
    assert cooldown.active(160.0) == {"b": 190.0}
    assert cooldown.active(100.0) == {}  # the clock was set back


def test_cooldown_uses_seconds_that_changed_meanwhile() -> None:
    cooldown = Cooldown[str](60.0)
    cooldown.start("a", 100.0)
    cooldown.seconds = 10.0
    assert cooldown.active(105.0) == {"a": 110.0}
    assert cooldown.active(110.0) == {}


def test_log_once_reports_a_problem_when_it_appears_changes_or_returns() -> None:
    once = LogOnce()
    assert [once.is_new(problem) for problem in ("timeout", "timeout", "refused", "timeout")] == [1, 0, 1, 1]
    assert once.current() == "timeout"
    once.clear()
    assert once.current() == ""
    assert once.is_new("timeout")


def test_log_once_keeps_subjects_apart() -> None:
    once = LogOnce()
    assert once.is_new("", about="a")
    assert once.is_new("", about="b")
    once.clear_all_but({"b"})
    assert not once.is_new("", about="b")
    assert once.is_new("", about="a")


@given(failures=st.integers(1, 10_000), seed=st.integers())
@settings(max_examples=200)
def test_backoff_doubles_up_to_its_ceiling(failures: int, seed: int) -> None:
    backoff = Backoff(first=5.0, ceiling=300.0, jitter=0.5)
    plain, spread = backoff.delay(failures), backoff.delay(failures, rng=random.Random(seed))
    assert plain == min(300.0, 5.0 * 2.0 ** min(failures - 1, 64))
    assert plain <= spread <= 1.5 * plain
