"""A witness tells what guards ask for: how much is known, the peaks of a day, kills once each, recent throttling."""

import numpy as np
import pytest

from trimtab.sizing.witness import KILLS, Witness, WitnessSettings

START = 1.7e9
MINUTE, HOUR = 60.0, 3600.0
BOTH = np.array([0, 1])


def witness() -> Witness:
    return Witness(2, WitnessSettings())


def test_it_counts_samples_and_those_that_should_have_been_there() -> None:
    seen = witness()
    for minute in range(10):
        cpu = np.array([0.1, np.nan if minute % 2 else 0.2])
        seen.observe(START + minute * MINUTE, cpu, cpu * 1e9, running=np.array([True, True]))
    steady, patchy = seen.evidence(START + HOUR, BOTH, runs_on=[True, True])
    assert (steady.samples, steady.coverage) == (10, 1.0)
    assert (patchy.samples, patchy.coverage) == (5, 0.5)
    assert (patchy.first, patchy.last) == (START, START + 8 * MINUTE)


def test_a_job_is_not_blamed_for_the_time_between_its_runs() -> None:
    seen = witness()
    seen.observe(START, np.array([0.1, np.nan]), np.array([1e8, np.nan]), running=np.array([True, True]))
    seen.observe(START + HOUR, np.full(2, np.nan), np.full(2, np.nan), running=np.array([True, True]))
    assert seen.evidence(START, BOTH, runs_on=[False, False])[0].coverage == 1.0


def test_a_peak_is_known_for_a_day() -> None:
    seen = witness()
    seen.observe(START, np.array([1.2345, 0.1]), np.array([5e8, 1e8]))
    seen.observe(START + HOUR, np.array([0.1, np.inf]), np.array([1e8, -1.0]))
    one, other = seen.evidence(START + HOUR, BOTH, runs_on=[True, True])
    assert (one.cpu_peak, one.memory_peak) == (1235, 500_000_000)
    assert (other.cpu_peak, other.memory_peak, other.samples) == (100, 100_000_000, 1)
    later = seen.evidence(START + 30 * HOUR, BOTH, runs_on=[True, True])[0]
    assert (later.cpu_peak, later.memory_peak) == (None, None)


def test_a_kill_counts_once_and_only_the_latest_are_kept() -> None:
    seen = witness()
    for number in range(KILLS + 3):
        at = np.array([START + number * HOUR])
        assert seen.observe_oom(at, np.array([1]), np.array([1e8 + number])).tolist() == [True]
        assert seen.observe_oom(at, np.array([1]), np.array([1e8 + number])).tolist() == [False]
    untouched, killed = seen.evidence(START, BOTH, runs_on=[True, True])
    assert untouched.kills == ()
    assert [kill.memory - 100_000_000 for kill in killed.kills] == list(range(3, KILLS + 3))


def test_throttling_by_day_is_remembered_by_night() -> None:
    seen, quiet = witness(), np.full(2, np.nan)
    for hour in range(24):
        by_day = 0.3 if hour < 12 else 0.0
        seen.observe(START + hour * HOUR, quiet, quiet, throttled=np.array([by_day, 0.0]))
    held_back, free = seen.evidence(START + 24 * HOUR, BOTH, runs_on=[True, True])
    assert held_back.throttled is not None
    assert held_back.throttled > 0.2
    assert free.throttled == 0.0


def test_throttling_fades_and_what_cannot_be_is_not_believed() -> None:
    seen, quiet = witness(), np.full(2, np.nan)
    seen.observe(START, quiet, quiet, throttled=np.array([0.8, 1.5]))
    seen.observe(START + 24 * HOUR, quiet, quiet, throttled=np.array([0.0, np.nan]))
    one, other = seen.evidence(START + HOUR, BOTH, runs_on=[True, True])
    assert one.throttled == pytest.approx(0.4)
    assert other.throttled is None


def test_it_goes_on_after_a_restart() -> None:
    seen, again = witness(), witness()
    seen.observe(START, np.array([1.0, 2.0]), np.array([1e8, 2e8]), throttled=np.array([0.1, 0.2]))
    again.restore(seen.state())
    assert again.evidence(START, BOTH, runs_on=[True] * 2) == seen.evidence(START, BOTH, runs_on=[True] * 2)
