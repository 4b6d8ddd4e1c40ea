"""Fit values to the kernel's rules before they are written: within parents, and consistent.

A request for one cgroup affects cgroups without a request: the child of a smaller parent must shrink as well.
Such values are added here, from the top down:

- a value that its knob never accepts is rejected, and the others are kept;
- `cpuset.cpus` must be a non-empty subset of the parent's. cgroup v1 rejects anything else, also for
  the children of a shrinking parent; v2 clips by itself;
- `cpu.quota` per period is at most the parent's (v1 rejects more; v2 ignores it);
- `cpu.burst` is at most the quota: both versions reject more, and also a quota below the burst;
- `memory.min` and `memory.low` are at most the parent's, which would reclaim the excess, and at most
  `memory.max`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from trimtab.node.arbiter.requests import KnobRef
from trimtab.node.arbiter.value_order import Value, is_within, meet
from trimtab.node.cgroups import UNLIMITED, CgroupVersion
from trimtab.node.cgroups.knobs import (
    CPU_BURST,
    CPU_PERIOD,
    CPU_QUOTA,
    CPUSET_CPUS,
    MEMORY_LOW,
    MEMORY_MAX,
    MEMORY_MIN,
)


class BaselineReader(Protocol):
    """The cgroups as they would be without the agent."""

    @property
    def version(self) -> CgroupVersion: ...

    def value(self, ref: KnobRef) -> Value | None:
        """Return the original or untouched value of a knob; None if it does not exist."""
        ...

    def children(self, path: str) -> Iterable[str]:
        """Return the paths of the child cgroups."""
        ...


@dataclass(frozen=True, slots=True)
class RejectedValue:
    """A value that the kernel would reject."""

    ref: KnobRef
    reason: str

    def __str__(self) -> str:
        return f"{self.ref}: {self.reason}"


def validate_values(
    wanted: Mapping[KnobRef, Value], baseline: BaselineReader
) -> tuple[dict[KnobRef, Value], list[RejectedValue]]:
    """Return the values that can be written, including those that follow for other cgroups."""
    return _Validator(wanted, baseline).run()


class _Validator:
    def __init__(self, wanted: Mapping[KnobRef, Value], baseline: BaselineReader) -> None:
        self._baseline = baseline
        self._accepted: dict[KnobRef, Value] = {}
        self._rejected: list[RejectedValue] = []
        self._wanted = dict(wanted)
        self._queue = [_order_key(ref) for ref in wanted]
        heapq.heapify(self._queue)

    def run(self) -> tuple[dict[KnobRef, Value], list[RejectedValue]]:
        by_key = {ref.key: ref for ref in self._wanted}
        while self._queue:
            # Parents before children: a child is compared with the value that its parent will have.
            *_, path, name = heapq.heappop(self._queue)
            ref = by_key[path, name]
            # Clipped before it is checked: an invalid CPU set may become valid within its parent.
            value = self._clip(ref, self._wanted[ref])
            # One value that no kernel accepts must not keep the others from being written.
            if problem := _find_problem(ref, value):
                self._rejected.append(RejectedValue(ref, problem))
                continue
            self._accepted[ref] = value
            for other in self._find_affected(ref):
                if other not in self._wanted:
                    undisturbed = self._baseline.value(other)
                    # Nobody requested this child, but its own value does not fit into the smaller parent any
                    # more. cgroup v1 would reject the write to the parent.
                    if undisturbed is not None and self._clip(other, undisturbed) != undisturbed:
                        self._wanted[other] = undisturbed
                        by_key[other.key] = other
                        heapq.heappush(self._queue, _order_key(other))
        return self._accepted, self._rejected

    def _effective_value(self, ref: KnobRef | None) -> Value | None:
        if ref is None:
            return None
        found = self._accepted.get(ref)
        return self._baseline.value(ref) if found is None else found

    def _find_affected(self, ref: KnobRef) -> list[KnobRef]:
        """Return the knobs whose value may have become invalid."""
        found = []
        # cgroup v2 clips the cpusets of children by itself and ignores quotas above the parent's.
        if self._baseline.version is CgroupVersion.V1 and ref.knob in (CPUSET_CPUS, CPU_QUOTA):
            found += [KnobRef(child, ref.knob) for child in self._baseline.children(ref.path)]
        if ref.knob == CPU_QUOTA:
            found.append(KnobRef(ref.path, CPU_BURST))
        return found

    def _clip(self, ref: KnobRef, value: Value) -> Value:
        if ref.knob == CPUSET_CPUS:
            return self._clip_cpus(ref, value)
        if ref.knob == CPU_QUOTA:
            return self._clip_quota(ref, value)
        if ref.knob == CPU_BURST:
            quota = self._effective_value(KnobRef(ref.path, CPU_QUOTA))
            return value if quota is None else meet(value, quota)
        if ref.knob in (MEMORY_MIN, MEMORY_LOW):
            # The kernel accepts more than the parent protects, and reclaims the excess all the same: the pod
            # would only look protected.
            for limit in (
                self._effective_value(ref.parent),
                self._effective_value(KnobRef(ref.path, MEMORY_MAX)),
            ):
                value = value if limit is None else meet(value, limit)
        return value

    def _clip_cpus(self, ref: KnobRef, value: Value) -> Value:
        parent = self._effective_value(ref.parent)
        if not parent or is_within(value, parent):  # in v2 an empty set inherits from the parent
            return value
        # Of disjoint sets nothing would remain, and an empty cpuset is invalid in v1 and means "inherit" in v2;
        # the parent's set is the closest valid one.
        return meet(value, parent) or parent

    def _clip_quota(self, ref: KnobRef, value: Value) -> Value:
        parent = self._effective_value(ref.parent)
        if (
            self._baseline.version is CgroupVersion.V2
            or not isinstance(parent, int)
            or not isinstance(value, int)
        ):
            return value
        # An unlimited quota is -1, which min() would take for the smaller one.
        if UNLIMITED in (parent, value):
            return value
        # The kernel compares shares of a CPU, not microseconds: periods may differ.
        return min(value, parent * self._read_period(ref) // self._read_period(ref.parent))

    def _read_period(self, ref: KnobRef | None) -> int:
        found = self._baseline.value(KnobRef(ref.path, CPU_PERIOD)) if ref else None
        return found if isinstance(found, int) else 100_000


def _order_key(ref: KnobRef) -> tuple[int, int, str, str]:
    """Return the order: top down, and the quota of a cgroup before its burst."""
    return ref.depth, ref.knob == CPU_BURST, *ref.key


def _find_problem(ref: KnobRef, value: Value) -> str:
    if value == frozenset():
        return "no CPU remains"
    return ref.knob.find_problem(value)
