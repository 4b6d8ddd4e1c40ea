"""Limits: what no plan may pass, whatever it promises.

An administrator's guardrails, quotas and what the nodes have left, folded into what one workload may become. They
are checked in one place, on every state that a plan passes through, also on a plugin's.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import msgspec

from trimtab.intents.state import TargetState

ALL_ACTUATORS = "*"
"""In `resting`: all actuators."""
_TOLERANCE = 1e-9
"""Sums of cores are floating-point numbers."""


class PlanConstraints(msgspec.Struct, frozen=True, kw_only=True):
    min_replicas: int = 1
    max_replicas: int = 128
    min_cpu: float = 0.01
    """Of the main container of one pod, in cores."""
    max_cpu: float = inf
    min_total_cpu: float = 0.0
    """Of the main containers of all pods that have a place: fewer pods and smaller ones, each enough alone, may not be."""
    min_memory: float = 0.0
    """Of the main container of one pod, in bytes."""
    max_memory: float = inf
    max_safeguard_memory: float = inf
    """Of the main container of one pod, in bytes: how far memory is raised because it runs out, before a pod was killed."""
    extra_pods: float = inf
    """How many pods may be added: what quota, namespace cap and nodes leave."""
    extra_cpu: float = inf
    """Cores that all pods together may ask for on top of now: what quota and namespace cap leave."""
    extra_memory: float = inf
    extra_cpu_in_place: float = inf
    """Cores by which each pod may grow where it is: what the tightest of its nodes leaves."""
    extra_memory_in_place: float = inf
    forbidden: frozenset[str] = frozenset()
    """Actuators that an administrator has turned off here."""
    freeze: str = ""
    """Why nothing may be done now; empty: it may."""
    cooldown_until: Mapping[str, float] = {}
    """Actuators, or `*`, that rest until a time, so that what they did can be judged before they do more."""
    refused_until: Mapping[str, float] = {}
    """Actuators whose last action could not be carried out, until when they are not tried again."""
    explore: bool = False
    """Whether a small step may be tried that is only likely, not nearly sure, to be good."""

    def allows(self, actuator: str, *, now: float) -> bool:
        return (
            self.allows_safeguard(actuator, now=now)
            and self.cooldown_until.get(ALL_ACTUATORS, now) <= now
            and self.cooldown_until.get(actuator, now) <= now
        )

    def allows_safeguard(self, actuator: str, *, now: float) -> bool:
        """Return whether an actuator may act to keep pods alive: that waits for no judgement of what was done before."""
        return (
            not self.freeze
            and actuator not in self.forbidden
            and self.refused_until.get(actuator, now) <= now
        )

    def find_violation(self, before: TargetState, after: TargetState) -> str | None:
        """What is passed on the way from what is to what would be; None: nothing. What is not made worse is none."""
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
            return f"{would} replicas are more than {self.max_replicas}"
        if would < was and would < self.min_replicas:
            return f"{would} replicas are fewer than {self.min_replicas}"
        if would - was > self.extra_pods:
            return f"{would - was} more pods do not fit"
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
                return f"{would:g} {what} are more than {most:g}"
            if would < least and (was is None or would < was):
                return f"{would:g} {what} are fewer than {least:g}"
        return None

    def _check_total_cpu(self, before: TargetState, after: TargetState) -> str | None:
        was, would = ((each.cpu or 0.0) * each.placed for each in (before, after))
        least = self.min_total_cpu * (1 - _TOLERANCE)
        return f"{would:g} cores in all are fewer than {least:g}" if would < least and would < was else None

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
                return f"{each:g} {what} more a pod do not fit its node"
            if total > 0 and total > more * (1 + _TOLERANCE):
                return f"{total:g} {what} more in all are over the quota or cap"
        return None
