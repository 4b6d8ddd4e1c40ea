"""How long requests take: a queue with as many servers as a pod has cores to get, and what throttling adds.

A pod can get what it uses and what its node has left, up to its limit. Of a queue with c servers (M/M/c) the chance to
wait is Sakasegawa's approximation, which holds for fractions of a core too; who waits does so exponentially. A
request that comes in a throttled period waits for the period's end, and on a busy node everything takes longer
(`interference`). A queue that grows without end is cut at `LONGEST`. A workload's percentiles are its pods', by load.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from trimtab.lab.simulator.physics import Containers, Floats, Indices, Nodes

LONGEST = 10.0
"""Seconds after which nobody waits any more."""
PERIOD = 0.1
BUSY = 0.6
"""The share of a node's CPU from which on neighbours are felt."""
QUANTILES = (0.5, 0.95, 0.99)


@njit(cache=True, error_model="numpy")
def response_time(
    quantile: float, demand: float, cores: float, cpu_seconds: float, slowdown: float, throttled: float
) -> float:
    """Seconds within which this share of a pod's requests is answered."""
    if cores <= 0.0:
        return LONGEST
    service = cpu_seconds * slowdown / min(cores, 1.0)
    servers = max(cores, 1.0)
    busy = demand * slowdown / cores
    if busy >= 0.999:
        return LONGEST
    tail = -np.log(1.0 - quantile)
    waits = busy ** (np.sqrt(2.0 * (servers + 1.0)) - 1.0)
    wait = 0.0
    if waits > 1.0 - quantile:
        wait = np.log(waits / (1.0 - quantile)) * service / (servers * (1.0 - busy))
    held = PERIOD * min(1.0, throttled / (1.0 - quantile)) * throttled
    return float(min(service * tail + wait + held, LONGEST))


@njit(cache=True, error_model="numpy")
def respond(
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
    times[:] = 0.0
    load[:] = 0.0
    for row in range(len(containers.node)):
        node = containers.node[row]
        wanted = demand[row]
        if node < 0 or cpu_seconds[row] <= 0.0 or not wanted > 0.0:
            continue
        capacity = nodes.cpu_capacity[node]
        used = nodes.cpu[node] / capacity
        slowdown = 1.0 + interference * max(0.0, used - BUSY) / (1.0 - BUSY)
        cores = min(containers.cpu[row] + max(capacity - nodes.cpu[node], 0.0), containers.cpu_limit[row])
        load[workload[row]] += wanted
        for place in range(len(QUANTILES)):
            times[workload[row], place] += wanted * response_time(
                QUANTILES[place], wanted, cores, cpu_seconds[row], slowdown, containers.throttled[row]
            )
    for place in range(len(load)):
        if load[place] > 0.0:
            times[place] /= load[place]
        else:
            times[place] = np.nan
