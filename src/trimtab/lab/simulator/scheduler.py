"""Pod placement: the scheduler's filter and score over arrays of nodes, and the number of nodes that pods need.

It packs by requests alone, as Kubernetes does, and knows two scores: the least allocated node, which is the default
there, and the most allocated one. Amounts are whole millicores and bytes, so that they add up. Nobody is preempted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from trimtab.lab.simulator.physics import Floats

Counts = npt.NDArray[np.int64]


@njit(cache=True, error_model="numpy")
def select_node(
    cpu: int,
    memory: int,
    cpu_left: Counts,
    memory_left: Counts,
    pods_left: Counts,
    allocatable_cpu: Counts,
    allocatable_memory: Counts,
    pack: bool,  # noqa: FBT001 - compiled code takes no keywords
) -> int:
    """Return the best node for a pod, the first of equals; -1 if it fits on none."""
    best, most = -1, -np.inf
    for node in range(len(cpu_left)):
        if pods_left[node] < 1 or cpu_left[node] < cpu or memory_left[node] < memory:
            continue
        score = (cpu_left[node] - cpu) / allocatable_cpu[node] + (
            memory_left[node] - memory
        ) / allocatable_memory[node]
        if pack:
            score = -score
        if score > most:
            best, most = node, score
    return best


def count_packed_nodes(
    cpu: Floats, memory: Floats, *, node_cpu: float, node_memory: float, node_pods: int
) -> int:
    """Return how many equal nodes these pods need when packed well: largest first, each on the first node that fits."""
    order = np.argsort(-np.maximum(cpu / node_cpu, memory / node_memory), kind="stable")
    # Found here: compiled code would take as long to compile for it as for all else that it does.
    least = (float(cpu.min()), float(memory.min())) if len(cpu) else (0.0, 0.0)
    return int(_first_fit(cpu[order], memory[order], least, node_cpu, node_memory, node_pods))


@njit(cache=True, error_model="numpy")
def _first_fit(
    cpu: Floats,
    memory: Floats,
    least: tuple[float, float],
    node_cpu: float,
    node_memory: float,
    node_pods: int,
) -> int:
    count = len(cpu)
    cpu_left, memory_left = np.empty(count), np.empty(count)
    pods_left = np.empty(count, np.int64)
    used = 0
    first = 0  # nodes before this one have no capacity for even the smallest pod
    least_cpu, least_memory = least
    for pod in range(count):
        node = first
        while node < used and (
            pods_left[node] < 1 or cpu_left[node] < cpu[pod] or memory_left[node] < memory[pod]
        ):
            node += 1
        if node == used:
            cpu_left[node], memory_left[node], pods_left[node] = node_cpu, node_memory, node_pods
            used += 1
        cpu_left[node] -= cpu[pod]
        memory_left[node] -= memory[pod]
        pods_left[node] -= 1
        while first < used and (
            pods_left[first] < 1 or cpu_left[first] < least_cpu or memory_left[first] < least_memory
        ):
            first += 1
    return used
