"""One step of containers on nodes: how much CPU each one gets, which are throttled, which are OOM-killed.

Containers are rows of arrays and a step is one call of compiled code, so that a week of a large cluster takes minutes.
It follows the kernel and the kubelet where these decide:

- CPU of a node is shared by weight (the request, at least two thousandths of a core), and what one does not want goes
  to the others, as the fair scheduler does: weighted max-min. Nobody gets more than it wants or than its limit.
- Throttled is the share of the kernel's periods (0.1 s) in which the limit held a container back. Within a step
  demand goes up and down (`burst`, its coefficient of variation from period to period), and what is held back is done
  later: a random walk that is kept from falling below 0, whose chance to stand above 0 is known (Spitzer).
- A container that wants more memory than its limit is killed. When those of a node want more than the node has, the
  kernel kills the one with the highest score, share of memory held plus the adjustment by quality of service that the
  kubelet gives, until the rest fits.
- A killed container comes back at once the first time, then after 10 s, 20 s and so on to 5 minutes; ten minutes
  without a kill forgive all.

A kill happens at the end of a step, and at most one a step to each container: what a shorter back-off would make of a
long step is left out. So is what memory does between two steps, and that CPU takes time to move between nodes' cores.

Pure and deterministic: arrays in, arrays out, sums always in the order of rows, no clock and no chance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int32]
Flags = npt.NDArray[np.int8]

UNSCHEDULED = -1
"""The node of a row that is free, or whose pod waits for one."""

GUARANTEED, BURSTABLE, BEST_EFFORT = 0, 1, 2

NOT_KILLED, KILLED_BY_LIMIT, KILLED_BY_NODE = 0, 1, 2
"""The OOM kill of a container in a step: none, by its own limit, or by its node."""

MIN_CPU_WEIGHT = 0.002
BACKOFF_INITIAL, BACKOFF_MAX, BACKOFF_RESET = 10.0, 300.0, 600.0
"""Seconds, as the kubelet has them."""


class Containers(NamedTuple):
    """A row a container. Cores, bytes, seconds; a limit that is not there is infinite."""

    node: Indices
    qos: Flags
    cpu_request: Floats
    cpu_limit: Floats
    memory_request: Floats
    memory_limit: Floats
    burst: Floats
    """The variation of CPU demand between CFS periods, as a share of its mean; 0 for none."""

    runs_from: Floats
    """From when on it runs: until then it starts, or waits after a kill."""
    backoff_count: Indices
    """Kills since it was last forgiven."""
    restarts: Indices

    cpu: Floats
    """The mean usage of the last step."""
    throttled: Floats
    """The share of periods in which the limit throttled it."""
    memory: Floats
    """The memory that it held; for an OOM-killed container, until the kill."""
    killed: Flags
    """True if it was OOM-killed."""

    @classmethod
    def empty(cls, rows: int) -> Containers:
        """Return rows without a node, requests or limits."""

        def floats(value: float = 0.0) -> Floats:
            return np.full(rows, value)

        return cls(
            node=np.full(rows, UNSCHEDULED, np.int32),
            qos=np.full(rows, BEST_EFFORT, np.int8),
            cpu_request=floats(),
            cpu_limit=floats(np.inf),
            memory_request=floats(),
            memory_limit=floats(np.inf),
            burst=floats(),
            runs_from=floats(-np.inf),
            backoff_count=np.zeros(rows, np.int32),
            restarts=np.zeros(rows, np.int32),
            cpu=floats(),
            throttled=floats(),
            memory=floats(),
            killed=np.zeros(rows, np.int8),
        )


class Nodes(NamedTuple):
    """A row a node: what it has, and what its containers used of it in the last step."""

    cpu_capacity: Floats
    memory_capacity: Floats
    cpu: Floats
    memory: Floats
    """Held by those that were not killed."""
    kills: Indices
    """In the last step."""

    @classmethod
    def from_capacity(cls, cpu: Floats, memory: Floats) -> Nodes:
        count = len(cpu)
        return cls(
            np.asarray(cpu, np.float64),
            np.asarray(memory, np.float64),
            np.zeros(count),
            np.zeros(count),
            np.zeros(count, np.int32),
        )


def step(
    containers: Containers,
    nodes: Nodes,
    *,
    cpu: Floats,
    memory: Floats,
    now: float,
    seconds: float,
) -> int:
    """Let `seconds` pass from `now` while each container wants this much CPU and memory; the number of kills.

    What comes of it is written into the arrays of both. A demand that is NaN is none.
    """
    return int(_step(containers, nodes, cpu, memory, now, seconds))


@njit(cache=True, error_model="numpy")
def _step(
    containers: Containers, nodes: Nodes, cpu: Floats, memory: Floats, now: float, seconds: float
) -> int:
    for index in range(len(nodes.cpu)):
        nodes.cpu[index], nodes.memory[index], nodes.kills[index] = 0.0, 0.0, 0
    held_back = _apply_demand(containers, nodes, cpu, memory, now, seconds)
    contended = False
    for index in range(len(nodes.cpu)):
        if nodes.cpu[index] > nodes.cpu_capacity[index] or nodes.memory[index] > nodes.memory_capacity[index]:
            contended = True
            break
    # In most steps no node is contended, and the rows need not be grouped.
    if contended:
        _resolve_contention(containers, nodes)
    _throttle(containers.cpu, containers.cpu_limit, containers.burst, containers.throttled, cpu)
    total = 0
    if held_back or contended:
        end = now + seconds
        for row in range(len(containers.node)):
            if containers.killed[row] != NOT_KILLED:
                total += 1
                nodes.kills[containers.node[row]] += 1
                _restart_after_kill(
                    containers.backoff_count, containers.restarts, containers.runs_from, row, end
                )
    return total


@njit(cache=True, error_model="numpy")
def _apply_demand(
    containers: Containers, nodes: Nodes, cpu: Floats, memory: Floats, now: float, seconds: float
) -> bool:
    """Return what each container would use alone on its node, and whether any exceeds its own limit."""
    killed = False
    end = now + seconds
    for row in range(len(containers.node)):
        index = containers.node[row]
        containers.killed[row] = NOT_KILLED
        resumes = containers.runs_from[row]
        if index < 0 or resumes >= end:
            containers.cpu[row] = 0.0
            containers.memory[row] = 0.0
            continue
        wanted, held = cpu[row], memory[row]
        # Also true for NaN, which a recording has where samples are missing.
        if not wanted > 0.0:
            wanted = 0.0
        if not held > 0.0:
            held = 0.0
        wanted = min(wanted, containers.cpu_limit[row])
        if resumes > now:
            # The container starts within this step and uses CPU only for the rest of it.
            wanted *= (end - resumes) / seconds
        containers.cpu[row] = wanted
        nodes.cpu[index] += wanted
        if held > containers.memory_limit[row]:
            containers.memory[row] = containers.memory_limit[row]
            # Its memory does not count on the node: the kernel killed the container before it could hold more.
            containers.killed[row] = KILLED_BY_LIMIT
            killed = True
        else:
            containers.memory[row] = held
            nodes.memory[index] += held
    return killed


@njit(cache=True, error_model="numpy")
def group_rows_by_node(node: Indices, count: int) -> tuple[Indices, Indices]:
    """Return all rows that have a node, grouped by node, and where those of each node begin and end."""
    firsts = np.zeros(count + 1, np.int32)
    for index in node:
        if index >= 0:
            firsts[index + 1] += 1
    for index in range(count):
        firsts[index + 1] += firsts[index]
    rows = np.empty(firsts[count], np.int32)
    ends = firsts[:count].copy()
    for row in range(len(node)):
        if node[row] >= 0:
            rows[ends[node[row]]] = row
            ends[node[row]] += 1
    return rows, firsts


@njit(cache=True, error_model="numpy")
def _resolve_contention(containers: Containers, nodes: Nodes) -> None:
    """Share CPU and kill for memory on the nodes that are asked for more than they have."""
    rows, firsts = group_rows_by_node(containers.node, len(nodes.cpu))
    for index in range(len(nodes.cpu)):
        node_rows = rows[firsts[index] : firsts[index + 1]]
        if nodes.cpu[index] > nodes.cpu_capacity[index]:
            _share_cpu(containers.cpu_request, containers.cpu, node_rows, nodes.cpu_capacity[index])
            nodes.cpu[index] = 0.0
            for row in node_rows:
                nodes.cpu[index] += containers.cpu[row]
        # One victim at a time, as the kernel does: a single kill is often enough.
        while nodes.memory[index] > nodes.memory_capacity[index]:
            victim = _select_oom_victim(
                containers.memory,
                containers.memory_request,
                containers.qos,
                containers.killed,
                node_rows,
                nodes.memory_capacity[index],
            )
            if victim < 0:
                break
            containers.killed[victim] = KILLED_BY_NODE
            # Subtracting the victim would leave rounding errors: sum again, so that an empty node has exactly 0.
            nodes.memory[index] = 0.0
            for row in node_rows:
                if containers.killed[row] == NOT_KILLED:
                    nodes.memory[index] += containers.memory[row]


@njit(cache=True, error_model="numpy")
def _share_cpu(request: Floats, cpu: Floats, rows: Indices, capacity: float) -> None:
    """Give by weight until the capacity is given, to nobody more than it wants."""
    left, weight = capacity, 0.0
    served = np.zeros(len(rows), np.int32)
    for row in rows:
        weight += max(request[row], MIN_CPU_WEIGHT)
    more = True
    while more:
        more = False
        # Rounding errors may leave slightly less than nothing, and a negative level would give negative CPU.
        level = max(left, 0.0) / weight
        for at in range(len(rows)):
            row = rows[at]
            share = max(request[row], MIN_CPU_WEIGHT)
            # Those who want less than their share are served first, and what they leave raises the level for
            # the others.
            if not served[at] and cpu[row] <= level * share:
                served[at] = 1
                left -= cpu[row]
                weight -= share
                more = True
        if weight <= 0.0:
            return
    for at in range(len(rows)):
        if not served[at]:
            row = rows[at]
            cpu[row] = level * max(request[row], MIN_CPU_WEIGHT)


@njit(cache=True, error_model="numpy")
def _select_oom_victim(
    memory: Floats, request: Floats, qos: Flags, killed: Flags, rows: Indices, capacity: float
) -> int:
    """Return the container that the kernel kills: the highest score, the first of equals; -1 if none holds memory."""
    victim, most = -1, -np.inf
    for row in rows:
        held = memory[row]
        if held <= 0.0 or killed[row] != NOT_KILLED:
            continue
        if qos[row] == GUARANTEED:
            # oom_score_adj as the kubelet sets it: -997 for Guaranteed, 1000 for BestEffort, 2 to 999 for
            # Burstable by its request.
            adjustment = -997.0
        elif qos[row] == BEST_EFFORT:
            adjustment = 1000.0
        else:
            adjustment = min(max(1000.0 - 1000.0 * request[row] / capacity, 2.0), 999.0)
        # In thousandths, like the kernel's badness, so that the adjustment weighs as much as there.
        score = 1000.0 * held / capacity + adjustment
        if score > most:
            victim, most = row, score
    return victim


@njit(cache=True, error_model="numpy")
def _throttle(used: Floats, limits: Floats, burst: Floats, throttled: Floats, wanted: Floats) -> None:
    for row in range(len(used)):
        got, limit = used[row], limits[row]
        if not got > 0.0 or limit == np.inf:
            throttled[row] = 0.0
        # Demand above the limit piles up in every period, so that no variation between periods can free one.
        elif got >= limit and wanted[row] > limit:
            throttled[row] = 1.0
        else:
            throttled[row] = compute_throttled_share(got, limit, burst[row])


@njit(cache=True, error_model="numpy")
def compute_throttled_share(used: float, limit: float, burst: float) -> float:
    """Return the share of periods in which a container that uses this share of its limit is throttled.

    Demand of a period is normal; 1 - exp(-sum over k of P(k periods are over the limit) / k) is Spitzer's answer, and
    this is within 0.003 of it.
    """
    if burst <= 0.0 or used <= 0.0:
        return 0.0
    headroom = (limit - used) / (burst * used)
    # The share is practically 0 here, and the exponential would cost time.
    if headroom > 40.0:
        return 0.0
    return float(np.exp(-1.41421356 * headroom - 0.2 * headroom * headroom))


@njit(cache=True, error_model="numpy")
def _restart_after_kill(crashes: Indices, restarts: Indices, resumes: Floats, row: int, at: float) -> None:
    # The kubelet forgives by the time since the start, so that the wait before it does not count as running
    # well.
    if at - resumes[row] >= BACKOFF_RESET:
        crashes[row] = 0
    before = crashes[row]
    wait = 0.0 if before == 0 else min(BACKOFF_INITIAL * 2.0 ** (before - 1), BACKOFF_MAX)
    crashes[row] = min(before + 1, 16)
    restarts[row] += 1
    resumes[row] = at + wait
