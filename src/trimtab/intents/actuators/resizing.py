"""Resize in place: the CPU or the memory of the main container of every pod.

Requests and limits change by the same factor, so that the QoS class stays the same. Memory is never reduced below
its usage, and is raised independently of objectives when a pod is about to be OOM-killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import ClassVar, Literal

from msgspec.structs import replace
from pydantic import AliasChoices, Field

from trimtab.intents.actuator import IntentAction, SafeguardAction
from trimtab.intents.actuators.candidate_values import (
    evaluate_candidates,
    list_candidate_values,
    round_to_step,
)
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.effects.samples import is_out_of_cpu
from trimtab.intents.objective import Goal
from trimtab.intents.state import ContainerSize, TargetState
from trimtab.plugins import Settings

Resource = Literal["cpu", "memory"]
_MEBIBYTE = 2.0**20
_STARVED_HEADROOM = 1.5
"""The CPU of saturated pods after a resize, in multiples of their usage. Their need is unknown while they are
throttled."""


class ResizeCpuSettings(Settings):
    disruption: float = 0.01
    """The cost of the action itself, in core-hours; it is added once more for every pod."""
    step: float = 0.05
    """The step of CPU sizes, in cores."""


class ResizeMemorySettings(Settings):
    disruption: float = 0.01
    """The cost of the action itself, in core-hours; it is added once more for every pod."""
    step: float = 16 * _MEBIBYTE
    """The step of memory sizes, in bytes."""
    headroom: float = Field(default=1.2, validation_alias=AliasChoices("headroom", "above_use"))
    """The lowest ratio of memory to peak usage that a resize leaves."""
    oom_threshold: float = Field(default=0.95, validation_alias=AliasChoices("oom_threshold", "danger"))
    """The share of its memory above which a pod counts as about to be OOM-killed."""


class _ResizeActuator:
    resource: Resource
    name: str
    group: str
    diminishing = True
    disruption: float
    step: float

    def candidates(
        self, state: TargetState, *, goal: Goal, effects: EffectModels, limits: PlanConstraints
    ) -> Sequence[IntentAction]:
        now = getattr(state, self.resource)
        if not now:  # A missing or zero size cannot be scaled by a factor.
            return ()
        low, high = self._bounds(state, limits, now)
        values = list_candidate_values(now, low=low, high=high, step=self.step, down=goal.is_release)
        if not values:
            return ()

        def expect(values: Sequence[float]) -> list[TargetState]:
            return effects.predict(
                state, [self._with_size(state, value, now) for value in values], group=self.group
            )

        return [
            self._build_action(state, after)
            for _, after in evaluate_candidates(values, step=self.step, goal=goal, expect=expect)
        ]

    def _bounds(self, state: TargetState, limits: PlanConstraints, now: float) -> tuple[float, float]:
        size = state.main_size
        assert size is not None
        is_cpu = self.resource == "cpu"
        request = (size.cpu_request if is_cpu else size.memory_request) or now
        share = request / now
        more = limits.extra_cpu if is_cpu else limits.extra_memory
        each = limits.extra_cpu_in_place if is_cpu else limits.extra_memory_in_place
        grow = min(each, more / max(1, state.replicas)) / share
        most = min(limits.max_cpu if is_cpu else limits.max_memory, now + grow)
        low = max(limits.min_cpu if is_cpu else limits.min_memory, self._floor(state), self.step)
        return round_to_step(low, step=self.step, up=True), round_to_step(most, step=self.step, up=False)

    def _floor(self, state: TargetState) -> float:  # noqa: ARG002 - CPU has none: too little of it is slow, not deadly
        return 0.0

    def _with_size(self, state: TargetState, value: float, now: float) -> TargetState:
        index, factor = state.main, value / now
        resized = _scale_size(state.sizes[index], self.resource, factor)
        return replace(state, sizes=(*state.sizes[:index], resized, *state.sizes[index + 1 :]))

    def _build_action(self, state: TargetState, after: TargetState) -> IntentAction:
        size = after.sizes[after.main]
        is_cpu = self.resource == "cpu"
        return IntentAction(
            actuator=self.name,
            parameters={
                "container": size.container,
                "request": size.cpu_request if is_cpu else size.memory_request,
                "limit": size.cpu_limit if is_cpu else size.memory_limit,
                "from": getattr(state, self.resource),
            },
            after=after,
            disruption=self.disruption * (1 + state.replicas),
        )


class ResizeCpu(_ResizeActuator):
    settings_type: ClassVar[type[ResizeCpuSettings]] = ResizeCpuSettings
    resource: Resource = "cpu"
    name = "resizeCPU"
    group = "vertical_scaling"

    def __init__(self, settings: ResizeCpuSettings | None = None) -> None:
        settings = settings or ResizeCpuSettings()
        self.disruption, self.step = settings.disruption, settings.step

    def safeguard(self, state: TargetState, *, goal: Goal, limits: PlanConstraints) -> SafeguardAction | None:
        """Raise the CPU of saturated pods if no objective would show that they need more."""
        now = state.cpu
        if goal.watches_capacity or not now or not is_out_of_cpu(state):
            return None
        assert state.cpu_used is not None
        _, high = self._bounds(state, limits, now)
        value = min(
            high, round_to_step(state.cpu_used / state.placed * _STARVED_HEADROOM, step=self.step, up=True)
        )
        if value <= now:
            return None
        action = self._build_action(state, self._with_size(state, value, now))
        reason = "pods use all of their CPU, and no objective of this Intent measures that"
        return SafeguardAction(action, reason, is_deadly=False)


class ResizeMemory(_ResizeActuator):
    settings_type: ClassVar[type[ResizeMemorySettings]] = ResizeMemorySettings
    resource: Resource = "memory"
    name = "resizeMemory"
    group = "memory"

    def __init__(self, settings: ResizeMemorySettings | None = None) -> None:
        settings = settings or ResizeMemorySettings()
        self.disruption, self.step = settings.disruption, settings.step
        self._headroom, self._oom_threshold = settings.headroom, settings.oom_threshold

    def safeguard(self, state: TargetState, *, goal: Goal, limits: PlanConstraints) -> SafeguardAction | None:  # noqa: ARG002 - whatever is wanted
        now = state.memory
        if not now or state.memory_used is None or state.memory_used < self._oom_threshold * now:
            return None
        if state.memory_median is not None and state.memory_median < self._oom_threshold * now:
            return None  # Only some pods leak, and the kubelet restarts them: raising the memory of all pods would feed the leak.
        _, high = self._bounds(state, limits, now)
        high = min(high, limits.max_safeguard_memory)
        value = min(high, round_to_step(state.memory_used * self._headroom, step=self.step, up=True))
        if value <= now:
            return None
        action = self._build_action(state, self._with_size(state, value, now))
        return SafeguardAction(action, "pods are about to run out of memory", is_deadly=True)

    def _floor(self, state: TargetState) -> float:
        """Return the smallest allowed memory; infinity while the usage is unknown, so that nothing is reduced."""
        return inf if state.memory_used is None else state.memory_used * self._headroom


def _scale_size(size: ContainerSize, resource: Resource, factor: float) -> ContainerSize:
    """Scale requests and limits, rounded to millicores or bytes."""
    if resource == "cpu":
        return replace(
            size,
            cpu_request=_multiply(size.cpu_request, factor, 3),
            cpu_limit=_multiply(size.cpu_limit, factor, 3),
        )
    return replace(
        size,
        memory_request=_multiply(size.memory_request, factor, 0),
        memory_limit=_multiply(size.memory_limit, factor, 0),
    )


def _multiply(value: float | None, factor: float, digits: int) -> float | None:
    return None if value is None else round(value * factor, digits)
