"""Correlation of Events as pure arithmetic: a simulated API server receives the due writes."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.kube.runtime.event_correlator import (
    CorrelatorOptions,
    EventCorrelator,
    EventKey,
    ObjectReference,
)

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def event_key(message: str = "too small", *, about: str = "web", reason: str = "Resized") -> EventKey:
    reference = ObjectReference(api_version="v1", kind="Pod", name=about, namespace="shop")
    return EventKey(reference, "Normal", reason, message, "Resize", None)


@dataclass
class RecorderState:
    """A correlator with its clock, and its writes: counts by name, and times with their object."""

    ledger: EventCorrelator
    now: float = 1000.0
    counts: dict[str, int] = field(default_factory=dict)
    writes: list[tuple[float, str]] = field(default_factory=list)

    def say(self, what: EventKey, *, times: int = 1) -> list[bool]:
        at = NOON + timedelta(seconds=self.now)
        return [self.ledger.record(what, at, self.now) for _ in range(times)]

    def write(self) -> None:
        while (series := self.ledger.next_due(self.now)) is not None:
            self.counts[series.name] = series.count
            self.writes.append((self.now, series.key.regarding.name))
            self.ledger.mark_written(series, self.now)

    def wait(self, seconds: float) -> None:
        """Let time pass, writing what comes due when it does."""
        end = self.now + seconds
        while (due := self.ledger.next_time) is not None and due <= end:
            self.now = max(self.now, due)
            self.write()
        self.now = end


def recorder_state(**restraint: float) -> RecorderState:
    return RecorderState(EventCorrelator(CorrelatorOptions(**restraint)))  # type: ignore[arg-type] # integers among them


def test_correlator_counts_repeated_events_in_one() -> None:
    at = recorder_state()
    at.say(event_key())
    at.write()
    at.say(event_key(), times=6)
    at.wait(10)
    assert list(at.counts.values()) == [7]
    assert [time for time, _ in at.writes] == [1000.0, 1005.0]


def test_correlator_keeps_events_that_differ_apart() -> None:
    at = recorder_state()
    for what in (
        event_key(),
        event_key("too large"),
        event_key(reason="Skipped"),
        event_key(about="db"),
        event_key()._replace(type="Warning"),
    ):
        at.say(what)
    at.write()
    assert list(at.counts.values()) == [1] * 5


def test_correlator_merges_events_within_ten_minutes() -> None:
    at = recorder_state()
    for _ in range(4):
        at.say(event_key())
        at.wait(599)
    assert list(at.counts.values()) == [4]
    at.wait(1)
    at.say(event_key())
    at.wait(0)
    assert list(at.counts.values()) == [4, 1]


def test_correlator_forgets_older_events_while_another_repeats() -> None:
    at = recorder_state()
    at.say(event_key("often"))
    at.say(event_key("once"))
    at.wait(599)
    at.say(event_key("often"))
    at.wait(1)
    at.say(event_key("once"))
    at.wait(10)
    assert sorted(at.counts.values()) == [1, 1, 2]


def test_correlator_limits_an_object_to_25_events_and_one_in_five_minutes() -> None:
    at = recorder_state()
    assert at.say(event_key("other", about="db")) == [True]
    assert [at.say(event_key(str(number))) for number in range(30)] == [[True]] * 25 + [[False]] * 5
    at.wait(299)
    assert at.say(event_key("again")) == [False]
    at.wait(1)
    assert at.say(event_key("and again")) == [True]
    assert at.say(event_key("and again and again")) == [False]
    assert at.say(event_key("still free", about="db")) == [True]


def test_correlator_writes_a_delayed_count_when_its_object_allows() -> None:
    at = recorder_state(rewrite_interval=1.0, burst=3, token_interval=60.0)
    for _ in range(30):
        at.say(event_key())
        at.wait(1)
    assert [time - 1000 for time, _ in at.writes] == [0, 1, 2]
    at.wait(60)
    assert [time - 1000 for time, _ in at.writes] == [0, 1, 2, 60]
    assert list(at.counts.values()) == [30]


def test_correlator_in_a_hurry_releases_all_but_delayed_counts() -> None:
    at = recorder_state(burst=2)
    at.say(event_key())
    at.write()
    at.say(event_key(), times=2)
    at.say(event_key("second"))
    assert at.ledger.next_due(at.now) is not None
    at.write()
    at.ledger.make_all_due(at.now)
    at.write()
    assert sorted(at.counts.values()) == [1, 1]
    at.wait(300)
    assert sorted(at.counts.values()) == [1, 3]


def test_correlator_omits_names_that_cannot_be_part_of_an_event_name() -> None:
    for name in ("system:node", "Web", "w" * 250, "a..b", "web-"):
        ledger = EventCorrelator(CorrelatorOptions())
        ledger.record(event_key(about=name), NOON, 0.0)
        series = ledger.next_due(0.0)
        assert series is not None
        assert len(series.name) == 16


def test_correlator_memory_is_bounded_for_any_number_of_events() -> None:
    at = recorder_state(max_tracked=100)
    for number in range(2000):
        at.say(event_key(about=str(number)))
        if number % 3:
            at.write()
    assert len(at.ledger) == 100
    assert len(at.ledger._tokens) == 100
    assert len(at.ledger._to_write) <= 100


STEPS = st.tuples(
    st.sampled_from(["web", "db"]),
    st.sampled_from(["a", "b", "c", "d", "e"]),
    st.sampled_from([0.0, 0.0, 0.5, 3.0, 20.0, 90.0, 400.0]),
)


@settings(max_examples=100)
@given(st.lists(STEPS, max_size=80))
def test_correlator_counts_or_rejects_each_occurrence_within_limits(
    steps: list[tuple[str, str, float]],
) -> None:
    at = recorder_state(rewrite_interval=2.0, burst=4, token_interval=30.0, series_window=1e6)
    results: Counter[str] = Counter()
    for about, message, pause in steps:
        results["taken" if all(at.say(event_key(message, about=about))) else "refused"] += 1
        at.wait(pause)
    at.wait(1e5)
    assert results.total() == len(steps)
    assert sum(at.counts.values()) == results["taken"]
    for name in ("web", "db"):
        times = [time for time, about in at.writes if about == name]
        assert all(later - earlier >= 30.0 - 1e-6 for earlier, later in zip(times, times[4:], strict=False))
