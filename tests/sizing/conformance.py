"""The contract of every strategy, ours and others': each check is a function of a strategy's name.

    from sizing.conformance import CHECKS

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_strategy(check): check("my-strategy")

Usage is that of a small fleet over days, with a time of day, noise, gaps and OOMs; each check changes one thing
about it and says what must follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.sizing import Strategy, Targets, strategy
from trimtab.sizing.state import NEW_ROW, Floats, reindex

STEP = 900.0
START = 1.7e9
MIB = 2.0**20
CHECKS: list[Callable[[str], None]] = []


def check(function: Callable[[str], None]) -> Callable[[str], None]:
    CHECKS.append(function)
    return function


@dataclass(frozen=True)
class Usage:
    """The usage of a fleet: one row a step, one column a container."""

    cpu: Floats
    memory: Floats
    ooms: npt.NDArray[np.bool_]

    @property
    def containers(self) -> int:
        return int(self.cpu.shape[1])

    @property
    def steps(self) -> int:
        return int(self.cpu.shape[0])

    def scaled(self, factor: float) -> Usage:
        return replace(self, cpu=self.cpu * factor, memory=self.memory * factor)

    def of(self, containers: npt.NDArray[np.intp]) -> Usage:
        return Usage(self.cpu[:, containers], self.memory[:, containers], self.ooms[:, containers])


def side_by_side(fleets: Sequence[Usage]) -> Usage:
    """All of their containers as those of one."""
    columns = ([getattr(each, field) for each in fleets] for field in ("cpu", "memory", "ooms"))
    return Usage(*(np.hstack(column) for column in columns))


def fleet(*, days: float = 9.0, containers: int = 7, seed: int = 0) -> Usage:
    rng = np.random.default_rng(seed)
    steps = int(days * 86400 / STEP)
    hour = np.arange(steps)[:, None] * STEP / 86400 * 2 * np.pi
    shape = (steps, containers)
    wave = 1 + 0.6 * np.sin(hour + rng.uniform(0, 6, containers)) * (np.arange(containers) % 2)
    cpu = rng.lognormal(-1.5, 1.0, containers) * wave * rng.uniform(0.7, 1.4, shape)
    memory = rng.lognormal(20.5, 0.7, containers) * rng.uniform(0.8, 1.1, shape)
    gaps = rng.random(shape) < 0.05
    cpu[gaps] = np.nan
    memory[gaps | (rng.random(shape) < 0.02)] = np.nan
    return Usage(cpu, memory, rng.random(shape) < 0.001)


def play(sizer: Strategy[Any], usage: Usage, *, start: int = 0, stop: int | None = None) -> Iterator[float]:
    """Show usage to a strategy; after each step, the time."""
    for step in range(start, usage.steps if stop is None else stop):
        t = START + step * STEP
        sizer.observe(t, usage.cpu[step].copy(), usage.memory[step].copy())
        killed = np.flatnonzero(usage.ooms[step] & np.isfinite(usage.memory[step]))
        if killed.size:
            sizer.observe_oom(t + 1.0, killed, usage.memory[step][killed])
        yield t


def train(name: str, usage: Usage) -> Strategy[Any]:
    sizer = strategy(name, containers=usage.containers)
    for _ in play(sizer, usage):
        pass
    return sizer


def sizes_after(name: str, usage: Usage) -> Targets:
    return train(name, usage).recommend(end_of(usage))


@cache
def build_state(name: str, *, days: float = 9.0) -> bytes:
    """Return the state of a strategy that has observed the fleet."""
    return train(name, fleet(days=days)).state()


def train_once(name: str, *, days: float = 9.0) -> Strategy[Any]:
    """Return a strategy that has observed the fleet. It learns once for all checks, since a restart changes nothing."""
    sizer = strategy(name, containers=fleet(days=days).containers)
    sizer.restore(build_state(name, days=days))
    return sizer


def end_of(usage: Usage) -> float:
    return START + usage.steps * STEP


def numbers(sizes: Targets) -> Floats:
    """All six answers of each container, a row each."""
    return np.array([values for b in (sizes.cpu, sizes.memory) for values in (b.lower, b.target, b.upper)])


def same(one: Targets, other: Targets) -> bool:
    return numbers(one).tobytes() == numbers(other).tobytes()


@check
def knows_nothing_at_first(name: str) -> None:
    sizer = strategy(name, containers=3)
    assert np.isnan(numbers(sizer.recommend(START))).all()


@check
def answers_in_order_once_it_has_seen_enough(name: str) -> None:
    usage = fleet()
    sizes = train_once(name).recommend(end_of(usage))
    for bounds in (sizes.cpu, sizes.memory):
        for values in (bounds.target, bounds.lower, bounds.upper):
            assert values.shape == (usage.containers,)
            assert values.dtype == np.float64
        assert np.isfinite(bounds.target).all()
        assert (bounds.target > 0).all()
        assert (bounds.lower <= bounds.target).all()
        assert (bounds.target <= bounds.upper).all()


@check
def asks_for_what_containers_use(name: str) -> None:
    """No more exact than it need be: not under what is used now, nor over twice the most ever, or a floor."""
    usage = fleet()
    sizes = train_once(name).recommend(end_of(usage))
    for target, used, floor in (
        (sizes.cpu.target, usage.cpu, 0.05),
        (sizes.memory.target, usage.memory, 300 * MIB),
    ):
        assert (target >= np.nanmedian(used[-8:], axis=0) * 0.9).all()
        assert (target <= np.maximum(np.nanmax(used, axis=0) * 2, floor)).all()


@check
def answers_the_same_every_time(name: str) -> None:
    usage = fleet(days=4.0)
    one, other = train(name, usage), train(name, usage)
    end = end_of(usage)
    assert same(one.recommend(end), other.recommend(end))
    assert one.state() == other.state()


@check
def changes_nothing_by_being_asked(name: str) -> None:
    usage = fleet(days=4.0)
    asked = strategy(name, containers=usage.containers)
    for t in play(asked, usage):
        asked.recommend(t)
        asked.recommend(t + 1e6)
    assert asked.state() == build_state(name, days=4.0)


@check
def leaves_its_input_alone(name: str) -> None:
    sizer = strategy(name, containers=2)
    cpu, memory = np.array([np.nan, 0.3]), np.array([1e8, -1.0])
    cpu.flags.writeable = memory.flags.writeable = False
    sizer.observe(START, cpu, memory)
    sizer.observe_oom(START, np.array([0]), memory[:1])


@check
def does_not_mind_that_there_is_no_sample(name: str) -> None:
    """A container that never had one stays unknown; the others answer as if it were not there."""
    usage = fleet()
    silent = replace(usage, cpu=usage.cpu.copy(), memory=usage.memory.copy())
    silent.cpu[:, 2] = silent.memory[:, 2] = np.nan
    answers = numbers(sizes_after(name, silent))
    assert np.isnan(answers[:, 2]).all()
    assert np.isfinite(np.delete(answers, 2, axis=1)).all()


@check
def learns_nothing_from_what_cannot_be(name: str) -> None:
    usage = fleet(days=5.0)
    dirty = replace(usage, cpu=usage.cpu.copy(), memory=usage.memory.copy())
    for step, absurd in enumerate([np.inf, -np.inf, -1.0, -1e-300, 1e18, 1e300, np.nan]):
        dirty.cpu[50 * step :: 400] = dirty.memory[50 * step :: 400] = absurd
        usage.cpu[50 * step :: 400] = usage.memory[50 * step :: 400] = np.nan
    ooms = np.zeros_like(usage.ooms)
    assert same(sizes_after(name, replace(dirty, ooms=ooms)), sizes_after(name, replace(usage, ooms=ooms)))


@check
def learns_nothing_from_an_oom_that_cannot_be(name: str) -> None:
    usage = fleet(days=4.0)
    sizer = train_once(name, days=4.0)
    end = end_of(usage)
    before = sizer.recommend(end)
    absurd = np.array([np.nan, np.inf, -np.inf, -1.0, 1e300])
    sizer.observe_oom(end, np.arange(absurd.size), absurd)
    assert same(before, sizer.recommend(end))


@check
def never_asks_for_less_memory_after_an_oom(name: str) -> None:
    usage = fleet()
    sizer = train_once(name)
    end = end_of(usage)
    before = sizer.recommend(end).memory.target
    sizer.observe_oom(end, np.arange(usage.containers), before)
    assert (sizer.recommend(end).memory.target >= before).all()


@check
def learns_the_worse_of_two_ooms_of_one_container(name: str) -> None:
    """Two replicas were killed, of which one had been given more by then; or what one is said to have had cannot be."""
    one, two = train_once(name), train_once(name)
    end = end_of(fleet())
    had = float(one.recommend(end).memory.target[0])
    one.observe_oom(end, np.array([0]), np.array([4 * had]))
    two.observe_oom(end, np.array([0, 0, 0]), np.array([4 * had, had / 2, 1e300]))
    assert two.recommend(end).memory.target[0] >= one.recommend(end).memory.target[0]


@check
def asks_for_no_less_where_more_is_used(name: str) -> None:
    usage = replace(fleet(days=5.0), ooms=np.zeros((480, 7), bool))
    factors = (0.01, 0.3, 1.0, 1.01, 1.3, 2.0, 7.0, 40.0)
    scaled = [usage.scaled(factor) for factor in factors]
    sizes = sizes_after(name, side_by_side(scaled))
    for target in (sizes.cpu.target, sizes.memory.target):
        rising = target.reshape(len(factors), usage.containers)
        assert (rising > 0).all()
        assert (np.diff(rising, axis=0) >= 0).all(), f"less where more is used, of {factors} times as much"


def held(sizer: Strategy[Any]) -> int:
    """The bytes of all that it knows."""
    return sum(array.nbytes for array in sizer.arrays().values())


@check
def has_a_bound_to_its_memory(name: str) -> None:
    usage = fleet(days=30.0, containers=3)
    sizer = strategy(name, containers=usage.containers)
    sizes = [held(sizer) for step, _ in enumerate(play(sizer, usage)) if step % 96 == 95]
    assert len(set(sizes[-8:])) == 1, f"still growing after three weeks: {sizes[-8:]}"


@check
def goes_on_after_a_restart_as_if_there_was_none(name: str) -> None:
    usage = fleet()
    moments = np.random.default_rng(len(name)).integers(1, usage.steps, 3)
    steady = strategy(name, containers=usage.containers)
    restarted = strategy(name, containers=usage.containers)
    others = zip(play(steady, usage), play_again(restarted, usage, set(moments.tolist())), strict=True)
    for step, (t, again) in enumerate(others):
        if step % 48 == 0 or step > usage.steps - 8:
            assert same(steady.recommend(t), again.recommend(t))
    assert steady.state() == again.state()


def play_again(sizer: Strategy[Any], usage: Usage, restarts: set[int]) -> Iterator[Strategy[Any]]:
    """Show usage, each time at a restart to a new strategy that knows of the one before only its state."""
    for step in range(usage.steps):
        if step in restarts:
            kept = sizer.state()
            sizer = strategy(sizer.name, containers=usage.containers)
            sizer.restore(kept)
        for _ in play(sizer, usage, start=step, stop=step + 1):
            yield sizer


@check
def refuses_a_state_that_is_not_its_own(name: str) -> None:
    sizer = train(name, fleet(days=1.0))
    state = sizer.state()
    before = sizer.recommend(START + 86400.0)
    for wrong in (b"", state[:-1], state[:-20] + bytes(20), b"\x80\x04N."):
        expect_rejection(sizer, wrong)
    expect_rejection(strategy(name, containers=3), state)
    assert same(before, sizer.recommend(START + 86400.0))
    assert state == sizer.state()


def expect_rejection(sizer: Strategy[Any], state: bytes) -> None:
    try:
        sizer.restore(state)
    except ValueError as why:
        assert "state: " in str(why)  # noqa: PT017 - a suite for any strategy, with or without pytest
    else:
        raise AssertionError(f"took {state[:20]!r} for a state")


@check
def does_not_care_in_which_order_containers_come(name: str) -> None:
    usage = fleet()
    order = np.random.default_rng(1).permutation(usage.containers)
    straight = numbers(train_once(name).recommend(end_of(usage)))
    shuffled = numbers(sizes_after(name, usage.of(order)))
    np.testing.assert_allclose(shuffled, straight[:, order], rtol=1e-9)


@check
def goes_on_when_containers_come_and_go(name: str) -> None:
    """Those that stay answer as they did, a new one knows nothing, and nothing is left of those that went."""
    usage = fleet()
    before = train_once(name)
    end = end_of(usage)
    rows = np.array([4, NEW_ROW, 0, 6, NEW_ROW, 2])
    after = reindex(before, rows)
    answers = numbers(after.recommend(end))
    np.testing.assert_array_equal(
        answers[:, rows != NEW_ROW], numbers(before.recommend(end))[:, rows[rows != NEW_ROW]]
    )
    assert np.isnan(answers[:, rows == NEW_ROW]).all()
    again = reindex(reindex(before, rows[:1]), np.array([NEW_ROW, 0, *[NEW_ROW] * 5]))
    assert held(again) <= held(before)


@check
def works_with_no_container_and_with_one(name: str) -> None:
    none = sizes_after(name, fleet(days=0.5, containers=0))
    assert numbers(none).shape == (6, 0)
    assert np.isfinite(numbers(sizes_after(name, fleet(containers=1)))).all()
