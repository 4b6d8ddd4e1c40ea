"""The availability of pods, from what was seen of them."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.intents.kpi.availability import (
    MAX_AVAILABILITY,
    STARTUP_SECONDS,
    PodHistory,
    combine_availabilities,
)
from trimtab.intents.kpi.measurement import KpiReading, as_availability
from trimtab.kube.kinds.pods import ContainerStatus, ContainerTermination, Pod

CREATED = 1000


def pod(
    uid: str = "a", *, ready: bool = True, restarts: int = 0, ended: int | None = None, ready_since: int = 0
) -> Pod:
    exit_ = None if ended is None else ContainerTermination("Error", 1, ended)
    state = ContainerStatus("web", ready, restarts, "", None, exit_)
    return Pod(
        namespace="n",
        name=uid,
        uid=uid,
        version=1,
        node="node",
        phase="Running",
        qos_class="",
        ready=ready,
        deleting=False,
        priority=0,
        created=CREATED,
        started=CREATED,
        owner=None,
        labels=(),
        annotations=(),
        containers=(),
        container_statuses=(state,),
        resize=None,
        ready_since=ready_since,
    )


def history(looks: Iterable[tuple[float, Pod]]) -> PodHistory:
    found = PodHistory({})
    for now, seen in looks:
        found = found.observe([seen], now=now)
    return found


def test_availability_of_a_pod_without_failure_grows_with_time_and_is_bounded() -> None:
    """A pod that has not failed yet is not one that never fails."""
    looks = [history([(1000, pod()), (1000 + span, pod())]).availability("a") for span in (0, 3600, 1e6, 1e9)]
    assert looks == sorted(looks)
    assert looks[0] == pytest.approx(0.99)
    assert looks[-1] == MAX_AVAILABILITY < 1.0


@given(
    days=st.floats(1, 400),
    restarts=st.integers(1, 20),
    since=st.floats(0.01, 1.0),
)
def test_availability_of_a_ready_pod_survives_a_restart_of_the_operator(
    days: float, restarts: int, since: float
) -> None:
    """Restarts of the past cost minutes, whenever they were, and not all of the time since."""
    now = int(CREATED + days * 86_400)
    ended = int(now - since * (now - CREATED))
    found = PodHistory({}).observe([pod(restarts=restarts, ended=ended)], now=now).availability("a")
    assert found >= min(MAX_AVAILABILITY, 1.0 - restarts * 60 / (now - CREATED)) - 1e-9


@given(
    age=st.integers(10, 3600),
    restarts=st.integers(1, 5),
    ready=st.floats(0.0, 1.0),
    crash=st.floats(0.0, 1.0),
)
def test_availability_of_a_young_pod_counts_the_time_that_it_was_ready(
    age: int, restarts: int, ready: float, crash: float
) -> None:
    """A pod that failed while it started, and has been ready since, is not down."""
    ready_since = CREATED + int(ready * age)
    ended = CREATED + int(crash * (ready_since - CREATED))
    seen = pod(restarts=restarts, ended=ended, ready_since=ready_since)
    found = PodHistory({}).observe([seen], now=CREATED + age).availability("a")
    assert found >= min(0.99, (CREATED + age - ready_since) / age)


def test_availability_of_three_young_pods_with_one_restart_each_is_high() -> None:
    found = PodHistory({}).observe(
        [pod(uid, restarts=1, ended=CREATED + 3, ready_since=CREATED + 5) for uid in "abc"], now=CREATED + 20
    )
    assert found.combined_bounds("abc")[0] > 0.99


def test_observe_pod_counts_unobserved_restart_until_ready() -> None:
    looks = [(1000, pod()), (1100, pod(restarts=1, ended=1090, ready_since=1092))]
    assert history(looks).availability("a") == pytest.approx(0.98)


def test_availability_of_a_pod_that_is_down_at_the_first_observation_counts_since_its_end() -> None:
    seen = pod(ready=False, restarts=1, ended=CREATED + 9000)
    assert PodHistory({}).observe([seen], now=CREATED + 10_000).availability("a") == pytest.approx(0.9)


def test_availability_is_share_of_time_up() -> None:
    looks = [(1000, pod()), (1090, pod()), (1090, pod(ready=False)), (1100, pod(ready=False))]
    assert history(looks).availability("a") == pytest.approx(0.9)


def test_observe_pod_counts_unobserved_restart_from_container_end() -> None:
    looks = [(1000, pod()), (1100, pod(restarts=1, ended=1090))]
    assert history(looks).availability("a") == pytest.approx(0.9)


def test_observe_pod_does_not_count_first_start_as_down() -> None:
    looks = [(1000, pod(ready=False)), (1050, pod(ready=False)), (1060, pod()), (1100, pod())]
    assert history(looks).availability("a") == pytest.approx(0.99, abs=0.001)


def test_availability_of_crash_looping_pod_is_low() -> None:
    looks = [
        (1000, pod(ready=False, restarts=3, ended=990)),
        (1100, pod(ready=False, restarts=4, ended=1099)),
    ]
    assert history(looks).availability("a") == 0.0


def test_availability_of_new_pod_inherits_from_past_pods() -> None:
    found = history([(1000, pod()), (1080, pod()), (1080, pod(ready=False)), (1100, pod(ready=False))])
    found = found.observe([pod("b", ready=False)], now=1100)
    assert found.availability("b") == pytest.approx(0.8)


def test_pod_that_never_gets_ready_does_not_count_as_available() -> None:
    """Three pods that no node can run would meet an objective of 0.9999."""
    found = PodHistory({})
    for now in range(1000, 1000 + STARTUP_SECONDS + 30, 30):
        found = found.observe([pod(uid, ready=False) for uid in "abc"], now=now)
    assert [found.availability(uid) for uid in "abc"] == [0.0, 0.0, 0.0]
    assert found.combined_bounds("abc") == (0.0, 0.0)


@given(
    serving=st.integers(0, 4),
    starting=st.integers(0, 4),
    overdue=st.integers(0, 4),
)
def test_combined_bounds_count_pods_that_serve_and_pods_that_may(
    serving: int, starting: int, overdue: int
) -> None:
    up = [pod(f"up{number}") for number in range(serving)]
    late = [pod(f"late{number}", ready=False) for number in range(overdue)]
    new = [pod(f"new{number}", ready=False) for number in range(starting)]
    found = PodHistory({}).observe([*up, *late], now=1000)
    found = found.observe([*up, *late, *new], now=1000 + STARTUP_SECONDS)
    low, high = found.combined_bounds([each.uid for each in (*up, *late, *new)])
    assert low == pytest.approx(combine_availabilities(found.availability(each.uid) for each in up))
    assert low <= high
    assert (low < high) == (starting > 0)


def test_pod_that_gets_ready_late_counts_as_available_from_then_on() -> None:
    found = history([(1000, pod(ready=False)), (1000 + 2 * STARTUP_SECONDS, pod(ready=False))])
    assert found.availability("a") == 0.0
    assert found.observe([pod()], now=1001 + 2 * STARTUP_SECONDS).availability("a") == pytest.approx(0.99)


def test_combine_availabilities_needs_one_serving_pod() -> None:
    assert combine_availabilities([0.9, 0.98]) == pytest.approx(0.998)
    assert combine_availabilities([]) == 0.0


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.booleans(), st.integers(0, 2), st.integers(0, 3000)), max_size=20
    )
)
def test_availability_is_always_between_zero_and_one(steps: list[tuple[float, bool, int, int]]) -> None:
    found, now, restarts = PodHistory({}), 1000.0, 0
    for later, ready, more, ended in steps:
        now, restarts = now + later, restarts + more
        found = found.observe([pod(ready=ready, restarts=restarts, ended=ended)], now=now)
    assert 0.0 <= found.availability("a") <= 1.0
    if steps:
        known = found.pods["a"]
        assert known.up + known.down <= now - CREATED + 1e-6


@pytest.mark.parametrize(
    ("measured", "wanted", "value", "words"),
    [
        (0.998, 0.999, 0.998, ""),
        (1.000001, 0.999, 1.0, ""),
        (99.8, 0.999, None, "divide it by 100"),
        (0.998, 99.9, None, "write 0.999"),
    ],
)
def test_as_availability_rejects_percentage(
    measured: float, wanted: float, value: float | None, words: str
) -> None:
    """A percentage would prevent every plan without a reason."""
    found = as_availability(KpiReading(measured), wanted=wanted)
    assert found.value == value
    assert words in found.reason
