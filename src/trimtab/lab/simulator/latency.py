"""The latency of requests: a queue with as many servers as a pod has cores, plus what throttling adds.

A pod can get what it uses and what its node has left, up to its limit. Of a queue with c servers (M/M/c) the chance to
wait is Sakasegawa's approximation, which holds for fractions of a core too; who waits does so exponentially. A
request that comes in a throttled period waits for the period's end, and on a busy node everything takes longer
(`interference`). A queue that grows without end is cut at `LONGEST`. A workload's percentiles are its pods', by load.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from trimtab.lab.simulator.physics import Containers, Floats, Indices, Nodes

MAX_LATENCY = 10.0
"""The seconds after which clients give up."""
CFS_PERIOD = 0.1
INTERFERENCE_THRESHOLD = 0.6
"""The share of a node's CPU from which on neighbours are felt."""
QUANTILES = (0.5, 0.95, 0.99)
LOG_TAIL_SHARES = (math.log(0.5), math.log(0.05), math.log(0.01))
"""The shares of requests whose latencies are computed later."""


@njit(cache=True, error_model="numpy")
def compute_response_times(
    demand: float, cores: float, cpu_seconds: float, slowdown: float, throttled: float
) -> tuple[float, float, float]:
    """Return the seconds within which half, 95 % and 99 % of a pod's requests are answered."""
    busy = demand * slowdown / cores if cores > 0.0 else 1.0
    if busy >= 0.999:
        return MAX_LATENCY, MAX_LATENCY, MAX_LATENCY
    service = cpu_seconds * slowdown / min(cores, 1.0)
    servers = max(cores, 1.0)
    waits = (np.sqrt(2.0 * (servers + 1.0)) - 1.0) * np.log(
        max(busy, 1e-300)
    )  # the chance to, as a logarithm
    drains = service / (servers * (1.0 - busy))
    return (
        _compute_quantile(LOG_TAIL_SHARES[0], service, waits, drains, throttled),
        _compute_quantile(LOG_TAIL_SHARES[1], service, waits, drains, throttled),
        _compute_quantile(LOG_TAIL_SHARES[2], service, waits, drains, throttled),
    )


@njit(cache=True, error_model="numpy")
def _compute_quantile(late: float, service: float, waits: float, drains: float, throttled: float) -> float:
    """Return the time that is exceeded by a share whose logarithm is `late`."""
    held = CFS_PERIOD * min(1.0, throttled * np.exp(-late)) * throttled if throttled > 0.0 else 0.0
    return float(min(-late * service + max(waits - late, 0.0) * drains + held, MAX_LATENCY))


@njit(cache=True, error_model="numpy")
def compute_latencies(
    containers: Containers,
    nodes: Nodes,
    demand: Floats,
    cpu_seconds: Floats,
    workload: Indices,
    interference: float,
    times: Floats,
    load: Floats,
) -> None:
    """Fill `times` (a row a workload, a column a quantile) and `load`, the CPU that is wanted for requests."""
    for place in range(len(load)):
        load[place] = 0.0
        for quantile in range(times.shape[1]):
            times[place, quantile] = 0.0
    for row in range(len(containers.node)):
        node = containers.node[row]
        wanted = demand[row]
        if node < 0 or cpu_seconds[row] <= 0.0 or not wanted > 0.0:
            continue
        capacity = nodes.cpu_capacity[node]
        used = nodes.cpu[node] / capacity
        slowdown = 1.0 + interference * max(0.0, used - INTERFERENCE_THRESHOLD) / (
            1.0 - INTERFERENCE_THRESHOLD
        )
        cores = min(containers.cpu[row] + max(capacity - nodes.cpu[node], 0.0), containers.cpu_limit[row])
        load[workload[row]] += wanted
        half, most, nearly_all = compute_response_times(
            wanted, cores, cpu_seconds[row], slowdown, containers.throttled[row]
        )
        times[workload[row], 0] += wanted * half
        times[workload[row], 1] += wanted * most
        times[workload[row], 2] += wanted * nearly_all
    for place in range(len(load)):
        for quantile in range(times.shape[1]):
            # Element by element: to check whole rows against each other would double the time that this takes to compile.
            times[place, quantile] = times[place, quantile] / load[place] if load[place] > 0.0 else np.nan
