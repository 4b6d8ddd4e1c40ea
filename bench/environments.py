"""Steps a second of the environments, beside the same environment in plain Python and beside vasim.

    make bench BENCH=environments
    .venv/bin/python bench/environments.py --vasim /path/of/a/venv/bin/python    # one with `pip install vasim` in it

A step is an hour of one container at a sample each five minutes: its CPU and memory pass, it is sized, rewarded and
looked at. The plain one is written as such environments usually are, a container an object and a sample a turn of a
loop, with the observation and the rule of `trimtab/Sizing-v0`; its rewards are held to be the same before anything is
timed. It sees far less than agents do; what their view costs in plain Python is shown by our own code, interpreted. vasim (Microsoft's simulator of vertical scaling) has CPU alone and no environment: timed is its own step, which
reads a window of the recording and runs its additive recommender, once an hour. All on one core.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from rich.console import Console
from rich.table import Table

from trimtab.lab.environments import VECTOR, EnvironmentConfig, GeneratedDemand, Weights
from trimtab.lab.environments.sizing import SizingEnv
from trimtab.usage.trace import Trace

HOURS, WARM_UP, WINDOW = 168, 24, 24
DEMAND = GeneratedDemand(types=("diurnal_web",))
DAY, WEEK = 86400.0, 7 * 86400.0
MINIMUM_CHANGE, BUMP = 0.1, 1.25
console = Console(width=120)

VASIM = """
import contextlib, io, logging, os, tempfile, time
logging.disable()
import pandas as pd, numpy as np
with contextlib.redirect_stdout(io.StringIO()):
    from vasim.recommender.cluster_state_provider.ClusterStateConfig import ClusterStateConfig
    from vasim.simulator.InMemorySimulator import InMemoryRunnerSimulator
    folder = tempfile.mkdtemp()
    times = pd.date_range("2026-01-05", periods=12 * 168, freq="5min").strftime("%Y.%m.%d-%H:%M:%S:%f")
    use = 1 + np.sin(np.arange(12 * 168) / 46)
    with open(os.path.join(folder, "usage_perf_event_log.csv"), "w") as file:
        file.write("TIMESTAMP,CPU_USAGE_ACTUAL\\n")
        file.writelines(f"{t},{u}\\n" for t, u in zip(times, use))
    general = {"window": 60, "lag": 60, "max_cpu_limit": 8, "min_cpu_limit": 1, "recovery_time": 0}
    later = {"waiting_before_predict": 60 * 24 * 60, "frequency_minutes": 5, "forecasting_models": "naive",
             "minutes_to_predict": 60, "total_predictive_window": 120}  # its provider without any forecast has no step
    config = ClusterStateConfig(
        {"general_config": general, "algo_specific_config": {"addend": 1}, "prediction_config": later})
    run = InMemoryRunnerSimulator(folder, algorithm="additive", config=config, initial_cpu_limit=4)
    run.cluster_state_provider.set_cpu_limit(4)
    begun, steps = time.process_time(), 0
    while steps < 150:
        run._execute_simulation_step()
        steps += 1
    spent = time.process_time() - begun
print(steps / spent)
"""


INTERPRETED = """
import time
import gymnasium
import trimtab.lab.environments
from trimtab.lab.environments import Generated
env = gymnasium.make("trimtab/SizingTarget-v0", hours=72, demand=Generated(types=("diurnal_web",))).unwrapped
env.reset(seed=0)
action = env.action_space.sample()
begun = time.process_time()
for _ in range(70):
    env.step(action)
print(70 / (time.process_time() - begun))
"""


class Plain:
    """One container, step by step."""

    def __init__(self, demand: Trace) -> None:
        self.cpu, self.memory = demand.cpu[:, 0].tolist(), demand.memory[:, 0].tolist()
        self.start, self.step_seconds = demand.start, demand.step
        self.an_hour = round(3600 / demand.step)
        self.weights = Weights()

    def reset(self) -> list[float]:
        end = WARM_UP * self.an_hour
        self.row = end
        self.request = [max(self.cpu[:end]), max(self.memory[:end]) * 1.1]
        means = [sum(series[end - self.an_hour : end]) / self.an_hour for series in (self.cpu, self.memory)]
        self.past = [tuple(means)] * WINDOW
        return self.look()

    def step(self, action: list[float]) -> tuple[list[float], float, bool]:
        changes = 0
        for resource in range(2):
            lower, target, upper, _ = action[4 * resource : 4 * resource + 4]
            has = self.request[resource]
            if not lower <= has <= upper and abs(target - has) > MINIMUM_CHANGE * has:
                self.request[resource] = target
                changes += 1
        asked = over = under = missing = wanted = memory_asked = memory_over = cpu_sum = memory_sum = 0.0
        ooms = 0
        for _ in range(self.an_hour):
            cpu, memory = self.cpu[self.row], self.memory[self.row]
            asked += self.request[0]
            over += max(self.request[0] - cpu, 0.0)
            missing += max(cpu - self.request[0], 0.0)
            under += cpu > self.request[0]
            wanted += cpu
            memory_asked += self.request[1]
            memory_over += max(self.request[1] - memory, 0.0)
            cpu_sum += cpu
            memory_sum += min(memory, self.request[1])
            if memory > self.request[1]:
                ooms += 1
                self.request[1] *= BUMP
            self.row += 1
        self.past = [*self.past[1:], (cpu_sum / self.an_hour, memory_sum / self.an_hour)]
        costs = (
            over / asked,
            memory_over / memory_asked,
            under / self.an_hour,
            missing / wanted if wanted else 0.0,
            0.0,
            ooms,
            changes,
        )
        reward = -sum(weight * cost for weight, cost in zip(self.weights, costs, strict=True))
        return self.look(), reward, self.row + self.an_hour > len(self.cpu)

    def look(self) -> list[float]:
        now = self.start + self.row * self.step_seconds
        day, week = 2 * math.pi * (now % DAY) / DAY, 2 * math.pi * (now % WEEK) / WEEK
        clock = [math.sin(day), math.cos(day), math.sin(week), math.cos(week)]
        return [*self.past[-1], *self.request, *(value for pair in self.past for value in pair), *clock]


class Fixed:
    """The same demand for both."""

    def __init__(self) -> None:
        self.trace = DEMAND.sample(np.random.default_rng(0), containers=1, hours=WARM_UP + HOURS)

    def draw(self, _: np.random.Generator, *, containers: int, hours: int) -> Trace:
        assert (containers, hours) == (1, WARM_UP + HOURS)
        return self.trace


def recommendations(demand: Trace) -> list[Any]:
    """Narrow bounds, others each hour, memory enough: after a kill the plain one would have to know the kubelet's back-off."""
    draw = np.random.default_rng(1)
    most = float(demand.memory.max())
    made = []
    for _ in range(HOURS):
        cpu, memory = draw.uniform(0.3, 3.0), draw.uniform(1.05, 2.0) * most
        made.append([cpu * 0.9, cpu, cpu * 1.1, cpu, memory * 0.9, memory, memory * 1.1, memory])
    return made


