"""An evidence tracker provides the input of guards: history, peaks, OOM kills and recent throttling."""

from base64 import b85decode
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.sizing.guards.oom import count_raises
from trimtab.sizing.state import pack
from trimtab.sizing.tracking.evidence_tracker import EvidenceTracker, EvidenceTrackerSettings
from trimtab.sizing.tracking.oom_records import MAX_SIZES, QUIET_PERIOD, KillRecords

START = 1.7e9
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
ONE, BOTH = np.array([0]), np.array([0, 1])


def new_tracker() -> EvidenceTracker:
    return EvidenceTracker(2, EvidenceTrackerSettings())


def test_evidence_tracker_counts_received_and_expected_samples() -> None:
    seen = new_tracker()
    for minute in range(10):
        cpu = np.array([0.1, np.nan if minute % 2 else 0.2])
        seen.observe(START + minute * MINUTE, cpu, cpu * 1e9, running=np.array([True, True]))
    steady, patchy = seen.collect_evidence(START + HOUR, BOTH, is_long_running=[True, True])
    assert (steady.samples, steady.coverage) == (10, 1.0)
    assert (patchy.samples, patchy.coverage) == (5, 0.5)
    assert (patchy.first_sample_at, patchy.last_sample_at) == (START, START + 8 * MINUTE)


def test_evidence_tracker_expects_no_samples_between_runs_of_a_job() -> None:
    seen = new_tracker()
    seen.observe(START, np.array([0.1, np.nan]), np.array([1e8, np.nan]), running=np.array([True, True]))
    seen.observe(START + HOUR, np.full(2, np.nan), np.full(2, np.nan), running=np.array([True, True]))
    assert seen.collect_evidence(START, BOTH, is_long_running=[False, False])[0].coverage == 1.0


@pytest.mark.parametrize(("days", "known"), [(1, True), (7, True), (7.4, True), (9, False)])
def test_evidence_tracker_keeps_memory_peak_for_a_week(days: float, *, known: bool) -> None:
    """Until the weekly job runs again: of a daily one the peak was forgotten just before, and it was cut."""
    seen = new_tracker()
    seen.observe(START, np.array([1.2345, 0.1]), np.array([5e8, 1e8]))
    (later,) = seen.collect_evidence(START + days * DAY, ONE, is_long_running=[True])
    assert later.memory_peak == (500_000_000 if known else None)
    assert later.cpu_peak_week == (1235 if known else None)


def test_evidence_tracker_keeps_cpu_peak_for_a_day() -> None:
    seen = new_tracker()
    seen.observe(START, np.array([1.2345, 0.1]), np.array([5e8, 1e8]))
    seen.observe(START + HOUR, np.array([0.1, np.inf]), np.array([1e8, -1.0]))
    one, other = seen.collect_evidence(START + HOUR, BOTH, is_long_running=[True, True])
    assert (one.cpu_peak, one.memory_peak) == (1235, 500_000_000)
    assert (other.cpu_peak, other.memory_peak, other.samples) == (100, 100_000_000, 1)
    assert seen.collect_evidence(START + 37 * HOUR, ONE, is_long_running=[True])[0].cpu_peak is None


def feed(seen: EvidenceTracker, begin: float, days: float, *, scraped: bool, running: bool = True) -> float:
    """Samples five minutes apart of the first container; return the time after them."""
    steps = int(days * DAY / 300)
    for step in range(steps):
        value = np.array([0.1 if scraped else np.nan, np.nan])
        is_due = np.array([running, False])
        seen.observe(begin + step * 300, value, value * 1e9, running=is_due, sample_seconds=300.0)
    return begin + steps * 300


def coverage(seen: EvidenceTracker, t: float) -> float:
    return seen.collect_evidence(t, ONE, is_long_running=[True])[0].coverage


def test_coverage_recovers_within_a_week_from_a_bad_month() -> None:
    seen = new_tracker()
    bad = feed(seen, feed(seen, START, 0.1, scraped=True), 30, scraped=False)
    assert coverage(seen, bad) < 0.1
    good = feed(seen, bad, 4, scraped=True)
    assert 0.5 <= coverage(seen, good) < 1
    assert coverage(seen, feed(seen, good, 5, scraped=True)) == 1.0


def test_coverage_decreases_after_a_fresh_gap() -> None:
    seen = new_tracker()
    good = feed(seen, START, 20, scraped=True)
    assert coverage(seen, good) == 1.0
    assert coverage(seen, feed(seen, good, 2, scraped=False)) < 0.5


