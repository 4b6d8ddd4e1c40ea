"""The annotations that hold the state of a change: the one under way and the outcome of the last one.

They are written before the first pod is touched, so that the cluster itself holds the state and a process
killed at any moment continues from what it finds. They are small, carry a version, and name their workload by
uid. An annotation that cannot be read blocks every action until it is removed. An annotation that was copied
from another object is ignored and overwritten: a restore from a backup (Velero) gives every workload a new
uid and its old annotations, and nobody should have to remove them by hand.

A clock that ran ahead may have written times in the future, and waiting for such a time would last until the true time
reaches it. `clamp_future_times` takes it as now and it is written once, so that the waits that follow are as long as they
should be. A clock that ran behind is not handled: waits end too soon, but nothing stalls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.resources import (
    NO_LIMITS,
    ContainerName,
    Count,
    SizeLimits,
    Sizes,
    container_sizes,
    raise_sizes,
)
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.kube.kinds.pods import Pod, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.printable import shorten

CHANGE_ANNOTATION = "trimtab.io/change"
APPLIED_ANNOTATION = "trimtab.io/applied"
REVERTED_ANNOTATION = "trimtab.io/reverted"
RECOMMENDATION_ANNOTATION = "trimtab.io/recommendation"

VERSION = 1
MAX_BYTES = 16 << 10
"""The most bytes of annotations that are written: they travel with every copy of the workload."""

MAX_ERROR_LENGTH = 200
MAX_TEXT_LENGTH = 1000
"""The most characters of a text in an annotation, which goes into statuses, Events and the history."""


class Phase(StrEnum):
    """The phases of a change."""

    CANARY = "Canary"
    PROMOTING = "Promoting"
    VERIFYING = "Verifying"
    REVERTING = "Reverting"


class UpdateMethod(StrEnum):
    """The methods by which pods get a new size."""

    IN_PLACE = "InPlace"
    ROLLOUT = "Rollout"
    """The controller replaces the pods because their template changes."""
    RECREATE = "Recreate"
    """Trimtab evicts the pods one by one, and their controller recreates them from the changed template."""
    TEMPLATE = "Template"
    """Running pods keep their size; later pods are created from the changed template."""


class PodHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The number of pods that restarted, were OOM killed or are not ready, and how much they were throttled."""

    pods: Count
    restarted: Count = 0
    killed: Count = 0
    unready: Count = 0
    throttled: float | None = None
    watched: Count = 0
    """Seconds in which restarts were counted, summed over all pods."""
    restarted_in_hour: Count = 0
    killed_in_hour: Count = 0
    watched_in_hour: Count = 0
    """Seconds of the last hour in which restarts were counted. Events that became more frequent before a
    change are not its doing.
    """


class OngoingChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change under way. Fields that were renamed keep their first name in the annotation."""

    id: str
    started: Count
    method: UpdateMethod = msgspec.field(name="way")
    phase: Phase
    since: Count
    """The time at which the phase started."""
    before: dict[ContainerName, Resources]
    after: dict[ContainerName, Resources]
    template: dict[ContainerName, Resources]
    """The sizes in the template before the change."""
    health: PodHealth
    """The health of the pods before the change."""
    settled: Count = 0
    """The time since which all pods of this phase have had their size; 0 while some have not."""
    renewed_at: Count = msgspec.field(name="renews", default=0)
    """The time since which recreated pods must have the new size, if one of them did not: it may have been
    created before its controller saw the changed template. 0 where all had.
    """
    pod_overrides: dict[str, dict[ContainerName, Resources]] = msgspec.field(name="odd", default_factory=dict)
    """The sizes, by uid, of pods that had another size than `before`."""
    canaries: tuple[str, ...] = ()
    patches_template: bool = False
    restarts: bool = False
    """True if the change itself restarts containers."""
    evicts_pods: bool = msgspec.field(name="moved", default=False)
    """True if pods are evicted because their node has no capacity for the new size."""
    relief: bool = False
    """True if the change only adds resources after an OOM kill. Such a change is never reverted because pods
    still fail, and it waits for no maintenance window.
    """
    ends: dict[str, Count] = {}
    """Container exits, by pod, that were known when the phase started and lie in the future by the clock of
    their node.
    """
    abandoned_at: Count = msgspec.field(name="gave_up", default=0)
    """The time at which the revert was abandoned; 0 while it continues."""
    abandon_reason: str = msgspec.field(name="gave_up_why", default="")
    reason: str = ""
    not_at_fault: bool = msgspec.field(name="blameless", default=False)
    """True if the change is reverted through no fault of its own, so that it may soon be tried again."""

    def previous_size(self, pod: Pod) -> Sizes:
        return self.pod_overrides.get(pod.uid, self.before)

    def is_created_by_change(self, pod: Pod) -> bool:
        """True if a pod was created since pods of the change should have the new size."""
        return pod.created > max(self.since, self.renewed_at)


class AppliedSizes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The size that the last change put into effect, and the sizes of the template at that time."""

    id: str
    at: Count
    sizes: dict[ContainerName, Resources]
    template: dict[ContainerName, Resources]
    before: dict[ContainerName, Resources] = {}
    """The size that pods had before the change."""
    until: Count = 0
    """The latest time at which a pod may still have had the size before the change."""
    restarted: Count = 0
    """The start time of the last change that restarted pods; 0 where there was none."""
    started: dict[ContainerName, Count] = {}
    """The largest memory limit, in bytes, that a process of a pod created before `at` may have started
    with, by container. Only containers whose template sets heap flags are listed.
    """


class RevertRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The reason of the last revert, the number of reverts in a row, and the end of the cooldown."""

    id: str
    at: Count
    why: str
    times: Count
    until: Count
    relief_until: Count = 0
    """The time until which no memory is added after an OOM kill, if such a change was reverted. Other reverts
    do not delay it.
    """
    refused: bool = False
    """True if the change was not reverted: the server refused it before anything was changed."""
    take_ownership: bool = False
    """The policy's `takeOwnership` at that time: with another one, the server may accept the change."""


class ChangeAnnotations(msgspec.Struct, frozen=True, kw_only=True):
    """The content of all our annotations on a workload."""

    change: OngoingChange | None = None
    applied: AppliedSizes | None = None
    reverted: RevertRecord | None = None

    def within(
        self, limits: SizeLimits, template: Sizes, *, running: Sizes | None = None
    ) -> ChangeAnnotations:
        """Return the same state with all sizes that pods may get inside the limits.

        Those of a change under way stay if pods have as much already (`running`): lower limits would otherwise take
        memory from pods unchecked. During a revert the new size stays in any case: it shows which pods had it, and
        no pod gets it any more.
        """
        if limits == NO_LIMITS:
            return self
        change, applied = self.change, self.applied
        if change is not None:
            own = template if running is None else raise_sizes(template, running)
            change = msgspec.structs.replace(
                change,
                before=limits.clamp(change.before, template=own),
                after=change.after
                if change.phase is Phase.REVERTING
                else limits.clamp(change.after, template=own),
                pod_overrides={
                    uid: limits.clamp(sizes, template=own) for uid, sizes in change.pod_overrides.items()
                },
            )
        if applied is not None:
            applied = msgspec.structs.replace(
                applied,
                sizes=limits.clamp(applied.sizes, template=template),
                before=limits.clamp(applied.before, template=template),
            )
        return msgspec.structs.replace(self, change=change, applied=applied)

    def earlier_sizes_at(self, at: float) -> Sequence[Sizes]:
        """Return the other sizes that pods may have had at that time, which is known to the second only."""
        found: list[Sizes] = []
        # Until all pods have settled, each of them may still have the size before.
        if self.change and (at <= self.change.settled or not self.change.settled):
            found.append(self.change.before)
        if self.applied and at <= self.applied.until:
            found.append(self.applied.before)
        return found


@dataclass(frozen=True, slots=True)
class UnreadableAnnotations:
    """Annotations under our names that this version cannot read."""

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

R = TypeVar("R", OngoingChange, AppliedSizes, RevertRecord)


