"""The memory limits that running processes started with.

A JVM with MaxRAMPercentage fixes its heap when it starts; a resize in place does not move it. Kubernetes does not
remember the limit of that moment, so the annotations carry it from change to change, for as long as a pod from then runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.actuation.marks import Marks
from trimtab.actuation.sizes import Sizes, sizes_of
from trimtab.kube.pods import Pod
from trimtab.kube.workloads import Workload


def memory_limits_at_start(workload: Workload, pods: Sequence[Pod], marks: Marks | None) -> dict[str, int]:
    """Return the largest memory limit that a process of each container may have started with; containers without are left out."""
    live = [pod for pod in pods if not pod.deleting]
    resized = [sizes_of(pod.containers) for pod in live]
    found = _largest(resized)
    if marks is None:
        earlier: dict[str, int] = {}
    else:
        earlier = _earlier(min((pod.created for pod in live), default=0), marks)
    # A container that restarts to be resized has the heap of its present limit.
    restarting = {each.name for pod in live for each in pod.containers if each.restart_on_memory_resize}
    for name, limit in (*_largest([sizes_of(workload.containers)]).items(), *earlier.items()):
        if name not in restarting:
            found[name] = max(found.get(name, 0), limit)
    return found


def _earlier(oldest: int, marks: Marks) -> dict[str, int]:
    """Return the limits of before the last changes, where a pod of that time still runs."""
    change, applied = marks.change, marks.applied
    sizes: list[Sizes] = []
    if change and oldest <= change.started:
        sizes += [change.before, *change.odd.values()]
    if applied and oldest <= applied.until:
        sizes.append(applied.before)
    found = _largest(sizes)
    if applied and oldest <= applied.at:
        for name, limit in applied.started.items():
            found[name] = max(found.get(name, 0), limit)
    return found


def _largest(sizes: Sequence[Sizes]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in sizes:
        for name, resources in each.items():
            if resources.memory_limit is not None:
                found[name] = max(found.get(name, 0), resources.memory_limit)
    return found
