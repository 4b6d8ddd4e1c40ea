"""Compare strategy `vpa` with the real VPA recommender: its own Go code answers the same series."""

from typing import Any

import numpy as np
import pytest

from harness.peers.vpa import GoVpa, Series
from trimtab.sizing import Targets, strategy
from trimtab.sizing.state import Floats

Random = np.random.Generator
EDGES_CPU = [0.01, 0.02, 0.0205, 0.021, 0.031525, 0.1]
EDGES_MEMORY = [1e7, 1e7 - 1, 2.05e7, 2.05e7 - 1, 31_525_000, 43_101_250, 43_101_249]


def lifelike(rng: Random, _: int) -> tuple[float, float]:
    return rng.lognormal(-2, 1), rng.lognormal(19.5, 0.3)


def anything(rng: Random, _: int) -> tuple[float, float]:
    return 10 ** rng.uniform(-4, 3.5), 10 ** rng.uniform(5, 13)


def on_edges(rng: Random, _: int) -> tuple[float, float]:
    """Where the last bit decides between two buckets."""
    return rng.choice(EDGES_CPU), rng.choice(EDGES_MEMORY)


def nothing(rng: Random, _: int) -> tuple[float, float]:
    return 0.0, rng.choice([0.0, 1.0, 1e9])


def ties(rng: Random, step: int) -> tuple[float, float]:
    """Nine of ten alike: the 90th percentile lies on the edge between two samples."""
    return (0.5 if step % 10 else 5.0), (1e9 if step % 10 else 5e9)


def leak(_: Random, step: int) -> tuple[float, float]:
    """Every sample is a new peak, that takes the place of the one before."""
    return step * 0.001, 1e7 + step * 1e6


def every_minute(_: Random) -> int:
    return 60


def every_day(_: Random) -> int:
    return 86400


def now_and_then(rng: Random) -> int:
    return int(rng.integers(0, 20_000))


def rarely(rng: Random) -> int:
    """So that references move: a hundred half-lives pass in a few samples."""
    return int(rng.integers(0, 50 * 86400))


def moments(rng: Random, pace: Any) -> list[int]:
    """When a fleet is looked at: all of it at once."""
    gaps = [int(rng.integers(0, 86400)), *(pace(rng) for _ in range(250))]
    return [1_700_000_000 + int(passed) for passed in np.cumsum(gaps)[1:]]


def series(rng: Random, usage: Any, times: list[int], *, pod: int) -> Series:
    """One container's life, with gaps and OOMs, asked about at every tenth event."""
    made = Series(pod=pod)
    for step in range(int(rng.integers(10, 250))):
        t = times[step]
        cpu, memory = map(float, usage(rng, step))
        event: dict[str, Any] = {"t": t, "cpu": cpu, "memory": memory}
        if rng.random() < 0.02:
            event = {"t": t, "oom": memory * rng.uniform(0.5, 1.5)}
        elif rng.random() < 0.1:
            del event["memory" if rng.random() < 0.5 else "cpu"]
        made.events.append({**event, "ask": step % 10 == 9})
    return made


def our_answers(fleet: list[Series], times: list[int]) -> list[Floats]:
    """Of one container after the other, as Go is asked, though ours lived through it side by side."""
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


@pytest.mark.parametrize("pace", [every_minute, every_day, now_and_then, rarely])
@pytest.mark.parametrize("usage", [lifelike, anything, on_edges, nothing, ties, leak])
def test_vpa_targets_match_the_vpa_recommender(usage: Any, pace: Any, go_vpa: GoVpa) -> None:
    rng = np.random.default_rng([len(usage.__name__), len(pace.__name__)])
    asked: list[Series] = []
    answered: list[Floats] = []
    for pod in (1, 2, 3):
        times = moments(rng, pace)
        fleet = [series(rng, usage, times, pod=pod) for _ in range(9)]
        asked += fleet
        answered += our_answers(fleet, times)
    ours = np.array(answered)
    theirs = np.array([[answer["cpu"], answer["memory"]] for answer in go_vpa.ask(asked)])
    known = np.isfinite(ours)
    assert known.mean() > 0.9
    np.testing.assert_array_equal(ours[known], theirs[known])


def test_vpa_confidence_ignores_memory_only_samples(go_vpa: GoVpa) -> None:
    """Confidence comes from CPU alone, there as here: without it the bounds are as wide as can be."""
    events = [{"t": 1_700_000_000 + 600 * step, "memory": 3e8 + 1e6 * step} for step in range(300)]
    (answer,) = go_vpa.ask([Series(pod=1, events=[*events[:-1], {**events[-1], "ask": True}])])
    sizer = strategy("vpa", containers=1)
    for event in events:
        sizer.observe(event["t"], np.array([np.nan]), np.array([event["memory"]]))
    np.testing.assert_array_equal(units(sizer.recommend(0.0))[0][1], answer["memory"])


def test_vpa_counts_samples_of_each_replica(go_vpa: GoVpa) -> None:
    """There each has a state of its own, and all add to one histogram; a second later for one state is the same."""
    start, replicas = 1_700_000_000, ((0.1, 1e8), (2.0, 2e9))
    events: list[dict[str, Any]] = [
        {"t": start + 60 * minute + nth, "cpu": cpu, "memory": memory}
        for minute in range(300)
        for nth, (cpu, memory) in enumerate(replicas)
    ]
    (answer,) = go_vpa.ask([Series(pod=1, events=[*events[:-1], {**events[-1], "ask": True}])])
    sizer = strategy("vpa", containers=1)
    for minute in range(300):
        for cpu, memory in replicas:
            sizer.observe(start + 60 * minute, np.array([cpu]), np.array([memory]))
    ours = units(sizer.recommend(0.0))[0]
    assert ours[:, 1].tolist() == [answer["cpu"][1], answer["memory"][1]]
    np.testing.assert_allclose(ours, [answer["cpu"], answer["memory"]], rtol=1e-3)
