"""Invariants about whole runs: no unhandled errors, bounded memory, and convergence after the last fault."""

from __future__ import annotations

import asyncio
from collections import Counter

from trimtab.actuation.change_annotations import ChangeAnnotations, read_change_annotations
from trimtab.actuation.resources import container_sizes, merge_sizes
from trimtab.api.optimizationpolicy import ChangePolicy
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lab.faults.invariant import Invariant, RunState, find_controlling_intent, find_policy
from trimtab.lab.faults.records import Write
from trimtab.lab.faults.worlds import WorldSpec
from trimtab.lab.simulator.demand import MEMORY_NOISE_SHARE
from trimtab.lab.simulator.objects import SimulatedWorkload
from trimtab.lab.simulator.world import SimulatedWorld

MAX_TASKS = 60
MAX_QUEUED_PER_WORKLOAD = 2
"""The keys in a work queue: a workload, and what a VPA may target besides."""
MAX_SERIES, MAX_SERIES_PER_WORKLOAD = 2_000, 200
"""The metric series of a process, and those that each workload may add."""
QUIET_PERIOD = 8 * 3600.0
"""The last seconds of a run, in which nothing may be written any more."""
MAX_QUIET_STARTS = 2
"""The number of changes of a workload in the quiet period that noise in its usage explains."""
MAX_UNDAMPED_STARTS = 4
"""The same under an Intent, whose KPIs have noise, and under a policy that follows each estimate."""
ESTIMATE_PERIOD = 3600.0
"""The seconds between two estimates of the default strategy."""
MAX_CHANGE_AGE = 12 * 3600.0
"""The age in seconds that no change under way may have at the end."""


class NoUnhandledErrors(Invariant):
    name = "no-unhandled-errors"
    sentence = "No error ends a process or appears in a log as a traceback."

    def at_end(self) -> None:
        self.check(not self.state.errors, "; ".join(self.state.errors[:3]))


class TasksBounded(Invariant):
    name = "tasks-bounded"
    sentence = "The number of open tasks stays bounded."

    def on_step(self) -> None:
        count = len(asyncio.all_tasks())
        self.check(count <= MAX_TASKS * max(1, len(self.state.replicas())), count, "tasks")


class MemoryBounded(Invariant):
    name = "memory-bounded"
    sentence = "The work queue and the metric series of each process stay bounded."

    def on_step(self) -> None:
        most = MAX_QUEUED_PER_WORKLOAD * len(self.state.world.workloads)
        for replica in self.state.replicas():
            count = replica.process.queue_length
            self.check(count <= most, count, "workloads in the queue of", replica.name)

    def at_end(self) -> None:
        most = MAX_SERIES + MAX_SERIES_PER_WORKLOAD * len(self.state.world.workloads)
        for replica in self.state.replicas():
            count = sum(len(family.samples) for family in replica.metrics.registry.collect())
            self.check(count <= most, count, "metric series of", replica.name)


class NothingHalfDone(Invariant):
    name = "nothing-half-done"
    sentence = "Long after the last fault no change that a policy or an Intent continues is under way, and all pods of a workload have one size."

    def at_end(self) -> None:
        world = self.state.world
        for key, workload in world.workloads.items():
            annotations = read_change_annotations(workload.to_record())
            change = annotations.change if annotations else None
            age = world.control_time - change.started if change else 0.0
            # Without a valid policy in mode Auto and without an Intent, a change stays as it is, as documented.
            self.check(age <= MAX_CHANGE_AGE or not self.state.is_continued(key), key, change)
            if change or not self.state.is_managed(key):
                continue
            # Whoever resized some of the pods of a workload that has no size from the operator keeps what they wrote.
            others = self.state.injector.list_started("other-resizes-pods")
            if any(fault.target == str(key) for fault in others) and not (
                annotations and annotations.applied
            ):
                continue
            if annotations and _is_rollout_of_others(workload, annotations):
                continue
            sizes = {pod.containers for pod in workload.pods.values() if pod.ready}
            self.check(len(sizes) <= 1, key, "has pods of", len(sizes), "sizes")


