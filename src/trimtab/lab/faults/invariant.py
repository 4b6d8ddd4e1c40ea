"""Invariants: what must hold in every run, whatever faults are injected.

Each invariant is a class with a name, a sentence for the documentation and, where there is one, the number of the
correctness property of the OptiPod seed. It sees every write that took effect, of every step, and of the end, and
calls `check` for every evaluation, so that one that is never evaluated is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from trimtab.api.optimizationpolicy import PolicyMode
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.resources import Resource
from trimtab.lab.faults.plan import FaultInjector
from trimtab.lab.faults.records import CheckLog, EmittedEvent, Write
from trimtab.lab.faults.replica import Replica
from trimtab.lab.faults.worlds import WorldSpec
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.operator.config.model import OperatorConfig

_OBSTACLES = (
    "node-",
    "quota-",
    "limit-range-",
    "resize-",
    "demand-",
    "memory-",
    "usage-",
    "source-",
    "crash-",
    "kpi-",
    "guardrail-",
    "store-",
    "admission-",
    "held",
    "config-invalid",
    "webhook-",
    "watch-duplicated",
    "watch-reordered",
)
"""The beginnings of the kinds of faults that keep a change from being done, and not the operator from ending it."""
_LOSING_ANNOTATIONS = ("other-removes-annotations", "other-garbles-annotations", "workload-recreated")


@dataclass(slots=True, kw_only=True)
class RunState:
    """Everything that an invariant may look at."""

    spec: WorldSpec
    world: SimulatedWorld
    injector: FaultInjector
    replicas: Callable[[], Sequence[Replica]]
    """Returns the living processes."""
    all_replicas: Callable[[], Sequence[Replica]]
    """Returns all processes that ever lived."""
    config: Callable[[], OperatorConfig]
    hides_usage: Callable[[], bool]
    """Returns whether a fault of the last day may have hidden the true usage."""
    objects: Mapping[tuple[Resource, str, str], Any]
    """All objects that are watched, by resource, namespace and name."""
    store_path: Path
    """The file of the store."""
    ready_without_operator: Mapping[WorkloadKey, float] = field(default_factory=dict)
    """The ready pods of each workload in the last hours of the same run without the operator, in the mean."""
    log: CheckLog
    errors: list[str] = field(default_factory=list)
    """Errors that nothing handled, and logged tracebacks."""

    @property
    def elapsed(self) -> float:
        """The seconds since the start of the run."""
        return self.world.control_time - self.world.start

    def is_disturbed(self, key: WorkloadKey) -> bool:
        """Return whether a fault keeps the operator from seeing or writing a workload, or somebody else writes it, now."""
        return any(
            "/" not in fault.target or fault.target == str(key)
            for kind in self.injector.active_kinds()
            if not kind.startswith(_OBSTACLES)
            for fault in self.injector.active(kind)
        )

    def lost_annotations_since(self, key: WorkloadKey, at: float) -> bool:
        """Return whether someone else has removed our annotations from a workload since a time, or made them unreadable."""
        return any(
            fault.target == str(key) and self.world.start + each >= at
            for kind in _LOSING_ANNOTATIONS
            for fault in self.injector.list_started(kind)
            for each in self.injector.period(fault)
        )

    def is_continued(self, key: WorkloadKey) -> bool:
        """Return whether an Intent or a policy continues a change of a workload, by what a process knows."""
        intents = any(find_controlling_intent(replica, key) for replica in self.replicas())
        return intents or self.is_managed(key)

    def is_managed(self, key: WorkloadKey) -> bool:
        """Return whether a valid policy lets the operator change a workload, by what a process knows."""
        config = self.config()
        if config.dry_run:
            return False
        for replica in self.replicas():
            workload = replica.process.operator.cluster_state.get(key)
            policy = find_policy(replica, workload) if workload else None
            if (
                policy
                and policy.spec.mode is PolicyMode.AUTO
                and not config.limits.find_problems(policy.spec)
            ):
                return True
        return False

    def find_replica(self, name: str) -> Replica | None:
        return next((each for each in self.replicas() if each.name == name), None)


class BaseInvariant:
    """The base of all invariants, of the operator and of the agent; one instance watches one run."""

    name: ClassVar[str]
    sentence: ClassVar[str]
    property: ClassVar[int | None] = None
    """The number of the correctness property of the OptiPod seed."""
    needs_stationary_demand: ClassVar[bool] = False
    """It holds only in worlds whose demand is stationary in the end."""

    def __init__(self, log: CheckLog) -> None:
        self._log = log

    def check(self, holds: bool, *message: object) -> None:  # noqa: FBT001 - reads as `assert`
        """Evaluate once; the parts of the message are formatted if it does not hold."""
        self._log.check(self.name, *message, holds=holds)


class Invariant(BaseInvariant):
    """The base of the invariants of the operator."""

    def __init__(self, state: RunState) -> None:
        super().__init__(state.log)
        self.state = state

    def on_write(self, write: Write) -> None:
        """Look at a write of the operator."""

    def on_event(self, event: EmittedEvent) -> None:
        """Look at an Event of the operator about a workload."""

    def on_step(self) -> None:
        """Look at the cluster after a step."""

    def at_end(self) -> None:
        """Look at the cluster and at the whole run, long after the last fault."""


def find_controlling_intent(replica: Replica, key: WorkloadKey) -> str:
    """Return the Intent that controls a workload by what a process knows; empty if none does."""
    return replica.process.operator.competitors.controlling_intent_name(key)


def find_policy(replica: Replica, workload: Workload) -> Policy | None:
    """Return the policy that applies to a workload by what a process knows: the heaviest, then the first by name.

    None applies while an Intent controls the workload.
    """
    if find_controlling_intent(replica, workload.key):
        return None
    cluster_state = replica.process.operator.cluster_state
    namespace = cluster_state.namespaces.get(workload.namespace)
    matching = [
        policy
        for policy in cluster_state.policies
        if not policy.problem
        and policy.spec.selector.matches(
            kind=workload.key.kind,
            namespace=workload.namespace,
            labels=dict(workload.labels),
            namespace_labels=dict(namespace.labels) if namespace else {},
        )
    ]
    return min(matching, key=lambda each: (-each.spec.weight, each.name), default=None)


def is_size_write(write: Write) -> bool:
    """Return whether a write changes, or may change, the size of pods."""
    return write.verb in {"resize", "evict", "patch", "scale"}
