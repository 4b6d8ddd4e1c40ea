"""The conditions of a status, by the rules of `metav1.Condition`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trimtab.api.fields import format_time

Document = dict[str, Any]

MAX_MESSAGE_LENGTH = 4096


def build_condition(type_: str, *, holds: bool | None, reason: str = "", message: str = "") -> Document:
    """Build a condition without its time; its status is Unknown if `holds` is None. Empty texts are omitted."""
    condition = {"type": type_, "status": "Unknown" if holds is None else str(holds)}
    texts = {"reason": reason, "message": message[:MAX_MESSAGE_LENGTH]}
    return condition | {name: text for name, text in texts.items() if text}


def set_conditions(
    wanted: Iterable[Document],
    before: Iterable[Mapping[str, Any]],
    *,
    now: float,
    generation: int | None = None,
) -> list[Document]:
    """Return the wanted conditions with the times of their last transitions, and the generation that they are about.

    A condition keeps its time while its status stays, even if the reason changes.
    """
    known = {condition["type"]: condition for condition in before}
    observed = {} if generation is None else {"observedGeneration": generation}
    return [
        {**condition, "lastTransitionTime": _transition_time(condition, known, now), **observed}
        for condition in wanted
    ]


def _transition_time(condition: Document, known: Mapping[str, Mapping[str, Any]], now: float) -> str:
    old = known.get(condition["type"], {})
    is_same = old.get("status") == condition["status"]
    return str(old["lastTransitionTime"]) if is_same and "lastTransitionTime" in old else format_time(now)
