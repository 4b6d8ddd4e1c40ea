"""Decide which size a container has in effect. Every other module asks here.

A size is stored in three places: the template, the annotation `trimtab.io/applied` and the running pods. They
differ whenever pods are resized in place, because the template then keeps its old size: after a drain, a spot
loss, a scale-out or a scale from zero, new pods start with the template's size until pod sync (`sync_pods`)
brings them to the applied one. Counting such pods with the size that they have for these seconds once made a
recommendation start from the template, and cut a service that needed 3 cores to 1.2. So every pod counts with
the size that it has after pod sync.

The template wins for a container whose size in it was edited since: then the applied size is outdated.

A startup boost gives a pod more CPU until it is ready. There is nothing to remember: the pod itself shows whether it
starts and whether it has more CPU than its own size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from trimtab.actuation.change_annotations import (
    ChangeAnnotations,
    OngoingChange,
    Phase,
    UpdateMethod,
    read_change_annotations,
)
from trimtab.actuation.resources import (
    NO_LIMITS,
    SizeLimits,
    Sizes,
    container_sizes,
    has_size,
    has_template_size,
    merge_sizes,
    restrict_to_fields,
)
from trimtab.api.optimizationpolicy import StartupBoost
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.workloads import Workload, WorkloadKey


@dataclass(frozen=True, slots=True)
class BoostDecision:
    """The size that a pod should have now and the time of the next check; None if it has that size."""

    sizes: Sizes | None
    recheck_at: int | None = None


def decide_boost(
    pod: Pod, own: Sizes, rule: StartupBoost, *, now: int, limits: SizeLimits = NO_LIMITS
) -> BoostDecision:
    """Return more CPU while the pod starts, and its own size once it is ready or its time is over."""
    if _is_starting(pod, rule, now=now):
        raised = _boost(own, rule, limits)
        return BoostDecision(raised if has_size(pod, own) and raised != own else None, _boost_end(pod, rule))
    return BoostDecision(own if has_more_cpu(pod, own) else None)


def is_boosted(pod: Pod, own: Sizes, rule: StartupBoost, *, now: int, limits: SizeLimits = NO_LIMITS) -> bool:
    """Return whether the pod is starting and has more CPU for that, even if its template sets it."""
    return _is_starting(pod, rule, now=now) and has_size(pod, _boost(own, rule, limits))


def _boost(own: Sizes, rule: StartupBoost, limits: SizeLimits) -> dict[str, Resources]:
    # A boost is written into no annotation, so that nothing else bounds it.
    return limits.clamp(raise_cpu(own, rule.factor), template=own)


def _is_starting(pod: Pod, rule: StartupBoost, *, now: int) -> bool:
    return not pod.ready and now < _boost_end(pod, rule)


def _boost_end(pod: Pod, rule: StartupBoost) -> int:
    return (pod.started or pod.created) + int(rule.duration.seconds)


def raise_cpu(own: Sizes, factor: float) -> dict[str, Resources]:
    """Return sizes with more CPU. Request and limit grow together, so that the QoS class stays."""
    return {
        name: Resources.from_pairs(each.cpu.map(lambda amount: round(amount * factor)), each.memory)
        for name, each in own.items()
    }


def has_more_cpu(pod: Pod, own: Sizes) -> bool:
    """Return whether the pod differs from its own size by more CPU alone, as after a boost by any factor."""
    current = container_sizes(pod.containers)
    pairs = [(current[name], each) for name, each in own.items() if name in current]
    same_memory = all(now.memory == each.memory for now, each in pairs)
    no_less = all((now.cpu_request or 0) >= (each.cpu_request or 0) for now, each in pairs)
    return same_memory and no_less and not has_size(pod, own)


_PROMOTED_PHASES = frozenset({Phase.PROMOTING, Phase.VERIFYING})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSync:
    """The settings by which pod sync brings new pods to the size of their workload."""

    enabled: bool = True
    """True if pods are resized in place at all. Without that, each pod keeps the size that it was created with."""
    startup_boost: StartupBoost | None = None
    """The policy's rule for extra CPU while a pod starts."""
    excluded: frozenset[str] = frozenset()
    """Containers that the policy does not size: they keep what they were created with."""
    limits: SizeLimits = NO_LIMITS
    """The bounds of the sizes in annotations."""


