"""Invariants about when and how changes are made."""

from __future__ import annotations

from collections import deque

from trimtab.actuation.change_annotations import ChangeAnnotations, Phase, read_change_annotations
from trimtab.actuation.decide.maintenance_windows import next_opening
from trimtab.actuation.hold import read_hold
from trimtab.actuation.resources import NO_LIMITS, Sizes, format_sizes, is_between
from trimtab.api.optimizationpolicy import PolicyMode
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lab.faults.invariant import (
    Invariant,
    RunState,
    find_controlling_intent,
    find_policy,
    is_size_write,
)
from trimtab.lab.faults.records import Write

MAX_REVERT = 1.5 * 3600.0
"""The longest time in seconds of a revert in which no pod comes: an hour without progress, and a reserve."""
PROGRESS_PERIOD = 3600.0
"""The age in seconds up to which a ready pod counts as progress."""
ANNOTATIONS_DELAY = 60.0
"""The seconds within which the operator need not know that someone else has removed its annotations."""


class ModeRespected(Invariant):
    name = "mode-respected"
    sentence = "Nothing is changed in mode Recommend or Disabled, in a dry run, or without a policy or an active Intent."
    property = 8

    def on_write(self, write: Write) -> None:
        if not is_size_write(write):
            return
        replica = self.state.find_replica(write.process)
        workload = replica.process.operator.cluster_state.get(write.workload) if replica else None
        if replica is None or workload is None:
            return
        self.check(not self.state.config().dry_run, "in a dry run", write)
        policy = find_policy(replica, workload)
        hold = read_hold(workload.annotations)
        allowed = bool(find_controlling_intent(replica, write.workload)) or (
            policy is not None
            and (policy.spec.mode is PolicyMode.AUTO or (hold is not None and bool(hold.sizes)))
        )
        mode = policy.spec.mode if policy else "no policy"
        self.check(allowed, mode, write)


class ScopeRespected(Invariant):
    name = "scope-respected"
    sentence = "Nothing is changed in an excluded namespace."
    property = 27

    def on_write(self, write: Write) -> None:
        if is_size_write(write):
            excluded = self.state.config().limits.excluded_namespaces
            self.check(write.workload.namespace not in excluded, write)


class RecreateAllowed(Invariant):
    name = "recreate-allowed"
    sentence = "No pod is evicted unless its policy allows pods to be replaced."
    property = 6

    def on_write(self, write: Write) -> None:
        if write.verb != "evict":
            return
        replica = self.state.find_replica(write.process)
        workload = replica.process.operator.cluster_state.get(write.workload) if replica else None
        policy = find_policy(replica, workload) if replica and workload else None
        if policy:
            strategy = policy.spec.update_strategy
            self.check(strategy.allow_recreate or strategy.allow_recreate_on_oom, write)


class ChangeRecordedFirst(Invariant):
    name = "change-recorded-first"
    sentence = "A pod gets a size only if the annotations of its workload name it, a startup boost aside."

    def on_write(self, write: Write) -> None:
        workload = self.state.world.workloads.get(write.workload)
        if write.verb != "resize" or workload is None or self._has_boost(write):
            return
        if self.state.lost_annotations_since(write.workload, write.at - ANNOTATIONS_DELAY):
            return
        record, config = workload.to_record(), self.state.config()
        # Every process reads annotations within the limits of the moment, which may have been lowered since.
        limits = [NO_LIMITS, config.limits.size_limits, config.intents.size_limits(record.namespace)]
        found = [read_change_annotations(record, each) or ChangeAnnotations() for each in limits]
        known: list[Sizes] = []
        for each in found:
            if change := each.change:
                known += [change.before, change.after, *change.pod_overrides.values()]
            if applied := each.applied:
                known += [applied.sizes, applied.before]
        known.append({each.name: each.resources for each in workload.containers})
        named = all(
            after == write.before[name] or any(_agrees_with(after, sizes.get(name)) for sizes in known)
            for name, after in write.after.items()
        )
        change = found[0].change
        if change and change.phase is Phase.REVERTING and write.pod:
            # Memory is lowered no further than is safe, which may be less than back to the size before.
            named = named or is_between(write.after, change.previous_size(write.pod), change.after)
        self.check(named, "annotations name another size:", write)

    def _has_boost(self, write: Write) -> bool:
        replica = self.state.find_replica(write.process)
        policies = replica.process.operator.cluster_state.policies if replica else ()
        return any(policy.spec.update_strategy.startup_boost for policy in policies)


class OthersWritesKept(Invariant):
    name = "others-writes-kept"
    sentence = "No write replaces a size that someone else has written since the operator read it."

    def on_write(self, write: Write) -> None:
        if write.present is not None:
            self.check(write.present == write.before, "at the server:", format_sizes(write.present), write)


class WindowsRespected(Invariant):
    name = "windows-respected"
    sentence = "No change starts outside the maintenance windows, except for more memory after an OOM kill."

    def on_write(self, write: Write) -> None:
        if not _is_start(write) or write.new is None or write.new.change is None:
            return
        replica = self.state.find_replica(write.process)
        workload = replica.process.operator.cluster_state.get(write.workload) if replica else None
        policy = find_policy(replica, workload) if replica and workload else None
        if policy is None or write.new.change.relief or (workload and read_hold(workload.annotations)):
            return
        for windows in (policy.spec.update_strategy.windows, self.state.config().maintenance_windows):
            if windows:
                self.check(
                    next_opening(windows, now=int(write.at)) == int(write.at),
                    "outside",
                    windows,
                    write,
                )


