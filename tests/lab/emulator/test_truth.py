"""The same workload on the real kernel and in the simulator's physics: what was used, held back and killed agrees.

Each level of demand is held for three periods and compared over the last two, when the kubelet, which looks once a
second or later on a busy machine, has seen nothing else. The error that is allowed stands in `docs/emulator.md` too.
"""

import math
import os
from collections.abc import AsyncIterator, Iterator, Sequence

import numpy as np
import pytest

from harness.cluster import Cluster
from harness.kubepods import ROOT
from trimtab.kube.auth import load_connection
from trimtab.kube.client import Client
from trimtab.kube.pods import Resources
from trimtab.lab.emulator import Course, Entry, Place, stress
from trimtab.lab.simulator.physics import GUARANTEED, Containers, Nodes, step
from trimtab.node.cgroups import Hierarchy, Version

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
    name: Course(np.repeat(cores, HELD), np.repeat(mib, HELD) * float(MIB), step=300.0)
    for name, (cores, mib) in LEVELS.items()
}
PERIODS = 3 * HELD


@pytest.fixture
async def client(node_cluster: Cluster) -> AsyncIterator[Client]:
    async with Client(load_connection(kubeconfig=node_cluster.kubeconfig)) as client:
        yield client


@pytest.fixture
def undisturbed(node_cluster: Cluster) -> Iterator[None]:
    """Pods go before whatever else this machine does meanwhile, of which the physics is not told."""
    hierarchy = Hierarchy.detect(ROOT)
    first = hierarchy.version is Version.V1
    file = hierarchy.folder("kubepods", "cpu") / ("cpu.shares" if first else "cpu.weight")
    before = file.read_text()
    file.write_text("262144" if first else "10000")
    yield
    file.write_text(before)


def simulated() -> list[Entry]:
    """What the physics makes of it, on a node like this one."""
    rows = Containers.empty(len(COURSES))
    nodes = Nodes.of(np.array([float(os.cpu_count() or 1)]), np.array([64.0 * 2**30]))
    for row, size in enumerate(SIZES.values()):
        rows.node[row], rows.qos[row], rows.burst[row] = 0, GUARANTEED, BURST
        rows.cpu_request[row] = rows.cpu_limit[row] = (size.cpu_limit or 0) / 1000
        rows.memory_request[row] = rows.memory_limit[row] = size.memory_limit or 0
    entries = []
    for period in range(PERIODS):
        wanted = [course.at(period) for course in COURSES.values()]
        step(
            rows,
            nodes,
            cpu=np.array([each.cores for each in wanted]),
            memory=np.array([float(each.bytes) for each in wanted]),
            now=period * PERIOD,
            seconds=PERIOD,
        )
        entries += [
            Entry(
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


def first_kill(entries: Sequence[Entry]) -> tuple[str, int]:
    return min(((entry.pod, entry.period) for entry in entries if entry.killed), key=lambda kill: kill[1])


def level(entries: Sequence[Entry], pod: str, place: int) -> list[Entry]:
    """The periods of a level that are compared."""
    first = place * HELD
    return [entry for entry in entries if entry.pod == pod and first < entry.period < first + HELD]


def mean(values: Sequence[float]) -> float:
    """Over the periods of which it is known: a look that comes late tells of its period with the next one's."""
    known = [value for value in values if not math.isnan(value)]
    assert known
    return sum(known) / len(known)


async def test_the_kernel_and_the_physics_agree(client: Client, namespace: str, undisturbed: None) -> None:
    direct = {"reach": "direct", "address": "Hostname"}
    place = Place(namespace=namespace, period=PERIOD, source_settings=direct)
    journal = await stress(client, COURSES, place, periods=PERIODS, sizes=SIZES)
    kernel, physics = journal.entries, simulated()
    for entry in kernel:
        print(entry)  # what a failure is told with
    (killed, when), (told, due) = first_kill(kernel), first_kill(physics)
    assert killed == told == "grows"
    assert 0 <= when - due <= KILLED
    for pod in COURSES:
        for number in range(3 if pod != "grows" else 2):
            real, theory = level(kernel, pod, number), level(physics, pod, number)
            assert mean([entry.used_cpu for entry in real]) == pytest.approx(
                theory[-1].used_cpu, rel=CPU_SHARE, abs=CPU_CORES
            )
            assert real[-1].used_memory == pytest.approx(theory[-1].used_memory, abs=MEMORY)
            assert mean([entry.throttled for entry in real]) == pytest.approx(
                theory[-1].throttled, abs=THROTTLED
            )
