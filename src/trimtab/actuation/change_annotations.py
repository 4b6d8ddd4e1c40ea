"""What we leave on a workload: the change under way, and what became of the last one.

The marks are annotations, written before the first pod is touched, so the cluster itself holds the truth and a
process killed at any moment goes on from what it finds. They are small, of a stated version, and bound to their
workload by uid. What cannot be read is foreign: nothing is done while it is there. What was copied from another object
says nothing of this one, and is passed over until it is overwritten: a restore from a backup (Velero) gives every
workload a new uid and its old annotations, and none of them should have to be removed by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from trimtab.actuation.decide.health import PodHealth
from trimtab.actuation.resources import Sizes
from trimtab.kube.kinds.pods import Pod, Resources
from trimtab.kube.kinds.workloads import Workload

CHANGE_ANNOTATION = "trimtab.io/change"
APPLIED_ANNOTATION = "trimtab.io/applied"
REVERTED_ANNOTATION = "trimtab.io/reverted"

VERSION = 1
MAX_BYTES = 16 << 10
"""More than this is not written: annotations travel with every copy of the workload."""


class Phase(StrEnum):
    """How far a change has come."""

    CANARY = "Canary"
    PROMOTING = "Promoting"
    VERIFYING = "Verifying"
    REVERTING = "Reverting"


class UpdateMethod(StrEnum):
    """How pods come to a new size."""

    IN_PLACE = "InPlace"
    ROLLOUT = "Rollout"
    """Their controller replaces them, since the template changes."""
    RECREATE = "Recreate"
    """We evict them one by one, and their controller makes them anew from the changed template."""
    TEMPLATE = "Template"
    """Those that run stay as they are; the next ones come from the changed template."""


class OngoingChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change under way. `before` is what pods go back to; `odd` those, by uid, that were of another size before."""

    id: str
    started: int
    way: UpdateMethod
    phase: Phase
    since: int
    """When the phase began."""
    before: dict[str, Resources]
    after: dict[str, Resources]
    template: dict[str, Resources]
    """The sizes in the template before the change."""
    health: PodHealth
    """How the pods fared before the change."""
    settled: int = 0
    """Since when all pods of this phase have their size; 0 while some have not."""
    renews: int = 0
    """Since when pods that are made anew must be of the new size, where they are evicted for that and one was not: it may have
    been made before its controller saw the template."""
    odd: dict[str, dict[str, Resources]] = {}
    canaries: tuple[str, ...] = ()
    patches_template: bool = False
    restarts: bool = False
    """Whether the change itself restarts containers."""
    moved: bool = False
    """Whether pods are evicted for it whose node has no room."""
    relief: bool = False
    """Whether it only gives, and pods had just been killed for lack of memory: it is never reverted because they still fail,
    and waits for no window."""
    ends: dict[str, int] = {}
    """Ends of containers, by pod, that were known when the phase began and are later than that by the clock of their node."""
    gave_up: int = 0
    """When it was given up to put everything back; 0 while it may come to that."""
    gave_up_why: str = ""
    reason: str = ""
    blameless: bool = False
    """Whether it is taken back for no fault of its own, and may be tried again at once."""

    def previous_size(self, pod: Pod) -> Sizes:
        return self.odd.get(pod.uid, self.before)

    def is_created_by_change(self, pod: Pod) -> bool:
        """Whether a pod was made since the change was such that it should be of the new size."""
        return pod.created > max(self.since, self.renews)


class AppliedSizes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The size that was last put into effect, and the template's sizes at that time."""

    id: str
    at: int
    sizes: dict[str, Resources]
    template: dict[str, Resources]
    before: dict[str, Resources] = {}
    """The size that pods had"""
    until: int = 0
    """up to this time, at the latest."""
    restarted: int = 0
    """When the last change that restarted pods was started; 0 where there was none."""
    started: dict[str, int] = {}
    """The largest memory limit, in bytes, that a process of a pod from before `at` may have started with; only of containers
    whose template says anything of their heap."""


class RevertRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Why the last change was taken back, how often that has happened in a row, and until when none is tried."""

    id: str
    at: int
    why: str
    times: int
    until: int
    relief_until: int = 0
    """Until when no more memory is given after an OOM kill, where that was the change. Other reverts do not hold that up."""


class ChangeAnnotations(msgspec.Struct, frozen=True, kw_only=True):
    """All that our annotations on a workload say."""

    change: OngoingChange | None = None
    applied: AppliedSizes | None = None
    reverted: RevertRecord | None = None

    def earlier_sizes_at(self, moment: float) -> Sequence[Sizes]:
        """Other sizes than the present one that pods may have had at that time, of which only the second is known."""
        found: list[Sizes] = []
        if self.change and (moment <= self.change.settled or not self.change.settled):
            found.append(self.change.before)
        if self.applied and moment <= self.applied.until:
            found.append(self.applied.before)
        return found


@dataclass(frozen=True, slots=True)
class UnreadableAnnotations:
    """Annotations of ours that we cannot have written."""

    reason: str


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    uid: str = ""
    mark: msgspec.Raw = msgspec.Raw(b"")


_RECORD_TYPES: dict[str, type[Any]] = {
    CHANGE_ANNOTATION: OngoingChange,
    APPLIED_ANNOTATION: AppliedSizes,
    REVERTED_ANNOTATION: RevertRecord,
}


def encode_change_annotations(annotations: ChangeAnnotations, *, uid: str) -> dict[str, str]:
    """The annotations that say this of the workload with this uid; those not named are to go."""
    return {
        key: msgspec.json.encode(
            _Envelope(version=VERSION, uid=uid, mark=msgspec.Raw(msgspec.json.encode(mark)))
        ).decode()
        for key in _RECORD_TYPES
        if (mark := getattr(annotations, _field_name(key))) is not None
    }


def decode_change_annotations(
    annotations: Mapping[str, str], *, uid: str
) -> ChangeAnnotations | UnreadableAnnotations:
    """What the annotations of the workload with this uid say."""
    found: dict[str, Any] = {}
    for key in _RECORD_TYPES.keys() & annotations.keys():
        mark = _decode_record(key, annotations[key], uid)
        if isinstance(mark, UnreadableAnnotations):
            return mark
        if mark is not None:
            found[_field_name(key)] = mark
    return ChangeAnnotations(**found)


def read_change_annotations(workload: Workload) -> ChangeAnnotations | None:
    """What our annotations on a workload say; None where we cannot have written them."""
    found = decode_change_annotations(dict(workload.annotations), uid=workload.uid)
    return None if isinstance(found, UnreadableAnnotations) else found


def _decode_record(key: str, text: str, uid: str) -> Any:
    """Return the mark, why it cannot be read, or None where it is of another object."""
    remedy = f"remove the annotation {key} to let trimtab start anew"
    try:
        envelope = msgspec.json.decode(text, type=_Envelope)
        if envelope.uid and envelope.uid != uid:
            return None
        if envelope.version != VERSION:
            return UnreadableAnnotations(
                f"annotation {key} is of version {envelope.version}, not {VERSION}; {remedy}"
            )
        if not envelope.uid:
            return UnreadableAnnotations(f"annotation {key} names no object; {remedy}")
        return msgspec.json.decode(envelope.mark, type=_RECORD_TYPES[key])
    except msgspec.DecodeError as error:
        return UnreadableAnnotations(f"annotation {key} cannot be read ({error}); {remedy}")


def _field_name(key: str) -> str:
    return key.removeprefix("trimtab.io/")
