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

OPTIONS = "trimtab.io/options"
"""The mark."""
MANAGER = "trimtab.io-options"
"""The field manager that owns the mark, and the options in the template."""
VENDOR = "power.intel.com"
"""Whose extended resource a power profile is that names no vendor: power.intel.com/performance."""
PATIENCE = 600.0
"""Seconds that a rollout may take for the next pod: a Deployment's own deadline."""
NOTED_EVERY = 60.0
"""Seconds after which progress of a rollout is written down again."""
RETRY = 3600.0
"""Seconds after which options that were taken back may be tried again."""
_ROLLED = frozenset({"Deployment", "StatefulSet", "DaemonSet"})


class Options(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """None where it has none."""

    cache_class: str | None = None
    power_profile: str | None = None

    def __str__(self) -> str:
        return f"cache class {self.cache_class or 'None'}, power profile {self.power_profile or 'None'}"


class Phase(StrEnum):
    ROLLING = "Rolling"
    SETTLED = "Settled"
    REVERTED = "Reverted"


class OptionsMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was last done to the options of a workload."""

    uid: str
    """Of the workload: a mark that was copied elsewhere says nothing."""
    phase: Phase
    since: int
    container: str
    """The one that does the work, which the profile is of."""
    cores: int
    updated: int = 0
    """Pods that the rollout had replaced at `since`: while their number grows, it makes progress."""
    before: Options = Options()
    after: Options = Options()

    def written(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def in_effect(self) -> Options:
        """What the template is to have."""
        return self.before if self.phase is Phase.REVERTED else self.after


def can_roll(workload: Workload) -> bool:
    """Whether all its pods are replaced when its template changes."""
    halted = workload.paused or workload.partition
    return workload.kind in _ROLLED and workload.update != "OnDelete" and not halted


def read_options(workload: Workload) -> OptionsMark | None:
    text = dict(workload.annotations).get(OPTIONS)
    if text is None:
        return None
    try:
        mark = msgspec.json.decode(text, type=OptionsMark)
    except msgspec.MsgspecError:
        return None
    return mark if mark.uid == workload.uid else None


def options_of(pods: Iterable[Pod]) -> Options:
    """Those that most pods have."""
    found = Counter(
        (told.get(CACHE_CLASS) or None, told.get(POWER_PROFILE) or None)
        for told in (dict(pod.annotations) for pod in pods)
    )
    return Options(*min(found, key=lambda each: (-found[each], str(each)))) if found else Options()


def changed(
    workload: Workload, wanted: Options, *, had: Options, container: str, cores: float, now: float
) -> OptionsMark:
    """The mark of a change to these; what it goes back to is what was before all that is under way."""
    known = read_options(workload)
    rolls = known is not None and known.phase is Phase.ROLLING
    return OptionsMark(
        uid=workload.uid,
        phase=Phase.ROLLING,
        since=int(now),
        container=container,
        cores=max(1, ceil(cores)),
        before=known.before if known is not None and rolls else had,
        after=wanted,
    )


def followed_up(workload: Workload, *, now: float) -> OptionsMark | None:
    """Return the next mark of a change under way: settled, still in progress, or reverted; None: nothing new."""
    mark = read_options(workload)
    if mark is None or mark.phase is not Phase.ROLLING or not workload.observed:
        return None
    if not workload.rolling and workload.updated == workload.ready == workload.replicas:
        return replace(mark, phase=Phase.SETTLED, since=int(now))
    waited = abs(now - mark.since)  # or a clock that was ahead wrote it, by which it never would be late
    if workload.updated > mark.updated:
        # A large workload is replaced slowly: only one that stands still is reverted, as by a Deployment's own deadline.
        progress = replace(mark, updated=workload.updated, since=int(now))
        return progress if waited >= NOTED_EVERY else None
    return replace(mark, phase=Phase.REVERTED, since=int(now)) if waited >= PATIENCE else None


def options_patch(mark: OptionsMark) -> Object:
    """All that we own of a workload by `MANAGER`: to apply it gives up what it no longer names."""
    options = mark.in_effect
    annotations = {CACHE_CLASS: options.cache_class, POWER_PROFILE: options.power_profile}
    template: Object = {
        "metadata": {"annotations": {name: text for name, text in annotations.items() if text}}
    }
    if options.power_profile:
        profile = options.power_profile
        amount = {profile if "/" in profile else f"{VENDOR}/{profile}": str(mark.cores)}
        resources = {"requests": amount, "limits": amount}
        template["spec"] = {"containers": [{"name": mark.container, "resources": resources}]}
    return {"metadata": {"annotations": {OPTIONS: mark.written()}}, "spec": {"template": template}}
