"""Health comparison: harm by a change is noticed, and restarts by chance are not blamed on it."""

import random
from fractions import Fraction
from math import comb, log
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuation.builders import MIB, NOW, desired_change, observation, pod, start_change, workload
from actuation.world import KEY, World, run
from trimtab.actuation.actions import WriteAnnotations
from trimtab.actuation.change_annotations import ChangeAnnotations, OngoingChange, Phase, PodHealth
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.health import (
    SIGNIFICANCE,
    HarmSignals,
    _binomial_tail,
    compare_health,
    health_before,
    health_since,
    is_more_than_chance,
)
from trimtab.actuation.decide.observation import LocalObservations
from trimtab.actuation.decide.transitions import next_actions
from trimtab.actuation.executor import ChangeExecutor
from trimtab.api.optimizationpolicy import MaintenanceWindow
from trimtab.kube.kinds.pods import ContainerTermination, Pod, Resources

WINDOW = 600
DAY = 86_400
OLD = {"web": Resources(1000, None, 512 * MIB, 512 * MIB)}
NEW = {"web": Resources(600, None, 512 * MIB, 512 * MIB)}


# The test itself


@given(st.integers(1, 40), st.integers(1, 99))
def test_health_exact_test_agrees_with_fractions(of: int, percent: int) -> None:
    chance = Fraction(percent, 100)
    for count in range(of + 1):
        tail = sum(
            comb(of, each) * chance**each * (1 - chance) ** (of - each) for each in range(count, of + 1)
        )
        assert _binomial_tail(count, of=of, probability=percent / 100) == pytest.approx(float(tail), rel=1e-9)


@given(st.integers(2, 60), st.integers(1, 10**7), st.integers(1, 10**7))
def test_health_takes_no_more_harmless_changes_for_harm_than_intended(
    events: int, watched_before: int, watched: int
) -> None:
    """Distribute the events over both times by chance alone, with at least one before the change."""
    chance = watched / (watched + watched_before)
    wrong = sum(
        comb(events, counted) * chance**counted * (1 - chance) ** (events - counted)
        for counted in range(1, events)
        if is_more_than_chance(events - counted, watched_before, counted, watched)
    )
    assert wrong <= SIGNIFICANCE * (1 + 1e-9)


@given(
    st.integers(0, 30),
    st.integers(0, 10**7),
    st.integers(1, 30),
    st.integers(1, 10**7),
    st.integers(1, 10),
    st.integers(1, 10**6),
)
def test_health_finds_more_restarts_in_the_same_time_never_less_suspicious(
    then: int, watched_before: int, counted: int, watched: int, more: int, less: int
) -> None:
    if is_more_than_chance(then, watched_before, counted, watched):
        assert is_more_than_chance(then, watched_before, counted + more, max(1, watched - less))


# What is counted


def fleet(pods: int, rng: random.Random, per_day: float, *, at: int = NOW) -> list[Pod]:
    """Pods that have restarted by chance, each so often a day, up to that time."""
    found = []
    for number in range(pods):
        ago = -log(1 - rng.random()) * DAY / per_day if per_day else 10 * DAY
        ends = {"web": ContainerTermination("Error", 1, at - int(ago))} if ago < 10 * DAY else {}
        found.append(pod(f"web-{number}", created=at - 10 * DAY, exits=ends))
    return found


def observed_health(pods: list[Pod], rng: random.Random, per_day: float, *, seconds: int) -> PodHealth:
    """Return the health of pods that restart so often a day, observed from NOW on."""
    fared = []
    for each in pods:
        ended = rng.random() < per_day * seconds / DAY
        ends = {"web": ContainerTermination("Error", 1, NOW + rng.randrange(1, seconds))} if ended else {}
        fared.append(pod(each.name, created=each.created, exits=ends) if ends else each)
    return health_since(fared, since=NOW, now=NOW + seconds, window=WINDOW, signals=HarmSignals(), known={})


