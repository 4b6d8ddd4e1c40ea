"""Usage that for hours is outside of what the same time of day had is a shift; what comes back, or is explained, is none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from trimtab.sizing.evidence import UsageShift
from trimtab.sizing.state import pack, reindex
from trimtab.sizing.tracking.evidence_tracker import SHIFTS, EvidenceTracker, EvidenceTrackerSettings
from trimtab.sizing.tracking.usage_shifts import ENDS_AFTER, LONGEST

START = 1.7e9 // 86400 * 86400
HOUR, DAY, STEP = 3600.0, 86400.0, 300.0
GIB = 2.0**30
ONE = np.array([0])
Load = Callable[[float], tuple[float, float]]
"""The CPU and memory of a container by the seconds since the start."""


class Observed:
    """A tracker of one container with a load."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.tracker = EvidenceTracker(1, EvidenceTrackerSettings())
        self.elapsed = 0.0
        self.shifts: dict[float, UsageShift] = {}
        """The shifts that were found, by their beginning."""

    def run(self, days: float) -> Observed:
        """Observe the container for some days, and note each hour which shift is in effect."""
        end = self.elapsed + days * DAY
        while self.elapsed < end:
            cpu, memory = self.load(self.elapsed)
            self.tracker.observe(
                START + self.elapsed, np.array([cpu]), np.array([memory]), sample_seconds=STEP
            )
            self.elapsed += STEP
            if self.elapsed % HOUR == 0 and (shift := self.shift()):
                self.shifts.setdefault(shift.since, shift)
        return self

    def shift(self) -> UsageShift | None:
        (evidence,) = self.tracker.collect_evidence(START + self.elapsed, ONE, is_long_running=[True])
        return evidence.usage_shift

    def describe(self, *, memory: float = GIB, replicas: int = 1, image: int = 1, cpu: float = 0.0) -> None:
        """Record the size, the replicas and the image of the container."""
        self.tracker.observe_replicas(ONE, np.array([replicas]))
        self.tracker.observe_sizes(
            START + self.elapsed,
            ONE,
            np.array([memory]),
            before=np.zeros(1),
            images=np.array([image], np.uint32),
            cpu=np.array([cpu]),
        )


def steady(elapsed: float) -> tuple[float, float]:
    """Use more by day than by night, less at weekends, and vary by a few percent."""
    cycle = 1.0 + 0.5 * np.sin(2 * np.pi * elapsed / DAY)
    week = 0.3 if elapsed // DAY % 7 >= 5 else 1.0
    noise = 1.0 + 0.1 * np.sin(elapsed * 0.7)
    return float(cycle * week * noise), float(2 * GIB * noise)


def after(days: float, change: Callable[[float, float], tuple[float, float]]) -> Load:
    return lambda elapsed: change(*steady(elapsed)) if elapsed >= days * DAY else steady(elapsed)


def test_daily_and_weekly_cycles_are_no_shift() -> None:
    assert not Observed(steady).run(35).shifts


@pytest.mark.parametrize(
    ("change", "resource", "factor"),
    [
        (lambda cpu, memory: (4 * cpu, memory), "cpu", 2.0),
        (lambda cpu, memory: (0.05 * cpu, memory), "cpu", -3.0),
        (lambda cpu, memory: (cpu, 3 * memory), "memory", 2.0),
    ],
    ids=["more CPU", "less CPU", "more memory"],
)
def test_lasting_change_of_level_is_a_shift_and_ends_when_it_is_learned(
    change: Callable[[float, float], tuple[float, float]], resource: str, factor: float
) -> None:
    observed = Observed(after(16, change)).run(16)
    assert not observed.shifts
    observed.run(1)
    (found,) = observed.shifts.values()
    assert found.resource == resource
    assert START + 16 * DAY + 3 * HOUR <= found.since <= START + 17 * DAY
    assert (found.factor > factor) if factor > 0 else (found.factor < -1 / factor)
    observed.run(2.1)
    assert observed.shift() is None
    observed.run(21)
    assert list(observed.shifts) == [found.since]


