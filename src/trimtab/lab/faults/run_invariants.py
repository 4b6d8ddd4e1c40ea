"""Invariants about whole runs: no unhandled errors, bounded memory, and convergence after the last fault."""

from __future__ import annotations

import asyncio
from collections import Counter

from trimtab.actuation.change_annotations import read_change_annotations
from trimtab.api.optimizationpolicy import PolicyMode
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lab.faults.invariant import Invariant, RunState, find_policy
from trimtab.lab.faults.records import Write

MAX_TASKS = 60
QUIET_PERIOD = 8 * 3600.0
"""The last seconds of a run, in which nothing may be written any more."""
MAX_QUIET_STARTS = 2
"""The number of changes of a workload in the quiet period that noise in its usage explains."""
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


class NothingHalfDone(Invariant):
    name = "nothing-half-done"
    sentence = "Long after the last fault no change is under way, and all pods of a workload have one size."

    def at_end(self) -> None:
        world = self.state.world
        for key, workload in world.workloads.items():
            annotations = read_change_annotations(workload.to_record())
            change = annotations.change if annotations else None
            age = world.control_time - change.started if change else 0.0
            self.check(age <= MAX_CHANGE_AGE, key, change)
            if change or not self._is_managed(key):
                continue
            sizes = {pod.containers for pod in workload.pods.values() if pod.ready}
            self.check(len(sizes) <= 1, key, "has pods of", len(sizes), "sizes")

    def _is_managed(self, key: WorkloadKey) -> bool:
        if self.state.config().dry_run:
            return False
        for replica in self.state.replicas():
            workload = replica.process.operator.cluster_state.get(key)
            policy = find_policy(replica, workload) if workload else None
            if policy and policy.spec.mode is PolicyMode.AUTO:
                return True
        return False


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
        if started and self.state.elapsed > self.state.spec.days * 86400 - QUIET_PERIOD:
            self._starts[write.workload] += 1
            self._last[write.workload] = str(write)

    def at_end(self) -> None:
        for key in self.state.world.workloads:
            count = self._starts[key]
            self.check(
                count <= MAX_QUIET_STARTS,
                count,
                "changes started, at last",
                self._last.get(key),
            )


class NotWorseThanNothing(Invariant):
    name = "not-worse-than-nothing"
    sentence = "Long after the last fault every workload has at least the ready pods that it has without the operator."
    needs_stationary_demand = True

    def at_end(self) -> None:
        for key, workload in self.state.world.workloads.items():
            without = self.state.ready_without_operator.get(key, 0)
            self.check(
                workload.ready >= without,
                f"{key}: {workload.ready} pods are ready, {without} without the operator",
            )


INVARIANTS: tuple[type[Invariant], ...] = (
    NoUnhandledErrors,
    TasksBounded,
    NothingHalfDone,
    QuietInTheEnd,
    NotWorseThanNothing,
)
