"""The emulator on the real node: pods follow their workload, and the tested component shrinks them in place.

All that a run does is wait for its periods, so all are begun together, and each test then asks what came of its own.

The same workload on the real kernel and in the simulator's physics: what was used, held back and killed agrees. Each
level of demand is held for three periods and compared over the last two, when the kubelet, which looks once a second or
later on a busy machine, has seen nothing else. The error that is allowed stands in `docs/research/emulator.md` too.
"""

import asyncio
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from harness.cluster.cluster import Cluster
from harness.cluster.kubepods import ROOT
from harness.cluster.namespaces import fresh_namespace
from harness.e2e.background import Early, early
from trimtab.kube.auth import load_connection
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.client import Client
from trimtab.lab.emulator import EmulationConfig, LoadProfile, PeriodRecord, run_stress
from trimtab.lab.emulator.environment import EmulatedSizing
from trimtab.lab.environments.reward import Weights
from trimtab.lab.environments.sizing import SizingEnv
from trimtab.lab.simulator.physics import GUARANTEED, Containers, Nodes, step
from trimtab.lab.workloads import GeneratedWorkload, WorkloadLibrary
from trimtab.node.cgroups import CgroupVersion, Hierarchy

Step = tuple[npt.NDArray[np.float64], float, bool, bool, dict[str, Any]]
"""Gymnasium's result of an action: state, reward, terminated, truncated, info."""

SCRIPT = Path(__file__).parents[4] / "examples" / "stress_test.py"
MIB = 2**20
PERIOD, HELD = 3.0, 3
CPU_SHARE, CPU_CORES, MEMORY, THROTTLED, KILLED = 0.15, 0.02, 4 * MIB, 0.35, 2
"""The stated error: of CPU 15 % or 0.02 cores, of memory 4 MiB, of the throttled share 0.35, of a kill two periods."""
BURST = 1.0
"""The burner works in strokes of some 20 ms: in a period of the kernel's it wants twice its mean, or nothing."""
LEVELS = {
    # Cores and MiB, one level after the other.
    "free": ([0.1, 0.2, 0.05], [20, 60, 40]),
    "held": ([0.05, 0.6, 0.05], [20, 20, 20]),
    "grows": ([0.03, 0.03, 0.03], [20, 40, 100]),
}
SIZES = {
    "free": Resources(500, 500, 128 * MIB, 128 * MIB),
    "held": Resources(200, 200, 64 * MIB, 64 * MIB),
    "grows": Resources(300, 300, 64 * MIB, 64 * MIB),
}
COURSES = {
    name: LoadProfile(np.repeat(cores, HELD), np.repeat(mib, HELD) * float(MIB), step=300.0)
    for name, (cores, mib) in LEVELS.items()
}
PERIODS = 3 * HELD
SMALLER = np.array([0.05, 0.1, 0.2, 0.1, 30 * MIB, 40 * MIB, 50 * MIB, 40 * MIB])
DIRECT = {"reach": "direct", "address": "Hostname"}
SETTINGS = [word for name, value in DIRECT.items() for word in ("--source-setting", f"{name}={value}")]


# The runs, each in a namespace that it leaves empty


@pytest.fixture(scope="module", autouse=True)
def together(request: pytest.FixtureRequest) -> None:
    """Begin all that the selected tests ask for before the first of them waits for its own."""
    asked = {name for item in request.session.items if item.path == request.path for name in _fixtures(item)}
    for run in asked & {"kernel", "resizing", "episode", "example"}:
        request.getfixturevalue(run)


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


@contextmanager
def place_of_its_own(cluster: Cluster) -> Iterator[str]:
    """A namespace, in which nothing is left afterwards."""
    with fresh_namespace(cluster) as namespace:
        yield namespace
        assert cluster.call("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments")["items"] == []


