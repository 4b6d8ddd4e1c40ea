"""The simulator: containers a second on one core, beside plain Python and beside vasim, and a week of a large cluster.

    make bench BENCH=simulator
    .venv/bin/python bench/simulator.py --steps 2016                  the whole week, not a part of it
    .venv/bin/python bench/simulator.py --vasim /tmp/vasim/bin/python an interpreter that has vasim (pip install vasim)

The plain version does the physics of a step container by container, object by object, as the smart-kube seed's
simulator did, and has to come to the same usage. vasim (Microsoft, PyPI) simulates one container's CPU with a decision
a step; its own step is timed, without its files and plots. The large cluster has 5,000 nodes and 200,000 pods at
5-minute steps; what is not run of its week is reckoned from the part that is. Times are those of one core, whatever else
the machine does meanwhile.
"""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from trimtab.api.quantity import GIB
from trimtab.kube.kinds.pods import Resources
from trimtab.lab.simulator.metrics import collect_metrics, count_nodes_needed
from trimtab.lab.simulator.physics import Containers, Floats, Nodes, compute_throttled_share, step
from trimtab.lab.simulator.scenario import ContainerSpec, NodePool, Scenario, ServiceSpec, WorkloadSpec
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.usage.trace import Trace

STEP = 300.0
WEEK = 2016
"""Steps of five minutes."""
TARGET, WEEK_MINUTES, MOST_GIB = 5e6, 30.0, 4.0
HOUR = 12

VASIM = """
import sys, time, logging
logging.disable(logging.CRITICAL)
from vasim.recommender.cluster_state_provider.ClusterStateConfig import ClusterStateConfig
from vasim.simulator.InMemorySimulator import InMemoryRunnerSimulator
from vasim.recommender.cluster_state_provider.FileClusterStateProvider import FileClusterStateProvider
from vasim.simulator.SimulatedInMemoryClusterStateProvider import SimulatedInMemoryClusterStateProvider
# Release 0.1.4 left this out of the provider that does not forecast; its parent has it.
SimulatedInMemoryClusterStateProvider.get_next_recorded_data = FileClusterStateProvider.get_next_recorded_data
config = ClusterStateConfig(config_dict={"general_config": {"window": 60, "lag": 5, "max_cpu_limit": 20,
    "min_cpu_limit": 1, "recovery_time": 15}, "algo_specific_config": {"addend": 1}})
config.prediction_config = {}  # its defaults would have it forecast
runner = InMemoryRunnerSimulator(sys.argv[1], config=config, initial_cpu_limit=4, algorithm="additive",
    target_simulation_dir=sys.argv[2])
state = runner.cluster_state_provider
state.set_cpu_limit(4)
began, steps = time.process_time(), 0
while steps < 500:
    runner._execute_simulation_step()
    steps += 1
print(steps / (time.process_time() - began))
"""


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--steps", type=int, default=48, help="steps of the large cluster's week that are run"
    )
    parser.add_argument("--vasim", help="a Python interpreter that has vasim")
    arguments = parser.parse_args()
    physics, whole = _ten_thousand()
    plain = _plain()
    table = Table("what", "container-steps a second", "beside", box=None, pad_edge=False)
    table.add_row(
        "physics, 10,000 containers on 500 nodes",
        f"{physics:,.0f}",
        _verdict(physics >= TARGET, "at least 5,000,000"),
    )
    table.add_row(
        "the whole cluster: demand, physics, latency, kubelets",
        f"{whole:,.0f}",
        _verdict(whole >= TARGET, "at least 5,000,000"),
    )
    table.add_row("the same physics in plain Python", f"{plain:,.0f}", f"{physics / plain:,.0f} times slower")
    if arguments.vasim:
        vasim = _vasim(arguments.vasim)
        table.add_row("vasim, one container's CPU", f"{vasim:,.0f}", f"{whole / vasim:,.0f} times slower")
    console = Console(width=140)
    console.print(table)
    seconds, built, gib = _large(arguments.steps)
    minutes = (built + seconds * WEEK / arguments.steps) / 60
    ran = "run in full" if arguments.steps >= WEEK else f"reckoned from {arguments.steps} of {WEEK:,} steps"
    console.print(
        f"A week of 5,000 nodes and 200,000 pods: {minutes:.1f} minutes ({ran}; {built:.0f} s to build, "
        f"{seconds / arguments.steps * 1000:.0f} ms a step), {gib:.2f} GiB at most: "
        + _verdict(minutes < WEEK_MINUTES and gib < MOST_GIB, "under 30 minutes and 4 GiB")
    )


