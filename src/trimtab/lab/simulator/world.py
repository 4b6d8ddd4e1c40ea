"""A simulated cluster as time passes: controllers, scheduler, kubelets and the physics of containers, step by step.

Between two steps anything may be asked of it; what takes time (a pod's start, a resize) is done when its time has come
and `settle` is called. Everything follows from the scene and the seed: the same calls give the same cluster, to the
last bit. Left out: everything about the operator (`stage`) and how it sees this (`port`, `picture`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from trimtab.kube.kinds.pods import Container, Exit
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.runtime.delay_heap import Schedule
from trimtab.lab.simulator import kubelet
from trimtab.lab.simulator.container_arrays import Rows
from trimtab.lab.simulator.demand import want
from trimtab.lab.simulator.latency import QUANTILES, respond
from trimtab.lab.simulator.nodes import Ground
from trimtab.lab.simulator.objects import SimulatedPod, SimulatedWorkload, asked, uid_of
from trimtab.lab.simulator.physics import (
    BEST_EFFORT,
    BURSTABLE,
    BY_LIMIT,
    GUARANTEED,
    NOWHERE,
    UNHARMED,
    Floats,
    step,
)
from trimtab.lab.simulator.rollout import roll
from trimtab.lab.simulator.scenario import Scene, WorkloadSpec
from trimtab.sizing import qos

MONDAY = 1767571200.0
"""The midnight before the first Monday of 2026: a simulation's week begins with its working days."""
_WEEK = 7 * 86400.0
_FIRST_MONDAY = 4 * 86400.0
_QOS = {qos.GUARANTEED: GUARANTEED, qos.BURSTABLE: BURSTABLE, qos.BEST_EFFORT: BEST_EFFORT}


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened, as an Event tells it."""

    at: float
    workload: WorkloadKey
    pod: str
    """Its name; empty where it is about the whole workload."""
    type: Literal["Normal", "Warning"]
    reason: str
    """A word: OOMKilled, Evicted, FailedScheduling, Resized, ResizeDeferred, Resizing, Reverted and so on."""
    message: str


class World:
    """All there is; `now` moves by `step` alone."""

    def __init__(
        self, scene: Scene, *, seed: int = 0, pack: bool = False, start: float | None = None
    ) -> None:
        self.scene = scene
        self.seed = seed
        # The week of the demand is kept, its year is not: an operator would wonder about 1970.
        self.start = start or MONDAY + (scene.demand.start - _FIRST_MONDAY) % _WEEK
        self.now = self.start
        """Up to when containers have run,"""
        self.time = self.start
        """and up to when everything else is settled: in between two steps that is later."""
        self.steps = 0
        self.ground = Ground(scene.pools, pack=pack)
        self.rows = Rows()
        self.pods: dict[str, SimulatedPod] = {}
        self.pending: dict[str, SimulatedPod] = {}
        self.happenings: list[Happening] = []
        """Since somebody last took them."""
        self.changed: dict[str, SimulatedPod | SimulatedWorkload] = {}
        """What looks different since somebody last looked, by uid."""
        self.gone: list[SimulatedPod] = []
        """Pods that are no more, likewise."""
        self.due: Schedule[str] = Schedule()
        """When something about a pod is to be looked at, by uid."""
        self.workloads: dict[WorkloadKey, SimulatedWorkload] = {}
        many = len(scene.workloads)
        self.spread: Floats = np.ones(many)
        self.times: Floats = np.full((many, len(QUANTILES)), np.nan)
        """Seconds in which requests are answered: a row a workload, a column for the median, 95 % and 99 %."""
        self.load: Floats = np.zeros(many)
        self.kills = 0
        """In the last step."""
        self._version = 0
        self._unlooked: dict[WorkloadKey, SimulatedWorkload] = {}
        self._room_changed = False
        self._by_row: dict[int, tuple[SimulatedPod, int]] = {}
        for number, spec in enumerate(scene.workloads):
            self._add(number, spec)
        self.settle(self.now)

    # Time

    def step(self, seconds: float) -> None:
        """Let so much time pass."""
        self.settle(self.now)
        self._want()
        containers, nodes = self.rows.containers, self.ground.physical
        self.kills = step(
            containers, nodes, cpu=self.rows.cpu, memory=self.rows.memory, now=self.now, seconds=seconds
        )
        self.steps += 1
        self.now += seconds
        respond(
            containers,
            nodes,
            self.rows.cpu,
            self.rows.cpu_seconds,
            self.rows.workload,
            self.scene.interference,
            self.times,
            self.load,
        )
        if self.kills:
            self._note_kills()
        kubelet.relieve(self)
        self.settle(self.now)

    def settle(self, now: float) -> None:
        """Do what is due by now: pods become ready, resizes are decided, pods that wait are placed."""
        self.time = now
        self._control()
        for uid in self.due.pop_due(now):
            pod = self.pods.get(uid)
            if pod is not None:
                self._look_at(pod, now)
        self._control()
        if self.pending and self._room_changed:
            self._place(now)

    def _control(self) -> None:
        """Let the controllers of workloads look at those that have changed."""
        while self._unlooked:
            workload = self._unlooked.pop(next(iter(self._unlooked)))
            roll(self, workload)
            # While nobody is ready, what comes is lost.
            self.spread[workload.number] = workload.spec.replicas / (
                workload.ready or workload.spec.replicas or 1
            )
            self.note(workload)

    def _want(self) -> None:
        demand = self.scene.demand
        at = int((self.now - self.start) // demand.step) % demand.steps
        want(
            demand.cpu[at],
            demand.memory[at],
            self.rows.column,
            self.rows.workload,
            self.rows.serial,
            self.spread,
            self.scene.noise,
            self.seed,
            self.steps,
            self.rows.cpu,
            self.rows.memory,
        )

    def _look_at(self, pod: SimulatedPod, now: float) -> None:
        if pod.resize is not None and pod.decides <= now:
            kubelet.decide(self, pod, now)
        if pod.node == NOWHERE:
            return
        resumes = max(float(self.rows.containers.resumes[row]) for row in pod.rows)
        ready_at = max(resumes, pod.started + pod.workload.spec.starts_in)
        if pod.ready != (ready_at <= now):
            pod.ready = not pod.ready
            self.note(pod)
            self.look_at(pod.workload)
        # A pod has one time at which it is due: what is later is put down again.
        if ready_at > now:
            self.due.put(pod.uid, ready_at)
        if pod.resize is not None and pod.decides > now:
            self.due.put(pod.uid, pod.decides)

    def _note_kills(self) -> None:
        containers = self.rows.containers
        for row in np.flatnonzero(containers.killed != UNHARMED).tolist():
            pod, place = self._by_row[row]
            by_limit = containers.killed[row] == BY_LIMIT
            pod.exits[place] = Exit("OOMKilled", 137, int(self.now))
            pod.restarts[place] = int(containers.restarts[row])
            why = "its memory limit" if by_limit else "its node had no memory left"
            self.tell(pod.workload, pod.name, "Warning", "OOMKilled", f"{pod.containers[place].name}: {why}")
            self.note(pod)
            self.due.put(pod.uid, float(containers.resumes[row]))
            if pod.ready and containers.resumes[row] > self.now:
                pod.ready = False
                self.look_at(pod.workload)

    # Pods

    def create(self, workload: SimulatedWorkload) -> SimulatedPod:
        """A new pod of the present template, which waits for a node."""
        spec = workload.spec
        name = workload.pod_name()
        service = spec.service.cpu_seconds if spec.service else 0.0
        rows = tuple(
            self.rows.take(
                column=each.series,
                workload=workload.number,
                burst=each.burst,
                cpu_seconds=service if place == 0 else 0.0,
            )
            for place, each in enumerate(spec.containers)
        )
        pod = SimulatedPod(
            name=name,
            uid=uid_of(workload.uid, workload.made),
            workload=workload,
            revision=workload.revision,
            created=self.time,
            containers=workload.containers,
            applied=[each.resources for each in workload.containers],
            exits=[None] * len(rows),
            restarts=[0] * len(rows),
            rows=rows,
        )
        workload.made += 1
        self._room_changed = True  # or rather, who needs it
        workload.pods[name] = pod
        self.pods[pod.uid] = self.pending[pod.uid] = pod
        for place, row in enumerate(rows):
            self._by_row[row] = pod, place
            self.rows.resize(row, pod.applied[place])
            self.rows.containers.qos[row] = _QOS[qos.qos_class(pod.applied)]
        self.note(pod)
        self.note(workload)
        return pod

    def delete(self, pod: SimulatedPod) -> None:
        """It is gone at once: what it does when it is told to end is left out."""
        if pod.node != NOWHERE:
            self.ground.leave(pod.node, *asked(pod.applied))
        for row in pod.rows:
            self.rows.give_back(row)
            del self._by_row[row]
        del self.pods[pod.uid], pod.workload.pods[pod.name]
        self.pending.pop(pod.uid, None)
        self.changed.pop(pod.uid, None)
        self.due.drop(pod.uid)
        self.gone.append(pod)
        self._version += 1
        pod.version = self._version
        self._room_changed = True
        self.look_at(pod.workload)

    def scale(self, key: WorkloadKey, replicas: int) -> None:
        """Have another number of pods."""
        workload = self.workloads[key]
        workload.replicas = replicas
        workload.generation += 1
        self.look_at(workload)

    def retry(self) -> None:
        """There may be room for pods that wait."""
        self._room_changed = True
        self.settle(self.time)

    def look_at(self, workload: SimulatedWorkload) -> None:
        """Something about it or its pods has changed: its controller is to look, and load goes where it can."""
        self._unlooked[workload.spec.key] = workload

    def apply(self, pod: SimulatedPod) -> None:
        """Give a pod's containers the size that its spec wants, and its node the difference."""
        wanted = [each.resources for each in pod.containers]
        if pod.node != NOWHERE:
            (cpu, memory), (had_cpu, had_memory) = asked(wanted), asked(pod.applied)
            self.ground.book(pod.node, cpu - had_cpu, memory - had_memory)
        for row, resources in zip(pod.rows, wanted, strict=True):
            self.rows.resize(row, resources)
        pod.applied = wanted
        pod.resize = None
        self._room_changed = True
        self.note(pod)

    def _place(self, now: float) -> None:
        self._room_changed = False
        for pod in list(self.pending.values()):
            node = self.ground.place(*asked(pod.applied))
            if node == NOWHERE:
                if not pod.stranded:
                    pod.stranded = True
                    self.tell(
                        pod.workload, pod.name, "Warning", "FailedScheduling", "it fits on none of the nodes"
                    )
                continue
            del self.pending[pod.uid]
            pod.node, pod.started, pod.stranded = node, now, False
            ready_at = now + pod.workload.spec.starts_in
            for row in pod.rows:
                self.rows.containers.node[row] = node
                self.rows.containers.resumes[row] = now
            self.note(pod)
            self.due.put(pod.uid, ready_at)

    # Telling

    def note(self, member: SimulatedPod | SimulatedWorkload) -> None:
        """It looks different now."""
        self._version += 1
        member.version = self._version
        self.changed[member.uid] = member

    def tell(
        self,
        workload: SimulatedWorkload,
        pod: str,
        kind: Literal["Normal", "Warning"],
        reason: str,
        message: str,
    ) -> None:
        self.happenings.append(Happening(self.time, workload.spec.key, pod, kind, reason, message))

    def of_row(self, row: int) -> tuple[SimulatedPod, int]:
        """Whose row it is: a pod, and which of its containers."""
        return self._by_row[row]

    def node_name(self, pod: SimulatedPod) -> str:
        return self.ground.names[pod.node] if pod.node != NOWHERE else ""

    def _add(self, number: int, spec: WorkloadSpec) -> None:
        containers = tuple(
            Container(
                name=each.name,
                role="main",
                resources=each.resources,
                restart_on_memory_resize=each.restart_on_memory_resize,
            )
            for each in spec.containers
        )
        workload = SimulatedWorkload(
            number=number,
            spec=spec,
            uid=uid_of("workload", *spec.key),
            created=self.now,
            containers=containers,
            replicas=spec.replicas,
        )
        self.workloads[spec.key] = workload
        self.look_at(workload)