def read_output(cluster: Cluster, *command: str) -> str:
    """Return the output of a program that uses this cluster."""
    environment = os.environ | cluster.environment
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.fixture(scope="module")
def kernel(node_cluster: Cluster) -> Iterator[Early[Sequence[PeriodRecord]]]:
    """Run three pods through their levels. Pods take precedence over other processes, which the physics does not model."""
    hierarchy = Hierarchy.detect(ROOT)
    first = hierarchy.version is CgroupVersion.V1
    file = hierarchy.folder("kubepods", "cpu") / ("cpu.shares" if first else "cpu.weight")

    async def run(namespace: str) -> Sequence[PeriodRecord]:
        async with Client(load_connection(kubeconfig=node_cluster.kubeconfig)) as client:
            place = EmulationConfig(namespace=namespace, period=PERIOD, source_settings=DIRECT)
            return (await run_stress(client, COURSES, place, periods=PERIODS, sizes=SIZES)).entries

    def without_interference() -> Sequence[PeriodRecord]:
        before = file.read_text()
        file.write_text("262144" if first else "10000")
        try:
            with place_of_its_own(node_cluster) as namespace:
                return asyncio.run(run(namespace))
        finally:
            file.write_text(before)

    with early(without_interference) as begun:
        yield begun


@pytest.fixture(scope="module")
def resizing(node_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Early[Any]]:
    """`trimtab stress` with a peak that comes long after the run is over, so that the pod begins far too large."""
    folder = tmp_path_factory.mktemp("workloads")
    cpu, memory = np.full((1, 100), 0.05), np.full((1, 100), 24.0 * MIB)
    cpu[0, -1], memory[0, -1] = 0.3, 120.0 * MIB
    WorkloadLibrary(folder).save(
        GeneratedWorkload(type="step", step=300.0, cpu=cpu, memory=memory), id="late"
    )
    options = (
        *("--folder", str(folder), "--strategy", "percentile"),
        *("--setting", "min_samples=2", "--update", "15m"),
        *("--period", "2s", "--duration", "14s", "--cpu-limit", "2", "--memory-limit", "1.5"),
        *("--output", "json", *SETTINGS),
    )
    trimtab = str(Path(sys.executable).with_name("trimtab"))

    def run() -> Any:
        with place_of_its_own(node_cluster) as namespace:
            return json.loads(
                read_output(node_cluster, trimtab, "stress", "late", "--namespace", namespace, *options)
            )

    with early(run) as begun:
        yield begun


@pytest.fixture(scope="module")
def episode(node_cluster: Cluster) -> Iterator[Early[list[Step]]]:
    """An agent's episode with a real pod: the state that it began in, and what two steps gave."""
    cpu, memory = np.full((1, 6), 0.05), np.full((1, 6), 24.0 * MIB)
    cpu[0, -1], memory[0, -1] = 0.3, 80.0 * MIB
    made = GeneratedWorkload(type="step", step=1800.0, cpu=cpu, memory=memory)
    connection = load_connection(kubeconfig=node_cluster.kubeconfig)

    def run() -> list[Step]:
        with place_of_its_own(node_cluster) as namespace:
            place = EmulationConfig(
                namespace=namespace,
                run="gym",
                period=2.0,
                cpu_limit=2.0,
                memory_limit=1.5,
                source_settings=DIRECT,
            )
            env, alike = (
                EmulatedSizing(connection=connection, config=place, workload=made, hours=3),
                SizingEnv(),
            )
            try:
                assert (env.observation_space, env.action_space) == (
                    alike.observation_space,
                    alike.action_space,
                )
                seen, info = env.reset(seed=1)
                return [(seen, 0.0, False, False, info), env.step(SMALLER), env.step(SMALLER)]
            finally:
                env.close()
                env.close()  # as wrappers do that were closed already

    with early(run) as begun:
        yield begun


@pytest.fixture(scope="module")
def example(node_cluster: Cluster) -> Iterator[Early[list[str]]]:
    """The example of a stress test: the first hours of its day, in seconds; the lines that it prints."""
    brief = ("--hours", "3", "--minutes", "0.1")

    def run() -> list[str]:
        with place_of_its_own(node_cluster) as namespace:
            return read_output(
                node_cluster, sys.executable, str(SCRIPT), namespace, *brief, *SETTINGS
            ).splitlines()

    with early(run) as begun:
        yield begun


# The kernel and the physics


