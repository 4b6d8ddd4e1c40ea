"""Invariants about the sizes that the operator asks for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import ClassVar

from trimtab.actuation.change_annotations import Phase, read_change_annotations
from trimtab.actuation.decide.stalls import is_crash_looping
from trimtab.actuation.hold import read_hold
from trimtab.actuation.resources import Sizes
from trimtab.api.optimizationpolicy import OptimizationPolicySpec, PolicyMode
from trimtab.kube.kinds.pod_requests import qos_class
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lab.faults.invariant import Invariant, RunState, find_policy
from trimtab.lab.faults.records import Write
from trimtab.lab.faults.worlds import CURRENT_KUBERNETES
from trimtab.lab.simulator.objects import SimulatedPod, SimulatedWorkload
from trimtab.lab.simulator.physics import KILLED_BY_LIMIT, UNSCHEDULED
from trimtab.sizing.policy_rules import PolicyRules

DAY = 86400.0
_NO_DELAY = ("demand-", "memory-", "usage-", "source-", "store-", "kpi-", "guardrail-")
"""The beginnings of the kinds of faults that delay no memory that is recommended."""
RELIEF_PERIOD = 3600.0
"""The seconds after a kill in which it is news to the operator."""
MAX_RELIEF_WAIT = 1800.0
"""The seconds within which more memory after an OOM kill must have begun."""
PEAK_PERIOD = 3 * 3600.0
"""The seconds for which a peak of memory must be known to the operator."""


class RequestsBelowLimits(Invariant):
    name = "requests-below-limits"
    sentence = "No request is above its limit."

    def on_write(self, write: Write) -> None:
        for each in write.after.values():
            for request, limit in (each.cpu, each.memory):
                self.check(request is None or limit is None or request <= limit, write)


class QosClassKept(Invariant):
    name = "qos-class-kept"
    sentence = "The QoS class of a running pod never changes."

    def on_write(self, write: Write) -> None:
        if write.verb == "resize":
            before, after = (qos_class(sizes.values()) for sizes in (write.before, write.after))
            self.check(before == after, "from", before, "to", after, write)


class LimitsKept(Invariant):
    name = "limits-kept"
    sentence = "Limits stay as they are unless the policy lets them change."
    property = 3

    def on_write(self, write: Write) -> None:
        if write.verb != "annotate" or write.new is None or write.new.change is None:
            return
        change = write.new.change
        spec = _spec_at_start(self.state, write)
        if spec is None or not spec.update_strategy.update_requests_only:
            return
        for name, after in change.after.items():
            before = change.before.get(name)
            if before is not None:
                kept = (before.cpu_limit, before.memory_limit) == (after.cpu_limit, after.memory_limit)
                self.check(kept or _relieves(before, after), name, write)


class BoundsKept(Invariant):
    name = "bounds-kept"
    sentence = "A change never leads out of the bounds of its policy or of the organisation."
    property = 4

    def on_write(self, write: Write) -> None:
        spec = _spec_at_start(self.state, write)
        if spec is None or write.new is None or write.new.change is None:
            return
        change, limits = write.new.change, self.state.config().limits
        bounds = spec.resource_bounds
        for name, after in change.after.items():
            before = change.before.get(name, Resources())
            cpu_max = min(
                (round(each.cores * 1000) for each in (bounds.cpu.max, limits.max_cpu) if each is not None),
                default=None,
            )
            memory_max = min(
                (each.bytes for each in (bounds.memory.max, limits.max_memory) if each is not None),
                default=None,
            )
            for what, old, new, least, most in (
                ("cpu", before.cpu_request, after.cpu_request, round(bounds.cpu.min.cores * 1000), cpu_max),
                ("memory", before.memory_request, after.memory_request, bounds.memory.min.bytes, memory_max),
            ):
                if new is None or new == old:
                    continue
                self.check(
                    new >= min(least, old or least) or least > (most or least),
                    name,
                    what,
                    "below",
                    least,
                    write,
                )
                self.check(
                    most is None or new <= max(most, old or most),
                    name,
                    what,
                    "above",
                    most,
                    write,
                )


class AllocatableKept(Invariant):
    name = "allocatable-kept"
    sentence = (
        "No pod is raised beyond what the largest node has, unless a revert restores a size of somebody else."
    )

    def on_write(self, write: Write) -> None:
        if write.verb != "resize":
            return
        nodes = self.state.world.nodes
        *known, after = (
            Resources.total(each.with_implied_requests() for each in sizes.values())
            for sizes in (write.before, self._find_restored_size(write), write.after)
        )
        cpu, memory = int(nodes.allocatable_cpu.max()), int(nodes.allocatable_memory.max())
        most_cpu = max(cpu, *(each.cpu_request or 0 for each in known))
        most_memory = max(memory, *(each.memory_request or 0 for each in known))
        self.check((after.cpu_request or 0) <= most_cpu, "above", cpu, write)
        self.check((after.memory_request or 0) <= most_memory, "above", memory, write)

    def _find_restored_size(self, write: Write) -> Sizes:
        """Return the size to which a revert puts a pod back, or none."""
        workload = self.state.world.workloads.get(write.workload)
        annotations = read_change_annotations(workload.to_record()) if workload else None
        change = annotations.change if annotations else None
        if write.pod is None or change is None or change.phase is not Phase.REVERTING:
            return {}
        return change.previous_size(write.pod)


class MemoryInUseKept(Invariant):
    name = "memory-in-use-kept"
    sentence = (
        "A change never starts towards a memory limit below what its containers used in the last hours."
    )
    property = 5

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._peaks: dict[tuple[WorkloadKey, str], deque[tuple[float, float]]] = {}

    def on_step(self) -> None:
        world = self.state.world
        memory = world.container_arrays.containers.memory
        for key, workload in world.workloads.items():
            for place, container in enumerate(workload.containers):
                held = max(
                    (
                        float(memory[pod.rows[place]])
                        for pod in workload.pods.values()
                        if pod.node != UNSCHEDULED
                    ),
                    default=0.0,
                )
                peaks = self._peaks.setdefault((key, container.name), deque())
                while peaks and peaks[0][0] < world.now - PEAK_PERIOD:
                    peaks.popleft()
                while peaks and peaks[-1][1] <= held:
                    peaks.pop()
                peaks.append((world.now, held))

    def on_write(self, write: Write) -> None:
        if (
            write.verb != "annotate"
            or write.new is None
            or write.new.change is None
            or self.state.hides_usage()
        ):
            return
        if write.old is not None and write.old.change is not None:
            return
        change = write.new.change
        for name, after in change.after.items():
            before, peaks = change.before.get(name), self._peaks.get((write.workload, name))
            if before is None or not peaks or after.memory_limit is None:
                continue
            if before.memory_limit is not None and after.memory_limit >= before.memory_limit:
                continue
            peak = peaks[0][1]
            self.check(
                after.memory_limit >= peak,
                name,
                "used",
                round(peak),
                "bytes",
                write,
            )


class OomKilledNotShrunk(Invariant):
    name = "oom-killed-not-shrunk"
    sentence = "A container that was OOM-killed at its limit does not get that limit or less within a day, unless bounds forbid more."
    verbs: ClassVar[frozenset[str]] = frozenset({"resize", "patch"})

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._killed: dict[tuple[WorkloadKey, str], tuple[float, int]] = {}

    def on_step(self) -> None:
        world = self.state.world
        containers = world.container_arrays.containers
        for key, workload in world.workloads.items():
            for pod in workload.pods.values():
                for place, row in enumerate(pod.rows):
                    if containers.killed[row] == KILLED_BY_LIMIT:
                        # It held its limit of then: at the end of the same step it may have got another one.
                        limit = int(containers.memory[row])
                        known = self._killed.get((key, pod.containers[place].name), (0.0, 0))
                        recent = known[1] if world.now - known[0] < DAY else 0
                        self._killed[key, pod.containers[place].name] = world.now, max(limit, recent)

    def on_write(self, write: Write) -> None:
        if write.verb not in self.verbs:
            return
        for name, after in write.after.items():
            at, limit = self._killed.get((write.workload, name), (0.0, 0))
            old, new = self._limit_before(write, name), after.memory_limit
            # The operator learns of a kill by the next event of the pod; a step later it must know.
            if (
                not limit
                or not self.state.world.now - 2 * self.state.spec.step > at > self.state.world.now - DAY
            ):
                continue
            kept = new is None or (old is not None and new >= old) or self._is_capped(write, limit)
            self.check(kept or (new or 0) > limit, name, "was killed at", limit, write)

    def _limit_before(self, write: Write, container: str) -> int | None:
        """Return the limit that a write may keep, even if the container was killed at it."""
        requested = write.before[container].memory_limit
        limits = [] if requested is None else [requested]
        # That in effect too: a revert withdraws more memory that a kubelet never gave, or that no node had for any pod
        # of the template.
        if write.pod:
            pod = self.state.world.pods.get(write.pod.uid)
            limits += _limits_in_effect([pod] if pod else [], container)
        elif workload := self.state.world.workloads.get(write.workload):
            placed = [pod for pod in workload.pods.values() if pod.node != UNSCHEDULED]
            limits += [max(given)] if (given := _limits_in_effect(placed, container)) else []
        return min(limits, default=None)

    def _is_capped(self, write: Write, limit: int) -> bool:
        """Return whether the policy or the organisation forbids more memory than that at which a container was killed."""
        replica = self.state.find_replica(write.process)
        workload = replica.process.operator.cluster_state.get(write.workload) if replica else None
        policy = find_policy(replica, workload) if replica and workload else None
        bounds = [
            self.state.config().limits.max_memory,
            policy.spec.resource_bounds.memory.max if policy else None,
        ]
        return any(each is not None and each.bytes <= limit for each in bounds)


class OomKilledNotRecommendedLess(OomKilledNotShrunk):
    name = "oom-killed-not-recommended-less"
    sentence = (
        "A container that was OOM-killed at its limit is not recommended that limit or less within a day."
    )
    verbs: ClassVar[frozenset[str]] = frozenset({"recommend"})

    def _limit_before(self, write: Write, container: str) -> int | None:
        # The limit in effect: that of the template is often the one at which the container was killed.
        pods = self.state.world.workloads[write.workload].pods.values()
        return min(_limits_in_effect(pods, container), default=write.before[container].memory_limit)


class ReliefComesSoon(Invariant):
    name = "relief-comes-soon"
    sentence = "A pod gets more memory after an OOM kill within minutes of its recommendation; it waits for no window or interval."

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._recommended: dict[tuple[WorkloadKey, str], int] = {}
        self._killed: dict[tuple[WorkloadKey, str], float] = {}
        """The last kill of each container that has got no more memory since."""
        self._waited: dict[tuple[WorkloadKey, str], float] = {}
        """The seconds for which nothing stood against the memory that is recommended for it."""

    def on_write(self, write: Write) -> None:
        if write.verb == "recommend":
            for name, size in write.after.items():
                self._recommended[write.workload, name] = size.memory_limit or 0
        elif write.verb == "resize":
            for name, size in write.after.items():
                is_more = (size.memory_limit or 0) > (write.before[name].memory_limit or 0)
                if is_more and self._killed.pop((write.workload, name), None) is not None:
                    waited = self._waited.pop((write.workload, name), 0.0)
                    self.check(waited <= MAX_RELIEF_WAIT, "after", waited, "s", write)

    def on_step(self) -> None:
        world, step = self.state.world, self.state.spec.step
        containers = world.container_arrays.containers
        for key, workload in world.workloads.items():
            for pod in workload.pods.values():
                for place, row in enumerate(pod.rows):
                    if containers.killed[row] == KILLED_BY_LIMIT:
                        self._killed[key, pod.containers[place].name] = world.now
        for (key, name), at in list(self._killed.items()):
            if world.now - at > RELIEF_PERIOD:
                del self._killed[key, name]
                continue
            given = _limits_in_effect(world.workloads[key].pods.values(), name)
            is_wanted = bool(given) and self._recommended.get((key, name), 0) > max(given)
            if not (is_wanted and not self._is_delayed(key) and self._may_relieve(key, name)):
                self._waited[key, name] = 0.0
                continue
            waited = self._waited[key, name] = self._waited.get((key, name), 0.0) + step
            self.check(waited <= MAX_RELIEF_WAIT, key, name, "waits for", waited, "s")

    def _is_delayed(self, key: WorkloadKey) -> bool:
        """Return whether a fault keeps the operator from relieving a workload; it learns of kills from the pods."""
        return any(
            "/" not in fault.target or fault.target == str(key)
            for kind in self.state.injector.active_kinds()
            if not kind.startswith(_NO_DELAY)
            for fault in self.state.injector.active(kind)
        )

    def _may_relieve(self, key: WorkloadKey, name: str) -> bool:
        """Return whether a change in place may start now by all but windows, intervals and cooldowns."""
        workload = self.state.world.workloads[key]
        is_busy = bool(workload.outdated_pods) or workload.is_batch
        restarts = any(each.restart_on_memory_resize for each in workload.containers if each.name == name)
        if is_busy or restarts or self.state.spec.kubernetes != CURRENT_KUBERNETES:
            return False
        leaders = [each for each in self.state.replicas() if each.is_leading]
        record = leaders[0].process.operator.cluster_state.get(key) if len(leaders) == 1 else None
        if record is None:
            return False
        policy, config = find_policy(leaders[0], record), self.state.config()
        annotations = read_change_annotations(record)
        if policy is None or annotations is None or read_hold(record.annotations):
            return False
        change, reverted = annotations.change, annotations.reverted
        if change and not (change.relief and change.phase is Phase.PROMOTING and _has_running_pod(workload)):
            return False
        return (
            policy.spec.mode is PolicyMode.AUTO
            and PolicyRules.from_spec(policy.spec).for_container(name).memory.is_controlled
            and policy.spec.update_strategy.allow_in_place_resize
            and not config.dry_run
            and not config.limits.find_problems(policy.spec)
            and not leaders[0].process.operator.cluster_state.active_vpa(key)
            and not (reverted and reverted.relief_until > self.state.world.now)
        )


class MemoryLimitAboveUse(Invariant):
    name = "memory-limit-above-use"
    sentence = "No pod is resized to a memory limit below what its container holds at that moment."
    property = 5

    def on_write(self, write: Write) -> None:
        if write.verb != "resize" or write.pod is None or self.state.hides_usage():
            return
        pod = self.state.world.pods.get(write.pod.uid)
        if pod is None or pod.node == UNSCHEDULED:
            return
        memory = self.state.world.container_arrays.containers.memory
        for row, each in zip(pod.rows, pod.containers, strict=True):
            old, new = write.before[each.name].memory_limit, write.after[each.name].memory_limit
            if new is None or (old is not None and new >= old):
                continue
            held = float(memory[row])
            self.check(new >= held, each.name, "holds", round(held), "bytes", write)


def _spec_at_start(state: RunState, write: Write) -> OptimizationPolicySpec | None:
    """Return the spec of the policy that starts a change by this write; None if it starts none."""
    if write.verb != "annotate" or write.new is None or write.new.change is None:
        return None
    if write.old is not None and write.old.change is not None:
        return None
    replica = state.find_replica(write.process)
    workload = replica.process.operator.cluster_state.get(write.workload) if replica else None
    hold = read_hold(workload.annotations) if workload else None
    if hold and hold.sizes:
        return None  # a person has chosen these sizes, whatever the policy says
    policy = find_policy(replica, workload) if replica and workload else None
    return policy.spec if policy else None


def _limits_in_effect(pods: Iterable[SimulatedPod], container: str) -> list[int]:
    """Return the memory limits that a container has in pods, whatever was requested since."""
    return [
        size.memory_limit
        for pod in pods
        for each, size in zip(pod.containers, pod.applied, strict=True)
        if each.name == container and size.memory_limit is not None
    ]


def _has_running_pod(workload: SimulatedWorkload) -> bool:
    """Return whether a pod can be resized now: not one that crashes before that."""
    return any(not is_crash_looping(pod.to_record("")) for pod in workload.pods.values())


def _relieves(before: Resources, after: Resources) -> bool:
    """Return whether only memory limits grow, as after an OOM kill."""
    old, new = before.memory_limit, after.memory_limit
    return before.cpu_limit == after.cpu_limit and (new is None or (old is not None and new > old))


INVARIANTS: tuple[type[Invariant], ...] = (
    RequestsBelowLimits,
    QosClassKept,
    LimitsKept,
    BoundsKept,
    AllocatableKept,
    MemoryInUseKept,
    OomKilledNotShrunk,
    OomKilledNotRecommendedLess,
    MemoryLimitAboveUse,
    ReliefComesSoon,
)
