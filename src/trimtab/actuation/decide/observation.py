"""The input of a decision about one workload, as one record, and predicates that are evaluated once for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, wraps
from typing import NamedTuple, TypeVar, cast

from trimtab.actuation.change_annotations import (
    ChangeAnnotations,
    OngoingChange,
    UnreadableAnnotations,
    decode_change_annotations,
)
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.health import MAX_UNAVAILABLE_SHARE, HarmSignals
from trimtab.actuation.effective_size import PodSync, effective_sizes, live_pods
from trimtab.actuation.resources import (
    NO_LIMITS,
    SizeLimits,
    Sizes,
    container_sizes,
    is_in_effect,
    raise_sizes,
)
from trimtab.api.optimizationpolicy import UpdateStrategy
from trimtab.kube.kinds.pods import Pod, Resources
from trimtab.kube.kinds.workloads import Workload


class State(StrEnum):
    """The states of a workload, derived from its annotations: idle, or the phase of the change under way."""

    IDLE = "Idle"
    CANARY = "Canary"
    PROMOTING = "Promoting"
    VERIFYING = "Verifying"
    REVERTING = "Reverting"


@dataclass(frozen=True, kw_only=True)
class DesiredChange:
    """The change that is wanted for a workload, and its terms."""

    sizes: Sizes
    """The recommended sizes, for the containers that have one. Limits that stay are included unchanged."""

    strategy: UpdateStrategy
    can_resize_in_place: bool
    """True if the cluster can resize running pods."""

    memory_limits_fixed: bool = False
    """True if memory limits of running pods cannot be lowered without a restart, as before Kubernetes 1.34.
    """

    needed_memory: Mapping[str, int] = field(default_factory=dict)
    """The least memory that each container may safely have, in bytes
    (`sizing.evidence.needed_memory`, headroom included). Memory is not lowered where it is unknown.
    """

    harm_signals: HarmSignals = field(default_factory=HarmSignals)

    is_urgent: bool = False
    """True if a container was just OOM killed: more memory waits for no interval, window or canary."""

    usage_error: str = ""
    """The reason why usage cannot be read now. Changes under way go on, but only more memory after an OOM
    kill starts.
    """

    blocked_reason: str = ""
    """The reason why nothing may be changed at all, such as the policy's mode or the global dry-run; empty if
    changes are allowed.
    """

    no_sizes_reason: str = ""
    """The reason why there are no sizes, if there are none."""

    hold_reason: str = ""
    """The reason why a person wants no new change. Pod sync, and a change that already covers all pods, go
    on.
    """

    stabilization: int = 0
    """Seconds after a change that restarted pods in which they are not restarted for a smaller size
    (changes.stabilization).
    """

    computed_from: Sizes | None = None
    """The sizes in effect that the recommendation was computed from; None if it holds for any sizes."""

    excluded_containers: frozenset[str] = frozenset()
    """Containers that the policy does not size: they keep what they were created with."""

    size_limits: SizeLimits = NO_LIMITS
    """The bounds of the sizes in annotations, which everyone who may annotate the workload can write."""


class Rejection(NamedTuple):
    """A write that the server rejected: its message, and when."""

    message: str
    at: int


@dataclass(frozen=True, kw_only=True)
class LocalObservations:
    """The observations that a process keeps between reconciles. Losing them costs time, never correctness."""

    unsettled_since: Mapping[str, int] = field(default_factory=dict)
    """The time since which each pod, by uid, has had a resize that is not in effect."""

    unsettled_sizes: Mapping[str, Sizes] = field(default_factory=dict)
    """The sizes in the spec of each pod, by uid, for which it waits since then."""

    unready_since: Mapping[str, int] = field(default_factory=dict)
    """The time since which each pod, by uid, has not been ready."""

    rejections: Mapping[str, Rejection] = field(default_factory=dict)
    """The writes that the server rejected, by `rejection_key`."""

    patched_change: str = ""
    """The id of the change whose sizes were last written to the template."""

    observed_since: int = 0
    """The time of the first observation. Timeouts count from then on, because nobody observed the workload
    before.
    """

    def observe(self, pods: Sequence[Pod], now: int) -> LocalObservations:
        """Note which pods are not settled or not ready, and forget those that are again."""
        live = live_pods(pods)
        sizes = {pod.uid: container_sizes(pod.containers) for pod in live}
        waiting = [pod.uid for pod in live if not is_in_effect(pod, sizes[pod.uid])]
        # Another size is another resize, whose wait begins now: a revert would otherwise take a pod that its node
        # had no capacity for as one that waited for something else before.
        resized = {uid for uid in waiting if self.unsettled_sizes.get(uid, sizes[uid]) != sizes[uid]}
        unready = [pod.uid for pod in live if not pod.ready]
        return LocalObservations(
            patched_change=self.patched_change,
            # `min`, because the clock may have been set back: a time in the future would postpone every deadline.
            unsettled_since={
                uid: now if uid in resized else min(self.unsettled_since.get(uid, now), now)
                for uid in waiting
            },
            unsettled_sizes={uid: sizes[uid] for uid in waiting},
            unready_since={uid: min(self.unready_since.get(uid, now), now) for uid in unready},
            observed_since=min(self.observed_since or now, now),
            # The absolute age: with a signed one, a clock that was set back would keep a rejection for as long.
            rejections={
                key: rejection
                for key, rejection in self.rejections.items()
                if abs(now - rejection.at) < DEADLINES.rejection
            },
        )


def rejection_key(uid: str, sizes: Sizes) -> str:
    """Return the key of a rejection: one object and one size, because another size may be accepted."""
    return f"{uid}/{hash(tuple(sorted(sizes.items(), key=lambda item: item[0])))}"


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A workload, its pods, the change that is wanted for it, and the time.

    Predicates over it (`evaluated_once`) keep their results here, so that each is evaluated once for each reconcile,
    however many rows of the table ask for it.
    """

    workload: Workload
    pods: Sequence[Pod]
    desired: DesiredChange
    now: int
    local: LocalObservations = field(default_factory=LocalObservations)
    results: dict[object, object] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The results of predicates, by function."""

    @cached_property
    def _decoded(self) -> ChangeAnnotations | UnreadableAnnotations:
        found = decode_change_annotations(dict(self.workload.annotations), uid=self.workload.uid)
        if isinstance(found, UnreadableAnnotations) or self.desired.size_limits == NO_LIMITS:
            return found
        running = raise_sizes({}, *(container_sizes(pod.containers) for pod in self.live))
        return found.within(self.desired.size_limits, self.template_sizes, running=running)

    @property
    def unreadable_reason(self) -> str:
        """The reason why our annotations on the workload cannot be read; empty if they can."""
        return self._decoded.reason if isinstance(self._decoded, UnreadableAnnotations) else ""

    @property
    def annotations(self) -> ChangeAnnotations:
        """Our annotations on the workload; empty ones where they cannot be read."""
        return ChangeAnnotations() if isinstance(self._decoded, UnreadableAnnotations) else self._decoded

    @property
    def state(self) -> State:
        """The state of the workload: it is read from the annotations, never assumed."""
        change = self.annotations.change
        return State(change.phase) if change else State.IDLE

    @property
    def change(self) -> OngoingChange:
        """The change under way. In the state Idle there is none."""
        change = self.annotations.change
        if change is None:
            raise LookupError(f"{self.workload.key} has no change under way")
        return change

    @property
    def phase_began(self) -> int:
        """The time from which timeouts of the phase count.

        A process that just became leader has not observed the workload before: without its own time as a bound, it
        would give up changes that made progress until the moment of the hand-over.
        """
        return max(self.change.since, self.local.observed_since)

    @cached_property
    def live(self) -> tuple[Pod, ...]:
        """The pods that run or will run, youngest first, because the first pod of a StatefulSet is often its
        leader.
        """
        live = live_pods(self.pods)
        return tuple(sorted(live, key=lambda pod: (pod.created, len(pod.name), pod.name), reverse=True))

    @cached_property
    def unavailable_pods(self) -> int:
        """The number of pods that are missing or not ready, or 0 if they are few enough to change others: in
        a large workload, one always is.
        """
        wanted = max(self.workload.replicas, len(self.live))
        unavailable = wanted - sum(pod.ready for pod in self.live)
        return unavailable if unavailable > wanted * MAX_UNAVAILABLE_SHARE else 0

    @property
    def missing_pods(self) -> int:
        """The number of replicas for which there is no pod."""
        return max(self.workload.replicas - len(self.live), 0)

    @cached_property
    def template_sizes(self) -> dict[str, Resources]:
        """The sizes in the pod template."""
        return container_sizes(self.workload.containers)

    @property
    def pod_sync(self) -> PodSync:
        """The settings by which pod sync brings new pods to the size of the workload."""
        desired, strategy = self.desired, self.desired.strategy
        return PodSync(
            enabled=desired.can_resize_in_place and strategy.allow_in_place_resize,
            startup_boost=strategy.startup_boost,
            excluded=desired.excluded_containers,
            limits=desired.size_limits,
        )

    @cached_property
    def effective(self) -> dict[str, Resources]:
        """The size that each container has in effect."""
        return effective_sizes(self.workload, self.pods, self.pod_sync)

    @property
    def is_oom_relief_due(self) -> bool:
        """True if more memory after an OOM kill would start now if nothing else were under way; a hold stops
        it like any change.
        """
        return self.desired.is_urgent and not self.desired.hold_reason

    @property
    def strategy(self) -> UpdateStrategy:
        return self.desired.strategy

    @property
    def may_recreate(self) -> bool:
        """True if the policy allows to replace pods for the desired change."""
        strategy = self.strategy
        return strategy.allow_recreate or (strategy.allow_recreate_on_oom and self.desired.is_urgent)

    def rejection(self, uid: str, sizes: Sizes) -> str:
        """Return the server's message if it rejected this size when it was last tried."""
        # Hashing sizes for each pod costs more than everything else here, and rejections are rare.
        found = self.local.rejections.get(rejection_key(uid, sizes)) if self.local.rejections else None
        return found.message if found else ""


T = TypeVar("T")


def evaluated_once(predicate: Callable[[Observation], T]) -> Callable[[Observation], T]:
    """Keep the result of a predicate with the observation, because several rows of the table ask for it."""

    @wraps(predicate)
    def evaluate(observation: Observation) -> T:
        if predicate not in observation.results:
            observation.results[predicate] = predicate(observation)
        return cast(T, observation.results[predicate])

    return evaluate
