"""Samples: planner events as points that a model can be fitted to.

What is unknown, or was measured while pods were coming up, says nothing of the state it was measured in, and is left
out. What was measured of pods that had no CPU to spare, or at a time-out, only says that it is no less: more CPU would
be learned to bring nothing if that were taken for the truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

import msgspec
from msgspec.structs import replace

from trimtab.intents.effects.inputs import ModelInputs, extract_inputs
from trimtab.intents.state import ContainerSize, PodState, TargetState
from trimtab.store.events import PlannerEvent

_FIELDS = {
    "cpu_requests": "cpu_request",
    "cpu_limits": "cpu_limit",
    "memory_requests": "memory_request",
    "memory_limits": "memory_limit",
}
STATE_KEY = "state"
"""In an event's data: what the seed's fields have no place for."""
CPU_SATURATION = 0.9
"""From which share of their limit on pods are out of CPU: a queue then grows for as long as it may, and what is measured
tells how long that was."""
_CEILING_TOLERANCE = 0.005
_MIN_CEILING_SAMPLES = 3
_IDLE_UTILISATION = 0.5
"""A ceiling is a highest value that comes again and again, to so small a share of it, of pods that are not idle: a
client's time-out, or the last bucket of a histogram."""


class EffectSample(msgspec.Struct, frozen=True, gc=False):
    at: float
    inputs: ModelInputs
    value: float
    cpu_utilisation: float | None = None
    """The share of their CPU that the pods used."""
    memory_used: float | None = None
    is_censored: bool = False
    """Whether the value may be larger in truth: a latency of pods that are out of CPU, or at a ceiling."""


def encode_state(state: TargetState) -> dict[str, Any]:
    """A state as the fields of a planner event; `observed` reads it back."""
    return {
        "current_objectives": dict(state.objectives),
        "resources": {
            f"{size.container}_{name}": value
            for size in state.sizes
            for name, field in _FIELDS.items()
            if (value := getattr(size, field)) is not None
        },
        "annotations": dict(state.annotations),
        "pods": {
            pod.name: {
                "availability": pod.availability,
                "nodename": pod.node,
                "state": pod.state,
                "qosclass": pod.qos,
            }
            for pod in state.pods
        },
        "data": {
            **state.data,
            STATE_KEY: {
                "replicas": state.replicas,
                "containers": [size.container for size in state.sizes],
                "main": state.main,
                "load": state.load,
                "cpu_used": state.cpu_used,
                "memory_used": state.memory_used,
                "cache_class": state.cache_class,
                "power_profile": state.power_profile,
            },
        },
    }


def decode_state(event: PlannerEvent) -> TargetState:
    """The state that an event tells of."""
    sizes: dict[str, dict[str, float]] = {}
    for key, value in event.resources.items():
        container, _, what = key.rpartition("_")
        container, _, resource = container.rpartition("_")
        field = _FIELDS.get(f"{resource}_{what}")
        if field is not None:
            sizes.setdefault(container, {})[field] = float(value)
    pods = tuple(
        PodState(
            name=name,
            node=pod.get("nodename", ""),
            state=pod.get("state", ""),
            qos=pod.get("qosclass", ""),
            availability=pod.get("availability", 1.0),
        )
        for name, pod in event.pods.items()
    )
    data = dict(event.data)
    more = dict(data.pop(STATE_KEY, {}))
    # Which does the work is told by its place, so all have to be in theirs, those too that ask for nothing.
    names = more.pop("containers", sorted(sizes))
    return TargetState(
        objectives=dict(event.current_objectives),
        pods=pods,
        sizes=tuple(ContainerSize(container=name, **sizes.get(name, {})) for name in names),
        annotations=dict(event.annotations),
        data=data,
        **{"replicas": len(pods), **more},
    )


def extract_samples(states: Iterable[tuple[float, TargetState]], objective: str) -> list[EffectSample]:
    """What these states say of one objective, in their order."""
    found = (extract_sample(at, state, objective) for at, state in states if is_settled(state))
    return [each for each in found if each is not None]


def extract_sample(at: float, state: TargetState, objective: str) -> EffectSample | None:
    """What one state says of an objective; None: nothing."""
    value = state.objectives.get(objective)
    if value is None or not isfinite(value) or value <= 0:
        return None
    used = state.memory_used if state.memory_used and state.memory_used > 0 else None
    return EffectSample(at, extract_inputs(state), value, cpu_utilisation(state), used, is_out_of_cpu(state))


def mark_censored(seen: Sequence[EffectSample]) -> list[EffectSample]:
    """These samples of a latency, with those marked that are at a ceiling."""
    top = max((each.value for each in seen), default=0.0) * (1.0 - _CEILING_TOLERANCE)
    high = [
        each.value >= top and (each.cpu_utilisation is None or each.cpu_utilisation >= _IDLE_UTILISATION)
        for each in seen
    ]
    if sum(high) < _MIN_CEILING_SAMPLES or all(high):
        return list(seen)
    return [replace(each, is_censored=True) if hit else each for each, hit in zip(seen, high, strict=True)]


def is_out_of_cpu(state: TargetState) -> bool:
    """Whether pods use all that they may; without a limit nobody can tell."""
    size = state.main_size
    if size is None or not size.cpu_limit or state.cpu_used is None:
        return False
    return state.cpu_used >= CPU_SATURATION * size.cpu_limit * state.placed


def cpu_utilisation(state: TargetState) -> float | None:
    """The share of their CPU that the pods use; None: unknown. Never so low or high that nothing follows from it."""
    cpu = state.cpu
    if state.cpu_used is None or not cpu:
        return None
    return min(0.95, max(0.02, state.cpu_used / (cpu * state.placed)))


def is_settled(state: TargetState) -> bool:
    """Whether all pods that are wanted run: before that, what is measured is of fewer."""
    return not state.pods or (
        len(state.pods) == state.replicas and all(pod.state == "Running" for pod in state.pods)
    )
