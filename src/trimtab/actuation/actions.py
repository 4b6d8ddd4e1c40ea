"""What may be done to a workload, each a small record: decided by `step`, carried out by the `actuator`.

Every deed is idempotent, and none is named where the world is already so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from trimtab.actuation.change_annotations import ChangeAnnotations
from trimtab.actuation.resources import Sizes
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.runtime.event_correlator import EventType


class Priority(IntEnum):
    """Who goes first where not all may go at once."""

    REVERT = 0
    """Taking back what hurts waits for nobody."""
    INCREASE = 1
    DECREASE = 2


@dataclass(frozen=True, slots=True)
class ResizePod:
    """Change a running pod in place."""

    pod: Pod
    sizes: Sizes
    priority: Priority


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Have a pod replaced, as far as its disruption budgets allow."""

    pod: Pod
    priority: Priority


@dataclass(frozen=True, slots=True)
class PatchTemplate:
    """Give the pods to come these sizes."""

    sizes: Sizes
    take_ownership: bool


@dataclass(frozen=True, slots=True)
class WriteAnnotations:
    """Say on the workload what is being done to it, or was; nothing else follows before that is seen to be there.

    `begins` is set where a new change begins, for which there must be room.
    """

    annotations: ChangeAnnotations
    start_priority: Priority | None = None


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Tell users, in an Event of the workload."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before this time, unless something changes."""

    until: int
    reason: str


@dataclass(frozen=True, slots=True)
class Skip:
    """Nothing is done, and this is why."""

    reason: str


ChangeAction = ResizePod | EvictPod | PatchTemplate | WriteAnnotations | EmitEvent | Wait | Skip
