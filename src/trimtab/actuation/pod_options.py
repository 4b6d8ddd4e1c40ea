"""Options of pods: their cache class and their power profile, which are set on the pod template and come by a rollout.

A runtime reads a container's cache class when it makes it, and the scheduler an extended resource when it places a pod:
neither can be given to a pod that runs. So the workload's own rollout brings them, at its own pace. A mark on the
workload, written by the same request as the template, tells what is under way: a rollout that does not come to an end
in time, as where no node has the profile, is taken back to what was before. Pure; `Cluster.patch_options` does it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from math import ceil

import msgspec
from msgspec.structs import replace

from trimtab.api.pod_annotations import CACHE_CLASS, POWER_PROFILE
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.client import Object

OPTIONS_ANNOTATION = "trimtab.io/options"
"""The mark."""
OPTIONS_MANAGER = "trimtab.io-options"
"""The field manager that owns the mark, and the options in the template."""
DEFAULT_VENDOR = "power.intel.com"
"""Whose extended resource a power profile is that names no vendor: power.intel.com/performance."""
PROGRESS_DEADLINE = 600.0
"""Seconds that a rollout may take for the next pod: a Deployment's own deadline."""
PROGRESS_INTERVAL = 60.0
"""Seconds after which progress of a rollout is written down again."""
RETRY_AFTER = 3600.0
"""Seconds after which options that were taken back may be tried again."""
_ROLLING_KINDS = frozenset({"Deployment", "StatefulSet", "DaemonSet"})


class PodOptions(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """None where it has none."""

    cache_class: str | None = None
    power_profile: str | None = None

    def __str__(self) -> str:
        return f"cache class {self.cache_class or 'None'}, power profile {self.power_profile or 'None'}"


class OptionsPhase(StrEnum):
    ROLLING = "Rolling"
    SETTLED = "Settled"
    REVERTED = "Reverted"


class OptionsAnnotation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was last done to the options of a workload."""

    uid: str
    """Of the workload: a mark that was copied elsewhere says nothing."""
    phase: OptionsPhase
    since: int
    container: str
    """The one that does the work, which the profile is of."""
    cores: int
    updated: int = 0
    """Pods that the rollout had replaced at `since`: while their number grows, it makes progress."""
    before: PodOptions = PodOptions()
    after: PodOptions = PodOptions()

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def in_effect(self) -> PodOptions:
        """What the template is to have."""
        return self.before if self.phase is OptionsPhase.REVERTED else self.after


def can_roll_out(workload: Workload) -> bool:
    """Whether all its pods are replaced when its template changes."""
    halted = workload.paused or workload.partition
    return workload.kind in _ROLLING_KINDS and workload.update_strategy != "OnDelete" and not halted


def read_options_annotation(workload: Workload) -> OptionsAnnotation | None:
    text = dict(workload.annotations).get(OPTIONS_ANNOTATION)
    if text is None:
        return None
    try:
        mark = msgspec.json.decode(text, type=OptionsAnnotation)
    except msgspec.MsgspecError:
        return None
    return mark if mark.uid == workload.uid else None


def most_common_options(pods: Iterable[Pod]) -> PodOptions:
    """Those that most pods have."""
    found = Counter(
        (told.get(CACHE_CLASS) or None, told.get(POWER_PROFILE) or None)
        for told in (dict(pod.annotations) for pod in pods)
    )
    return PodOptions(*min(found, key=lambda each: (-found[each], str(each)))) if found else PodOptions()


def start_options_change(
    workload: Workload, wanted: PodOptions, *, had: PodOptions, container: str, cores: float, now: float
) -> OptionsAnnotation:
    """The mark of a change to these; what it goes back to is what was before all that is under way."""
    known = read_options_annotation(workload)
    rolls = known is not None and known.phase is OptionsPhase.ROLLING
    return OptionsAnnotation(
        uid=workload.uid,
        phase=OptionsPhase.ROLLING,
        since=int(now),
        container=container,
        cores=max(1, ceil(cores)),
        before=known.before if known is not None and rolls else had,
        after=wanted,
    )


def advance_options_change(workload: Workload, *, now: float) -> OptionsAnnotation | None:
    """Return the next mark of a change under way: settled, still in progress, or reverted; None: nothing new."""
    mark = read_options_annotation(workload)
    if mark is None or mark.phase is not OptionsPhase.ROLLING or not workload.is_spec_observed:
        return None
    if (
        not workload.is_rolling_out
        and workload.updated_replicas == workload.ready_replicas == workload.replicas
    ):
        return replace(mark, phase=OptionsPhase.SETTLED, since=int(now))
    waited = abs(now - mark.since)  # or a clock that was ahead wrote it, by which it never would be late
    if workload.updated_replicas > mark.updated:
        # A large workload is replaced slowly: only one that stands still is reverted, as by a Deployment's own deadline.
        progress = replace(mark, updated=workload.updated_replicas, since=int(now))
        return progress if waited >= PROGRESS_INTERVAL else None
    return replace(mark, phase=OptionsPhase.REVERTED, since=int(now)) if waited >= PROGRESS_DEADLINE else None


def build_options_patch(annotation: OptionsAnnotation) -> Object:
    """All that we own of a workload by `MANAGER`: to apply it gives up what it no longer names."""
    options = annotation.in_effect
    annotations = {CACHE_CLASS: options.cache_class, POWER_PROFILE: options.power_profile}
    template: Object = {
        "metadata": {"annotations": {name: text for name, text in annotations.items() if text}}
    }
    if options.power_profile:
        profile = options.power_profile
        amount = {profile if "/" in profile else f"{DEFAULT_VENDOR}/{profile}": str(annotation.cores)}
        resources = {"requests": amount, "limits": amount}
        template["spec"] = {"containers": [{"name": annotation.container, "resources": resources}]}
    return {
        "metadata": {"annotations": {OPTIONS_ANNOTATION: annotation.encode()}},
        "spec": {"template": template},
    }
