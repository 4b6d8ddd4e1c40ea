"""OOM kills and the sizes of containers, as the status of pods reports them. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Container, Iterable, Sequence
from math import inf
from typing import NamedTuple

from trimtab.actuation.change_annotations import ChangeAnnotations, read_change_annotations
from trimtab.actuation.effective_size import effective_containers, live_pods
from trimtab.actuation.resources import Sizes, container_sizes
from trimtab.kube.kinds.pods import ContainerStatus, Pod, Resources
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.usage.pod_ownership import WorkloadContainer


class OomKill(NamedTuple):
    """An OOM kill of a container, as its pod reports it."""

    container: WorkloadContainer
    at: float
    """The Unix time of the kill."""
    limit: float
    """The memory limit that the container hit; 0 if it had none."""
    request: float
    """The memory that the container requested."""
    image: int = 0
    """The fingerprint of the container's image; 0 if unknown."""
    key: str = ""
    """The identity of the kill: the uid of the pod, the container, and the time that the kubelet reported."""


class ObservedSize(NamedTuple):
    """The memory and the CPU of one container in most pods of its workload."""

    container: WorkloadContainer
    memory: float
    """The memory limit, or the request if there is no limit."""
    before: float
    """The largest size that the container is known to have had, from its template or from a recorded change."""
    image: int = 0
    """The fingerprint of the newest pod's image."""
    replicas: int = 0
    """The number of pods that run; 0 is unknown."""
    cpu: float = 0.0
    """The CPU limit in cores, or as a negative number the request if there is no limit."""


def find_oom_kills(
    name: WorkloadContainer, pods: Sequence[Pod], annotations: ChangeAnnotations | None = None
) -> list[OomKill]:
    """List the OOM kills of a container that its pods report, each with the limit that it hit."""
    found = []
    for pod in pods:
        for state in pod.container_statuses:
            # A container reports only its last termination, so an earlier kill is lost unless it was observed before.
            ended = state.last_termination
            if state.name != name.container or ended is None or ended.reason != "OOMKilled":
                continue
            had = _size_at(ended.finished_at, pod, state, annotations)
            limit, request = float(had.memory_limit or 0), float(had.memory_request or 0)
            image = next((each.image for each in pod.containers if each.name == state.name), "")
            key = f"oom/{pod.uid}/{state.name}/{ended.finished_at}"
            found.append(
                OomKill(name, float(ended.finished_at), limit, request, image_fingerprint(image), key)
            )
    return found


def read_pod_status(
    workload: Workload,
    pods: Sequence[Pod],
    names: Collection[WorkloadContainer],
    *,
    ended: Sequence[Pod] = (),
) -> tuple[list[ObservedSize], list[OomKill]]:
    """Return the sizes that these containers have in effect, and the OOM kills that their pods report.

    `ended` are pods that no longer run: with restartPolicy Never, only such a pod reports the kill.
    """
    annotations = read_change_annotations(workload)
    sizes = observed_sizes(workload, pods, names, annotations)
    return sizes, [kill for name in names for kill in find_oom_kills(name, [*pods, *ended], annotations)]


class _ReadStatus(NamedTuple):
    """The results that were read from the records of a workload, and these records."""

    workload: Workload
    pods: list[Pod]
    names: list[WorkloadContainer]
    sizes: list[ObservedSize]
    kills: list[OomKill]


class PodStatusReader:
    """Reads pods as `read_pod_status` does, and again only once a record of the workload or its pods was replaced."""

    def __init__(self) -> None:
        self._last: dict[WorkloadKey, _ReadStatus] = {}

    def read(
        self,
        workload: Workload,
        pods: Sequence[Pod],
        names: Collection[WorkloadContainer],
        *,
        ended: Sequence[Pod] = (),
    ) -> tuple[list[ObservedSize], list[OomKill]]:
        """Return the sizes that these containers have in effect, and the OOM kills that their pods report."""
        last, read_pods, read_names = self._last.get(workload.key), [*pods, *ended], list(names)
        # Records compare by identity: informers replace them and never change them.
        if (
            last is None
            or last.workload is not workload
            or last.pods != read_pods
            or last.names != read_names
        ):
            found = read_pod_status(workload, pods, names, ended=ended)
            last = self._last[workload.key] = _ReadStatus(workload, read_pods, read_names, *found)
        return last.sizes, last.kills

    def forget_all_but(self, workloads: Container[WorkloadKey]) -> None:
        """Drop the records of workloads that no longer exist."""
        for key in [key for key in self._last if key not in workloads]:
            del self._last[key]