def test_change_of_the_daily_pattern_is_a_shift() -> None:
    """The mean stays, but the busy hours are others."""

    def shifted(elapsed: float) -> tuple[float, float]:
        at = elapsed + DAY / 2 if elapsed >= 16 * DAY else elapsed
        return (1.0 + 0.9 * float(np.sin(2 * np.pi * at / DAY)), GIB)

    observed = Observed(shifted).run(16)
    assert not observed.shifts
    assert [each.resource for each in observed.run(1).shifts.values()] == ["cpu"]


def test_return_to_the_former_pattern_is_no_second_shift() -> None:
    def load(elapsed: float) -> tuple[float, float]:
        cpu, memory = steady(elapsed)
        return (4 * cpu if 16 * DAY <= elapsed < 18 * DAY else cpu), memory

    assert len(Observed(load).run(24).shifts) == 1


@pytest.mark.parametrize("hours", [0.1, 1, 3])
def test_spike_is_no_shift(hours: float) -> None:
    def load(elapsed: float) -> tuple[float, float]:
        cpu, memory = steady(elapsed)
        peak = 16 * DAY <= elapsed < 16 * DAY + hours * HOUR
        return (20 * cpu if peak else cpu), (5 * memory if peak else memory)

    assert not Observed(load).run(20).shifts


def test_restart_that_empties_caches_is_no_shift() -> None:
    assert not Observed(after(16, lambda cpu, memory: (cpu, 0.1 * memory))).run(20).shifts


def test_new_container_has_no_shift_in_its_first_week() -> None:
    assert not Observed(after(5, lambda cpu, memory: (5 * cpu, 5 * memory))).run(7).shifts


def test_usage_of_next_to_nothing_is_no_shift() -> None:
    assert (
        not Observed(lambda elapsed: (0.04 if elapsed >= 16 * DAY else 0.001, 5e6 + elapsed * 10))
        .run(20)
        .shifts
    )


def test_missing_samples_are_no_shift_and_end_none_late() -> None:
    observed = Observed(after(16, lambda *_: (np.nan, np.nan))).run(20)
    assert not observed.shifts
    observed = Observed(after(16, lambda cpu, memory: (4 * cpu, memory))).run(17)
    assert observed.shift()
    observed.load = lambda _: (np.nan, np.nan)
    observed.run(LONGEST / 24)
    assert observed.shift() is None


def test_late_samples_change_nothing() -> None:
    observed = Observed(steady).run(9)
    before = {name: array.copy() for name, array in observed.tracker.arrays().items() if SHIFTS in name}
    observed.tracker.observe(START + 2 * DAY, np.array([50.0]), np.array([50 * GIB]), sample_seconds=STEP)
    after_late = observed.tracker.arrays()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after_late[name])


def test_gap_of_more_than_a_week_begins_the_first_week_again() -> None:
    def load(elapsed: float) -> tuple[float, float]:
        if 10 * DAY <= elapsed < 19 * DAY:
            return np.nan, np.nan
        cpu, memory = steady(elapsed)
        return (6 * cpu if elapsed >= 19 * DAY else cpu), memory

    assert not Observed(load).run(25).shifts


@pytest.mark.parametrize(
    ("replicas", "factor", "found"),
    [(4, 0.25, False), (1, 0.25, True), (2, 2.0, True)],
    ids=["scaled out", "less load", "more load and more replicas"],
)
def test_other_replicas_explain_other_usage_of_each(replicas: int, factor: float, *, found: bool) -> None:
    flat = 1.0
    observed = Observed(lambda elapsed: (factor * flat if elapsed >= 16 * DAY else flat, GIB))
    observed.describe(replicas=1)
    observed.run(16)
    observed.describe(replicas=replicas)
    assert bool(observed.run(1).shifts) is found


