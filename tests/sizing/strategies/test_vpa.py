"""Compare strategy `vpa` with the real VPA recommender: its own Go code answered the same series."""

from typing import Any

import numpy as np
import pytest

from harness.peers.vpa import RecordedVpa, Series
from sizing.strategies.vpa_series import (
    PACES,
    REPLICAS,
    SIZES,
    USAGES,
    ask_at_the_end,
    fleets,
    memory_alone,
    two_replicas,
)
from trimtab.sizing import Targets, strategy
from trimtab.sizing.state import Floats


def test_vpa_bounds_are_wide_while_history_is_short() -> None:
    sizer = strategy("vpa", containers=1, pod_min_cpu=0, pod_min_memory=0)
    for minute in range(60):
        sizer.observe(minute * 60.0, np.array([1.0]), np.array([1e9]))
    hour = sizer.recommend(3600.0).cpu
    for minute in range(60, 3 * 1440):
        sizer.observe(minute * 60.0, np.array([1.0]), np.array([1e9]))
    days = sizer.recommend(3 * 86400.0).cpu
    assert hour.target == days.target
    assert hour.upper > 10 * days.upper
    assert hour.lower < days.lower <= days.target


def test_vpa_settings_reject_percentiles_that_do_not_ascend() -> None:
    with pytest.raises(Exception, match="must ascend"):
        strategy("vpa", containers=1, lower_percentile=0.95)


def our_answers(fleet: list[Series], times: list[int]) -> list[Floats]:
    """Compare one container after the other, as in Go, although ours observed them together."""
    sizer = strategy("vpa", containers=len(fleet), containers_per_pod=fleet[0].pod)
    answers = []
    for step, t in enumerate(times):
        events = [one.events[step] if step < len(one.events) else {} for one in fleet]
        cpu, memory, oom = (
            np.array([event.get(name, np.nan) for event in events]) for name in ("cpu", "memory", "oom")
        )
        sizer.observe(t, cpu, memory)
        sizer.observe_oom(t, np.arange(len(fleet)), oom)
        if step % 10 == 9:
            answers.append(units(sizer.recommend(t)))
    return [answer[row] for row, one in enumerate(fleet) for answer in answers[: len(one.events) // 10]]


def units(sizes: Targets) -> Floats:
    """Millicores and bytes of each container, lower, target and upper of each, as Go has them."""
    scaled = [
        [b.lower * scale, b.target * scale, b.upper * scale]
        for b, scale in ((sizes.cpu, 1e3), (sizes.memory, 1))
    ]
    return np.moveaxis(np.array(scaled), -1, 0).round()


@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("usage", USAGES)
def test_vpa_targets_match_the_vpa_recommender(usage: Any, pace: Any, recorded_vpa: RecordedVpa) -> None:
    asked: list[Series] = []
    answered: list[Floats] = []
    for times, fleet in fleets(usage, pace):
        asked += fleet
        answered += our_answers(fleet, times)
    ours = np.array(answered)
    theirs = np.array([[answer["cpu"], answer["memory"]] for answer in recorded_vpa.ask(asked, *SIZES)])
    known = np.isfinite(ours)
    assert known.mean() > 0.9
    np.testing.assert_array_equal(ours[known], theirs[known])


def test_vpa_confidence_ignores_memory_only_samples(recorded_vpa: RecordedVpa) -> None:
    """Confidence comes from CPU alone, there as here: without it the bounds are as wide as can be."""
    (answer,) = recorded_vpa.ask(ask_at_the_end(memory_alone()), *SIZES)
    sizer = strategy("vpa", containers=1)
    for event in memory_alone():
        sizer.observe(event["t"], np.array([np.nan]), np.array([event["memory"]]))
    np.testing.assert_array_equal(units(sizer.recommend(0.0))[0][1], answer["memory"])


def test_vpa_counts_samples_of_each_replica(recorded_vpa: RecordedVpa) -> None:
    (answer,) = recorded_vpa.ask(ask_at_the_end(two_replicas()), *SIZES)
    sizer = strategy("vpa", containers=1)
    for minute in range(300):
        for cpu, memory in REPLICAS:
            sizer.observe(1_700_000_000 + 60 * minute, np.array([cpu]), np.array([memory]))
    ours = units(sizer.recommend(0.0))[0]
    assert ours[:, 1].tolist() == [answer["cpu"][1], answer["memory"][1]]
    np.testing.assert_allclose(ours, [answer["cpu"], answer["memory"]], rtol=1e-3)
