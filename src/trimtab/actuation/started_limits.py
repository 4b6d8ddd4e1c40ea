"""The memory limits that running processes started with.

A JVM with MaxRAMPercentage fixes its heap when it starts, and a resize in place does not move it. Kubernetes
does not remember the limit of that moment, so the annotations carry it from change to change for as long as a
pod from then runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trimtab.actuation.change_annotations import ChangeAnnotations
from trimtab.actuation.effective_size import live_pods
from trimtab.actuation.resources import Sizes, container_sizes
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload


class StartLimits(NamedTuple):
    """The memory limits at the time when processes started, by container."""

    largest: dict[str, int]
    """The largest limit, in bytes, that a process may have started with; containers without a limit are left
    out.
    """
    unknown: frozenset[str]
    """Containers with a limit that neither their template nor our annotations explain: they may have started
    with more.
    """


def memory_limits_at_start(
    workload: Workload, pods: Sequence[Pod], annotations: ChangeAnnotations | None
) -> StartLimits:
    """Return the known memory limits that the processes of these pods started with."""
    annotations = annotations or ChangeAnnotations()
    live = live_pods(pods)
    oldest = min((pod.created for pod in live), default=0)
    # A container that restarts for a resize sizes its heap by its present limit.
    restarting = {each.name for pod in live for each in pod.containers if each.restart_on_memory_resize}
    template = container_sizes(workload.containers)
    present = _collect_limits(container_sizes(pod.containers) for pod in live)
    remembered = (
        annotations.applied.started if annotations.applied and oldest <= annotations.applied.at else {}
    )
    earlier = _collect_limits([template, *_earlier_sizes(oldest, annotations)])
    largest: dict[str, int] = {}
    for name in present.keys() | earlier.keys() | remembered.keys():
        found = present.get(name, set())
        if name not in restarting:
            found = {*found, *earlier.get(name, ()), remembered.get(name, 0)}
        if found:
            largest[name] = max(found)
    explained = _collect_limits(_explained_sizes(oldest, annotations))
    unknown = {
        name
        for name, limits in present.items()
        if name in template
        and name not in restarting
        and name not in remembered
        and _exceeds_template(limits - explained.get(name, set()), template[name].memory_limit)
    }
    return StartLimits(largest, frozenset(unknown))


def _exceeds_template(limits: Iterable[int], template: int | None) -> bool:
    """Return whether a limit is larger than the template's; without one in the template, admission filled it
    in.
    """
    return template is not None and any(limit > template for limit in limits)


def _explained_sizes(oldest: int, annotations: ChangeAnnotations) -> list[Sizes]:
    """List the sizes that Trimtab gave to pods with a known start: during a change, or at admission."""
    change, applied = annotations.change, annotations.applied
    found: list[Sizes] = [change.before, change.after, *change.pod_overrides.values()] if change else []
    return [*found, applied.sizes] if applied and oldest > applied.at else found


def _earlier_sizes(oldest: int, annotations: ChangeAnnotations) -> list[Sizes]:
    """List the sizes before the last changes, if a pod of that time still runs."""
    change, applied = annotations.change, annotations.applied
    found: list[Sizes] = []
    if change and oldest <= change.started:
        found += [change.before, *change.pod_overrides.values()]
    if applied and oldest <= applied.until:
        found.append(applied.before)
    return found


def _collect_limits(sizes: Iterable[Sizes]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for each in sizes:
        for name, resources in each.items():
            if resources.memory_limit is not None:
                found.setdefault(name, set()).add(resources.memory_limit)
    return found