class MinIntervalRespected(Invariant):
    name = "min-interval-respected"
    sentence = (
        "Two changes of a workload are at least minInterval apart, except for more memory after an OOM kill."
    )

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._started: dict[tuple[WorkloadKey, str], float] = {}

    def on_write(self, write: Write) -> None:
        if not _is_start(write) or write.new is None or write.new.change is None:
            return
        key = write.workload, write.process
        before, self._started[key] = self._started.get(key), write.at
        replica = self.state.find_replica(write.process)
        workload = replica.process.operator.cluster_state.get(write.workload) if replica else None
        policy = find_policy(replica, workload) if replica and workload else None
        if before is None or policy is None or write.new.change.relief:
            return
        if (write.old and write.old.reverted) or (workload and read_hold(workload.annotations)):
            return
        least = policy.spec.update_strategy.min_interval.seconds
        # A jump of the clock may make it look shorter than it was.
        if self.state.injector.list_started("clock-jump"):
            return
        if self.state.lost_annotations_since(write.workload, before):
            return
        self.check(write.at - before >= least - 1, "after", round(write.at - before), "s", write)


class RevertsExplained(Invariant):
    name = "reverts-explained"
    sentence = "Each revert names its reason, and throttling is the reason only if the change lowered CPU."

    def on_write(self, write: Write) -> None:
        change = write.new.change if write.new else None
        if write.verb != "annotate" or change is None or change.phase is not Phase.REVERTING:
            return
        self.check(bool(change.reason), "no reason", write)
        if "throttled" in change.reason:
            pairs = [
                (amount, other)
                for sizes in (change.before, *change.pod_overrides.values())
                for name in sizes.keys() & change.after.keys()
                for amount, other in zip(sizes[name].cpu, change.after[name].cpu, strict=True)
            ]
            lowered = any(new is not None and (old is None or new < old) for old, new in pairs)
            self.check(lowered, change.reason, write)


class RevertsEnd(Invariant):
    name = "reverts-end"
    sentence = "A revert that a policy or an Intent continues ends within 90 minutes in which nobody interferes and no pod comes, even if it cannot be done."

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._lasted: dict[WorkloadKey, float] = {}

    def on_write(self, write: Write) -> None:
        before = write.old.change if write.old else None
        if before is None or before.phase is not Phase.REVERTING:
            return
        if write.new and write.new.change is None:
            self._check(write.workload)

    def on_step(self) -> None:
        if not any(replica.is_leading for replica in self.state.replicas()):
            return
        since = self.state.world.now - PROGRESS_PERIOD
        for key, workload in self.state.world.workloads.items():
            if not _is_reverting(self.state, key):
                self._lasted.pop(key, None)
                continue
            makes_progress = any(pod.ready and pod.created >= since for pod in workload.pods.values())
            if makes_progress or self.state.is_disturbed(key) or not self.state.is_continued(key):
                continue
            self._lasted[key] = self._lasted.get(key, 0.0) + self.state.spec.step
            self._check(key)

    def _check(self, key: WorkloadKey) -> None:
        lasted = self._lasted.get(key, 0.0)
        self.check(lasted <= MAX_REVERT, key, "has been reverting for", lasted, "s")


class PaceRespected(Invariant):
    name = "pace-respected"
    sentence = "No process changes more pods a minute than the disruption limits permit, reverts aside."

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._times: dict[tuple[str, str], deque[float]] = {}

    def on_write(self, write: Write) -> None:
        if write.verb not in {"resize", "evict"} or write.pod is None:
            return
        if _is_reverting(self.state, write.workload):
            return
        limits = self.state.config().disruption_limits
        for scope, most in (
            ("cluster", limits.cluster.max_per_minute),
            (f"namespace {write.workload.namespace}", limits.namespace.max_per_minute),
            (f"node {write.pod.node}", limits.node.max_per_minute),
        ):
            if scope == "node ":
                continue
            times = self._times.setdefault((write.process, scope), deque())
            times.append(write.at)
            while times and times[0] <= write.at - 60:
                times.popleft()
            # A retry after a lost response asks for the same pod again, which is no further disruption.
            self.check(len(times) <= 2 * most, len(times), "in", scope, write)


def _agrees_with(size: Resources, known: Resources | None) -> bool:
    """Return whether each amount of a size is that of a known one, or none: what cannot be changed in place is left out."""
    return known is not None and all(
        amount is None or other is None or amount == other
        for amount, other in zip(size.amounts, known.amounts, strict=True)
    )


def _is_start(write: Write) -> bool:
    if write.verb != "annotate" or write.new is None or write.new.change is None:
        return False
    return write.old is None or write.old.change is None


def _is_reverting(state: RunState, key: WorkloadKey) -> bool:
    workload = state.world.workloads.get(key)
    texts = [text for theirs in workload.annotations.values() for text in theirs.values()] if workload else []
    return any(Phase.REVERTING in text for text in texts)


INVARIANTS: tuple[type[Invariant], ...] = (
    ModeRespected,
    ScopeRespected,
    RecreateAllowed,
    ChangeRecordedFirst,
    OthersWritesKept,
    WindowsRespected,
    MinIntervalRespected,
    RevertsExplained,
    RevertsEnd,
    PaceRespected,
)
