"""Faults of the cluster itself: nodes, kubelets, crashing containers, and everyone else who writes to workloads.

Each kind is a class with what happens at its begin and at its end; `Environment` calls both at their exact times.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import numpy as np

from trimtab.actuation.change_annotations import CHANGE_ANNOTATION
from trimtab.actuation.port import ANNOTATIONS_MANAGER
from trimtab.actuation.resources import Sizes, container_sizes, merge_sizes
from trimtab.kube.kinds.pods import ContainerTermination, Pod, PodResize
from trimtab.kube.kinds.quotas import (
    LimitRange,
    LimitRangeItem,
    ResourceList,
    ResourceQuota,
    ResourceRatios,
)
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import LIMIT_RANGES, NODES, RESOURCE_QUOTAS
from trimtab.lab.faults import companion_faults
from trimtab.lab.faults.api_faults import find_mutation, round_up_memory
from trimtab.lab.faults.cluster_fault import (
    CHANGES,
    ClusterFault,
    FaultContext,
    Handler,
    cluster_fault,
    scale_resources,
)
from trimtab.lab.faults.plan import Fault, FaultDetails, FaultInjector
from trimtab.lab.faults.trace import RunTrace
from trimtab.lab.faults.usage_faults import MEMORY_SPIKE
from trimtab.lab.faults.watch_faults import WatchHub
from trimtab.lab.faults.worlds import WorldSpec
from trimtab.lab.simulator import kubelet
from trimtab.lab.simulator.namespace_limits import sum_usage
from trimtab.lab.simulator.objects import SimulatedPod, derive_uid, with_sizes
from trimtab.lab.simulator.physics import UNSCHEDULED
from trimtab.lab.simulator.world import SimulatedWorld

_DEFERRED, _INFEASIBLE = "resize-deferred", "resize-infeasible"
_SILENT, _IGNORED, _FAILING = "resize-never-answered", "resize-ignored", "resize-fails"
_RESIZES = ("resize",)
_PARTIAL = "resize-partial"
_MEMORY, _CPU, _IDLE = "demand-memory", "demand-cpu", "demand-zero"


def _draw_namespace(rng: random.Random, world: WorldSpec) -> FaultDetails:
    return FaultDetails(
        target=rng.choice(sorted({each.namespace for each in world.workloads})),
        amount=rng.choice([0.8, 1.0, 1.1, 1.5]),
    )


def _draw_node(rng: random.Random, world: WorldSpec) -> FaultDetails:
    return FaultDetails(target=f"node-{rng.randrange(world.nodes)}")


def _draw_deployment(rng: random.Random, world: WorldSpec) -> FaultDetails:
    """Draw a Deployment if there is one: no other kind of workload can be paused."""
    found = [each.key for each in world.workloads if each.kind == "Deployment"]
    return FaultDetails(target=str(rng.choice(found or [each.key for each in world.workloads])))


def _draw_spike(rng: random.Random, world: WorldSpec) -> FaultDetails:
    """Draw any workload: sizes that are only recommended have to be enough for the next spike, too."""
    return FaultDetails(
        target=str(rng.choice([each.key for each in world.workloads])), amount=rng.choice([2.0, 4.0, 8.0])
    )


def _lose_node(context: FaultContext, fault: Fault) -> None:
    world, node = context.world, int(fault.target.removeprefix("node-"))
    if not world.nodes.active[node] or world.nodes.active.sum() < 2:
        return
    world.nodes.deactivate(node)
    for pod in [pod for pod in world.pods.values() if pod.node == node]:
        world.delete_pod(pod)
    record = next(each for each in world.nodes.to_records() if each.name == fault.target)
    context.memory[fault.seed] = record
    context.hub.remove(NODES, record)
    context.injector.record(fault, fault.target)
    world.process_due(world.control_time)


def _restore_node(context: FaultContext, fault: Fault) -> None:
    if record := context.memory.pop(fault.seed, None):
        context.world.nodes.activate(int(fault.target.removeprefix("node-")))
        context.hub.put(NODES, record)
        context.world.retry_pending()


def _set_node_ready(context: FaultContext, fault: Fault, *, ready: bool) -> None:
    world, node = context.world, int(fault.target.removeprefix("node-"))
    record = context.hub.objects.get((NODES, "", fault.target))
    if record is None:
        return
    context.hub.put(NODES, msgspec.structs.replace(record, ready=ready, version=record.version + 1))
    for pod in [pod for pod in world.pods.values() if pod.node == node]:
        pod.ready = False
        world.mark_changed(pod)
        world.enqueue(pod.workload)
        if ready:
            world.due_times.put(pod.uid, world.control_time)
    if not ready:
        context.injector.record(fault, fault.target)
    world.process_due(world.control_time)


def _fill_node(context: FaultContext, fault: Fault) -> None:
    nodes, node = context.world.nodes, int(fault.target.removeprefix("node-"))
    taken = max(int(nodes.cpu_left[node]), 0), max(int(nodes.memory_left[node]), 0)
    nodes.reserve(node, *taken)
    context.memory[fault.seed] = taken
    context.injector.record(fault, fault.target)


def _empty_node(context: FaultContext, fault: Fault) -> None:
    taken = context.memory.pop(fault.seed, None)
    if isinstance(taken, tuple):
        cpu, memory = taken
        context.world.nodes.reserve(int(fault.target.removeprefix("node-")), -cpu, -memory)
        context.world.retry_pending()


def _scale(context: FaultContext, fault: Fault) -> None:
    if workload := context.find_workload(fault):
        rng = context.injector.rng(fault)
        replicas = rng.choice([0, 1, workload.replicas + 1, workload.replicas * 2])
        context.memory[fault.seed] = workload.replicas
        context.injector.record(fault, f"{workload.spec.key} to {replicas} replicas")
        context.world.scale_workload(workload.spec.key, replicas)
        context.world.process_due(context.world.control_time)


def _scale_back(context: FaultContext, fault: Fault) -> None:
    replicas = context.memory.pop(fault.seed, None)
    if isinstance(replicas, int) and (workload := context.find_workload(fault)):
        context.world.scale_workload(workload.spec.key, replicas)
        context.world.process_due(context.world.control_time)


def _edit_template(context: FaultContext, fault: Fault) -> None:
    """Write other sizes to the template, as a user or a GitOps tool does."""
    if workload := context.find_workload(fault):
        factor = context.injector.rng(fault).choice([0.8, 1.5, 2.0])
        workload.containers = tuple(
            msgspec.structs.replace(each, resources=scale_resources(each.resources, factor))
            for each in workload.containers
        )
        workload.start_revision()
        context.injector.record(fault, f"{workload.spec.key} by {factor}")
        context.touch(workload)


def _reset_template(context: FaultContext, fault: Fault) -> None:
    """Write the original sizes to the template, as a GitOps tool does when it finds a difference."""
    if (workload := context.find_workload(fault)) is None:
        return
    original = {each.name: each.resources for each in workload.spec.containers}
    wanted = with_sizes(workload.containers, original)
    if wanted != workload.containers:
        workload.containers = wanted
        workload.start_revision()
        context.injector.record(fault, str(workload.spec.key))
        context.touch(workload)


def _start_rollout(context: FaultContext, fault: Fault) -> None:
    if workload := context.find_workload(fault):
        context.memory[fault.seed] = workload.uid, workload.revision, workload.containers
        workload.start_revision()
        context.injector.record(fault, str(workload.spec.key))
        context.touch(workload)


def _start_broken_rollout(context: FaultContext, fault: Fault) -> None:
    """Begin a rollout to a version whose pods never become ready."""
    if workload := context.find_workload(fault):
        workload.broken_revision = workload.last_revision + 1
        _start_rollout(context, fault)


def _undo_rollout(context: FaultContext, fault: Fault) -> None:
    """Go back to the template of before, and to its pods, as `kubectl rollout undo` does."""
    found = context.memory.pop(fault.seed, None)
    if isinstance(found, tuple) and (workload := context.find_workload(fault)):
        uid, revision, containers = found
        if workload.uid == uid:
            workload.broken_revision = 0
            workload.revision, workload.containers = revision, containers
            context.touch(workload)


def _pause_rollout(context: FaultContext, fault: Fault) -> None:
    """Begin a rollout, and pause it before the second pod is replaced."""
    if (workload := context.find_workload(fault)) and workload.spec.kind == "Deployment":
        _start_rollout(context, fault)
        workload.paused = True
        context.touch(workload)


def _resume_rollout(context: FaultContext, fault: Fault) -> None:
    if workload := context.find_workload(fault):
        workload.paused = False
        context.touch(workload)


def _recreate_workload(context: FaultContext, fault: Fault) -> None:
    if workload := context.find_workload(fault):
        context.injector.record(fault, fault.target)
        context.world.recreate_workload(workload.spec.key)
        context.world.process_due(context.world.control_time)


def _remove_annotations(context: FaultContext, fault: Fault) -> None:
    """Remove our annotations, as a tool does that applies a manifest over everything."""
    if (workload := context.find_workload(fault)) and workload.annotations.pop(ANNOTATIONS_MANAGER, None):
        context.injector.record(fault, fault.target)
        context.world.mark_changed(workload)


def _garble_annotations(context: FaultContext, fault: Fault) -> None:
    if workload := context.find_workload(fault):
        theirs = dict(workload.annotations.get(ANNOTATIONS_MANAGER, {}))
        context.memory[fault.seed] = True
        workload.annotations[ANNOTATIONS_MANAGER] = {
            **theirs,
            CHANGE_ANNOTATION: '{"version": 99, "mark": {}}',
        }
        context.injector.record(fault, fault.target)
        context.world.mark_changed(workload)


def _clear_annotations(context: FaultContext, fault: Fault) -> None:
    """Remove annotations that nobody can read, as our Event asks people to."""
    workload = context.find_workload(fault)
    if context.memory.pop(fault.seed, None) and workload:
        workload.annotations.pop(ANNOTATIONS_MANAGER, None)
        context.world.mark_changed(workload)


def _cordon_node(context: FaultContext, fault: Fault) -> None:
    """Cordon a node and evict its pods, as `kubectl drain` does."""
    world, node = context.world, int(fault.target.removeprefix("node-"))
    record = context.hub.objects.get((NODES, "", fault.target))
    if record is None or not world.nodes.active[node]:
        return
    world.nodes.cordon(node)
    context.memory[fault.seed] = True
    context.hub.put(NODES, msgspec.structs.replace(record, unschedulable=True, version=record.version + 1))
    context.injector.record(fault, fault.target)
    for pod in [pod for pod in world.pods.values() if pod.node == node]:
        if context.injector.rng(fault).random() < fault.share:
            world.delete_pod(pod)
    world.process_due(world.control_time)


def _uncordon_node(context: FaultContext, fault: Fault) -> None:
    if context.memory.pop(fault.seed, None):
        context.world.nodes.uncordon(int(fault.target.removeprefix("node-")))
        if record := context.hub.objects.get((NODES, "", fault.target)):
            free = msgspec.structs.replace(record, unschedulable=False, version=record.version + 1)
            context.hub.put(NODES, free)
        context.world.retry_pending()


def _set_quota(context: FaultContext, fault: Fault) -> None:
    """Create a ResourceQuota a little above or below what the namespace uses."""
    world, namespace = context.world, fault.target
    if namespace in world.quotas:
        return
    rng = context.injector.rng(fault)
    requests, limits = sum_usage(pod.containers for pod in world.pods.values() if pod.namespace == namespace)

    def part(used: ResourceList) -> ResourceList:
        return ResourceList(
            *(
                int(amount * fault.amount) if amount and rng.random() < 0.7 else None
                for amount in (used.cpu, used.memory)
            )
        )

    version = int(world.control_time)
    uid = derive_uid("quota", namespace, fault.seed)
    world.quotas[namespace] = ResourceQuota(
        namespace, "quota", uid, version, part(requests), part(limits), requests, limits, is_scoped=False
    )
    context.memory[fault.seed] = True
    context.injector.record(fault, f"{namespace}: {world.quotas[namespace]}")
    context.hub.put_quota(namespace)


def _remove_quota(context: FaultContext, fault: Fault) -> None:
    if context.memory.pop(fault.seed, None):
        quota = context.world.quotas.pop(fault.target)
        known = context.hub.objects[RESOURCE_QUOTAS, fault.target, quota.name]
        context.hub.remove(RESOURCE_QUOTAS, msgspec.structs.replace(known, version=known.version + 1))


def _set_limit_range(context: FaultContext, fault: Fault) -> None:
    """Create a LimitRange whose bounds cut through the sizes of the namespace."""
    world, namespace = context.world, fault.target
    if namespace in world.limit_ranges:
        return
    rng, none = context.injector.rng(fault), ResourceList()
    sizes = [
        each.resources.with_implied_requests()
        for pod in world.pods.values()
        if pod.namespace == namespace
        for each in pod.containers
    ]
    most_cpu = max((size.cpu_limit or size.cpu_request or 0 for size in sizes), default=0) or 100
    most_memory = (
        max((size.memory_limit or size.memory_request or 0 for size in sizes), default=0) or 256 << 20
    )
    item = LimitRangeItem(
        "Container",
        min=ResourceList(rng.choice([5, 20, 100]), rng.choice([16 << 20, 64 << 20])),
        max=ResourceList(int(most_cpu * fault.amount), int(most_memory * fault.amount)),
        default_request=none,
        default_limit=none,
        max_limit_request_ratio=ResourceRatios(),
    )
    uid = derive_uid("limit-range", namespace, fault.seed)
    found = LimitRange(namespace, "limits", uid, int(world.control_time), (item,))
    world.limit_ranges[namespace] = found
    context.memory[fault.seed] = True
    context.injector.record(fault, f"{namespace}: {item.min} to {item.max}")
    context.hub.put(LIMIT_RANGES, found)


def _remove_limit_range(context: FaultContext, fault: Fault) -> None:
    if context.memory.pop(fault.seed, None):
        found = context.world.limit_ranges.pop(fault.target)
        context.hub.remove(LIMIT_RANGES, msgspec.structs.replace(found, version=found.version + 1))


def _resize_pods(context: FaultContext, fault: Fault) -> None:
    """Resize running pods, as a user or another controller does."""
    if workload := context.find_workload(fault):
        for pod in list(workload.pods.values()):
            if context.injector.rng(fault).random() < fault.share:
                pod.containers = tuple(
                    msgspec.structs.replace(each, resources=scale_resources(each.resources, fault.amount))
                    for each in pod.containers
                )
                pod.resize = PodResize(kubelet.IN_PROGRESS, "", "")
                pod.resize_due = context.world.control_time + kubelet.RESIZE_DELAY
                context.world.due_times.put(pod.uid, pod.resize_due)
                context.world.mark_changed(pod)
                context.injector.record(fault, pod.name)


def _delete_pods(context: FaultContext, fault: Fault) -> None:
    if workload := context.find_workload(fault):
        for pod in list(workload.pods.values()):
            if context.injector.rng(fault).random() < fault.share:
                context.injector.record(fault, pod.name)
                context.world.delete_pod(pod)
        context.world.process_due(context.world.control_time)


def _crash(context: FaultContext, fault: Fault) -> None:
    """Let containers of some pods exit with an error; they wait as long as the fault lasts, at most five minutes."""
    world = context.world
    if workload := context.find_workload(fault):
        for pod in list(workload.pods.values()):
            if pod.node == UNSCHEDULED or context.injector.rng(fault).random() >= fault.share:
                continue
            row = pod.rows[0]
            containers = world.container_arrays.containers
            containers.restarts[row] += 1
            containers.backoff_count[row] = min(int(containers.backoff_count[row]) + 1, 16)
            wait = min(10.0 * 2.0 ** int(containers.backoff_count[row]), 300.0)
            containers.runs_from[row] = world.control_time + wait
            pod.restarts[0] = int(containers.restarts[row])
            pod.last_exits[0] = ContainerTermination("Error", 1, int(world.control_time))
            pod.ready = False
            world.mark_changed(pod)
            world.enqueue(workload)
            world.due_times.put(pod.uid, float(containers.runs_from[row]))
            context.injector.record(fault, pod.name)
        world.process_due(world.control_time)


def _notice_ignored(context: FaultContext, fault: Fault) -> None:
    """Let the kubelet find, when its runtime works again, that containers do not have their size."""
    if workload := context.find_workload(fault):
        for pod in workload.pods.values():
            if pod.node != UNSCHEDULED and pod.applied != [each.resources for each in pod.containers]:
                pod.resize = PodResize(kubelet.IN_PROGRESS, "", "")
                pod.resize_due = context.world.control_time + kubelet.RESIZE_DELAY
                context.world.due_times.put(pod.uid, pod.resize_due)
                context.world.mark_changed(pod)


_FAULTS: Sequence[ClusterFault] = (
    cluster_fault(
        "node-lost",
        "A node vanishes with its pods.",
        _lose_node,
        _restore_node,
        draw=_draw_node,
        calls=CHANGES,
    ),
    cluster_fault(
        "node-not-ready",
        "A node is NotReady, and so are its pods.",
        lambda context, fault: _set_node_ready(context, fault, ready=False),
        lambda context, fault: _set_node_ready(context, fault, ready=True),
        draw=_draw_node,
    ),
    cluster_fault(
        "node-full", "A node has no room left.", _fill_node, _empty_node, draw=_draw_node, calls=CHANGES
    ),
    cluster_fault(_DEFERRED, "The kubelet defers resizes of a workload's pods.", calls=_RESIZES),
    cluster_fault(_INFEASIBLE, "The kubelet finds resizes of a workload's pods infeasible.", calls=_RESIZES),
    cluster_fault(_SILENT, "The kubelet never answers to resizes of a workload's pods.", calls=_RESIZES),
    cluster_fault(
        _IGNORED,
        "The container runtime reports success of a resize and changes nothing.",
        end=_notice_ignored,
        calls=_RESIZES,
        weight=2.0,
    ),
    cluster_fault(_FAILING, "The container runtime fails resizes with an error.", calls=_RESIZES),
    cluster_fault(
        _PARTIAL,
        "The kubelet resizes one container of a pod, and defers the others.",
        calls=_RESIZES,
    ),
    cluster_fault(_MEMORY, "Containers want more memory, up to four times as much."),
    cluster_fault(
        MEMORY_SPIKE,
        "Containers want up to eight times as much memory for a moment, between two samples.",
        draw=_draw_spike,
        hides_usage=True,
        duration=(300.0, 900.0),
        weight=2.0,
    ),
    cluster_fault(_CPU, "Containers want more CPU, up to four times as much."),
    cluster_fault(_IDLE, "Containers want nothing."),
    cluster_fault("crash-loop", "Containers crash again and again.", _crash, every=200.0),
    cluster_fault(
        "other-scales", "A user or an autoscaler scales a workload.", _scale, _scale_back, calls=CHANGES
    ),
    cluster_fault(
        "other-edits-template", "A user writes other sizes to a template.", _edit_template, calls=CHANGES
    ),
    cluster_fault(
        "gitops-resets-template",
        "A GitOps tool writes the original sizes to a template whenever they differ.",
        _reset_template,
        every=180.0,
        calls=("patch",),
    ),
    cluster_fault(
        "other-resizes-pods", "Another controller resizes running pods.", _resize_pods, calls=CHANGES
    ),
    cluster_fault("other-deletes-pods", "A user deletes pods.", _delete_pods, calls=CHANGES),
    cluster_fault(
        "rollout", "A rollout begins, and is rolled back.", _start_rollout, _undo_rollout, calls=CHANGES
    ),
    cluster_fault(
        "rollout-broken",
        "A rollout begins to a version whose pods never become ready, and is rolled back.",
        _start_broken_rollout,
        _undo_rollout,
        calls=CHANGES,
    ),
    cluster_fault(
        "rollout-paused",
        "A rollout begins and is paused for a while.",
        _pause_rollout,
        _resume_rollout,
        draw=_draw_deployment,
        calls=CHANGES,
    ),
    cluster_fault(
        "workload-recreated",
        "A workload is deleted, and created again under the same name.",
        _recreate_workload,
        calls=CHANGES,
    ),
    cluster_fault(
        "other-removes-annotations",
        "Another tool removes the annotations of a change.",
        _remove_annotations,
        calls=_RESIZES,  # there are annotations then
        weight=2.0,
    ),
    cluster_fault(
        "other-garbles-annotations",
        "Somebody writes an annotation that cannot be read, and removes it later.",
        _garble_annotations,
        _clear_annotations,
        calls=CHANGES,
    ),
    cluster_fault(
        "node-drained",
        "A node is cordoned and its pods are evicted; later it takes pods again.",
        _cordon_node,
        _uncordon_node,
        draw=_draw_node,
        calls=CHANGES,
    ),
    cluster_fault(
        "quota-set",
        "A ResourceQuota is created that leaves little or nothing, and deleted later.",
        _set_quota,
        _remove_quota,
        draw=_draw_namespace,
        calls=CHANGES,
        contract="tests/lab/simulator/test_namespace_limits.py",
    ),
    cluster_fault(
        "limit-range-set",
        "A LimitRange is created that forbids sizes of running pods, and deleted later.",
        _set_limit_range,
        _remove_limit_range,
        draw=_draw_namespace,
        calls=CHANGES,
        contract="tests/lab/simulator/test_namespace_limits.py",
    ),
)

KINDS = tuple(each.kind for each in (*_FAULTS, *companion_faults.FAULTS))


class Environment:
    """The faults of the cluster, at their times."""

    def __init__(
        self, world: SimulatedWorld, hub: WatchHub, injector: FaultInjector, trace: RunTrace
    ) -> None:
        self._world = world
        self._injector = injector
        self._context = FaultContext(world, hub, injector, trace)
        self._agenda: list[tuple[float, int, Fault, Handler]] = []
        self._faults = {each.kind.name: each for each in (*_FAULTS, *companion_faults.FAULTS)}
        injector.subscribe(self._schedule)
        world.intercept_resize = self._intercept_resize
        world.change_demand = self._change_demand

    def _schedule(self, fault: Fault) -> None:
        found = self._faults.get(fault.kind)
        if found is None:
            return
        start, end = self._injector.period(fault)
        begins = [start]
        while found.every and begins[-1] + found.every < end:
            begins.append(begins[-1] + found.every)
        self._agenda += [(at, fault.seed, fault, found.begin) for at in begins]
        self._agenda.append((end, fault.seed, fault, found.end))
        self._agenda.sort(key=lambda entry: entry[:2])
        if fault.call:
            self.process_due()  # in the middle of what the operator does

    @property
    def next_due(self) -> float | None:
        """The time at which the next fault begins or ends; None if none does any more."""
        return self._world.start + self._agenda[0][0] if self._agenda else None

    def process_due(self) -> None:
        """Begin and end the faults that are due."""
        while self._agenda and self._world.start + self._agenda[0][0] <= self._world.control_time:
            _, _, fault, handler = self._agenda.pop(0)
            handler(self._context, fault)

    def _intercept_resize(self, pod: SimulatedPod, now: float) -> bool:
        key = str(pod.workload.spec.key)
        for kind, answer in (
            (_DEFERRED, PodResize(kubelet.PENDING, "Deferred", "Node didn't have enough resource: cpu")),
            (_INFEASIBLE, PodResize(kubelet.PENDING, "Infeasible", "Node didn't have enough capacity: cpu")),
            (_FAILING, PodResize(kubelet.IN_PROGRESS, "Error", "failed to update the cgroup")),
            (_SILENT, pod.resize),
        ):
            if fault := self._hit_workload(kind, key):
                self._injector.record(fault, pod.name)
                if pod.resize != answer:
                    pod.resize = answer
                    self._world.mark_changed(pod)
                # Otherwise nothing would look at the pod again when the fault is over.
                pod.resize_due = now + kubelet.RESIZE_RETRY_DELAY
                self._world.due_times.put(pod.uid, pod.resize_due)
                return True
        if (fault := self._hit_workload(_PARTIAL, key)) and len(pod.containers) > 1:
            self._injector.record(fault, pod.name)
            self._apply_first(pod)
            pod.resize = PodResize(kubelet.PENDING, "Deferred", "Node didn't have enough resource: cpu")
            pod.resize_due = now + kubelet.RESIZE_RETRY_DELAY
            self._world.due_times.put(pod.uid, pod.resize_due)
            return True
        if fault := self._hit_workload(_IGNORED, key):
            self._injector.record(fault, pod.name)
            pod.resize = None
            self._world.mark_changed(pod)
            return True
        return False

    def _apply_first(self, pod: SimulatedPod) -> None:
        """Give the first container its size, and leave the others as they are."""
        wanted, applied = pod.containers, pod.applied
        pod.containers = tuple(
            msgspec.structs.replace(each, resources=size if place else each.resources)
            for place, (each, size) in enumerate(zip(wanted, applied, strict=True))
        )
        self._world.apply_resize(pod)
        pod.containers = wanted
        self._world.mark_changed(pod)

    def _hit_workload(self, kind: str, key: str) -> Fault | None:
        return next((fault for fault in self._injector.active(kind) if fault.target == key), None)

    def _change_demand(self) -> None:
        arrays = self._world.container_arrays
        for kind in (_MEMORY, MEMORY_SPIKE, _CPU, _IDLE):
            for fault in self._injector.active(kind):
                if (workload := self._context.find_workload(fault)) is None:
                    continue
                rows = np.flatnonzero(arrays.workload == workload.number)
                self._injector.record(fault, f"{fault.target} by {fault.amount}")
                if kind in {_MEMORY, MEMORY_SPIKE}:
                    arrays.memory_demand[rows] *= fault.amount
                else:
                    arrays.cpu_demand[rows] *= fault.amount if kind == _CPU else 0.0

    def admit(self, pod: Pod, sizes: Sizes) -> Sizes:
        """Return the sizes of a new pod after a webhook that runs behind the operator's own."""
        assert pod.owner is not None, "every simulated pod has an owner"
        fault = find_mutation(self._injector, WorkloadKey(pod.owner.kind, pod.namespace, pod.owner.name))
        if fault is None:
            return sizes
        self._injector.record(fault, pod.name)
        return round_up_memory(merge_sizes(container_sizes(pod.containers), sizes))