def live_pods(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that run or will run."""
    return [pod for pod in pods if not pod.deleting and pod.phase in {"Pending", "Running", ""}]


DEFAULT_POD_SYNC = PodSync()


@dataclass(frozen=True, slots=True)
class Assignment:
    """The size that a workload assigns to its pods, without the containers that its policy does not size."""

    sizes: Sizes
    template: Sizes
    """The size that the same containers have in the template."""

    @classmethod
    def from_annotations(
        cls, annotations: ChangeAnnotations, template: Sizes, *, excluded: Collection[str] = ()
    ) -> Assignment:
        """Return the applied size, or the template's for containers whose size in it was edited since."""
        sizes, applied, change = dict(template), annotations.applied, annotations.change
        if applied:
            was = applied.template
            sizes |= {
                name: size for name, size in applied.sizes.items() if was.get(name) == template.get(name)
            }
        if change and _is_promoted(change, template):
            sizes |= change.after
        return cls(
            {name: each.with_implied_requests() for name, each in sizes.items() if name not in excluded},
            {name: each for name, each in template.items() if name not in excluded},
        )

    def assigned_size(self, pod: Pod) -> dict[str, Resources]:
        """Return the size that a pod should have once it has started.

        In place nothing can be added or removed, so it keeps the requests and limits that only admission gave it.
        """
        current = container_sizes(pod.containers)
        return {name: restrict_to_fields(now, self.sizes.get(name, now)) for name, now in current.items()}

    def needs_sync(self, pod: Pod) -> bool:
        """Return whether a pod still has the size of its template and should have another."""
        return has_template_size(pod, self.template) and not has_size(pod, self.assigned_size(pod))

    def boostable_size(self, pod: Pod) -> dict[str, Resources]:
        """Return the part of a pod's own size whose CPU a startup boost may raise.

        CPU that admission added is left out, because it could not be distinguished from a boost afterwards.
        """
        stated = {name: each.cpu for name, each in self.sizes.items()}
        return {name: each for name, each in self.assigned_size(pod).items() if stated.get(name) == each.cpu}

    def synced_size(self, pod: Pod, sync: PodSync) -> dict[str, Resources]:
        """Return the size that a pod has after pod sync; a pod that somebody else resized keeps its size."""
        current = container_sizes(pod.containers)
        if not sync.enabled:
            return current
        if self.needs_sync(pod):
            return self.assigned_size(pod)
        boostable = self.boostable_size(pod) if sync.startup_boost else {}
        return current | boostable if boostable and has_more_cpu(pod, boostable) else current


def effective_sizes(
    workload: Workload, pods: Iterable[Pod], sync: PodSync = DEFAULT_POD_SYNC
) -> dict[str, Resources]:
    """Return the size that each container of a workload has in effect; init containers have none.

    It does not depend on how many pods still have the size of the template.
    """
    return container_sizes(effective_containers(workload, pods, sync))


def effective_containers(
    workload: Workload, pods: Iterable[Pod], sync: PodSync = DEFAULT_POD_SYNC
) -> tuple[Container, ...]:
    """Return the containers of a workload with the sizes that they have in effect, and its init containers.

    That includes containers that admission injected: they are in no template, and still count for quota and QoS.
    """
    annotations, template = (
        read_change_annotations(workload, sync.limits) or ChangeAnnotations(),
        container_sizes(workload.containers),
    )
    assignment = Assignment.from_annotations(annotations, template, excluded=sync.excluded)
    # Jobs that run were created from an earlier template of their CronJob, and are not resized.
    live = [] if workload.kind == "CronJob" else live_pods(pods)
    if live:
        containers = _iter_majority_containers(live, assignment, template, sync)
    else:
        containers = (_with_size(each, assignment.sizes) for each in workload.containers)
    if annotations.change is None:
        return tuple(containers)
    changing = _size_in_change(annotations.change, template)
    return tuple(_with_size(each, changing) for each in containers)


class _SizedRecords(NamedTuple):
    """The containers of a workload, and the records that they were computed from."""

    workload: Workload
    pods: tuple[Pod, ...]
    sync: PodSync
    containers: tuple[Container, ...]


class EffectiveContainers:
    """Finds containers as `effective_containers` does, and again only once a record or a setting was replaced."""

    def __init__(self) -> None:
        self._last: dict[WorkloadKey, _SizedRecords] = {}

    def find(self, workload: Workload, pods: Sequence[Pod], sync: PodSync) -> tuple[Container, ...]:
        """Return the containers of a workload with the sizes that they have in effect, and its init containers."""
        last, read = self._last.get(workload.key), tuple(pods)
        # Records compare by identity: informers replace them and never change them.
        if last is None or last.workload is not workload or last.pods != read or last.sync != sync:
            found = effective_containers(workload, pods, sync)
            last = self._last[workload.key] = _SizedRecords(workload, read, sync, found)
        return last.containers

    def forget(self, key: WorkloadKey) -> None:
        """Forget a workload that no longer exists."""
        self._last.pop(key, None)


def _iter_majority_containers(
    live: Sequence[Pod], assignment: Assignment, template: Sizes, sync: PodSync
) -> Iterator[Container]:
    """Yield each container with the size that most pods have after pod sync.

    All other fields of a container come from the newest pod. The set of containers and their order depend
    neither on the order of the pods nor on the few pods with a container too many or too few, as during a
    rollout.
    """
    order = {name: place for place, name in enumerate(template)}
    alike = Counter(pod.containers for pod in live)
    # Without a rollout all replicas have equal containers, and no vote is needed.
    if len(alike) == 1:
        sizes = assignment.synced_size(live[0], sync)
        yield from (each for each in live[0].containers if each.role == "init")
        running = [each for each in live[0].containers if each.role != "init"]
        for each in sorted(running, key=lambda each: (order.get(each.name, len(order)), each.name)):
            size = sizes[each.name]
            yield each if size == each.resources else msgspec.structs.replace(each, resources=size)
        return
    votes: dict[str, Counter[Resources]] = {}
    latest: dict[str, Container] = {}
    # Only the newest pod of each variant has to be looked at.
    newest = {pod.containers: pod for pod in sorted(live, key=_creation_order)}
    for pod in sorted(newest.values(), key=_creation_order):
        latest |= {each.name: each for each in pod.containers}
        for name, size in assignment.synced_size(pod, sync).items():
            votes.setdefault(name, Counter())[size] += alike[pod.containers]
    yield from (each for each in pod.containers if each.role == "init")
    for name in sorted(votes, key=lambda name: (order.get(name, len(order)), name)):
        if name in template or 2 * votes[name].total() >= len(live):
            yield msgspec.structs.replace(
                latest[name], resources=_majority_size(votes[name], assignment, name)
            )


def _creation_order(pod: Pod) -> tuple[int, str]:
    return pod.created, pod.name


def _majority_size(votes: Counter[Resources], assignment: Assignment, name: str) -> Resources:
    """Return the most frequent size; among equals the assigned one, then the largest, never simply the first."""

    def rank(size: Resources) -> tuple[int, bool, list[int]]:
        amounts = [amount or 0 for amount in size.amounts]
        return votes[size], size == assignment.sizes.get(name), amounts

    return max(votes, key=rank)


def _with_size(container: Container, sizes: Sizes) -> Container:
    wanted = sizes.get(container.name)
    if container.role == "init" or wanted is None or wanted == container.resources.with_implied_requests():
        # An unchanged container stays as the template has it, which may set a limit without a request.
        return container
    return msgspec.structs.replace(container, resources=wanted)


def _size_in_change(change: OngoingChange, template: Sizes) -> Sizes:
    """Return the size in effect during a change: the new one once the change covers all pods.

    Return nothing if somebody edited the template meanwhile: the change is then reverted and the template
    wins.
    """
    if template not in (change.template, merge_sizes(change.template, change.after)):
        return {}
    return change.after if _is_promoted(change, template) else change.before


def _is_promoted(change: OngoingChange, template: Sizes) -> bool:
    """Return whether all pods are to have the new size, in place or from a template that has it."""
    if change.phase not in _PROMOTED_PHASES:
        return False
    in_template = template == merge_sizes(change.template, change.after)
    return in_template or (change.method is UpdateMethod.IN_PLACE and template == change.template)