def encode_change_annotations(annotations: ChangeAnnotations, *, uid: str) -> dict[str, str]:
    """Return the annotations for the workload with this uid; annotations of ours that are not returned are to
    be removed.
    """
    return {
        key: msgspec.json.encode(
            _Envelope(version=VERSION, uid=uid, mark=msgspec.Raw(msgspec.json.encode(record)))
        ).decode()
        for key in _RECORD_TYPES
        if (record := getattr(annotations, _field_name(key))) is not None
    }


def decode_change_annotations(
    annotations: Mapping[str, str], *, uid: str
) -> ChangeAnnotations | UnreadableAnnotations:
    """Return the content of the annotations of the workload with this uid, or why they cannot be read."""
    found: dict[str, Any] = {}
    for key in _RECORD_TYPES.keys() & annotations.keys():
        record = _decode_record(key, annotations[key], uid)
        if isinstance(record, UnreadableAnnotations):
            return record
        if record is not None:
            found[_field_name(key)] = record
    return ChangeAnnotations(**found)


def read_change_annotations(workload: Workload, limits: SizeLimits = NO_LIMITS) -> ChangeAnnotations | None:
    """Return the content of our annotations on a workload, with sizes inside the limits; None where they cannot be read."""
    found = decode_change_annotations(dict(workload.annotations), uid=workload.uid)
    if isinstance(found, UnreadableAnnotations):
        return None
    return found.within(limits, container_sizes(workload.containers))


# One reconcile reads the same annotations several times.
@lru_cache(maxsize=64)
def _decode_record(key: str, text: str, uid: str) -> Any:
    """Return the record, the reason why it cannot be read, or None if it belongs to another object."""
    remedy = f"remove the annotation {key} so that Trimtab can start again"
    try:
        envelope = msgspec.json.decode(text, type=_Envelope)
        # A restore from a backup keeps the annotations and gives the workload a new uid.
        if envelope.uid and envelope.uid != uid:
            return None
        if envelope.version != VERSION:
            return UnreadableAnnotations(
                f"annotation {key} is of version {envelope.version}, not {VERSION}; {remedy}"
            )
        # Nothing would show that the annotation was copied from another workload, whose sizes this one would get.
        if not envelope.uid:
            return UnreadableAnnotations(f"annotation {key} names no object; {remedy}")
        return _bound_texts(msgspec.json.decode(envelope.mark, type=_RECORD_TYPES[key]))
    except DECODE_ERRORS as error:
        return UnreadableAnnotations(
            f"annotation {key} cannot be read ({shorten(str(error), MAX_ERROR_LENGTH)}); {remedy}"
        )


def _bound_texts(record: R) -> R:
    """Return the record with short, printable texts: everyone who may annotate the workload can write them."""
    texts = {name: getattr(record, name, "") for name in ("id", "reason", "abandon_reason", "why")}
    bounded = {name: shorten(text, MAX_TEXT_LENGTH) for name, text in texts.items() if text}
    return replace(record, **bounded) if any(texts[name] != bounded[name] for name in bounded) else record


def _field_name(key: str) -> str:
    return key.removeprefix("trimtab.io/")


M = TypeVar("M", OngoingChange, AppliedSizes)


def clamp_future_times(annotations: ChangeAnnotations, *, now: int) -> ChangeAnnotations:
    """Return the annotations with future times set to now; equal ones if there is nothing to repair."""
    reverted = annotations.reverted
    if reverted and reverted.at > now + DEADLINES.clock_skew:
        # All times move together, so that the cooldown keeps its length.
        shift = now - reverted.at
        relief_until = reverted.relief_until and reverted.relief_until + shift
        reverted = replace(reverted, at=now, until=reverted.until + shift, relief_until=relief_until)
    return ChangeAnnotations(
        change=_clamp_times(
            annotations.change, "started", "since", "settled", "renewed_at", "abandoned_at", now=now
        ),
        applied=_clamp_times(annotations.applied, "at", "until", "restarted", now=now),
        reverted=reverted,
    )


def _clamp_times(record: M | None, *times: str, now: int) -> M | None:
    ahead = [name for name in times if getattr(record, name, 0) > now + DEADLINES.clock_skew]
    return replace(record, **dict.fromkeys(ahead, now)) if record and ahead else record