def test_observed_time_excludes_gaps() -> None:
    """Twenty minutes with two days between were taken for two days."""
    seen = new_tracker()
    pause = feed(seen, START, 15 / 1440, scraped=True)
    feed(seen, pause + 2 * DAY, 5 / 1440, scraped=True)
    (evidence,) = seen.collect_evidence(pause + 3 * DAY, ONE, is_long_running=[True])
    assert evidence.last_sample_at - evidence.first_sample_at > 2 * DAY
    assert evidence.observed_seconds == 4 * 300
    (job,) = seen.collect_evidence(pause + 3 * DAY, ONE, is_long_running=[False])
    assert job.observed_seconds > 2 * DAY, "between two runs a job rests"


def test_observed_time_begins_again_after_a_week_without_samples() -> None:
    seen = new_tracker()
    pause = feed(seen, START, 3, scraped=True)
    feed(seen, pause + 8 * DAY, 5 / 1440, scraped=True)
    assert seen.collect_evidence(pause + 9 * DAY, ONE, is_long_running=[True])[0].observed_seconds == 300


def kill(seen: EvidenceTracker, at: float, memory: float, row: int = 0, **more: Any) -> bool:
    (new,) = seen.observe_oom(np.array([at]), np.array([row]), np.array([memory]), **more).tolist()
    return bool(new)


def sizes(
    seen: EvidenceTracker, at: float, memory: float, row: int = 0, *, before: float = 0.0, image: int = 0
) -> None:
    seen.observe_sizes(
        at,
        np.array([row]),
        np.array([memory]),
        before=np.array([before]),
        images=np.array([image], np.uint32),
    )


def test_oom_records_count_each_kill_once_by_size() -> None:
    seen = new_tracker()
    for number in range(30):
        at, memory = START + number * HOUR, 5e8 if number % 3 else 8e8
        assert kill(seen, at, memory)
        assert not kill(seen, at, memory), "a pod reports a kill until it is killed again"
    untouched, killed = seen.collect_evidence(
        START + 30 * HOUR, np.array([1, 0]), is_long_running=[True, True]
    )
    assert untouched.kills == ()
    assert [(each.memory, each.count) for each in killed.kills] == [(800_000_000, 10), (500_000_000, 20)]
    assert killed.last_kill_at == START + 29 * HOUR


@settings(max_examples=150, deadline=None)
@given(kills_at_each=st.lists(st.integers(1, 40), min_size=2, max_size=20), growth=st.floats(1.1, 1.5))
def test_oom_records_keep_raises_with_many_kills_at_each_size(
    kills_at_each: list[int], growth: float
) -> None:
    """Only the last eight kills were remembered: three at each size, and no container was ever taken for a leak."""
    seen, t, memory = new_tracker(), START, 1e8
    for number, times in enumerate(kills_at_each):
        for _ in range(times):
            t += 60
            kill(seen, t, memory)
        (evidence,) = seen.collect_evidence(t, ONE, is_long_running=[True])
        assert count_raises(evidence.kills) == min(number, MAX_SIZES - 1)
        assert max(each.memory for each in evidence.kills) == int(memory)
        memory *= growth


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.floats(1, 5 * DAY), st.floats(1e6, 1e11), st.booleans()), max_size=60))
def test_oom_records_are_bounded_and_keep_the_largest_size(
    kills: list[tuple[float, float, bool]],
) -> None:
    seen, t, largest = new_tracker(), START, 0.0
    for gap, memory, estimated in kills:
        t += gap
        kill(seen, t, memory, estimated=estimated)
        largest = max(largest, memory)
        (evidence,) = seen.collect_evidence(t, ONE, is_long_running=[True])
        assert len(evidence.kills) <= MAX_SIZES
        assert all(each.first <= each.last <= t for each in evidence.kills)
        # An estimate of a kill that a pod reported adds nothing.
        assert estimated or max(each.memory for each in evidence.kills) >= int(memory)


def test_oom_records_forget_kills_after_a_quiet_month() -> None:
    seen = new_tracker()
    assert kill(seen, START, 5e8)
    assert seen.collect_evidence(START + QUIET_PERIOD, ONE, is_long_running=[True])[0].kills
    assert not seen.collect_evidence(START + QUIET_PERIOD + 1, ONE, is_long_running=[True])[0].kills
    assert kill(seen, START + QUIET_PERIOD + HOUR, 2e8)
    (evidence,) = seen.collect_evidence(START + QUIET_PERIOD + HOUR, ONE, is_long_running=[True])
    assert [each.memory for each in evidence.kills] == [200_000_000]


