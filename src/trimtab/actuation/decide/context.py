"""The input of a decision about one workload, as one record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from trimtab.actuation.decide.health import MAX_UNAVAILABLE_SHARE, HarmSignals
from trimtab.actuation.effective_size import PodSync, effective_sizes, live_pods
from trimtab.actuation.resources import Sizes, container_sizes
from trimtab.api.optimizationpolicy import UpdateStrategy
from trimtab.kube.kinds.pods import Pod, Resources
from trimtab.kube.kinds.workloads import Workload


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
    (`sizing.safe_minimum.needed_memory`, headroom included). Memory is not lowered where it is unknown.
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


@dataclass(frozen=True, kw_only=True)
class LocalObservations:
    """The observations that a process keeps between reconciles. Losing them costs time, never correctness."""

    unsettled_since: Mapping[str, int] = field(default_factory=dict)
    """The time since which each pod, by uid, has had a resize that is not in effect."""

    unready_since: Mapping[str, int] = field(default_factory=dict)
    """The time since which each pod, by uid, has not been ready."""

    rejections: Mapping[str, str] = field(default_factory=dict)
    """The server's message for each rejection, by `rejection_key`."""

    patched_change: str = ""
    """The id of the change whose sizes were last written to the template."""

    observed_since: int = 0
    """The time of the first observation. Timeouts count from then on, because nobody observed the workload
    before.
    """


def rejection_key(uid: str, sizes: Sizes) -> str:
    """Return the key of a rejection: one object and one size, because another size may be accepted."""
    return f"{uid}/{hash(tuple(sorted(sizes.items(), key=lambda item: item[0])))}"


@dataclass(frozen=True, kw_only=True)
class ChangeContext:
    """A workload, its pods, the change that is wanted for it, and the time."""

    workload: Workload
    pods: Sequence[Pod]
    desired: DesiredChange
    now: int
    observations: LocalObservations = field(default_factory=LocalObservations)

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
        lacking = wanted - sum(pod.ready for pod in self.live)
        return lacking if lacking > wanted * MAX_UNAVAILABLE_SHARE else 0

    @cached_property
    def template_sizes(self) -> dict[str, Resources]:
        """The sizes in the pod template."""
        return container_sizes(self.workload.containers)

    @property
    def pod_sync(self) -> PodSync:
        """The settings by which pod sync brings new pods to the size of the workload."""
        wish, strategy = self.desired, self.desired.strategy
        return PodSync(
            enabled=wish.can_resize_in_place and strategy.allow_in_place_resize,
            startup_boost=strategy.startup_boost,
            excluded=wish.excluded_containers,
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

    def rejection(self, uid: str, sizes: Sizes) -> str:
        """Return the server's message if it rejected this size when it was last tried."""
        return self.observations.rejections.get(rejection_key(uid, sizes), "")
