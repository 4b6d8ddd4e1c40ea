"""A schedule beside the simplest thing that does the same: a dictionary, searched."""

from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.kube.runtime.delay_heap import DelayHeap

KEYS = st.integers(0, 5)
TIMES = st.integers(0, 20).map(float)
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, TIMES),
    st.tuples(st.just("drop"), KEYS, TIMES),
    st.tuples(st.just("pop"), KEYS, TIMES),
)


@settings(max_examples=100)
@given(st.lists(STEPS, max_size=60))
def test_delay_heap_matches_a_searched_dictionary(steps: list[tuple[str, int, float]]) -> None:
    schedule: DelayHeap[int] = DelayHeap()
    model: dict[int, float] = {}
    for step, key, time in steps:
        match step:
            case "put":
                schedule.put(key, time)
                model[key] = min(time, model.get(key, time))
            case "drop":
                schedule.drop(key)
                model.pop(key, None)
            case _:
                due = schedule.pop_due(time)
                assert sorted(due) == sorted(key for key in model if model[key] <= time)
                assert [model[key] for key in due] == sorted(model[key] for key in due)
                model = {key: when for key, when in model.items() if when > time}
        assert len(schedule) == len(model)
        assert schedule.next_time == min(model.values(), default=None)
        assert all((key in schedule) == (key in model) for key in range(6))


def test_delay_heap_returns_keys_of_one_time_in_insertion_order() -> None:
    schedule: DelayHeap[str] = DelayHeap()
    for key in ("c", "a", "b"):
        schedule.put(key, 1.0)
    assert schedule.pop_due(1.0) == ["c", "a", "b"]


def test_delay_heap_removes_replaced_and_dropped_times() -> None:
    schedule: DelayHeap[int] = DelayHeap()
    for round_ in range(200_000):
        schedule.put(round_ % 10, 1e9 - round_)
        schedule.put(1000 + round_, 1e9)
        schedule.drop(1000 + round_)
        assert len(schedule._heap) <= 2 * len(schedule) + 64
    assert len(schedule) == 10
