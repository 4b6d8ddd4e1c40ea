"""The rules of leader election, played by candidates whose clocks disagree and whose messages take their time."""

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.kube.runtime.lease_rules import LeaseObservation, LeaseSpec, LeaseTiming

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
TIMING = LeaseTiming()


@pytest.mark.parametrize(
    ("timing", "complaint"),
    [
        ({"retry_period": 0.0}, "retry_period of 0.0 s must be more than 0"),
        ({"retry_period": float("nan")}, "retry_period of nan s"),
        (
            {"retry_period": 9.0},
            "renew_deadline of 10.0 s leaves no time for a second attempt; make it more than 1.2 times retry_period",
        ),
        ({"renew_deadline": 15.0}, "duration of 15.0 s must be longer than renew_deadline, which is 15.0 s"),
    ],
)
def test_timing_that_cannot_work_is_refused(timing: dict[str, float], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        LeaseTiming(**timing)


def test_lease_of_another_is_free_after_its_duration_unchanged() -> None:
    sight = LeaseObservation()
    lease: LeaseSpec = {"holderIdentity": "b", "leaseDurationSeconds": 7, "renewTime": "long ago"}
    sight.observe(lease, 100.0)
    sight.observe(dict(lease), 105.0)
    assert not sight.is_free("a", 106.9, default_duration=15)
    assert sight.is_free("a", 107.0, default_duration=15)
    sight.observe(lease | {"renewTime": "longer ago"}, 107.0)
    assert not sight.is_free("a", 113.9, default_duration=15)


@pytest.mark.parametrize("holder", [None, "", "a"])
def test_lease_without_holder_or_of_this_holder_is_free_at_once(holder: str | None) -> None:
    sight = LeaseObservation()
    sight.observe({"holderIdentity": holder, "leaseDurationSeconds": 7}, 100.0)
    assert sight.is_free("a", 100.0, default_duration=15)


def test_lease_without_a_duration_has_the_default() -> None:
    sight = LeaseObservation()
    sight.observe({"holderIdentity": "b"}, 100.0)
    assert not sight.is_free("a", 114.9, default_duration=15)
    assert sight.is_free("a", 115.0, default_duration=15)


def test_lease_records_its_history() -> None:
    sight = LeaseObservation()
    first = sight.build_claim("a", NOON, duration=1.5)
    assert first == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 2,
        "acquireTime": "2026-11-01T12:00:00.000000Z",
        "renewTime": "2026-11-01T12:00:00.000000Z",
        "leaseTransitions": 0,
    }
    sight.observe(first | {"strategy": "kept"}, 0)
    renewed = sight.build_claim("a", NOON + timedelta(seconds=2), duration=1.5)
    assert renewed == first | {"strategy": "kept", "renewTime": "2026-11-01T12:00:02.000000Z"}
    released = sight.build_release(NOON + timedelta(seconds=3))
    assert released["holderIdentity"] == ""
    sight.observe(released, 0)
    second = sight.build_claim("b", NOON + timedelta(seconds=4), duration=1.5)
    assert second["leaseTransitions"] == 1
    assert second["acquireTime"] == second["renewTime"] == "2026-11-01T12:00:04.000000Z"


# A server and candidates in one imagined time. A try is a read, a decision and a write, each of which may be late.


@dataclass
class LeaseServer:
    version: int = 0
    spec: LeaseSpec | None = None

    def write(self, spec: LeaseSpec, over: int) -> bool:
        if over != self.version:
            return False
        self.version += 1
        self.spec = spec
        return True


@dataclass
class Player:
    name: str
    clock_is_ahead: float
    sight: LeaseObservation = field(default_factory=LeaseObservation)
    sure_until: float = float("-inf")

    def play(
        self, server: LeaseServer, time: Callable[[], float], delays: Iterator[float]
    ) -> Iterator[float]:
        """Try for ever; each yield says how long the next step takes."""

        def own_clock() -> float:
            return time() + self.clock_is_ahead

        while True:
            sent = own_clock()
            yield next(delays)  # on its way to the server
            version, spec = server.version, server.spec
            yield next(delays)  # on its way back, and frozen perhaps
            if spec is not None:
                self.sight.observe(spec, own_clock())
            if self.sight.is_free(self.name, own_clock(), default_duration=TIMING.duration):
                stamp = NOON + timedelta(seconds=own_clock())
                claimed = self.sight.build_claim(self.name, stamp, duration=TIMING.duration)
                yield next(delays)
                done = server.write(claimed, version)
                yield next(delays)
                if done:
                    self.sight.observe(claimed, own_clock())
                    self.sure_until = sent + TIMING.renew_deadline
            elif self.sight.holder != self.name:
                self.sure_until = float("-inf")
            yield TIMING.retry_period

    def leads(self, time: float) -> bool:
        return time + self.clock_is_ahead < self.sure_until


@settings(max_examples=150)
@given(
    clocks=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=3),
    delays=st.lists(st.sampled_from([0.0, 0.01, 0.1, 1.0, 6.0, 14.0, 40.0]), min_size=1, max_size=60),
)
def test_lease_never_has_two_leaders_whatever_clocks_and_delays(
    clocks: list[float], delays: list[float]
) -> None:
    server, time = LeaseServer(), 0.0
    players = [Player(str(number), ahead) for number, ahead in enumerate(clocks)]
    endless = itertools.chain(delays, itertools.cycle(delays))
    schedule = [
        (0.1 * place, place, player.play(server, lambda: time, endless))
        for place, player in enumerate(players)
    ]
    for _ in range(400):
        time, place, play = heapq.heappop(schedule)
        took = next(play)
        assert sum(player.leads(time) for player in players) <= 1
        heapq.heappush(schedule, (time + took, place, play))


@settings(max_examples=100)
@given(delays=st.lists(st.sampled_from([0.0, 0.01, 0.1, 0.2]), min_size=1, max_size=20))
def test_lease_stays_with_the_first_leader_while_messages_are_quick(delays: list[float]) -> None:
    server, time = LeaseServer(), 0.0
    players = [Player("a", 0.0), Player("b", -500.0)]
    endless = itertools.cycle(delays)
    schedule = [
        (0.1 * place, place, player.play(server, lambda: time, endless))
        for place, player in enumerate(players)
    ]
    leaders = set()
    for _ in range(400):
        time, place, play = heapq.heappop(schedule)
        heapq.heappush(schedule, (time + next(play), place, play))
        leaders |= {player.name for player in players if player.leads(time)}
        assert not leaders or any(player.leads(time) for player in players)
    assert len(leaders) == 1
