"""Series of usage about which the real VPA recommender was asked, and its recorded answers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness.peers.vpa import Series

RECORDING = Path(__file__).with_name("recordings") / "vpa_recommender.json.xz"
CHECKPOINT_START, CHECKPOINT_DAYS = 1_700_000_000, 5

Random = np.random.Generator
EDGES_CPU = [0.01, 0.02, 0.0205, 0.021, 0.031525, 0.1]
EDGES_MEMORY = [1e7, 1e7 - 1, 2.05e7, 2.05e7 - 1, 31_525_000, 43_101_250, 43_101_249]


def lifelike(rng: Random, _: int) -> tuple[float, float]:
    return rng.lognormal(-2, 1), rng.lognormal(19.5, 0.3)


def anything(rng: Random, _: int) -> tuple[float, float]:
    return 10 ** rng.uniform(-4, 3.5), 10 ** rng.uniform(5, 13)


def on_edges(rng: Random, _: int) -> tuple[float, float]:
    """Samples for which the last bit decides between two buckets."""
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
    """The times at which all containers of a fleet are sampled at once."""
    gaps = [int(rng.integers(0, 86400)), *(pace(rng) for _ in range(250))]
    return [1_700_000_000 + int(passed) for passed in np.cumsum(gaps)[1:]]


def series(rng: Random, usage: Any, times: list[int], *, pod: int) -> Series:
    """One container's life, with gaps and OOMs, asked about at every tenth event."""
    made = Series(pod=pod)
    for step in range(int(rng.integers(10, 250))):
        t = times[step]
        cpu, memory = map(_rounded, usage(rng, step))
        event: dict[str, Any] = {"t": t, "cpu": cpu, "memory": memory}
        if rng.random() < 0.02:
            event = {"t": t, "oom": _rounded(memory * rng.uniform(0.5, 1.5))}
        elif rng.random() < 0.1:
            del event["memory" if rng.random() < 0.5 else "cpu"]
        made.events.append({**event, "ask": step % 10 == 9})
    return made


def _rounded(value: float) -> float:
    """Round to eight digits, so that the series are the same with every C library."""
    return float(f"{value:.8g}")


USAGES = (lifelike, anything, on_edges, nothing, ties, leak)
PACES = (every_minute, every_day, now_and_then, rarely)


def fleets(usage: Any, pace: Any) -> list[tuple[list[int], list[Series]]]:
    """Return the times and series of three fleets, of pods with one, two and three containers."""
    rng = np.random.default_rng([len(usage.__name__), len(pace.__name__)])
    found = []
    for pod in (1, 2, 3):
        times = moments(rng, pace)
        found.append((times, [series(rng, usage, times, pod=pod) for _ in range(9)]))
    return found


def ask_at_the_end(events: list[dict[str, Any]]) -> list[Series]:
    return [Series(pod=1, events=[*events[:-1], {**events[-1], "ask": True}])]


def memory_alone() -> list[dict[str, Any]]:
    return [{"t": 1_700_000_000 + 600 * step, "memory": 3e8 + 1e6 * step} for step in range(300)]


REPLICAS = ((0.1, 1e8), (2.0, 2e9))


def two_replicas() -> list[dict[str, Any]]:
    """There each has a state of its own, and all add to one histogram; a second later for one state is the same."""
    return [
        {"t": 1_700_000_000 + 60 * minute + nth, "cpu": cpu, "memory": memory}
        for minute in range(300)
        for nth, (cpu, memory) in enumerate(REPLICAS)
    ]


def days_of_usage(seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "t": CHECKPOINT_START + step * 600,
            "cpu": _rounded(rng.lognormal(-1, 0.7)),
            "memory": _rounded(rng.lognormal(20, 0.4)),
        }
        for step in range(CHECKPOINT_DAYS * 144)
    ]


def after_restart(seed: int, checkpoint: dict[str, Any]) -> tuple[list[dict[str, Any]], list[Series]]:
    """Return later usage, and the question to a recommender that starts with a checkpoint."""
    more = [{**event, "t": event["t"] + CHECKPOINT_DAYS * 86400} for event in days_of_usage(seed + 50)]
    load = {"t": CHECKPOINT_START, "load": checkpoint}
    (asked,) = ask_at_the_end(more)
    return more, [Series(pod=1, events=[load, *asked.events])]


SEEDS = range(5)
SIZES = ("cpu", "memory")
Ask = Callable[..., list[dict[str, Any]]]


def answers(ask: Ask) -> Iterator[list[dict[str, Any]]]:
    """Ask every recorded question and yield each answer."""
    for usage in USAGES:
        for pace in PACES:
            yield ask([one for _, fleet in fleets(usage, pace) for one in fleet], *SIZES)
    yield ask(ask_at_the_end(memory_alone()), *SIZES)
    yield ask(ask_at_the_end(two_replicas()), *SIZES)
    for seed in SEEDS:
        first = ask(ask_at_the_end(days_of_usage(seed)), "checkpoint")
        yield first
        yield ask(after_restart(seed, first[0]["checkpoint"])[1], *SIZES)