def test_new_image_explains_a_new_pattern() -> None:
    observed = Observed(after(16, lambda cpu, memory: (4 * cpu, 3 * memory)))
    observed.describe(image=1)
    observed.run(16)
    observed.describe(image=2)
    assert not observed.run(4).shifts


def test_another_memory_size_explains_other_memory_only() -> None:
    observed = Observed(after(16, lambda cpu, memory: (4 * cpu, 3 * memory)))
    observed.describe(memory=8 * GIB)
    observed.run(16)
    observed.describe(memory=16 * GIB)
    assert {each.resource for each in observed.run(1).shifts.values()} == {"cpu"}


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [(1.0, 2.0, False), (-0.5, -2.0, False), (1.0, -2.0, False), (-1.5, -3.0, True), (1.0, 1.0, True)],
    ids=["limit", "exceeded request", "no limit any more", "sufficient request", "same limit"],
)
def test_another_cpu_size_explains_usage_that_the_former_bounded(
    before: float, now: float, *, found: bool
) -> None:
    observed = Observed(lambda elapsed: (2.0 if elapsed >= 16 * DAY else 1.0, GIB))
    observed.describe(cpu=before)
    observed.run(16)
    observed.describe(cpu=now)
    assert bool(observed.run(1).shifts) is found


def test_request_raised_for_unusual_usage_does_not_explain_it() -> None:
    observed = Observed(after(16, lambda cpu, memory: (4 * cpu, memory)))
    observed.describe(cpu=-2.0)
    observed.run(16 + 2 / 24)
    observed.describe(cpu=-8.0)
    assert observed.run(1).shifts


def test_cpu_size_that_was_unknown_explains_nothing() -> None:
    observed = Observed(after(16, lambda cpu, memory: (4 * cpu, memory))).run(16)
    observed.describe(cpu=2.0)
    observed.run(1)
    assert not observed.shifts, "the number of replicas was unknown too"
    observed = Observed(after(16, lambda cpu, memory: (4 * cpu, memory)))
    observed.tracker.observe_replicas(ONE, np.array([1]))
    observed.run(16).describe(cpu=2.0)
    assert observed.run(1).shifts


def test_scale_out_after_history_without_replicas_is_no_shift() -> None:
    """The history of a source has no numbers of replicas."""

    def load(elapsed: float) -> tuple[float, float]:
        return (0.3 if elapsed >= 20.2 * DAY else 0.9), GIB

    observed = Observed(load).run(20)
    observed.describe(replicas=2)
    observed.run(0.2).describe(replicas=6)
    assert not observed.run(5).shifts


@pytest.mark.parametrize("day", [0, 3, 5])
def test_state_of_before_shifts_learns_a_week_before_it_reports(day: int) -> None:
    """All workloads with another weekend were reported after an upgrade: they had a history, but no extremes."""
    tracker = Observed(steady).run(19 + day).tracker
    former = {name: array for name, array in tracker.arrays().items() if not name.startswith(SHIFTS)}
    observed = Observed(steady)
    observed.tracker, observed.elapsed = EvidenceTracker(1, EvidenceTrackerSettings()), (19 + day) * DAY
    observed.tracker.restore(pack(tracker, former))
    assert not observed.run(9).shifts


def test_state_without_the_days_of_the_extremes_is_read() -> None:
    added = {SHIFTS + name for name in ("days", "size", "scaled", "replicas_before")}
    observed = Observed(after(24, lambda cpu, memory: (4 * cpu, memory))).run(16)
    former = {name: array for name, array in observed.tracker.arrays().items() if name not in added}
    assert len(former) == len(observed.tracker.arrays()) - len(added)
    state = pack(observed.tracker, former)
    observed.tracker = EvidenceTracker(1, EvidenceTrackerSettings())
    observed.tracker.restore(state)
    assert not observed.run(8).shifts
    assert observed.run(1).shifts


