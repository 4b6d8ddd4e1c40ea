"""A simulated cluster as time passes: controllers, scheduler, kubelets and the physics of containers, step by step.

Requests may come at any time between two steps; what takes time (a pod's start, a resize) is done by the first call of
`process_due` after its due time. Everything follows from the scenario and the seed: the same calls give the same cluster, to
the last bit. The operator (`simulation`) and its view of the world (`fake_cluster`, `simulated_informers`) are separate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from trimtab.actuation.resources import Sizes
from trimtab.kube.errors import Forbidden
from trimtab.kube.kinds import pod_requests
from trimtab.kube.kinds.pods import Container, ContainerTermination, Pod
from trimtab.kube.kinds.quotas import LimitRange, ResourceQuota
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.runtime.delay_heap import DelayHeap
from trimtab.lab.simulator import kubelet
from trimtab.lab.simulator.container_arrays import ContainerArrays
from trimtab.lab.simulator.demand import compute_demand
from trimtab.lab.simulator.latency import QUANTILES, compute_latencies
from trimtab.lab.simulator.namespace_limits import (
    check_limit_range,
    check_quota,
    fill_defaults,
    sum_usage,
)
from trimtab.lab.simulator.nodes import SimulatedNodes
from trimtab.lab.simulator.objects import (
    SimulatedPod,
    SimulatedWorkload,
    derive_uid,
    sum_requests,
    with_sizes,
)
from trimtab.lab.simulator.physics import (
    BEST_EFFORT,
    BURSTABLE,
    GUARANTEED,
    KILLED_BY_LIMIT,
    NOT_KILLED,
    UNSCHEDULED,
    Floats,
    step,
)
from trimtab.lab.simulator.rollout import reconcile_workload
from trimtab.lab.simulator.scenario import SCALABLE_KINDS, Scenario, WorkloadSpec

MONDAY = 1767571200.0
"""The midnight before the first Monday of 2026: a simulation's week begins with its working days."""
_WEEK = 7 * 86400.0
_FIRST_MONDAY = 4 * 86400.0
_QOS = {
    pod_requests.GUARANTEED: GUARANTEED,
    pod_requests.BURSTABLE: BURSTABLE,
    pod_requests.BEST_EFFORT: BEST_EFFORT,
}


@dataclass(frozen=True, slots=True)
class SimulatedEvent:
    """Something that happened, with the fields of an Event."""

    at: float
    workload: WorkloadKey
    pod: str
    """The name of the pod; empty if the event is about the whole workload."""
    type: Literal["Normal", "Warning"]
    reason: str
    """A word: OOMKilled, Evicted, FailedScheduling, Resized, ResizeDeferred, Resizing, Reverted and so on."""
    message: str


def find_start(scenario: Scenario) -> float:
    """Return the time at which a scenario begins."""
    # Keep the weekday of the demand but not its year: to the operator, objects of 1970 would be decades old.
    return MONDAY + (scenario.demand.start - _FIRST_MONDAY) % _WEEK