def main() -> None:
    parser = ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--vasim", help="the Python of an environment that has vasim")
    given = parser.parse_args()
    demand = Fixed()
    actions = recommendations(demand.trace)
    ours, plain = SizingEnv(demand=demand, hours=HOURS, warm_up=WARM_UP, window=WINDOW), Plain(demand.trace)
    same(ours, plain, actions)
    slow = rate(lambda: [plain.reset(), *(plain.step(action) for action in actions)], HOURS)
    table = Table("ENVIRONMENT", "STEPS/S", "BESIDE PLAIN", box=None)
    table.add_row("plain Python, one container", f"{slow:,.0f}", "1.0")

    def row(name: str, speed: float) -> None:
        table.add_row(name, f"{speed:,.0f}", f"{speed / slow:,.1f}")

    arrays = [np.array(action) for action in actions]
    row("trimtab/Sizing-v0", rate(lambda: [ours.reset(seed=0), *map(ours.step, arrays)], HOURS))
    single: Any = gymnasium.make(
        "trimtab/SizingTarget-v0", hours=HOURS, warm_up=WARM_UP, demand=DEMAND
    ).unwrapped
    row("trimtab/SizingTarget-v0", stepped(single, 1))
    for many in (100, 1000, 10_000):
        env = gymnasium.make_vec(VECTOR, num_envs=many, hours=24, warm_up=WARM_UP, demand=DEMAND)
        row(f"{VECTOR}, {many:,} containers", stepped(env, many))
    row("the hours and rewards of 10,000 containers, without a look", lived(10_000))
    row("trimtab/SizingTarget-v0, interpreted", interpreted())
    vasim(given.vasim, row)
    console.print(table)


def same(ours: SizingEnv, plain: Plain, actions: list[Any]) -> None:
    """Both have the same rewards and see the same."""
    seen, _ = ours.reset(seed=0)
    np.testing.assert_allclose(seen, plain.reset(), rtol=1e-6)
    for action in actions:
        seen, reward, _, over, _ = ours.step(np.array(action))
        theirs, plain_reward, plain_over = plain.step(action)
        np.testing.assert_allclose(reward, plain_reward, rtol=1e-9)
        np.testing.assert_allclose(seen, theirs, rtol=1e-6, atol=1e-9)
        assert over == plain_over


def rate(work: Callable[[], Any], steps: int) -> float:
    """The best of five: what else the machine does only makes it slower."""
    work()
    best = math.inf
    for _ in range(5):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return steps / best


def stepped(env: Any, many: int) -> float:
    """Time steps alone: the start of each round's episode is not timed."""
    best = math.inf
    action = env.action_space.sample()
    for _ in range(3):
        env.reset(seed=0)
        env.step(action)
        begun = time.process_time()
        for _ in range(20):
            env.step(action)
        best = min(best, time.process_time() - begun)
    return 20 * many / best


def lived(many: int) -> float:
    """Simulate `trimtab/Sizing-v0` without its observations, for many containers at once."""
    course = EnvironmentConfig(demand=DEMAND, hours=24, warm_up=WARM_UP)
    best = math.inf
    for _ in range(3):
        episode = course.start_episode(np.random.default_rng(0), containers=many)
        cpu, memory = (request.copy() for request in episode.sim.requests)
        episode.step(cpu, memory)
        begun = time.process_time()
        for _ in range(20):
            episode.step(cpu, memory)
        best = min(best, time.process_time() - begun)
    return 20 * many / best


def interpreted() -> float:
    """Run the same code without compilation."""
    ran = subprocess.run(
        [sys.executable, "-c", INTERPRETED],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(ran.stdout)


def vasim(python: str | None, row: Callable[[str, float], None]) -> None:
    if python is None:
        console.print("skipped: vasim; name the Python of an environment that has it by --vasim")
        return
    ran = subprocess.run([python, "-c", VASIM], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"vasim: {ran.stderr.strip().splitlines()[-1]}")
    row("vasim, CPU alone, one container", float(ran.stdout.split()[-1]))


if __name__ == "__main__":
    main()