@pytest.mark.parametrize(("begin", "days"), [(12, 2), (33, 2), (16, 5), (16, 6.5)], ids=str)
def test_days_after_a_gap_are_no_shift(begin: float, days: float) -> None:
    def load(elapsed: float) -> tuple[float, float]:
        return (np.nan, np.nan) if begin * DAY <= elapsed < (begin + days) * DAY else steady(elapsed)

    assert not Observed(load).run(begin + days + 15).shifts


def test_shift_on_a_known_weekday_is_found_after_a_gap() -> None:
    def load(elapsed: float) -> tuple[float, float]:
        cpu, memory = steady(elapsed)
        away = 12 * DAY <= elapsed < 14 * DAY
        return (np.nan if away else 4 * cpu if elapsed >= 17 * DAY else cpu), memory

    assert Observed(load).run(18).shifts


@pytest.mark.parametrize(("ahead", "hours"), [(400, 0.1), (400, 30), (40, 30)])
def test_clock_that_was_ahead_delays_shifts_for_a_week_at_most(ahead: float, hours: float) -> None:
    """Everything until the time to which the clock had jumped was ignored."""

    def load(elapsed: float) -> tuple[float, float]:
        cpu, memory = steady(elapsed)
        return (4 * cpu if 24 * DAY <= elapsed < 30 * DAY else cpu), memory

    observed = Observed(load).run(16)
    observed.elapsed += ahead * DAY
    observed.run(hours / 24)
    observed.elapsed = 16 * DAY
    observed.shifts.clear()
    assert not observed.run(8).shifts
    assert observed.run(1).shifts


def test_shift_that_seemed_to_begin_in_the_future_ends_with_it() -> None:
    observed = Observed(after(16, lambda cpu, memory: (4 * cpu, memory))).run(16)
    observed.elapsed = 22 * DAY
    observed.run(2)
    assert observed.shifts
    observed.elapsed, observed.load = 10 * DAY, steady
    observed.run(0.1)
    assert observed.shift() is None


def test_shift_of_usage_that_never_settles_ends_nevertheless() -> None:
    growth = 1.6

    def load(elapsed: float) -> tuple[float, float]:
        hours = max(0.0, elapsed - 16 * DAY) / HOUR
        return min(growth ** (hours / 4), 1e4), GIB

    observed = Observed(load).run(20.5)
    first = next(iter(observed.shifts.values()))
    assert first.until <= first.since + LONGEST * HOUR
    assert ENDS_AFTER < LONGEST


def test_job_has_no_shift() -> None:
    observed = Observed(after(16, lambda cpu, memory: (4 * cpu, memory))).run(17)
    assert observed.shift()
    (job,) = observed.tracker.collect_evidence(START + observed.elapsed, ONE, is_long_running=[False])
    assert job.usage_shift is None


def test_shift_survives_a_restart_and_a_move_to_another_row() -> None:
    observed = Observed(after(16, lambda cpu, memory: (4 * cpu, memory))).run(17)
    shift = observed.shift()
    assert shift
    restored = EvidenceTracker(1, EvidenceTrackerSettings())
    restored.restore(observed.tracker.state())
    moved = reindex(restored, np.array([-1, 0]))
    new, same = moved.collect_evidence(
        START + observed.elapsed, np.array([0, 1]), is_long_running=[True, True]
    )
    assert (new.usage_shift, same.usage_shift) == (None, shift)


def test_state_of_before_shifts_is_read() -> None:
    tracker = Observed(steady).run(1).tracker
    former = {name: array for name, array in tracker.arrays().items() if not name.startswith(SHIFTS)}
    restored = EvidenceTracker(1, EvidenceTrackerSettings())
    restored.restore(pack(tracker, former))
    observed = Observed(after(16, lambda cpu, memory: (4 * cpu, memory)))
    observed.tracker, observed.elapsed = restored, DAY
    assert observed.run(16).shifts