def _verdict(holds: bool, what: str) -> str:  # noqa: FBT001 - reads as it is said
    return f"{what}: {'yes' if holds else 'NO'}"


def _ten_thousand() -> tuple[float, float]:
    """Container-steps a second, of physics alone and of all that a step of a cluster is."""
    containers, nodes, cpu, memory = _crowd(10_000, 500)
    physics = _rate(lambda: step(containers, nodes, cpu=cpu, memory=memory, now=0.0, seconds=STEP), 10_000)
    world = SimulatedWorld(_scene(nodes=500, workloads=250, replicas=40, days=1))
    return physics, _rate(lambda: world.step(STEP), 10_000)


def _rate(once: object, containers: int, *, seconds: float = 3.0) -> float:
    assert callable(once)
    for _ in range(3):
        once()
    gc.collect()
    began, steps = time.process_time(), 0
    while (spent := time.process_time() - began) < seconds:
        once()
        steps += 1
    return containers * steps / spent


def _crowd(rows: int, many: int) -> tuple[Containers, Nodes, Floats, Floats]:
    """Containers with requests, limits and bursts on nodes of which some are short of CPU."""
    chance = np.random.default_rng(1)
    containers = Containers.empty(rows)
    containers.node[:] = chance.integers(0, many, rows)
    containers.cpu_request[:] = chance.uniform(0.05, 1.0, rows)
    containers.cpu_limit[:] = np.where(chance.random(rows) < 0.5, np.inf, 2 * containers.cpu_request)
    containers.memory_limit[:] = 2 * GIB
    containers.burst[:] = 0.3
    nodes = Nodes.from_capacity(np.full(many, 16.0), np.full(many, 64 * GIB))
    return containers, nodes, chance.gamma(2.0, 0.3, rows), chance.uniform(0.1, 1.5, rows) * GIB


# The same in plain Python


@dataclass
class _Container:
    node: int
    request: float
    limit: float
    memory_limit: float
    burst: float
    used: float = 0.0
    throttled: float = 0.0
    memory: float = 0.0
    killed: bool = False


def _plain() -> float:
    """Container-steps a second, object by object; the usage has to be that of the compiled step."""
    rows, many = 2_000, 100
    containers, nodes, cpu, memory = _crowd(rows, many)
    objects = [
        _Container(
            int(containers.node[row]),
            float(containers.cpu_request[row]),
            float(containers.cpu_limit[row]),
            float(containers.memory_limit[row]),
            float(containers.burst[row]),
        )
        for row in range(rows)
    ]
    wants, holds = cpu.tolist(), memory.tolist()
    rate = _rate(lambda: _plain_step(objects, [16.0] * many, wants, holds), rows)
    step(containers, nodes, cpu=cpu, memory=memory, now=0.0, seconds=STEP)
    assert np.allclose([each.used for each in objects], containers.cpu)
    assert np.allclose([each.throttled for each in objects], containers.throttled)
    return rate


def _plain_step(
    containers: list[_Container], capacity: list[float], cpu: list[float], memory: list[float]
) -> None:
    by_node: dict[int, list[_Container]] = {}
    for each, wanted, held in zip(containers, cpu, memory, strict=True):
        each.used = min(wanted, each.limit)
        each.killed = held > each.memory_limit
        each.memory = min(held, each.memory_limit)
        by_node.setdefault(each.node, []).append(each)
    for node, theirs in by_node.items():
        if sum(each.used for each in theirs) > capacity[node]:
            _plain_share(theirs, capacity[node])
    for each, wanted in zip(containers, cpu, strict=True):
        held_back = each.used >= each.limit and wanted > each.limit
        each.throttled = (
            1.0 if held_back else compute_throttled_share.py_func(each.used, each.limit, each.burst)
        )


