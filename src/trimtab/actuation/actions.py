"""The actions that a change may take on a workload, each a small record.

`decide` chooses them and the executor carries them out. Every action is idempotent, and none is returned
whose effect is already there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from trimtab.actuation.change_annotations import ChangeAnnotations
from trimtab.actuation.resources import Sizes
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.runtime.event_correlator import EventType


class Priority(IntEnum):
    """The order in which actions get a slot while the rate limiter has too few for all."""

    REVERT = 0
    """A revert of a harmful change waits for no slot."""
    INCREASE = 1
    DECREASE = 2


@dataclass(frozen=True, slots=True)
class ResizePod:
    """Resize a running pod in place."""

    pod: Pod
    sizes: Sizes
    priority: Priority


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Evict a pod, as far as its PodDisruptionBudgets allow, so that its controller replaces it."""

    pod: Pod
    priority: Priority


@dataclass(frozen=True, slots=True)
class PatchTemplate:
    """Write these sizes to the pod template, for the pods that are created later."""

    sizes: Sizes
    take_ownership: bool


@dataclass(frozen=True, slots=True)
class WriteAnnotations:
    """Write the state of a change to the workload; no other action follows before the annotations are there.

    `start_priority` is set where a new change starts, which needs a slot of the rate limiter.
    """

    annotations: ChangeAnnotations
    start_priority: Priority | None = None


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Report something to users as an Event of the workload."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing before this time, unless something changes."""

    until: int
    reason: str


@dataclass(frozen=True, slots=True)
class Skip:
    """Do nothing, for the reason given."""

    reason: str


ChangeAction = ResizePod | EvictPod | PatchTemplate | WriteAnnotations | EmitEvent | Wait | Skip
