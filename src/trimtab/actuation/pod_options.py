"""Options of pods, the cache class and the power profile, which are set in the pod template and need a
rollout.

A runtime reads the cache class when it creates a container, and the scheduler reads an extended resource when
it places a pod, so that a running pod can be given neither. The workload's own rollout applies them at its
own pace. An annotation on the workload, written by the same request as the template, holds the state: a
rollout that does not finish in time, for example because no node has the profile, is reverted. The functions
here are pure; `ClusterPort.patch_options` writes the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from math import ceil

import msgspec
from msgspec.structs import replace

from trimtab.actuation.resources import ContainerName, Count
from trimtab.api.nodeqospolicy import CACHE_CLASS, POWER_PROFILE
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.client import Object

OPTIONS_ANNOTATION = "trimtab.io/options"
"""The annotation that holds the state of the options."""
OPTIONS_MANAGER = "trimtab.io-options"
"""The field manager that owns the annotation, and the options in the template."""
DEFAULT_VENDOR = "power.intel.com"
"""The vendor of the extended resource of a power profile that names none: power.intel.com/performance."""
PROGRESS_DEADLINE = 600.0
"""Seconds that a rollout may take for its next pod, as in a Deployment's own deadline."""
PROGRESS_INTERVAL = 60.0
"""Seconds between two records of a rollout's progress."""
RETRY_AFTER = 3600.0
"""Seconds after which options that were reverted may be tried again."""
_ROLLING_KINDS = frozenset({"Deployment", "StatefulSet", "DaemonSet"})


class PodOptions(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The options of a pod; None for an option that is not set."""

    cache_class: str | None = None
    power_profile: str | None = None

    def __str__(self) -> str:
        return f"cache class {self.cache_class or 'None'}, power profile {self.power_profile or 'None'}"


class OptionsPhase(StrEnum):
    ROLLING = "Rolling"
    SETTLED = "Settled"
    REVERTED = "Reverted"


class OptionsAnnotation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last change of a workload's options."""

    uid: str
    """The uid of the workload; an annotation copied to another object is ignored."""
    phase: OptionsPhase
    since: Count
    container: ContainerName
    """The main container, to which the power profile belongs."""
    cores: Count
    updated: Count = 0
    """The number of pods that the rollout had replaced at `since`; the rollout makes progress while it grows.
    """
    before: PodOptions = PodOptions()
    after: PodOptions = PodOptions()

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def in_effect(self) -> PodOptions:
        """The options that the template is to have."""
        return self.before if self.phase is OptionsPhase.REVERTED else self.after


def supports_rollout(workload: Workload) -> bool:
    """Return whether a changed template makes the controller replace all pods."""
    halted = workload.paused or workload.partition
    return workload.kind in _ROLLING_KINDS and workload.update_strategy != "OnDelete" and not halted


def read_options_annotation(workload: Workload) -> OptionsAnnotation | None:
    text = dict(workload.annotations).get(OPTIONS_ANNOTATION)
    if text is None:
        return None
    try:
        annotation = msgspec.json.decode(text, type=OptionsAnnotation)
    except DECODE_ERRORS:
        return None
    return annotation if annotation.uid == workload.uid else None


def most_common_options(pods: Iterable[Pod]) -> PodOptions:
    """Return the options that most pods have."""
    found = Counter(
        (annotations.get(CACHE_CLASS) or None, annotations.get(POWER_PROFILE) or None)
        for annotations in (dict(pod.annotations) for pod in pods)
    )
    return PodOptions(*min(found, key=lambda each: (-found[each], str(each)))) if found else PodOptions()


def start_options_change(
    workload: Workload, wanted: PodOptions, *, had: PodOptions, container: str, cores: float, now: float
) -> OptionsAnnotation:
    """Return the annotation that starts a change to these options. A revert goes back to the options before
    all changes under way.
    """
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
    """Return the next state of a change under way (settled, in progress or reverted); None if there is
    nothing new.
    """
    annotation = read_options_annotation(workload)
    if annotation is None or annotation.phase is not OptionsPhase.ROLLING or not workload.is_spec_observed:
        return None
    if (
        not workload.is_rolling_out
        and workload.updated_replicas == workload.ready_replicas == workload.replicas
    ):
        return replace(annotation, phase=OptionsPhase.SETTLED, since=int(now))
    # The absolute age, because an annotation written by a clock that was ahead would never become late.
    waited = abs(now - annotation.since)
    if workload.updated_replicas > annotation.updated:
        # A large workload is replaced slowly, so that only a rollout without progress is reverted, as by a
        # Deployment's own deadline.
        progress = replace(annotation, updated=workload.updated_replicas, since=int(now))
        return progress if waited >= PROGRESS_INTERVAL else None
    return (
        replace(annotation, phase=OptionsPhase.REVERTED, since=int(now))
        if waited >= PROGRESS_DEADLINE
        else None
    )


def build_options_patch(annotation: OptionsAnnotation) -> Object:
    """Return all fields that `OPTIONS_MANAGER` owns; applying the patch removes the options that it no longer
    names.
    """
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