def run_physics() -> list[PeriodRecord]:
    """Simulate it with the physics of a node like this one."""
    rows = Containers.empty(len(COURSES))
    nodes = Nodes.from_capacity(np.array([float(os.cpu_count() or 1)]), np.array([64.0 * 2**30]))
    for row, size in enumerate(SIZES.values()):
        rows.node[row], rows.qos[row], rows.burst[row] = 0, GUARANTEED, BURST
        rows.cpu_request[row] = rows.cpu_limit[row] = (size.cpu_limit or 0) / 1000
        rows.memory_request[row] = rows.memory_limit[row] = size.memory_limit or 0
    entries = []
    for period in range(PERIODS):
        wanted = [course.demand_at(period) for course in COURSES.values()]
        step(
            rows,
            nodes,
            cpu=np.array([each.cores for each in wanted]),
            memory=np.array([float(each.bytes) for each in wanted]),
            now=period * PERIOD,
            seconds=PERIOD,
        )
        entries += [
            PeriodRecord(
                period=period,
                pod=name,
                wanted_cpu=wanted[row].cores,
                wanted_memory=float(wanted[row].bytes),
                used_cpu=float(rows.cpu[row]),
                used_memory=float(rows.memory[row]),
                cpu_request=float(rows.cpu_request[row]),
                memory_request=float(rows.memory_request[row]),
                throttled=float(rows.throttled[row]),
                killed=bool(rows.killed[row]),
            )
            for row, name in enumerate(COURSES)
        ]
    return entries


def first_kill(entries: Sequence[PeriodRecord]) -> tuple[str, int]:
    return min(((entry.pod, entry.period) for entry in entries if entry.killed), key=lambda kill: kill[1])


def level(entries: Sequence[PeriodRecord], pod: str, place: int) -> list[PeriodRecord]:
    """The periods of a level that are compared."""
    first = place * HELD
    return [entry for entry in entries if entry.pod == pod and first < entry.period < first + HELD]


def mean(values: Sequence[float]) -> float:
    """Average over the known periods: a late sample counts in the next period."""
    known = [value for value in values if not math.isnan(value)]
    assert known
    return sum(known) / len(known)


# What came of them


def test_emulator_physics_match_the_kernel(kernel: Early[Sequence[PeriodRecord]]) -> None:
    real, physics = kernel.outcome(), run_physics()
    for entry in real:
        print(entry)  # part of the failure's message
    (killed, when), (info, due) = first_kill(real), first_kill(physics)
    assert killed == info == "grows"
    assert 0 <= when - due <= KILLED
    for pod in COURSES:
        for number in range(3 if pod != "grows" else 2):
            seen, theory = level(real, pod, number), level(physics, pod, number)
            assert mean([entry.used_cpu for entry in seen]) == pytest.approx(
                theory[-1].used_cpu, rel=CPU_SHARE, abs=CPU_CORES
            )
            assert seen[-1].used_memory == pytest.approx(theory[-1].used_memory, abs=MEMORY)
            assert mean([entry.throttled for entry in seen]) == pytest.approx(
                theory[-1].throttled, abs=THROTTLED
            )


def test_emulator_shrinks_an_oversized_pod_without_a_restart(resizing: Early[Any]) -> None:
    info = resizing.outcome()
    requests = [entry["cpu_request"] for entry in info["periods"]]
    assert len(requests) == 7
    assert requests[0] == 0.3
    assert requests[-1] < 0.2
    assert info["periods"][-1]["memory_request"] < info["periods"][0]["memory_request"]
    assert info["summary"]["resizes"] >= 1
    assert info["summary"]["ooms"] == 0
    assert info["summary"]["unheard"] == 0
    assert info["refusals"] == []


def test_emulator_agent_sizes_a_real_pod_like_a_simulated_one(episode: Early[list[Step]]) -> None:
    (begun, *_), (seen, reward, ended, truncated, info), (last, _, _, over, at_last) = episode.outcome()
    space = SizingEnv().observation_space
    assert all(space.contains(state) for state in (begun, seen, last))
    assert begun[2] == 0.3
    assert reward < 0
    assert info["change"] == 2
    assert set(Weights._fields) < info.keys()
    assert (ended, truncated) == (False, False)
    assert over
    assert at_last["change"] == 0
    assert (last[2], last[3]) == (0.1, 40 * MIB)


def test_emulator_example_leads_a_pod_through_hours_and_removes_it(example: Early[list[str]]) -> None:
    info = example.outcome()
    assert [line.split()[:2] for line in info if " requested " in line] == [
        [f"{half / 2}", "h"] for half in range(6)
    ]
    (periods,) = [line.split() for line in info if line.startswith("periods")]
    assert periods == ["periods", "6"]
