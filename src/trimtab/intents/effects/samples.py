"""Samples: planner events as points to which a model can be fitted.

States with unknown objectives, and states while pods start, are skipped. A latency of saturated pods, or at a
time-out, is only a lower bound: as an exact value it would teach that more CPU has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

import msgspec
from msgspec.structs import replace

from trimtab.intents.effects.inputs import ModelInputs, extract_inputs
from trimtab.intents.state import ContainerSize, PodState, TargetState
from trimtab.store.planner_records import PlannerEvent

_FIELDS = {
    "cpu_requests": "cpu_request",
    "cpu_limits": "cpu_limit",
    "memory_requests": "memory_request",
    "memory_limits": "memory_limit",
}
STATE_KEY = "state"
"""The key in an event's data for state that has no field in the event format."""
CPU_SATURATION = 0.9
"""The share of the CPU limit above which pods count as saturated. Their queue grows without bound, so the measured
latency depends on its duration."""
_CEILING_TOLERANCE = 0.005
_MIN_CEILING_SAMPLES = 3
_IDLE_UTILIZATION = 0.5
"""The utilization below which pods are idle, for detecting a ceiling: a highest value that repeats within the
tolerance on busy pods, such as a client's time-out or the last bucket of a histogram."""


class EffectSample(msgspec.Struct, frozen=True, gc=False):
    at: float
    inputs: ModelInputs
    value: float
    cpu_utilization: float | None = None
    """The share of their CPU that the pods used."""
    memory_used: float | None = None
    is_censored: bool = False
    """True if the true value may be larger: a latency of saturated pods, or at a ceiling."""


def encode_state(state: TargetState) -> dict[str, Any]:
    """Encode a state as the fields of a planner event; `decode_state` reads it back."""
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
    """Decode the state of a planner event."""
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
    # The main container is identified by its index, so containers without requests must keep theirs.
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
    """Extract the samples of one objective from the states, in their order."""
    found = (extract_sample(at, state, objective) for at, state in states if is_settled(state))
    return [each for each in found if each is not None]


def extract_sample(at: float, state: TargetState, objective: str) -> EffectSample | None:
    """Extract the sample of one objective from a state; None if there is none."""
    value = state.objectives.get(objective)
    if value is None or not isfinite(value) or value <= 0:
        return None
    used = state.memory_used if state.memory_used and state.memory_used > 0 else None
    return EffectSample(at, extract_inputs(state), value, cpu_utilization(state), used, is_out_of_cpu(state))


def mark_censored(seen: Sequence[EffectSample]) -> list[EffectSample]:
    """Return the latency samples, with those at a ceiling marked as censored."""
    top = max((each.value for each in seen), default=0.0) * (1.0 - _CEILING_TOLERANCE)
    high = [
        each.value >= top and (each.cpu_utilization is None or each.cpu_utilization >= _IDLE_UTILIZATION)
        for each in seen
    ]
    if sum(high) < _MIN_CEILING_SAMPLES or all(high):
        return list(seen)
    return [replace(each, is_censored=True) if hit else each for each, hit in zip(seen, high, strict=True)]


def is_out_of_cpu(state: TargetState) -> bool:
    """Return whether pods use all of their CPU limit; false without a limit."""
    size = state.main_size
    if size is None or not size.cpu_limit or state.cpu_used is None:
        return False
    return state.cpu_used >= CPU_SATURATION * size.cpu_limit * state.placed


def cpu_utilization(state: TargetState) -> float | None:
    """Return the share of CPU that the pods use, within usable bounds; None if it is unknown."""
    cpu = state.cpu
    if state.cpu_used is None or not cpu:
        return None
    return min(0.95, max(0.02, state.cpu_used / (cpu * state.placed)))


def is_settled(state: TargetState) -> bool:
    """Return whether all wanted pods are running; before that, measurements are of fewer pods."""
    return not state.pods or (
        len(state.pods) == state.replicas and all(pod.state == "Running" for pod in state.pods)
    )
