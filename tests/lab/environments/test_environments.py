"""The environments are what Gymnasium says an environment is, and their rewards are what the weights say."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.errors import TrimtabError
from trimtab.lab.environments import (
    SINGLE,
    VECTOR,
    EnvironmentConfig,
    GeneratedDemand,
    MixedDemand,
    RecordedDemand,
    RequestRules,
    Weights,
)
from trimtab.lab.environments.sizing import SizingEnv
from trimtab.lab.environments.vector import SizingVector
from trimtab.usage.trace import Trace

GIB = 2.0**30


def steady(cpu: float = 1.0, memory: float = GIB, hours: int = 12) -> RecordedDemand:
    """A container that uses the same all the time."""
    shape = (hours * 12, 1)
    return RecordedDemand(
        Trace(names=("even",), start=0.0, step=300.0, cpu=np.full(shape, cpu), memory=np.full(shape, memory))
    )


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.filterwarnings("ignore:.*symmetric and normalized:UserWarning")  # ours speaks in cores and bytes
def test_gymnasium_finds_nothing_wrong(name: str) -> None:
    check_env(gymnasium.make(name, hours=6, warm_up=3).unwrapped, skip_render_check=True)


def test_environment_of_many_containers_is_a_vector_environment() -> None:
    env: Any = gymnasium.make_vec(VECTOR, num_envs=5, hours=3, warm_up=2)
    seen, info = env.reset(seed=3)
    assert seen in env.observation_space
    assert info["kind"].shape == (5,)
    env.action_space.seed(0)
    ended = []
    for _ in range(5):
        seen, rewards, terminated, truncated, info = env.step(env.action_space.sample())
        assert seen in env.observation_space
        assert rewards.shape == terminated.shape == truncated.shape == (5,)
        ended.append(bool(truncated.all()))
        assert truncated.all() == truncated.any()
    assert ended == [False, False, True, False, False]  # the step after the last starts a new episode
    env.close()


def run_episode(make: Callable[[], Any], seed: int) -> tuple[Any, list[float]]:
    env = make()
    seen, _ = env.reset(seed=seed)
    env.action_space.seed(1)
    rewards = []
    for _ in range(4):
        seen, reward, *_ = env.step(env.action_space.sample())
        rewards.append(np.asarray(reward).tolist())
    return seen, rewards


@pytest.mark.parametrize("name", [*SINGLE, VECTOR])
def test_environment_repeats_with_the_same_seed(name: str) -> None:
    def make() -> Any:
        if name == VECTOR:
            return gymnasium.make_vec(name, num_envs=3, hours=6, warm_up=2)
        return gymnasium.make(name, hours=6, warm_up=2)

    one, two, other = (run_episode(make, seed) for seed in (7, 7, 8))
    assert np.array_equal(one[0], two[0])
    assert one[1] == two[1]
    assert other[1] != one[1]


def seed_environment(**course: Any) -> SizingEnv:
    env = SizingEnv(demand=steady(), hours=4, warm_up=2, window=2, **course)
    env.reset(seed=0)
    return env


def recommendation(cpu: tuple[float, float, float], memory: tuple[float, float, float]) -> Any:
    return np.array([*cpu, cpu[1], *memory, memory[1]])


def test_environment_replaces_a_request_only_outside_its_bounds() -> None:
    env = seed_environment()
    seen, *_, info = env.step(recommendation((0.5, 3.0, 2.0), (2 * GIB, 3 * GIB, 4 * GIB)))
    assert seen[2] == 1.0
    assert seen[3] == 3 * GIB
    assert info["change"] == 1.0
    assert info["memory_slack"] == pytest.approx(2 / 3)


def test_environment_of_the_seed_compares_usage_with_bounds() -> None:
    env = seed_environment(compare="usage")
    seen, *_ = env.step(recommendation((1.5, 2.0, 3.0), (0.0, GIB, 4 * GIB)))
    assert seen[2] == 2.0
    assert seen[3] == pytest.approx(1.1 * GIB)


def test_environment_costs_match_their_definitions() -> None:
    env = seed_environment(
        weights=Weights(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), rules=RequestRules(cpu_limit=1.0)
    )
    _, reward, *_, info = env.step(recommendation((3.0, 4.0, 5.0), (0.0, GIB, 2 * GIB)))
    assert info["cpu_slack"] == pytest.approx(0.75)
    assert reward == pytest.approx(-0.75)
    _, _, *_, info = env.step(recommendation((0.1, 0.5, 0.6), (0.0, GIB, 2 * GIB)))
    assert info["under"] == info["throttled"] == 1.0
    assert info["unserved"] == pytest.approx(0.5)


def test_too_little_memory_kills_and_the_killed_one_comes_back_with_more() -> None:
    env = seed_environment(rules=RequestRules(oom_bump=2.0))
    seen, *_, info = env.step(recommendation((0.0, 1.0, 9.0), (0.0, GIB / 3, GIB / 2)))
    assert info["oom"] == 2.0
    assert seen[3] == pytest.approx(GIB * 4 / 3)


def test_environment_kills_no_new_container_for_what_nobody_could_know() -> None:
    trace = steady(hours=12).trace
    trace.cpu[: 6 * 12] = trace.memory[: 6 * 12] = np.nan
    env = SizingVector(1, demand=RecordedDemand(trace), hours=8, warm_up=4)
    env.reset(seed=0)
    hours = [env.step(np.ones((1, 2), np.float32)) for _ in range(8)]
    assert np.nansum([float(info["oom"][0]) for *_, info in hours]) == 0.0
    assert [bool(info["measured"][0]) for *_, info in hours] == [False] * 2 + [True] * 6
    assert min(float(rewards[0]) for _, rewards, *_ in hours[3:]) > -1.0


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    share=st.sampled_from([0.02, 0.2, 0.7]),
    length=st.integers(1, 30),
    hours=st.integers(1, 40),
    containers=st.integers(1, 4),
)
def test_recorded_demand_is_drawn_only_where_there_are_samples(
    seed: int, share: float, length: int, hours: int, containers: int
) -> None:
    """Whole stretches without any, as where containers come and go or several recordings lie in one file."""
    chance = np.random.default_rng(seed)
    hourly = chance.random((length, 3)) < share
    cpu = np.where(np.repeat(hourly, 12, axis=0), 1.0, np.nan)
    memory = np.where(chance.random(3) < 0.5, cpu * GIB, np.nan)
    demand = RecordedDemand(Trace(names=("a", "b", "c"), start=0.0, step=300.0, cpu=cpu, memory=memory))
    if not hourly.any():
        with pytest.raises(TrimtabError, match="no samples"):
            demand.sample(chance, containers=containers, hours=hours)
        return
    most = max(
        int(np.take(hourly[:, column], range(first, first + hours), mode="wrap").sum())
        for column in range(3)
        for first in range(max(1, length - hours + 1))
    )
    drawn = demand.sample(chance, containers=containers, hours=hours)
    seen = ~np.isnan(drawn.cpu.reshape(hours, 12, containers)).all(axis=1)
    assert (seen.sum(axis=0) >= most / 2).all()
    assert (seen.sum(axis=0) > 0).all()


def test_environment_gives_no_reward_or_costs_for_an_hour_without_samples() -> None:
    trace = steady(hours=12).trace
    trace.cpu[6 * 12 : 8 * 12] = trace.memory[6 * 12 : 8 * 12] = np.nan
    env = SizingVector(2, demand=RecordedDemand(trace), hours=8, warm_up=4)
    env.reset(seed=0)
    for hour in range(8):
        _, rewards, *_, info = env.step(np.full((2, 2), hour % 2, np.float32))
        is_empty = hour in (2, 3)
        assert info["measured"].tolist() == [not is_empty] * 2
        assert all(np.isnan(info[name]).all() == is_empty for name in Weights._fields)
        assert (rewards == 0.0).all() == is_empty


def test_environment_judges_only_cpu_of_a_recording_without_memory() -> None:
    trace = steady(hours=12).trace
    trace.memory[:] = np.nan
    env = SizingVector(1, demand=RecordedDemand(trace), hours=4, warm_up=4)
    env.reset(seed=0)
    _, rewards, *_, info = env.step(np.full((1, 2), 0.9, np.float32))
    assert np.isnan(info["memory_slack"][0])
    assert np.isnan(info["oom"][0])
    paid = sum(
        weight * info[name][0] for name, weight in Weights()._asdict().items() if np.isfinite(info[name][0])
    )
    assert rewards[0] == pytest.approx(-paid)


@pytest.mark.parametrize("name", SINGLE)
def test_stepping_past_the_end_of_an_episode_or_before_one_is_refused(name: str) -> None:
    env = gymnasium.make(name, hours=2, warm_up=2).unwrapped
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(env.action_space.sample())
    for _ in range(2):
        env.reset(seed=1)
        ended = [env.step(env.action_space.sample())[3] for _ in range(2)]
        assert ended == [False, True]
        for _ in range(3):
            with pytest.raises(ResetNeeded, match="the episode is over"):
                env.step(env.action_space.sample())


def test_environment_repeats_a_recording_that_is_too_short() -> None:
    demand = RecordedDemand(steady(hours=2).trace).sample(np.random.default_rng(0), containers=3, hours=5)
    assert demand.cpu.shape == (60, 3)


def test_demand_is_of_all_the_families_asked_for() -> None:
    chance = np.random.default_rng(0)
    drawn = GeneratedDemand(types=("step", "batch")).sample(chance, containers=6, hours=2)
    assert sorted(drawn.names) == ["batch"] * 3 + ["step"] * 3
    mixed = MixedDemand([steady(), GeneratedDemand(types=("step",))], weights=[0.0, 1.0])
    assert mixed.sample(chance, containers=1, hours=2).names == ("step",)


def test_environment_episode_has_at_least_an_hour() -> None:
    with pytest.raises(TrimtabError, match="at least 1"):
        EnvironmentConfig(hours=0)


@settings(max_examples=100)
@given(
    cpu=st.floats(0.01, 8.0),
    memory=st.floats(2e6, 8e9),
    places=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=3),
)
def test_environment_reward_is_never_positive_and_requests_stay_plausible(
    cpu: float, memory: float, places: list[tuple[float, float]]
) -> None:
    env = SizingVector(1, demand=steady(cpu, memory, hours=6), hours=3, warm_up=3)
    env.reset(seed=0)
    for place in places:
        _, rewards, *_ = env.step(np.array([place], np.float32))
        assert rewards[0] <= 0.0
    requested = [float(request[0]) for request in env._episode.sim.requests]
    assert 0.5 * cpu <= requested[0] <= 1.5 * cpu
    assert 0.9 * memory <= requested[1] <= 2.0 * memory