class SimulatedWorld:
    """The whole cluster; only `step` advances `now`."""

    def __init__(
        self, scenario: Scenario, *, seed: int = 0, pack: bool = False, start: float | None = None
    ) -> None:
        self.scenario = scenario
        self.seed = seed
        self.start = start or find_start(scenario)
        self.now = self.start
        """The time up to which containers have run."""
        self.control_time = self.start
        """The time up to which everything else is processed; between two steps it is later than `now`."""
        self.steps = 0
        self.nodes = SimulatedNodes(scenario.pools, pack=pack)
        self.container_arrays = ContainerArrays()
        self.pods: dict[str, SimulatedPod] = {}
        self.pending: dict[str, SimulatedPod] = {}
        self.events: list[SimulatedEvent] = []
        """The events since the last `collect_metrics`, which clears them."""
        self.changed: dict[str, SimulatedPod | SimulatedWorkload] = {}
        """The pods that changed since the last read, by uid."""
        self.deleted_pods: list[SimulatedPod] = []
        """The pods that were deleted since the last read."""
        self.deleted_workloads: list[Workload] = []
        """The workloads that were deleted since the last read."""
        self.due_times: DelayHeap[str] = DelayHeap()
        """The times at which pods need attention, by uid."""
        self.workloads: dict[WorkloadKey, SimulatedWorkload] = {}
        count = len(scenario.workloads)
        self.load_share: Floats = np.ones(count)
        self.latencies: Floats = np.full((count, len(QUANTILES)), np.nan)
        """The seconds in which requests are answered: a row per workload, columns for the median, 95 % and 99 %."""
        self.load: Floats = np.zeros(count)
        self.kills = 0
        """The number of OOM kills in the last step."""
        self.admit_pod: Callable[[Pod], Sizes] | None = None
        """Returns the sizes that admission gives to the containers of a new pod; None without a webhook for pods."""
        self.intercept_resize: Callable[[SimulatedPod, float], bool] | None = None
        """Returns whether something else than the kubelet's usual decision became of a resize that is due."""
        self.change_demand: Callable[[], None] | None = None
        """Changes the demand of this step in the arrays before containers run."""
        self.quotas: dict[str, ResourceQuota] = {}
        """The quota of each namespace that has one; `find_quota` returns it with its usage."""
        self.limit_ranges: dict[str, LimitRange] = {}
        """The LimitRange of each namespace that has one."""
        self._denied: dict[WorkloadKey, SimulatedWorkload] = {}
        """The workloads of which admission denied a pod; their controllers try again every step."""
        self._version = 0
        self._queue: dict[WorkloadKey, SimulatedWorkload] = {}
        self._capacity_changed = False
        self._by_row: dict[int, tuple[SimulatedPod, int]] = {}
        for number, spec in enumerate(scenario.workloads):
            self._add_workload(number, spec)
        self.process_due(self.now)

    # Time

    def step(self, seconds: float) -> None:
        """Advance the time by these seconds: demand, physics, latencies, evictions."""
        denied, self._denied = self._denied, {}
        self._queue.update(denied)
        self._run_schedules()
        self.process_due(self.now)
        self._compute_demand()
        if self.change_demand:
            self.change_demand()
        containers, nodes = self.container_arrays.containers, self.nodes.physical
        self.kills = step(
            containers,
            nodes,
            cpu=self.container_arrays.cpu_demand,
            memory=self.container_arrays.memory_demand,
            now=self.now,
            seconds=seconds,
        )
        self.steps += 1
        self.now += seconds
        compute_latencies(
            containers,
            nodes,
            self.container_arrays.cpu_demand,
            self.container_arrays.cpu_seconds,
            self.container_arrays.workload,
            self.scenario.interference,
            self.latencies,
            self.load,
        )
        if self.kills:
            self._record_kills()
        kubelet.evict_under_pressure(self)
        self.process_due(self.now)

    def _run_schedules(self) -> None:
        """Begin and end the runs of Jobs and CronJobs."""
        elapsed = self.now - self.start
        for workload in self.workloads.values():
            if (schedule := workload.spec.schedule) is None:
                continue
            wanted = workload.spec.replicas if schedule.is_running(elapsed) and not workload.finished else 0
            if wanted != workload.replicas or workload.finished != schedule.is_over(elapsed):
                workload.replicas, workload.finished = wanted, schedule.is_over(elapsed)
                self.enqueue(workload)

    def process_due(self, now: float) -> None:
        """Do everything that is due by now: pods become ready, resizes are decided, pending pods are scheduled."""
        self.control_time = now
        self._run_workload_controllers()
        for uid in self.due_times.pop_due(now):
            pod = self.pods.get(uid)
            if pod is not None:
                self._update_pod(pod, now)
        self._run_workload_controllers()
        if self.pending and self._capacity_changed:
            self._schedule_pending(now)

    def _run_workload_controllers(self) -> None:
        """Reconcile the workloads that have changed."""
        while self._queue:
            # In the order of arrival: another order would name pods differently, and a run could not be
            # repeated.
            workload = self._queue.pop(next(iter(self._queue)))
            reconcile_workload(self, workload)
            # Ready pods share the load of all replicas; requests that come while no pod is ready are lost.
            self.load_share[workload.number] = workload.spec.replicas / (
                workload.ready or workload.spec.replicas or 1
            )
            self.mark_changed(workload)

    def _compute_demand(self) -> None:
        demand = self.scenario.demand
        # A recording that is shorter than the simulation repeats.
        at = int((self.now - self.start) // demand.step) % demand.steps
        compute_demand(
            demand.cpu[at],
            demand.memory[at],
            self.container_arrays.demand_column,
            self.container_arrays.workload,
            self.container_arrays.serial,
            self.load_share,
            self.scenario.noise,
            self.seed,
            self.steps,
            self.container_arrays.cpu_demand,
            self.container_arrays.memory_demand,
        )

    def _update_pod(self, pod: SimulatedPod, now: float) -> None:
        is_due = pod.resize is not None and pod.resize_due <= now
        if is_due and not (self.intercept_resize and self.intercept_resize(pod, now)):
            kubelet.decide_resize(self, pod, now)
        if pod.node == UNSCHEDULED:
            return
        # A pod is ready only when all of its containers run.
        resumes = max(float(self.container_arrays.containers.runs_from[row]) for row in pod.rows)
        ready_at = max(resumes, pod.started + pod.workload.spec.startup_seconds)
        if pod.revision == pod.workload.broken_revision:
            ready_at = math.inf
        if pod.ready != (ready_at <= now):
            pod.ready = not pod.ready
            self.mark_changed(pod)
            self.enqueue(pod.workload)
        # A pod has only one due time, which has just passed: the later ones must be added again.
        if now < ready_at < math.inf:
            self.due_times.put(pod.uid, ready_at)
        if pod.resize is not None and pod.resize_due > now:
            self.due_times.put(pod.uid, pod.resize_due)

    def _record_kills(self) -> None:
        containers = self.container_arrays.containers
        for row in np.flatnonzero(containers.killed != NOT_KILLED).tolist():
            pod, index = self._by_row[row]
            by_limit = containers.killed[row] == KILLED_BY_LIMIT
            # As the kubelet writes it: the operator learns of a kill from the container status alone.
            pod.last_exits[index] = ContainerTermination("OOMKilled", 137, int(self.now))
            pod.restarts[index] = int(containers.restarts[row])
            why = "the pod's memory limit" if by_limit else "the node ran out of memory"
            self.record_event(
                pod.workload, pod.name, "Warning", "OOMKilled", f"{pod.containers[index].name}: {why}"
            )
            self.mark_changed(pod)
            self.due_times.put(pod.uid, float(containers.runs_from[row]))
            # The first restart is immediate, without a back-off, and the pod stays ready.
            if pod.ready and containers.runs_from[row] > self.now:
                pod.ready = False
                self.enqueue(pod.workload)

    # Pods

    def find_quota(self, namespace: str) -> ResourceQuota | None:
        """Return the quota of a namespace with its usage."""
        quota = self.quotas.get(namespace)
        if quota is None:
            return None
        requests, limits = sum_usage(
            pod.containers for pod in self.pods.values() if pod.namespace == namespace
        )
        return msgspec.structs.replace(quota, used_requests=requests, used_limits=limits)

    def check_pod(self, namespace: str, before: Sequence[Container], after: Sequence[Container]) -> None:
        """Raise Forbidden if the namespace does not permit a pod to change so; a new one was nothing before."""
        if limit_range := self.limit_ranges.get(namespace):
            check_limit_range(limit_range, after)
        if quota := self.find_quota(namespace):
            check_quota(quota, before, after)

    def _admit(self, workload: SimulatedWorkload, name: str) -> tuple[Container, ...] | None:
        """Return the containers of a new pod after admission; None if it denies the pod."""
        containers = workload.containers
        if limit_range := self.limit_ranges.get(workload.spec.namespace):
            containers = tuple(
                msgspec.structs.replace(each, resources=fill_defaults(limit_range, each))
                for each in containers
            )
        try:
            self.check_pod(workload.spec.namespace, (), containers)
        except Forbidden as error:
            if workload.spec.key not in self._denied:
                self.record_event(workload, name, "Warning", "FailedCreate", str(error))
            self._denied[workload.spec.key] = workload
            return None
        return containers

    def create_pod(
        self, workload: SimulatedWorkload, *, bound_node: int | None = None
    ) -> SimulatedPod | None:
        """Create a pod of the current template, which waits for any node or one; None if admission denies it."""
        spec = workload.spec
        if (containers := self._admit(workload, workload.next_pod_name())) is None:
            return None
        name = workload.next_pod_name()
        service = spec.service.cpu_seconds if spec.service else 0.0
        rows = tuple(
            self.container_arrays.allocate(
                demand_column=each.demand_series,
                workload=workload.number,
                burst=each.burst,
                # Only the first container answers requests: with sidecars the load would count several times.
                cpu_seconds=service if index == 0 else 0.0,
            )
            for index, each in enumerate(spec.containers)
        )
        pod = SimulatedPod(
            name=name,
            uid=derive_uid(workload.uid, workload.created_count),
            workload=workload,
            revision=workload.revision,
            created=self.control_time,
            containers=containers,
            applied=[each.resources for each in containers],
            last_exits=[None] * len(rows),
            restarts=[0] * len(rows),
            rows=rows,
            bound_node=bound_node,
        )
        if self.admit_pod and (sizes := self.admit_pod(pod.to_record(""))):
            pod.containers = with_sizes(pod.containers, sizes)
            pod.applied = [each.resources for each in pod.containers]
        workload.created_count += 1
        self._capacity_changed = True  # the new pod must be scheduled, as if capacity had become free
        workload.pods[name] = pod
        self.pods[pod.uid] = self.pending[pod.uid] = pod
        for index, row in enumerate(rows):
            self._by_row[row] = pod, index
            self.container_arrays.set_resources(row, pod.applied[index])
            self.container_arrays.containers.qos[row] = _QOS[pod_requests.qos_class(pod.applied)]
        self.mark_changed(pod)
        self.mark_changed(workload)
        return pod

    def delete_pod(self, pod: SimulatedPod) -> None:
        """Remove it at once; graceful termination is not simulated."""
        if pod.node != UNSCHEDULED:
            self.nodes.remove_pod(pod.node, *sum_requests(pod.applied))
        for row in pod.rows:
            self.container_arrays.release(row)
            del self._by_row[row]
        del self.pods[pod.uid], pod.workload.pods[pod.name]
        self.pending.pop(pod.uid, None)
        # A change read after the deletion would bring the pod back into the operator's view.
        self.changed.pop(pod.uid, None)
        self.due_times.drop(pod.uid)
        self.deleted_pods.append(pod)
        self._version += 1
        pod.version = self._version
        self._capacity_changed = True
        self.enqueue(pod.workload)

    def recreate_workload(self, key: WorkloadKey) -> None:
        """Delete a workload and create it again under the same name, as it was in the beginning."""
        workload = self.workloads[key]
        for pod in list(workload.pods.values()):
            self.delete_pod(pod)
        self._version += 1
        workload.version = self._version
        self.deleted_workloads.append(workload.to_record())
        workload.uid = derive_uid("workload", *key, self._version)
        workload.created = self.control_time
        workload.containers = _build_containers(workload.spec)
        workload.replicas = workload.spec.replicas
        workload.paused = workload.finished = False
        workload.annotations.clear()
        workload.generation = 1
        workload.start_revision()
        workload.created_count = 0
        self.mark_changed(workload)
        self.enqueue(workload)

    def scale_workload(self, key: WorkloadKey, replicas: int) -> None:
        """Change the number of replicas, of kinds that have one."""
        workload = self.workloads[key]
        if workload.spec.kind not in SCALABLE_KINDS:
            return
        workload.replicas = replicas
        workload.generation += 1
        self.enqueue(workload)

    def retry_pending(self) -> None:
        """Retry pending pods, since capacity may be free now, or nodes have come."""
        self._capacity_changed = True
        self._queue.update(
            {key: each for key, each in self.workloads.items() if each.spec.kind == "DaemonSet"}
        )
        self.process_due(self.control_time)

    def enqueue(self, workload: SimulatedWorkload) -> None:
        """Have the controller of a workload reconcile it, because it or a pod of it has changed."""
        self._queue[workload.spec.key] = workload

    def apply_resize(self, pod: SimulatedPod) -> None:
        """Give the containers of a pod the size in its spec, and reserve the difference on its node."""
        wanted = [each.resources for each in pod.containers]
        if pod.node != UNSCHEDULED:
            (cpu, memory), (had_cpu, had_memory) = sum_requests(wanted), sum_requests(pod.applied)
            self.nodes.reserve(pod.node, cpu - had_cpu, memory - had_memory)
        for row, resources in zip(pod.rows, wanted, strict=True):
            self.container_arrays.set_resources(row, resources)
        pod.applied = wanted
        pod.resize = None
        self._capacity_changed = True
        self.mark_changed(pod)

    def _schedule_pending(self, now: float) -> None:
        self._capacity_changed = False
        for pod in list(self.pending.values()):
            node = self._place_pod(pod)
            if node == UNSCHEDULED:
                # Once per pod: each retry would add an event.
                if not pod.unschedulable:
                    pod.unschedulable = True
                    self.record_event(
                        pod.workload,
                        pod.name,
                        "Warning",
                        "FailedScheduling",
                        "the pod fits on none of the nodes",
                    )
                continue
            del self.pending[pod.uid]
            pod.node, pod.started, pod.unschedulable = node, now, False
            ready_at = now + pod.workload.spec.startup_seconds
            for row in pod.rows:
                self.container_arrays.containers.node[row] = node
                self.container_arrays.containers.runs_from[row] = now
            self.mark_changed(pod)
            self.due_times.put(pod.uid, ready_at)

    def _place_pod(self, pod: SimulatedPod) -> int:
        """Reserve a node for a pod; return UNSCHEDULED if it fits nowhere."""
        cpu, memory = sum_requests(pod.applied)
        if pod.bound_node is None:
            return self.nodes.schedule_pod(cpu, memory)
        return pod.bound_node if self.nodes.bind_pod(pod.bound_node, cpu, memory) else UNSCHEDULED

    def mark_changed(self, member: SimulatedPod | SimulatedWorkload) -> None:
        """Give an object a new version, so that the informers deliver it."""
        self._version += 1
        member.version = self._version
        self.changed[member.uid] = member

    def record_event(
        self,
        workload: SimulatedWorkload,
        pod: str,
        kind: Literal["Normal", "Warning"],
        reason: str,
        message: str,
    ) -> None:
        self.events.append(SimulatedEvent(self.control_time, workload.spec.key, pod, kind, reason, message))

    def find_container(self, row: int) -> tuple[SimulatedPod, int]:
        """Return the pod of a row, and the index of its container."""
        return self._by_row[row]

    def node_name(self, pod: SimulatedPod) -> str:
        return self.nodes.names[pod.node] if pod.node != UNSCHEDULED else ""

    def _add_workload(self, number: int, spec: WorkloadSpec) -> None:
        workload = SimulatedWorkload(
            number=number,
            spec=spec,
            uid=derive_uid("workload", *spec.key),
            created=self.now,
            containers=_build_containers(spec),
            replicas=spec.replicas,
        )
        self.workloads[spec.key] = workload
        self.enqueue(workload)


def _build_containers(spec: WorkloadSpec) -> tuple[Container, ...]:
    return tuple(
        Container(
            name=each.name,
            role="main",
            resources=each.resources,
            restart_on_memory_resize=each.restart_on_memory_resize,
        )
        for each in spec.containers
    )
