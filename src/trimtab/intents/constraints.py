"""Constraints that every plan must meet.

They combine the guardrails of an administrator, quotas and the free capacity of nodes into bounds for one
workload. Every state of a plan is checked here, including those of plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import msgspec

from trimtab.intents.state import TargetState

ALL_ACTUATORS = "*"
"""The key in `cooldown_until` that stands for all actuators."""
_TOLERANCE = 1e-9
"""The relative tolerance for sums of floating-point numbers."""


class PlanConstraints(msgspec.Struct, frozen=True, kw_only=True):
    min_replicas: int = 1
    max_replicas: int = 128
    min_cpu: float = 0.01
    """The fewest cores of the main container of a pod."""
    max_cpu: float = inf
    min_total_cpu: float = 0.0
    """The fewest cores of the main containers of all scheduled pods together. Reducing both replicas and CPU, each
    within its bound, could go below it."""
    min_memory: float = 0.0
    """The fewest bytes of the main container of a pod."""
    max_memory: float = inf
    max_safeguard_memory: float = inf
    """The most bytes to which a safeguard raises the main container of a pod before any pod was OOM-killed."""
    extra_pods: float = inf
    """The number of pods that may be added within the quota, the namespace cap and the nodes."""
    extra_cpu: float = inf
    """The cores that all pods together may request in addition, within the quota and the namespace cap."""
    extra_memory: float = inf
    extra_cpu_in_place: float = inf
    """The cores by which each pod may grow on its node, limited by the fullest of the nodes."""
    extra_memory_in_place: float = inf
    forbidden: frozenset[str] = frozenset()
    """The actuators that an administrator has disabled."""
    freeze: str = ""
    """The reason why no action is allowed now; empty if actions are allowed."""
    cooldown_until: Mapping[str, float] = {}
    """The time until which each actuator, or `*` for all of them, must not act, so that its last action can be
    evaluated first."""
    refused_until: Mapping[str, float] = {}
    """The time until which each actuator is not retried, because its last action failed."""
    explore: bool = False
    """True if a small step with an uncertain effect may be tried."""

    def allows(self, actuator: str, *, now: float) -> bool:
        return (
            self.allows_safeguard(actuator, now=now)
            and self.cooldown_until.get(ALL_ACTUATORS, now) <= now
            and self.cooldown_until.get(actuator, now) <= now
        )

    def allows_safeguard(self, actuator: str, *, now: float) -> bool:
        """Return whether an actuator may act to keep pods alive, which ignores cool-downs."""
        return (
            not self.freeze
            and actuator not in self.forbidden
            and self.refused_until.get(actuator, now) <= now
        )

    def find_violation(self, before: TargetState, after: TargetState) -> str | None:
        """Describe the constraint that a change violates; None if it violates none. A violation that already
        exists and does not grow is ignored.
        """
        if after.sizes is before.sizes and after.replicas == before.replicas:
            return None
        return (
            self._check_replicas(before, after)
            or self._check_size(before, after)
            or self._check_total_cpu(before, after)
            or self._check_totals(before, after)
        )

    def _check_replicas(self, before: TargetState, after: TargetState) -> str | None:
        was, would = before.replicas, after.replicas
        if would == was:
            return None
        if would > was and would > self.max_replicas:
            return f"{would} replicas are more than the maximum of {self.max_replicas}"
        if would < was and would < self.min_replicas:
            return f"{would} replicas are fewer than the minimum of {self.min_replicas}"
        if would - was > self.extra_pods:
            return f"{would - was} more pods do not fit on the nodes"
        return None

    def _check_size(self, before: TargetState, after: TargetState) -> str | None:
        if after.sizes is before.sizes:
            return None
        for what, was, would, least, most in (
            ("cores", before.cpu, after.cpu, self.min_cpu, self.max_cpu),
            ("bytes", before.memory, after.memory, self.min_memory, self.max_memory),
        ):
            if would is None or would == was:
                continue
            if would > most and (was is None or would > was):
                return f"{would:g} {what} a pod are more than the maximum of {most:g}"
            if would < least and (was is None or would < was):
                return f"{would:g} {what} a pod are fewer than the minimum of {least:g}"
        return None

    def _check_total_cpu(self, before: TargetState, after: TargetState) -> str | None:
        was, would = ((each.cpu or 0.0) * each.placed for each in (before, after))
        least = self.min_total_cpu * (1 - _TOLERANCE)
        return (
            f"{would:g} cores of all pods together are fewer than the minimum of {least:g}"
            if would < least and would < was
            else None
        )

    def _check_totals(self, before: TargetState, after: TargetState) -> str | None:
        if after.sizes is before.sizes and after.replicas <= before.replicas:
            return None
        cpu_was, memory_was = before.requests_per_pod()
        cpu, memory = after.requests_per_pod()
        for what, each, more_each, total, more in (
            ("cores", cpu - cpu_was, self.extra_cpu_in_place,
             cpu * after.replicas - cpu_was * before.replicas, self.extra_cpu),
            ("bytes", memory - memory_was, self.extra_memory_in_place,
             memory * after.replicas - memory_was * before.replicas, self.extra_memory),
        ):  # fmt: skip
            if each > 0 and each > more_each * (1 + _TOLERANCE):
                return f"{each:g} more {what} a pod do not fit on its node"
            if total > 0 and total > more * (1 + _TOLERANCE):
                return f"{total:g} more {what} of all pods together exceed the quota, or the maximum of a guardrail"
        return None
