"""The decisions of kubelets: whether a resize is accepted, deferred or infeasible, and which pod a node without memory
evicts.

As Kubernetes 1.35 has it: a resize that does not fit beside the others is deferred and tried again, one that never fits
is infeasible, and memory is not made less than is in use. A node that is short of memory evicts the pod that holds
most beyond its request, one a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.kube.kinds.pods import PodResize, Resources
from trimtab.lab.simulator.objects import SimulatedPod, sum_requests
from trimtab.lab.simulator.physics import group_rows_by_node

if TYPE_CHECKING:
    from trimtab.lab.simulator.world import SimulatedWorld

RESIZE_DELAY = 2.0
"""The seconds from the request to the kubelet's answer."""
RESIZE_RETRY_DELAY = 30.0
"""The seconds until the kubelet retries."""
EVICTION_THRESHOLD = 100 * 2.0**20
"""Bytes that a node wants to have left, by default."""

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"


def decide_resize(world: SimulatedWorld, pod: SimulatedPod, now: float) -> None:
    """Apply a resize, or set the condition that explains why it is not applied."""
    wanted = [each.resources for each in pod.containers]
    cpu, memory = sum_requests(wanted)
    had_cpu, had_memory = sum_requests(pod.applied)
    # Not retried: an infeasible resize stays so until its spec changes.
    if not world.nodes.fits_empty_node(pod.node, cpu, memory):
        _set_resize_condition(
            world,
            pod,
            PodResize(PENDING, "Infeasible", "Node didn't have enough capacity"),
            "ResizeInfeasible",
        )
        return
    if not world.nodes.has_capacity(pod.node, cpu - had_cpu, memory - had_memory):
        _set_resize_condition(
            world,
            pod,
            PodResize(PENDING, "Deferred", "Node didn't have enough resource"),
            "ResizeDeferred",
            now,
        )
        return
    if problem := _check_memory_in_use(world, pod, wanted):
        _set_resize_condition(world, pod, PodResize(IN_PROGRESS, "Error", problem), "ResizeError", now)
        return
    for place, (row, resources) in enumerate(zip(pod.rows, wanted, strict=True)):
        restarts = pod.containers[place].restart_on_memory_resize
        # With RestartContainer, a container restarts only for a change of the resource that names this
        # policy.
        if restarts and resources.memory != pod.applied[place].memory:
            world.container_arrays.containers.restarts[row] += 1
            pod.restarts[place] += 1
            world.container_arrays.containers.runs_from[row] = now + pod.workload.spec.startup_seconds
            world.due_times.put(pod.uid, now + pod.workload.spec.startup_seconds)
    world.apply_resize(pod)
    world.record_event(
        pod.workload, pod.name, "Normal", "Resized", "the pod's containers have the requested size"
    )


def _set_resize_condition(
    world: SimulatedWorld, pod: SimulatedPod, answer: PodResize, reason: str, now: float | None = None
) -> None:
    # Each retry gives the same answer: reported every time, it would flood the events.
    if pod.resize != answer:
        pod.resize = answer
        world.mark_changed(pod)
        world.record_event(pod.workload, pod.name, "Warning", reason, answer.message)
    if now is not None:
        pod.resize_due = now + RESIZE_RETRY_DELAY
        world.due_times.put(pod.uid, pod.resize_due)


def _check_memory_in_use(world: SimulatedWorld, pod: SimulatedPod, wanted: list[Resources]) -> str:
    for row, resources in zip(pod.rows, wanted, strict=True):
        limit, held = resources.memory_limit, int(world.container_arrays.containers.memory[row])
        # The kubelet checks the usage only for a limit that is lowered.
        if limit and limit < held and limit < world.container_arrays.containers.memory_limit[row]:
            return f"attempting to set pod memory limit ({limit}) below current usage ({held})"
    return ""


def evict_under_pressure(world: SimulatedWorld) -> None:
    """Evict one pod from each node that is short of memory."""
    nodes = world.nodes.physical
    short = np.flatnonzero(nodes.memory > nodes.memory_capacity - EVICTION_THRESHOLD)
    if not len(short):
        return
    containers = world.container_arrays.containers
    rows, firsts = group_rows_by_node(containers.node, len(nodes.memory))
    for node in short.tolist():
        node_rows = rows[firsts[node] : firsts[node + 1]].tolist()
        pods = {pod.uid: pod for pod, _ in map(world.find_container, node_rows)}
        beyond = {
            uid: sum(float(containers.memory[row] - containers.memory_request[row]) for row in pod.rows)
            for uid, pod in pods.items()
        }
        # The uid decides between equals, so that a run can be repeated.
        worst = max(beyond, key=lambda uid: (beyond[uid], uid), default=None)
        if worst is not None:
            pod = pods[worst]
            world.record_event(
                pod.workload, pod.name, "Warning", "Evicted", "The node was low on resource: memory."
            )
            world.delete_pod(pod)
