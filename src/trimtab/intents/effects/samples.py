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

from trimtab.intents.effects.inputs import Knobs, knobs
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
BRIMMING = 0.9
"""From which share of their limit on pods are out of CPU: a queue then grows for as long as it may, and what is measured
tells how long that was."""
_SAME = 0.005
_OFTEN = 3
_IDLE = 0.5
"""A ceiling is a highest value that comes again and again, to so small a share of it, of pods that are not idle: a
client's time-out, or the last bucket of a histogram."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    at: float
    knobs: Knobs
    value: float
    busy: float | None = None
    """The share of their CPU that the pods used."""
    memory_used: float | None = None
    at_least: bool = False
    """Whether the value may be larger in truth: a latency of pods that are out of CPU, or at a ceiling."""


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
    more = dict(data.pop(STATE, {}))
    # Which does the work is told by its place, so all have to be in theirs, those too that ask for nothing.
    names = more.pop("containers", sorted(sizes))
    return State(
        objectives=dict(event.current_objectives),
        pods=pods,
        sizes=tuple(Size(container=name, **sizes.get(name, {})) for name in names),
        annotations=dict(event.annotations),
        data=data,
        **{"replicas": len(pods), **more},
    )


def samples(states: Iterable[tuple[float, State]], objective: str) -> list[Sample]:
    """What these states say of one objective, in their order."""
    found = (sample(at, state, objective) for at, state in states if settled(state))
    return [each for each in found if each is not None]


def sample(at: float, state: State, objective: str) -> Sample | None:
    """What one state says of an objective; None: nothing."""
    value = state.objectives.get(objective)
    if value is None or not isfinite(value) or value <= 0:
        return None
    used = state.memory_used if state.memory_used and state.memory_used > 0 else None
    return Sample(at, knobs(state), value, busy(state), used, out_of_cpu(state))


def under_ceilings(seen: Sequence[Sample]) -> list[Sample]:
    """These samples of a latency, with those marked that are at a ceiling."""
    top = max((each.value for each in seen), default=0.0) * (1.0 - _SAME)
    high = [each.value >= top and (each.busy is None or each.busy >= _IDLE) for each in seen]
    if sum(high) < _OFTEN or all(high):
        return list(seen)
    return [replace(each, at_least=True) if hit else each for each, hit in zip(seen, high, strict=True)]


def out_of_cpu(state: State) -> bool:
    """Whether pods use all that they may; without a limit nobody can tell."""
    size = state.size
    if size is None or not size.cpu_limit or state.cpu_used is None:
        return False
    return state.cpu_used >= BRIMMING * size.cpu_limit * state.placed


def busy(state: State) -> float | None:
    """The share of their CPU that the pods use; None: unknown. Never so low or high that nothing follows from it."""
    cpu = state.cpu
    if state.cpu_used is None or not cpu:
        return None
    return min(0.95, max(0.02, state.cpu_used / (cpu * state.placed)))


def settled(state: State) -> bool:
    """Whether all pods that are wanted run: before that, what is measured is of fewer."""
    return not state.pods or (
        len(state.pods) == state.replicas and all(pod.state == "Running" for pod in state.pods)
    )