def test_oom_kill_from_a_source_counts_at_the_limit() -> None:
    """The last sample before it was 297Mi; what killed it was its limit of 1Gi."""
    seen = new_tracker()
    assert kill(seen, START, 297e6, estimated=True)
    assert kill(seen, START + DAY, np.nan, estimated=True), "also without any sample"
    sizes(seen, START + 2 * DAY, 1e9)
    (evidence,) = seen.collect_evidence(START + 2 * DAY, ONE, is_long_running=[True])
    assert [(each.memory, each.count) for each in evidence.kills] == [(10**9, 2)]
    sizes(seen, START + 3 * DAY, 2e9)
    (evidence,) = seen.collect_evidence(START + 3 * DAY, ONE, is_long_running=[True])
    assert [each.memory for each in evidence.kills] == [10**9], "what it was given since did not kill it"


@pytest.mark.parametrize("corrected", [False, True])
def test_oom_kill_from_pod_status_replaces_estimate_of_the_source(*, corrected: bool) -> None:
    seen = new_tracker()
    assert kill(seen, START + 240, 297e6, estimated=True)
    if corrected:
        sizes(seen, START + 300, 2e9)
    assert not kill(seen, START, 1e9), "the source reports the same kill some minutes later"
    (evidence,) = seen.collect_evidence(START + HOUR, ONE, is_long_running=[True])
    assert [(each.memory, each.count) for each in evidence.kills] == [(10**9, 1)]
    assert not kill(seen, START + 300, 297e6, estimated=True)


def test_oom_records_start_empty_for_a_new_image() -> None:
    seen = new_tracker()
    sizes(seen, START, 5e8, image=7)
    images = np.array([7], np.uint32)
    assert kill(seen, START + 60, 5e8, images=images)
    sizes(seen, START + HOUR, 5e8, image=7)
    assert seen.collect_evidence(START + HOUR, ONE, is_long_running=[True])[0].kills
    sizes(seen, START + 2 * HOUR, 5e8, image=8)
    assert not seen.collect_evidence(START + 2 * HOUR, ONE, is_long_running=[True])[0].kills
    assert not kill(seen, START + 3 * HOUR, 5e8, images=images), "an old pod of the rollout"
    assert kill(seen, START + 3 * HOUR, 5e8, images=np.array([8], np.uint32))


def test_evidence_tracker_keeps_sizes_held_for_an_hour() -> None:
    seen = new_tracker()

    def had(t: float) -> tuple[int, int]:
        (evidence,) = seen.collect_evidence(t, ONE, is_long_running=[True])
        return evidence.recent_memory, evidence.earlier_memory

    sizes(seen, START, 8e9)
    sizes(seen, START + 60, 1e9)
    assert had(START + 60) == (0, 0), "a slip of the hand is no size that was tried"
    sizes(seen, START + 2 * HOUR, 1e9, before=2e9)
    assert had(START + 2 * HOUR) == (10**9, 2 * 10**9)
    sizes(seen, START + 3 * HOUR, 2e8)
    sizes(seen, START + 5 * HOUR, 2e8)
    assert had(START + 5 * DAY) == (10**9, 10**9)
    sizes(seen, START + 14 * DAY, 2e8)
    assert had(START + 14 * DAY) == (2 * 10**8, 10**9)


def test_throttling_by_day_counts_by_night() -> None:
    seen, quiet = new_tracker(), np.full(2, np.nan)
    for hour in range(24):
        by_day = 0.3 if hour < 12 else 0.0
        seen.observe(START + hour * HOUR, quiet, quiet, throttled=np.array([by_day, 0.0]))
    held_back, free = seen.collect_evidence(START + 24 * HOUR, BOTH, is_long_running=[True, True])
    assert held_back.throttled_share is not None
    assert held_back.throttled_share > 0.2
    assert free.throttled_share == 0.0


def test_throttling_fades_and_ignores_implausible_values() -> None:
    seen, quiet = new_tracker(), np.full(2, np.nan)
    seen.observe(START, quiet, quiet, throttled=np.array([0.8, 1.5]))
    seen.observe(START + 24 * HOUR, quiet, quiet, throttled=np.array([0.0, np.nan]))
    one, other = seen.collect_evidence(START + HOUR, BOTH, is_long_running=[True, True])
    assert one.throttled_share == pytest.approx(0.4)
    assert other.throttled_share is None