class OomTimestampCorrector:
    """Replaces the times of OOM kills that lie in the future because a node's clock is ahead.

    OOM kills are identified by their times, each later than the last, so one dated next year would hide all others until
    then. A kill with a future time happened between two observations and gets the time of the first one that shows it.
    At the first observation of a workload it may be old, so it is ignored: a container that is killed again reports a new
    one.
    """

    def __init__(self) -> None:
        self._first_seen: dict[WorkloadKey, dict[tuple[str, float], float]] = {}
        """The time at which each kill with a future time was first observed, by container and reported time."""

    def correct(self, workload: WorkloadKey, ooms: Iterable[OomKill], *, now: float) -> list[OomKill]:
        """Return the OOM kills of a workload with corrected times."""
        before = self._first_seen.get(workload)
        current: dict[tuple[str, float], float] = {}
        found = []
        for kill in ooms:
            key = kill.container.container, kill.at
            if kill.at > now or (before and key in before):
                first_seen = -inf if before is None else before.get(key, now)
                current[key] = first_seen
                if first_seen > -inf:
                    found.append(kill._replace(at=first_seen))
            else:
                found.append(kill)
        self._first_seen[workload] = current or _NO_CORRECTIONS
        return found

    def forget_all_but(self, workloads: Container[WorkloadKey]) -> None:
        """Drop the state of workloads that no longer exist."""
        self._first_seen = {key: times for key, times in self._first_seen.items() if key in workloads}


_NO_CORRECTIONS: dict[tuple[str, float], float] = {}
"""The shared value for workloads without corrections, which nearly all are."""


def _size_at(
    killed_at: int, pod: Pod, state: ContainerStatus, annotations: ChangeAnnotations | None
) -> Resources:
    """Return the size that a container had at a time.

    A pod that was resized afterwards no longer shows it, but the annotations do. While the resize was in progress the
    container may have had either size, so the smaller one counts: the increase must not be mistaken for the size that
    was too small.
    """
    change = annotations.change if annotations else None
    if change and killed_at < change.started and state.name in change.previous_size(pod):
        return change.previous_size(pod)[state.name].with_implied_requests()
    spec = next((each.resources for each in pod.containers if each.name == state.name), Resources())
    in_effect = state.actual_resources and state.actual_resources.memory_limit
    sizes = [
        each.get(state.name) for each in (annotations.earlier_sizes_at(killed_at) if annotations else ())
    ]
    known = [
        each.with_implied_requests()
        for each in (state.actual_resources if in_effect else spec, *sizes)
        if each
    ]
    return min(known, key=lambda each: each.memory_limit or each.memory_request or float("inf"))


def observed_sizes(
    workload: Workload,
    pods: Sequence[Pod],
    names: Collection[WorkloadContainer],
    annotations: ChangeAnnotations | None = None,
) -> list[ObservedSize]:
    """Return the size that each container has in effect; the template's if no pod runs."""
    replicas = 0 if workload.kind == "CronJob" else len(live_pods(pods))
    now = {each.name: each for each in effective_containers(workload, pods)}
    earlier: list[Sizes] = [container_sizes(workload.containers)]
    if annotations and annotations.applied:
        earlier.append(annotations.applied.before)
    if annotations and annotations.change:
        earlier.append(annotations.change.before)
    return [
        ObservedSize(
            name,
            _memory_size(now[name.container].resources),
            max(_memory_size(sizes.get(name.container)) for sizes in earlier),
            # An admission webhook may pin images, so the template's image is not comparable with a pod's.
            image_fingerprint(now[name.container].image) if replicas else 0,
            replicas,
            _cpu_size(now[name.container].resources),
        )
        for name in names
        if name.container in now
    ]


def _memory_size(size: Resources | None) -> float:
    return float(size.memory_limit or size.memory_request or 0) if size else 0.0


def _cpu_size(size: Resources) -> float:
    return (size.cpu_limit or -(size.cpu_request or 0)) / 1000


def image_fingerprint(image: str) -> int:
    """Return a short number for an image that is the same in every process, and 0 only without an image."""
    return zlib.crc32(image.encode()) or 1 if image else 0
