"""The state of a simulated cluster in a few numbers: nodes, requests, usage, unserved demand and cost.

Money is what the requests of all pods cost a month at OpenCost's prices. The nodes that are needed are those of the
first pool that all pods would fit on if they were packed well; that is counted now and then only, for it is slow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from trimtab.api.quantity import GIB
from trimtab.lab.simulator.objects import sum_requests
from trimtab.lab.simulator.physics import Containers, Floats
from trimtab.lab.simulator.scheduler import count_packed_nodes
from trimtab.lab.simulator.world import SimulatedEvent, SimulatedWorld
from trimtab.prices import CPU_HOUR, GIB_HOUR, MONTH_HOURS

REQUESTED, USED, SLACK, MEMORY_REQUESTED, MEMORY_USED, MEMORY_SLACK, STARVED, THROTTLED = range(8)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetrics:
    """The step that ended at `at`. Cores, bytes, dollars a month."""

    at: float
    cpu_allocatable: float
    cpu_requested: float
    """Cores that pods on nodes request."""
    cpu_used: float
    cpu_slack: float
    """Cores that are requested and not used, container by container."""
    cpu_starved: float
    """Cores of demand that were not served, because of a limit or too little CPU on the node."""
    memory_allocatable: float
    memory_requested: float
    memory_used: float
    memory_slack: float
    throttled: float
    """The share of the CPU's periods in which limits held containers back, by what they used."""
    pods: int
    pending: int
    kills: int
    nodes: int
    nodes_needed: int
    services: int
    """The number of workloads that served requests."""
    slow: int
    """The number of those workloads that missed their objective."""
    dollars_month: float
    events: tuple[SimulatedEvent, ...]
    """Events of this step, caused by the operator or not."""


def collect_metrics(world: SimulatedWorld, *, needed: int) -> ClusterMetrics:
    """Collect the metrics of a world's last step, and take its events."""
    sums = np.zeros(8)
    sum_containers(world.container_arrays.containers, world.container_arrays.cpu_demand, sums)
    happened, world.events = world.events, []
    objectives = np.array(
        [spec.service.latency_objective if spec.service else np.inf for spec in world.scenario.workloads]
    )
    answers = ~np.isnan(world.latencies[:, -1])
    used = float(sums[USED])
    return ClusterMetrics(
        at=world.now,
        cpu_allocatable=float(world.nodes.allocatable_cpu[world.nodes.active].sum()) / 1000,
        cpu_requested=float(sums[REQUESTED]),
        cpu_used=used,
        cpu_slack=float(sums[SLACK]),
        cpu_starved=float(sums[STARVED]),
        memory_allocatable=float(world.nodes.allocatable_memory[world.nodes.active].sum()),
        memory_requested=float(sums[MEMORY_REQUESTED]),
        memory_used=float(sums[MEMORY_USED]),
        memory_slack=float(sums[MEMORY_SLACK]),
        throttled=float(sums[THROTTLED]) / used if used > 0 else 0.0,
        pods=len(world.pods),
        pending=len(world.pending),
        kills=world.kills,
        nodes=int(world.nodes.active.sum()),
        nodes_needed=needed,
        services=int(answers.sum()),
        slow=int((world.latencies[answers, -1] > objectives[answers]).sum()),
        dollars_month=MONTH_HOURS
        * (CPU_HOUR * float(sums[REQUESTED]) + GIB_HOUR * float(sums[MEMORY_REQUESTED]) / GIB),
        events=tuple(happened),
    )


def count_nodes_needed(world: SimulatedWorld) -> int:
    """Return how many nodes of the first pool all current pods need, pending pods included."""
    pool = world.scenario.pools[0]
    sizes = np.array([sum_requests(pod.applied) for pod in world.pods.values()], np.float64).reshape(-1, 2)
    return count_packed_nodes(
        sizes[:, 0],
        sizes[:, 1],
        node_cpu=pool.allocatable_cpu * 1000,
        node_memory=pool.allocatable_memory,
        node_pods=pool.pods,
    )


@njit(cache=True, error_model="numpy")
def sum_containers(containers: Containers, wanted: Floats, sums: Floats) -> None:
    """Add up all containers that stand somewhere."""
    for row in range(len(containers.node)):
        if containers.node[row] < 0:
            continue
        used, held = containers.cpu[row], containers.memory[row]
        sums[REQUESTED] += containers.cpu_request[row]
        sums[USED] += used
        sums[SLACK] += max(containers.cpu_request[row] - used, 0.0)
        sums[MEMORY_REQUESTED] += containers.memory_request[row]
        sums[MEMORY_USED] += held
        sums[MEMORY_SLACK] += max(containers.memory_request[row] - held, 0.0)
        sums[STARVED] += max(wanted[row] - used, 0.0)
        sums[THROTTLED] += containers.throttled[row] * used