def _plain_share(containers: list[_Container], capacity: float) -> None:
    left, waiting = capacity, list(containers)
    while waiting:
        level = left / sum(each.request for each in waiting)
        served = [each for each in waiting if each.used <= level * each.request]
        if not served:
            for each in waiting:
                each.used = level * each.request
            return
        left -= sum(each.used for each in served)
        waiting = [each for each in waiting if each.used > level * each.request]


def _vasim(python: str) -> float:
    """Steps a second of vasim with a decision each five minutes, on a week of one container's CPU."""
    chance = np.random.default_rng(1)
    begin = datetime(2026, 1, 5, tzinfo=UTC)
    with tempfile.TemporaryDirectory() as folder:
        data, target = Path(folder) / "data", Path(folder) / "target"
        data.mkdir()
        target.mkdir()
        lines = ["TIMESTAMP,CPU_USAGE_ACTUAL"]
        for place, used in enumerate(chance.gamma(2.0, 1.0, WEEK)):
            at = begin + timedelta(seconds=STEP * place)
            lines.append(f"{at:%Y.%m.%d-%H:%M:%S}:000000,{used:.3f}")
        (data / "a_perf_event_log.csv").write_text("\n".join(lines) + "\n")
        ran = subprocess.run(
            [python, "-c", VASIM, str(data), str(target)], capture_output=True, text=True, check=False
        )
    if ran.returncode:
        sys.exit(f"vasim failed: {ran.stderr[-1000:]}")
    return float(ran.stdout.split()[-1])


# A large cluster


def _large(steps: int) -> tuple[float, float, float]:
    """Seconds of so many steps, seconds to build it, and the most memory in GiB."""
    began = time.process_time()
    world = SimulatedWorld(_scene(nodes=5_000, workloads=5_000, replicas=40, days=7))
    built = time.process_time() - began
    assert len(world.pods) == 200_000
    assert not world.pending
    began = time.process_time()
    for done in range(steps):
        world.step(STEP)
        if done % HOUR == 0:
            needed = count_nodes_needed(world)
        collect_metrics(world, needed=needed)
    seconds = time.process_time() - began
    return seconds, built, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _scene(*, nodes: int, workloads: int, replicas: int, days: int) -> Scenario:
    """Services whose demand follows the day, each with its own size and hour; one in a hundred runs into its limit."""
    chance = np.random.default_rng(1)
    steps = days * 288
    size, late = chance.gamma(2.0, 0.1, workloads), chance.uniform(0, 2 * np.pi, workloads)
    day = 2 * np.pi * np.arange(steps)[:, None] / 288
    cpu = size * (0.6 + 0.4 * np.sin(day - late)) * chance.lognormal(0.0, 0.1, (steps, workloads))
    held = chance.uniform(0.1, 1.0, workloads) * GIB
    memory = held * (1.0 + 0.1 * np.sin(day - late))
    specs = tuple(
        WorkloadSpec(
            name=f"service-{place}",
            replicas=replicas,
            containers=(
                ContainerSpec(
                    demand_series=place,
                    resources=Resources(
                        max(10, int(size[place] * 800)),
                        max(20, int(size[place] * 1600)),
                        int(held[place]),
                        int(held[place] * (1.05 if place % 100 == 0 else 1.5)),
                    ),
                ),
            ),
            service=ServiceSpec(),
        )
        for place in range(workloads)
    )
    demand = Trace(tuple(map(str, range(workloads))), 4 * 86400.0, STEP, cpu, memory)
    pool = NodePool(count=nodes, cpu=16.0, memory=64 * GIB)
    return Scenario(pools=(pool,), workloads=specs, demand=demand)


if __name__ == "__main__":
    main()
