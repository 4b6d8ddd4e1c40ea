"""Samples: planner events as points that a model can be fitted to.

What is unknown, or was measured while pods were coming up, says nothing of the state it was measured in, and is left
out.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any

import msgspec

from trimtab.intents.effects.knobs import Knobs, knobs
from trimtab.intents.state import PodState, Size, State
from trimtab.store.events import PlannerEvent

_FIELDS = {
    "cpu_requests": "cpu_request",
    "cpu_limits": "cpu_limit",
    "memory_requests": "memory_request",
    "memory_limits": "memory_limit",
}
STATE = "state"
"""In an event's data: what the seed's fields have no place for."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    at: float
    knobs: Knobs
    value: float
    busy: float | None = None
    """The share of their CPU that the pods used."""
    memory_used: float | None = None


def recorded(state: State) -> dict[str, Any]:
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
            STATE: {
                "replicas": state.replicas,
                "main": state.main,
                "load": state.load,
                "cpu_used": state.cpu_used,
                "memory_used": state.memory_used,
                "cache_class": state.cache_class,
                "power_profile": state.power_profile,
            },
        },
    }


def observed(event: PlannerEvent) -> State:
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
    more = data.pop(STATE, {})
    return State(
        objectives=dict(event.current_objectives),
        pods=pods,
        sizes=tuple(Size(container=name, **size) for name, size in sorted(sizes.items())),
        annotations=dict(event.annotations),
        data=data,
        **{"replicas": len(pods), **more},
    )


def samples(states: Iterable[tuple[float, State]], objective: str) -> list[Sample]:
    """What these states say of one objective, in their order."""
    return [
        Sample(at, knobs(state), value, busy(state), state.memory_used)
        for at, state in states
        if (value := state.objectives.get(objective)) is not None
        and isfinite(value)
        and value > 0
        and settled(state)
    ]


def busy(state: State) -> float | None:
    """The share of their CPU that the pods use; None: unknown. Never so low or high that nothing follows from it."""
    cpu = state.cpu
    if state.cpu_used is None or not cpu:
        return None
    return min(0.95, max(0.02, state.cpu_used / (cpu * max(1, state.replicas))))


def settled(state: State) -> bool:
    """Whether all pods that are wanted run: before that, what is measured is of fewer."""
    return not state.pods or (
        len(state.pods) == state.replicas and all(pod.state == "Running" for pod in state.pods)
    )
