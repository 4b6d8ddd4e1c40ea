"""What pods tell about memory: their OOM kills, and the sizes that their containers have in effect. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Container, Iterable, Sequence
from math import inf
from typing import NamedTuple

from trimtab.actuation.change_annotations import ChangeAnnotations
from trimtab.actuation.effective_size import effective_containers, live_pods
from trimtab.actuation.resources import Sizes, container_sizes
from trimtab.kube.kinds.pods import ContainerStatus, Pod, Resources
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.sizing.constraints import with_implied_requests
from trimtab.usage.pod_ownership import WorkloadContainer


class OomKill(NamedTuple):
    """A container of a workload that the kernel killed for memory, as its pod tells."""

    container: WorkloadContainer
    at: float
    limit: float
    """The memory limit that it hit; 0 where it had none."""
    request: float
    """The memory that it requested."""
    image: int = 0
    """The fingerprint of its image; 0 where that is not known."""


class MemorySize(NamedTuple):
    """The memory that most pods of a workload have for one container."""

    container: WorkloadContainer
    memory: float
    """The limit, or the request where there is none."""
    before: float
    """The largest that it is known to have had earlier: by the template, or by what a change noted."""
    image: int = 0
    """The fingerprint of the image of the newest pod."""


def find_oom_kills(
    name: WorkloadContainer, pods: Sequence[Pod], marks: ChangeAnnotations | None = None
) -> list[OomKill]:
    """List the kills of a container that its pods remember, each with the limit that it hit."""
    found = []
    for pod in pods:
        for state in pod.container_statuses:
            ended = state.last_termination
            if state.name != name.container or ended is None or ended.reason != "OOMKilled":
                continue
            had = _size_at(ended.finished_at, pod, state, marks)
            limit, request = float(had.memory_limit or 0), float(had.memory_request or 0)
            image = next((each.image for each in pod.containers if each.name == state.name), "")
            found.append(OomKill(name, float(ended.finished_at), limit, request, image_fingerprint(image)))
    return found


class OomTimestampCorrector:
    """Dates kills by our own clock where that of their node is ahead.

    Kills are told apart by their times, each later than the last: one of next year would hide all others until then. A
    kill that seems to be of the future happened between two looks, so it is dated by the look that first shows it. At the
    first look at a workload it may be of long ago, and is left out: a container that is killed again soon shows another.
    """

    def __init__(self) -> None:
        self._first_seen: dict[WorkloadKey, dict[tuple[str, float], float]] = {}
        """When each kill was first seen whose time had not come yet, by container and that time."""

    def correct(self, workload: WorkloadKey, ooms: Iterable[OomKill], *, now: float) -> list[OomKill]:
        """Return the kills of a workload with the times at which they can have happened."""
        before = self._first_seen.get(workload)
        seen: dict[tuple[str, float], float] = {}
        found = []
        for kill in ooms:
            key = kill.container.container, kill.at
            if kill.at > now or (before and key in before):
                first_seen = -inf if before is None else before.get(key, now)
                seen[key] = first_seen
                if first_seen > -inf:
                    found.append(kill._replace(at=first_seen))
            else:
                found.append(kill)
        self._first_seen[workload] = seen or _NO_CORRECTIONS
        return found

    def forget_all_but(self, workloads: Container[WorkloadKey]) -> None:
        """Let go of workloads that are gone."""
        self._first_seen = {key: seen for key, seen in self._first_seen.items() if key in workloads}


_NO_CORRECTIONS: dict[tuple[str, float], float] = {}
"""Shared, for nearly all workloads have none."""


def _size_at(moment: int, pod: Pod, state: ContainerStatus, marks: ChangeAnnotations | None) -> Resources:
    """Return the size that a container had at a time.

    A pod that was resized since does not tell; annotations know what it had before. While the resize was under way it
    may have had either, so the less counts: its raise must not be taken for the size that killed it.
    """
    change = marks.change if marks else None
    if change and moment < change.started and state.name in change.previous_size(pod):
        return with_implied_requests(change.previous_size(pod)[state.name])
    spec = next((each.resources for each in pod.containers if each.name == state.name), Resources())
    in_effect = state.actual_resources and state.actual_resources.memory_limit
    sizes = [each.get(state.name) for each in (marks.earlier_sizes_at(moment) if marks else ())]
    known = [
        with_implied_requests(each)
        for each in (state.actual_resources if in_effect else spec, *sizes)
        if each
    ]
    return min(known, key=lambda each: each.memory_limit or each.memory_request or float("inf"))


def memory_sizes(
    workload: Workload,
    pods: Sequence[Pod],
    names: Collection[WorkloadContainer],
    marks: ChangeAnnotations | None = None,
) -> list[MemorySize]:
    """Return the memory that each container has in effect; that of the template where no pod runs."""
    is_running = bool(live_pods(pods)) and workload.kind != "CronJob"
    now = {each.name: each for each in effective_containers(workload, pods)}
    earlier: list[Sizes] = [container_sizes(workload.containers)]
    if marks and marks.applied:
        earlier.append(marks.applied.before)
    if marks and marks.change:
        earlier.append(marks.change.before)
    return [
        MemorySize(
            name,
            _memory_size(now[name.container].resources),
            max(_memory_size(sizes.get(name.container)) for sizes in earlier),
            # An admission webhook may pin images, so that a template's does not compare with a pod's.
            image_fingerprint(now[name.container].image) if is_running else 0,
        )
        for name in names
        if name.container in now
    ]


def _memory_size(size: Resources | None) -> float:
    return float(size.memory_limit or size.memory_request or 0) if size else 0.0


def image_fingerprint(image: str) -> int:
    """Return a short number for an image: the same in every process, and 0 only where there is none."""
    return zlib.crc32(image.encode()) or 1 if image else 0
