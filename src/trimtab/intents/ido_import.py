"""Import of events and effects from an Intent Driven Orchestration knowledge base.

Its CPU is in thousandths of a core and its memory in thousandths of a byte, an unknown objective is -1, and times
have three formats. It does not name the main container: that is the one whose size changes, otherwise the last
one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from trimtab.api.kpiprofile import KPIType
from trimtab.errors import TrimtabError
from trimtab.intents.objective import Goal, Objective
from trimtab.intents.state import ContainerSize, PodState, TargetState

_THOUSANDTHS = 1000.0
_CACHE_ANNOTATION = "rdt.resources.beta.kubernetes.io/pod"
_POWER = "power.intel.com/"
_FIELDS = {
    "cpu_requests": "cpu_request",
    "cpu_limits": "cpu_limit",
    "memory_requests": "memory_request",
    "memory_limits": "memory_limit",
}


class RecordedEvent(msgspec.Struct, frozen=True):
    """One event: the state, the goal, and the plan of the original planner."""

    at: float
    state: TargetState
    goal: Goal
    plan: tuple[Mapping[str, Any], ...]


def read_events(path: Path) -> list[RecordedEvent]:
    """Read the events of a file, in their order."""
    events = _read_records(path)
    main = _find_main_container(events)
    return [_parse_event(event, main, at) for at, event in enumerate(events)]


def _read_records(path: Path) -> list[dict[str, Any]]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[dict[str, Any]])
    except (OSError, msgspec.MsgspecError) as error:
        raise TrimtabError(f"{path} cannot be read as a list of records: {error}") from None


def _parse_event(event: Mapping[str, Any], main: str, place: int) -> RecordedEvent:
    current = {
        name: None if value < 0 else float(value) for name, value in event["current_objectives"].items()
    }
    sizes = _parse_sizes(event["resources"])
    names = sorted(sizes)
    pods = tuple(
        PodState(
            name=name,
            node=pod.get("nodename", ""),
            state=pod.get("state", "Running"),
            qos=pod.get("qosclass", ""),
            availability=float(pod.get("availability", 1.0)),
        )
        for name, pod in event["pods"].items()
    )
    load = next((value for name, value in current.items() if _kpi_type(name) is KPIType.THROUGHPUT), None)
    state = TargetState(
        objectives=current,
        pods=pods,
        replicas=max(1, len(pods)),
        sizes=tuple(ContainerSize(container=name, **sizes[name]) for name in names),
        main=names.index(main) if main in names else 0,
        load=load,
        cache_class=event["annotations"].get(_CACHE_ANNOTATION),
        power_profile=_find_power_profile(event["resources"]),
    )
    objectives = tuple(
        Objective(
            name=name,
            value=float(value),
            kind=_kpi_type(name),
            less_is_better=_kpi_type(name) is KPIType.LATENCY,
            measured_by=name,
        )
        for name, value in sorted(event["desired_objectives"].items())
    )
    return RecordedEvent(
        _parse_timestamp(event["timestamp"]) or float(place),
        state,
        Goal(intent=event["name"], objectives=objectives),
        tuple(event["plan"] or ()),
    )


def _parse_sizes(resources: Mapping[str, float]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for key, value in resources.items():
        container, _, field = key.partition("_")
        if field in _FIELDS:
            found.setdefault(container, {})[_FIELDS[field]] = value / _THOUSANDTHS
    return found


def _find_main_container(events: Sequence[Mapping[str, Any]]) -> str:
    seen: dict[str, set[float]] = {}
    for event in events:
        for container, size in _parse_sizes(event["resources"]).items():
            seen.setdefault(container, set()).add(size.get("cpu_limit", 0.0))
    return max(seen, key=lambda container: (len(seen[container]), container), default="0")


def _find_power_profile(resources: Mapping[str, float]) -> str | None:
    for key in resources:
        if _POWER in key:
            return key.partition("_")[2].rpartition("_")[0]
    return None


def _kpi_type(name: str) -> KPIType:
    return next((kind for kind in KPIType if kind.value in name), KPIType.CUSTOM)


def _parse_timestamp(timestamp: Any) -> float:
    if isinstance(timestamp, Mapping):
        timestamp = timestamp["$date"]
    text = str(timestamp)
    try:
        return float(text)
    except ValueError:
        parsed = datetime.fromisoformat(text)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
