"""`vpa` says what the real recommender says: its own Go code answers the same series beside ours."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from harness.vpa import GoVpa, Series
from trimtab.sizing import Sizes, strategy

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


def series(rng: Random, usage: Any, pace: Any) -> Series:
    """One container's life, with gaps and OOMs, asked about at every tenth event."""
    made, t = Series(pod=int(rng.integers(1, 4))), 1_700_000_000 + int(rng.integers(0, 86400))
    for step in range(int(rng.integers(10, 250))):
        t += pace(rng)
        cpu, memory = map(float, usage(rng, step))
        event: dict[str, Any] = {"t": t, "cpu": cpu, "memory": memory}
        if rng.random() < 0.02:
            event = {"t": t, "oom": memory * rng.uniform(0.5, 1.5)}
        elif rng.random() < 0.1:
            del event["memory" if rng.random() < 0.5 else "cpu"]
        made.events.append({**event, "ask": step % 10 == 9})
    return made


def our_answers(one: Series) -> Iterator[Sizes]:
    sizer = strategy("vpa", containers=1, containers_per_pod=one.pod)
    for event in one.events:
        cpu, memory, oom = (np.array([event.get(name, np.nan)]) for name in ("cpu", "memory", "oom"))
        sizer.observe(event["t"], cpu, memory)
        sizer.observe_oom(event["t"], np.array([0]), oom)
        if event["ask"]:
            yield sizer.recommend(event["t"])


def units(sizes: Sizes) -> npt.NDArray[np.float64]:
    """Millicores and bytes, lower, target and upper of each, as Go has them."""
    cpu, memory = sizes.cpu, sizes.memory
    return np.array(
        [
            [b.lower[0] * scale, b.target[0] * scale, b.upper[0] * scale]
            for b, scale in ((cpu, 1e3), (memory, 1))
        ]
    ).round()


@pytest.mark.parametrize("pace", [every_minute, every_day, now_and_then, rarely])
@pytest.mark.parametrize("usage", [lifelike, anything, on_edges, nothing, ties, leak])
def test_every_number_is_the_recommenders(usage: Any, pace: Any, go_vpa: GoVpa) -> None:
    rng = np.random.default_rng([len(usage.__name__), len(pace.__name__)])
    asked = [series(rng, usage, pace) for _ in range(25)]
    ours = np.array([units(sizes) for one in asked for sizes in our_answers(one)])
    theirs = np.array([[answer["cpu"], answer["memory"]] for answer in go_vpa.ask(asked)])
    known = np.isfinite(ours)
    assert known.mean() > 0.9
    np.testing.assert_array_equal(ours[known], theirs[known])


def test_bounds_open_wide_while_history_is_short() -> None:
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


def test_percentiles_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(Exception, match="must ascend"):
        strategy("vpa", containers=1, lower_percentile=0.95)