OLD = (
    "baH8JbYWsLg#iEn00000dm?jma$$63XL%wzB6n$YZe??GA}k_fZ*Fv9X>Mh5b0Ru2EFyDdbaZKMXLBMtdm?vfZe(wFB04xWG"
    "%zqOFnuf{aA9(Eb0RuhTOxB|ZE$R5b0RDvJZU&0EL$>NT`XH7WOZdCEFwH<I3g@tGF@FPTOx8{ZXzrqJZ3l|EL$>NT`XH7W@"
    "&PBbRsMwJZ3l|EL$>NT`XH7Y+-YBA}k_2W;h}&TQXf;EL$RUXmW3KbZlj0A}k_2W;h}&TQXf;EL$RUXmW3KbZlj0Utx42EFw"
    "H+I3g@tGF@FPTOw;|Y;0v@Utx42EFwH+I3g@tGAuY<T`XH7YiVq3Wn^D>X>@2JEFwH+I3g@tGAuY<T`XH7V{mmYWpHm}Xd)~"
    "kJZU&0EL$-$U0p0&B4coME^uXGYjYwjB0Od|A}m`mGAuG(T`XH7ZDnn5a(OOgaBpL1A}k_2X*eP*TQM?ST`XH7ZDnn5a(OOr"
    "WnpV`A}k_2W;h}&TQM>$GF@F=eRu(jU}8W45l}vi21`zP=zyfi;ZMj-M+pB%J&=x+4@K~2%>;py_PFGM;vUQp^=H^1bO0BGz"
    "QPNkBLpGz9T5nfAOWGDNJD6#5g-0T%qNd-xjr52egwT7%EwMGez*}V52GP=lSc;3Vg_prgwjD!Iv7faKxwGy2Z*Kpq58`A&6"
    "m=@dj%T)AO5SbHBNQzz60mKQZwXOBl8H(KX7WH>$cBN;rxkjYwS(qp27JL`^gJuV&Z8M*uGP6`)D0LApg9ynhQ<8V1G5N;$D"
    "Ele^9v)g)jDE5i<Y4A^ye4e4vT63m=esYvX3Y?E?Ut8N|V2wR7|"
)
"""The state of an evidence tracker of two containers as the version before kills were kept by size wrote it."""


def test_evidence_tracker_restores_state_of_previous_version() -> None:
    seen = new_tracker()
    seen.restore(b85decode(OLD))
    one, other = seen.collect_evidence(START + 10 * HOUR, BOTH, is_long_running=[True, True])
    assert (one.samples, one.run_seconds, one.cpu_peak, one.memory_peak) == (600, 36000.0, 699, 159_900_000)
    assert one.throttled_share == pytest.approx(0.2)
    assert [(each.memory, each.count) for each in one.kills] == [(10**8, 2), (2 * 10**8, 4), (3 * 10**8, 2)]
    assert (other.samples, other.kills) == (0, ())
    again = new_tracker()
    again.restore(seen.state())
    assert again.collect_evidence(START, BOTH, is_long_running=[True] * 2) == seen.collect_evidence(
        START, BOTH, is_long_running=[True] * 2
    )


def test_total_run_time_of_a_monthly_job_counts_all_its_runs() -> None:
    seen = new_tracker()
    for month in range(12):
        feed(seen, START + 30 * month * DAY, 1, scraped=True)
    (evidence,) = seen.collect_evidence(START + 360 * DAY, ONE, is_long_running=[False])
    assert evidence.total_run_seconds == 12 * DAY
    assert (evidence.run_seconds, evidence.first_sample_at) == (DAY, START)


def test_evidence_tracker_restores_state_without_the_total_of_all_runs() -> None:
    seen = new_tracker()
    feed(seen, START, 1, scraped=True)
    arrays = {name: array for name, array in seen.arrays().items() if name != "ran_in_total"}
    restored = new_tracker()
    restored.restore(pack(seen, arrays))
    feed(restored, START + DAY, 1, scraped=True)
    (evidence,) = restored.collect_evidence(START + 2 * DAY, ONE, is_long_running=[False])
    assert (evidence.total_run_seconds, evidence.run_seconds) == (2 * DAY, 2 * DAY)


def test_evidence_tracker_restores_its_state() -> None:
    seen, again = new_tracker(), new_tracker()
    seen.observe(START, np.array([1.0, 2.0]), np.array([1e8, 2e8]), throttled=np.array([0.1, 0.2]))
    again.restore(seen.state())
    assert again.collect_evidence(START, BOTH, is_long_running=[True] * 2) == seen.collect_evidence(
        START, BOTH, is_long_running=[True] * 2
    )


def test_kill_records_keep_the_stored_name_of_the_last_reported_kill() -> None:
    records = KillRecords(1)
    one = np.array([0])
    records.add(np.array([5.0]), one, np.array([64.0]), plausible=np.array([True]), estimated=False)
    stored = records.arrays("kills.")
    assert stored["kills.told"].tolist() == [5.0]
    restored = KillRecords(1)
    restored.load_arrays("kills.", stored)
    assert restored.last_reported.tolist() == [5.0]