def revert_share(pods: int, before: float, after: float, *, trials: int = 300, seed: int = 1) -> float:
    """The share of changes that are taken for harm, when pods restart so often a day before and after."""
    rng, found = random.Random(seed), 0
    for _ in range(trials):
        crowd = fleet(pods, rng, before)
        usual = health_before(crowd, now=NOW, window=WINDOW, signals=HarmSignals())
        tried = crowd[: max(1, pods // 10)]
        looks = [
            observed_health(tried, rng, after, seconds=WINDOW),
            observed_health(crowd, rng, after, seconds=WINDOW),
        ]
        found += any(compare_health(usual, each, HarmSignals()).worse for each in looks)
    return found / trials


@pytest.mark.parametrize("pods", [1, 3, 10, 50, 200])
@pytest.mark.parametrize("per_day", [0.05, 0.2, 1.0, 5.0])
def test_health_seldom_blames_a_harmless_change(pods: int, per_day: float) -> None:
    """However often pods restart anyway. Before, up to 45 of 100 were, by one restart of 200 pods."""
    assert revert_share(pods, per_day, per_day) <= 0.045


@pytest.mark.parametrize("pods", [1, 3, 10, 50, 200])
@pytest.mark.parametrize(
    ("before", "after"), [(0.0, 400.0), (0.05, 400.0), (0.2, 400.0)], ids=["never", "seldom", "now and then"]
)
def test_health_notices_restarts_every_few_minutes(pods: int, before: float, after: float) -> None:
    # Of a single pod that restarted hours ago nothing is said by one more restart: that it stays unready will.
    assert revert_share(pods, before, after) >= (0.9 if pods > 1 else 0.8)


def test_health_does_not_blame_the_change_for_restarts_of_the_hour_before() -> None:
    rng = random.Random(1)
    crowd = fleet(200, rng, 0.0)
    restless = [
        pod(f"busy-{n}", exits={"web": ContainerTermination("Error", 1, NOW - rng.randrange(3600))})
        for n in range(9)
    ]
    usual = health_before([*crowd[9:], *restless], now=NOW, window=WINDOW, signals=HarmSignals())
    found = {
        count: compare_health(
            usual, PodHealth(pods=200, restarted=count, watched=200 * WINDOW), HarmSignals()
        ).worse
        for count in (3, 9)
    }
    assert found == {3: "", 9: "9 of 200 pods restarted after the change, 9 of 200 in the day before it"}


@pytest.mark.parametrize(("pods", "after"), [(50, 20.0), (200, 5.0)])
def test_health_notices_a_smaller_harm_among_many_pods(pods: int, after: float) -> None:
    """A tenth or a thirtieth of the pods restarts within ten minutes."""
    assert revert_share(pods, 0.05, after) >= 0.9


def test_health_weighs_one_restart_by_the_number_and_history_of_pods() -> None:
    for pods, harm in ((200, False), (100, False), (3, True), (1, True)):
        usual = health_before(
            fleet(pods, random.Random(1), 0.0), now=NOW, window=WINDOW, signals=HarmSignals()
        )
        now = PodHealth(pods=pods, restarted=1, watched=pods * WINDOW)
        assert bool(compare_health(usual, now, HarmSignals()).worse) is harm


def test_health_knows_an_hourly_restart_by_its_last_exit() -> None:
    hourly = [pod(created=NOW - 10 * DAY, exits={"web": ContainerTermination("Error", 1, NOW - 1800)})]
    usual = health_before(hourly, now=NOW, window=WINDOW, signals=HarmSignals())
    assert (usual.restarted, usual.watched) == (1, 1800)
    again = PodHealth(pods=1, restarted=1, watched=WINDOW)
    assert compare_health(usual, again, HarmSignals()).worse == ""
    yearly = [pod(created=NOW - 300 * DAY, exits={"web": ContainerTermination("Error", 1, NOW - 200 * DAY)})]
    usual = health_before(yearly, now=NOW, window=WINDOW, signals=HarmSignals())
    assert (usual.restarted, usual.watched) == (0, DEADLINES.restart_history)
    assert "1 of 1 pods restarted" in compare_health(usual, again, HarmSignals()).worse


@given(st.integers(1, WINDOW))
def test_health_finds_a_restart_as_likely_however_often_it_is_checked(seconds: int) -> None:
    one = [pod(created=NOW - DAY, exits={"web": ContainerTermination("Error", 1, NOW)})]
    early = health_since(one, since=NOW, now=NOW + seconds, window=WINDOW, signals=HarmSignals(), known={})
    assert early.watched == WINDOW


def test_health_ignores_briefly_unready_pods_and_reports_those_that_stay_unready() -> None:
    usual, five = PodHealth(pods=5), PodHealth(pods=5)
    assert compare_health(usual, five, HarmSignals(), unready=[DEADLINES.unready - 1] * 3).worse == ""
    assert (
        "3 of 5 pods are not ready"
        in compare_health(usual, five, HarmSignals(), unready=[DEADLINES.unready] * 3).worse
    )
    one = [DEADLINES.startup - 1]
    assert compare_health(usual, five, HarmSignals(), unready=one).worse == "", (
        "it may have restarted, and start slowly"
    )
    assert (
        compare_health(usual, five, HarmSignals(), unready=one).unknown
        == "1 of 5 pods are not ready, 0 of 5 before the change"
    )
    assert "1 of 5 pods" in compare_health(usual, five, HarmSignals(), unready=[DEADLINES.startup]).worse
    many = PodHealth(pods=200)
    assert compare_health(many, many, HarmSignals(), unready=[DAY]) == compare_health(
        many, many, HarmSignals()
    )
    assert "4 of 200" in compare_health(many, many, HarmSignals(), unready=[DAY] * 4).worse


# In the life of a change


def promoting_change(**fields: Any) -> OngoingChange:
    """A change of four pods that is being promoted, after a canary."""
    pods = [pod(f"web-{n}", sizes=OLD) for n in range(4)]
    began = observation(
        desired_change(NEW, needed_memory={"web": 0}),
        pods=pods,
        on=workload(template=OLD, replicas=4),
        now=NOW - WINDOW,
    )
    return msgspec.structs.replace(start_change(began), phase=Phase.PROMOTING, since=NOW - 5, **fields)


def next_phase(under_way: OngoingChange, pods: list[Pod], *, now: int = NOW, **seen: Any) -> Phase:
    on = workload(template=OLD, change_annotations=ChangeAnnotations(change=under_way), replicas=len(pods))
    actions = next_actions(
        observation(
            desired_change(NEW, needed_memory={"web": 0}),
            pods=pods,
            on=on,
            now=now,
            local=LocalObservations(**seen),
        )
    )
    recorded = [action.annotations.change for action in actions if isinstance(action, WriteAnnotations)]
    return recorded[0].phase if recorded and recorded[0] else under_way.phase


@pytest.mark.parametrize("ago", [3, 35, 300, 560])
def test_health_accepts_a_starting_pod_that_an_autoscaler_added(ago: int) -> None:
    """The pod had no time to become ready, before or after the start of the phase."""
    four = [pod(f"web-{n}", sizes=NEW) for n in range(4)]
    added = pod("web-new", sizes=NEW, created=NOW - ago, ready=False)
    seen = {added.uid: NOW - ago}
    assert next_phase(promoting_change(), [*four, added], unready_since=seen) is Phase.VERIFYING


def test_health_notices_an_older_pod_that_is_no_longer_ready() -> None:
    pods = [pod(f"web-{n}", sizes=NEW, ready=n > 1) for n in range(4)]
    seen = {each.uid: NOW - DEADLINES.unready for each in pods[:2]}
    assert next_phase(promoting_change(), pods, unready_since=seen) is Phase.REVERTING


def test_health_judges_a_waiting_canary_by_its_rate_of_restarts() -> None:
    """A day of waiting has one ordinary restart; against ten minutes of before it looked like harm."""
    world = World(template=OLD, replicas=20)
    world.now = NOW // DAY * DAY + 2 * 3600 + 16 * 60
    for live in world.pods_by_name.values():
        live.created = world.now - 10 * DAY
    nights = (MaintenanceWindow(start="02:00", end="02:25", time_zone="UTC"),)
    actuator, wanted = (
        ChangeExecutor(world, world.records, may_write=lambda: True),
        desired_change(NEW, needed_memory={"web": 0}, windows=nights),
    )
    for minute in range(26 * 60):
        run(actuator.reconcile(KEY, wanted, now=world.now))
        world.pass_time(60)
        if minute == 13 * 60:
            assert world.change_annotations.change
            (canary, *_) = world.change_annotations.change.canaries
            world.pods_by_name[canary].exits["web"] = ContainerTermination("Error", 1, world.now)
    assert world.change_annotations.applied
    assert not world.change_annotations.reverted


# Clocks


@pytest.mark.parametrize("ahead", [5, 60, 3600])
def test_health_ignores_an_earlier_restart_by_a_node_clock_that_is_ahead(
    ahead: int,
) -> None:
    ended = {"web": ContainerTermination("Error", 1, NOW - 2 + ahead)}
    before = [pod(sizes=OLD, exits=ended)]
    began = start_change(
        observation(desired_change(NEW, needed_memory={"web": 0}), pods=before, on=workload(template=OLD))
    )

    def with_restarts(at: int, *, seen_after: int) -> int:
        now = [pod(sizes=NEW, exits={"web": ContainerTermination("Error", 1, at)})]
        return health_since(
            now,
            since=began.since,
            now=NOW + seen_after,
            window=WINDOW,
            signals=HarmSignals(),
            known=began.ends,
        ).restarted

    assert [with_restarts(NOW - 2 + ahead, seen_after=each) for each in (1, ahead + 30)] == [0, 0]
    assert with_restarts(NOW + 20 + ahead, seen_after=21) == 1