class QuietInTheEnd(Invariant):
    name = "quiet-in-the-end"
    sentence = "Long after the last fault, and with stationary demand, nothing is changed any more."
    needs_stationary_demand = True

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._starts: Counter[WorkloadKey] = Counter()
        self._last: dict[WorkloadKey, str] = {}

    def on_write(self, write: Write) -> None:
        started = (
            write.verb == "annotate"
            and write.new
            and write.new.change
            and not (write.old and write.old.change)
        )
        if started and is_quiet(self.state.spec, self.state.world):
            self._starts[write.workload] += 1
            self._last[write.workload] = str(write)

    def at_end(self) -> None:
        for key in self.state.world.workloads:
            count, most = self._starts[key], self._max_starts(key)
            self.check(
                count <= most,
                count,
                "changes started, at last",
                self._last.get(key),
            )

    def _max_starts(self, key: WorkloadKey) -> int:
        for replica in self.state.replicas():
            if find_controlling_intent(replica, key):
                return MAX_UNDAMPED_STARTS
            workload = replica.process.operator.cluster_state.get(key)
            policy = find_policy(replica, workload) if workload else None
            if policy and _follows_estimates(policy.spec.changes):
                return MAX_UNDAMPED_STARTS
        return MAX_QUIET_STARTS


class ReadyPods:
    """The mean number of ready pods of each workload in the quiet period."""

    def __init__(self, spec: WorldSpec, world: SimulatedWorld) -> None:
        self._spec = spec
        self._world = world
        self._ready: Counter[WorkloadKey] = Counter()
        self._wanted: Counter[WorkloadKey] = Counter()
        self._steps = 0

    def observe(self) -> None:
        """Count the pods that are ready after a step."""
        if is_quiet(self._spec, self._world):
            self._steps += 1
            for key, workload in self._world.workloads.items():
                self._ready[key] += workload.ready
                self._wanted[key] += workload.replicas

    def means(self) -> dict[WorkloadKey, float]:
        return {key: self._ready[key] / max(self._steps, 1) for key in self._world.workloads}

    def wanted_pods(self, key: WorkloadKey) -> float:
        """Return the mean number of pods that a workload is to have."""
        return self._wanted[key] / max(self._steps, 1)


class NotWorseThanNothing(Invariant):
    name = "not-worse-than-nothing"
    sentence = "Long after the last fault every workload has as many ready pods, in the mean of hours, as without the operator, or as an Intent wants."
    needs_stationary_demand = True

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._ready = ReadyPods(state.spec, state.world)

    def on_step(self) -> None:
        self._ready.observe()

    def at_end(self) -> None:
        for key, ready in self._ready.means().items():
            if self._may_exceed_own_limit(key):
                continue
            # An Intent may have scaled in.
            without = min(self.state.ready_without_operator.get(key, 0), self._ready.wanted_pods(key))
            # Pods that crash in both runs wait at other times.
            self.check(
                ready >= 0.9 * without - 0.25,
                f"{key}: {ready:.2f} pods are ready in the mean, {without:.2f} without the operator",
            )

    def _may_exceed_own_limit(self, key: WorkloadKey) -> bool:
        """Return whether the limits of its owner are so low that it depends on the pod whether it is OOM-killed.

        A policy may leave such limits as they are, and other pods want a little more or less than those of before.
        """
        scenario = self.state.world.scenario
        most = 1.0 + MEMORY_NOISE_SHARE * scenario.noise
        return any(
            (limit := each.resources.memory_limit) is not None
            and scenario.demand.memory[-1, each.demand_series] * most > limit
            for each in self.state.world.workloads[key].spec.containers
        )


def _follows_estimates(changes: ChangePolicy) -> bool:
    """Return whether nothing but the strategy itself damps changes.

    The strategy `trimtab` sizes for each hour by the same hour of former days, so that bursts of the day before still
    move its estimates by some percent; a stabilization of no longer than an hour does not span two of them.
    """
    stabilization = changes.stabilization.seconds
    return not stabilization or (not changes.minimum and stabilization <= ESTIMATE_PERIOD)


def _is_rollout_of_others(workload: SimulatedWorkload, annotations: ChangeAnnotations) -> bool:
    """Return whether pods are being replaced by those of a template that the operator did not write.

    Such a rollout may never end: a person may ask for more than the nodes have. The operator waits for its end.
    """
    template, applied = container_sizes(workload.containers), annotations.applied
    is_own = applied is not None and merge_sizes(template, applied.sizes) == template
    return bool(workload.outdated_pods) and not is_own


def is_quiet(spec: WorldSpec, world: SimulatedWorld) -> bool:
    """Return whether a run is in its last hours, in which nothing may change any more."""
    return world.control_time - world.start > spec.days * 86400 - QUIET_PERIOD


INVARIANTS: tuple[type[Invariant], ...] = (
    NoUnhandledErrors,
    TasksBounded,
    MemoryBounded,
    NothingHalfDone,
    QuietInTheEnd,
    NotWorseThanNothing,
)
