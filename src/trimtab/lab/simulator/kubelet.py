"""What kubelets decide: whether a resize is taken up, later or never, and whom a node without memory sends away.

As Kubernetes 1.35 has it: a resize that does not fit beside the others is deferred and tried again, one that never fits
is infeasible, and memory is not made less than is in use. A node that is short of memory evicts the pod that holds
most beyond its request, one a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.kube.kinds.pods import Resize, Resources
from trimtab.lab.simulator.objects import SimulatedPod, asked
from trimtab.lab.simulator.physics import rows_by_node

if TYPE_CHECKING:
    from trimtab.lab.simulator.world import World

DECIDES_IN = 2.0
"""Seconds from the request to the kubelet's answer,"""
TRIES_AGAIN_IN = 30.0
"""and until it tries again."""
SPARE = 100 * 2.0**20
"""Bytes that a node wants to have left, by default."""

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"


def decide(world: World, pod: SimulatedPod, now: float) -> None:
    """Take up a resize, or say why not."""
    wanted = [each.resources for each in pod.containers]
    cpu, memory = asked(wanted)
    had_cpu, had_memory = asked(pod.applied)
    if not world.ground.could_ever(pod.node, cpu, memory):
        _answer(
            world, pod, Resize(PENDING, "Infeasible", "Node didn't have enough capacity"), "ResizeInfeasible"
        )
        return
    if not world.ground.has_room(pod.node, cpu - had_cpu, memory - had_memory):
        _answer(
            world, pod, Resize(PENDING, "Deferred", "Node didn't have enough resource"), "ResizeDeferred", now
        )
        return
    if problem := _below_use(world, pod, wanted):
        _answer(world, pod, Resize(IN_PROGRESS, "Error", problem), "ResizeError", now)
        return
    for place, (row, resources) in enumerate(zip(pod.rows, wanted, strict=True)):
        restarts = pod.containers[place].restart_on_memory_resize
        if restarts and _memory(resources) != _memory(pod.applied[place]):
            world.rows.containers.restarts[row] += 1
            pod.restarts[place] += 1
            world.rows.containers.resumes[row] = now + pod.workload.spec.starts_in
            world.due.put(pod.uid, now + pod.workload.spec.starts_in)
    world.apply(pod)
    world.tell(pod.workload, pod.name, "Normal", "Resized", "its containers have the size that was asked for")


def _answer(world: World, pod: SimulatedPod, answer: Resize, reason: str, now: float | None = None) -> None:
    if pod.resize != answer:
        pod.resize = answer
        world.note(pod)
        world.tell(pod.workload, pod.name, "Warning", reason, answer.message)
    if now is not None:
        pod.decides = now + TRIES_AGAIN_IN
        world.due.put(pod.uid, pod.decides)


def _below_use(world: World, pod: SimulatedPod, wanted: list[Resources]) -> str:
    for row, resources in zip(pod.rows, wanted, strict=True):
        limit, held = resources.memory_limit, int(world.rows.containers.memory[row])
        if limit and limit < held and limit < world.rows.containers.memory_limit[row]:
            return f"attempting to set pod memory limit ({limit}) below current usage ({held})"
    return ""


def _memory(resources: Resources) -> tuple[int | None, int | None]:
    return resources.memory_request, resources.memory_limit


def relieve(world: World) -> None:
    """Send a pod away from each node that is short of memory."""
    nodes = world.ground.physical
    short = np.flatnonzero(nodes.memory > nodes.memory_capacity - SPARE)
    if not len(short):
        return
    containers = world.rows.containers
    rows, firsts = rows_by_node(containers.node, len(nodes.memory))
    for node in short.tolist():
        theirs = rows[firsts[node] : firsts[node + 1]].tolist()
        pods = {pod.uid: pod for pod, _ in map(world.of_row, theirs)}
        beyond = {
            uid: sum(float(containers.memory[row] - containers.memory_request[row]) for row in pod.rows)
            for uid, pod in pods.items()
        }
        worst = max(beyond, key=lambda uid: (beyond[uid], uid), default=None)
        if worst is not None:
            pod = pods[worst]
            world.tell(pod.workload, pod.name, "Warning", "Evicted", "The node was low on resource: memory.")
            world.delete(pod)
