"""Everything that a decision about one workload looks at, as one record."""

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
    """What is wanted of a workload, and on which terms."""

    sizes: Sizes
    """The recommendation, for the containers that have one; limits that stay are in it as they are."""

    strategy: UpdateStrategy
    can_resize_in_place: bool
    """Whether the cluster can resize running pods."""

    memory_limits_fixed: bool = False
    """Whether memory limits of running pods cannot be lowered: so before Kubernetes 1.34, unless that restarts the container."""

    needed_memory: Mapping[str, int] = field(default_factory=dict)
    """The least memory that each container may safely have, in bytes (`sizing.safe_minimum.needed_memory`, headroom
    included); memory is not lowered where it is unknown."""

    harm_signals: HarmSignals = field(default_factory=HarmSignals)

    is_urgent: bool = False
    """Whether a container was just killed for lack of memory: more of it waits for no interval, window or canary."""

    usage_error: str = ""
    """Why usage cannot be read at present: what is under way goes on, and nothing but more memory after a kill begins."""

    blocked_reason: str = ""
    """Why nothing may be touched at all: the policy's mode, the global dry-run. Empty when it may."""

    no_sizes_reason: str = ""
    """Why there are no sizes, where there are none."""

    hold_reason: str = ""
    """Why no new change starts, as a person wants it. Pod sync and a change that all pods are to have go on."""

    stabilization: int = 0
    """Seconds after a change that restarted pods in which they restart for no smaller size (changes.stabilization)."""

    computed_from: Sizes | None = None
    """The sizes in effect that the recommendation was computed from. None where it holds whatever they are."""

    excluded_containers: frozenset[str] = frozenset()
    """Containers that are not ours to size: no pod is given what others of its workload had of them."""


@dataclass(frozen=True, kw_only=True)
class LocalObservations:
    """What a process remembers from one look to the next. To lose it costs time, never correctness."""

    unsettled_since: Mapping[str, int] = field(default_factory=dict)
    """Since when each pod, by uid, has been seen with a resize that is not in effect."""

    unready_since: Mapping[str, int] = field(default_factory=dict)
    """Since when each pod, by uid, has been seen not ready."""

    rejections: Mapping[str, str] = field(default_factory=dict)
    """What the server said no to, by `refusal_key`, in its own words."""

    patched_change: str = ""
    """The change, by id, whose sizes were last written to the template."""

    observed_since: int = 0
    """When it was first looked at: what takes long is waited for from then on, for before nobody did."""


def rejection_key(uid: str, sizes: Sizes) -> str:
    """A refusal is of one object and one size: another may well be accepted."""
    return f"{uid}/{hash(tuple(sorted(sizes.items(), key=lambda item: item[0])))}"


@dataclass(frozen=True, kw_only=True)
class ChangeContext:
    """A workload, its pods, what is wanted of it, and the time."""

    workload: Workload
    pods: Sequence[Pod]
    desired: DesiredChange
    now: int
    observations: LocalObservations = field(default_factory=LocalObservations)

    @cached_property
    def live(self) -> tuple[Pod, ...]:
        """The pods that run or will, youngest first: the first pod of a StatefulSet is often its leader."""
        live = live_pods(self.pods)
        return tuple(sorted(live, key=lambda pod: (pod.created, len(pod.name), pod.name), reverse=True))

    @cached_property
    def unavailable_pods(self) -> int:
        """How many pods are missing or not ready, if that is too many to touch any: in a crowd, one always is."""
        wanted = max(self.workload.replicas, len(self.live))
        lacking = wanted - sum(pod.ready for pod in self.live)
        return lacking if lacking > wanted * MAX_UNAVAILABLE_SHARE else 0

    @cached_property
    def template_sizes(self) -> dict[str, Resources]:
        """The sizes in the pod template."""
        return container_sizes(self.workload.containers)

    @property
    def pod_sync(self) -> PodSync:
        """The terms on which new pods are brought to the size of the workload."""
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
        """Whether more memory after an OOM kill would begin now, were nothing else under way; a hold stops it, as any change."""
        return self.desired.is_urgent and not self.desired.hold_reason

    @property
    def strategy(self) -> UpdateStrategy:
        return self.desired.strategy

    def rejection(self, uid: str, sizes: Sizes) -> str:
        """What the server said when this was last tried, if it said no."""
        return self.observations.rejections.get(rejection_key(uid, sizes), "")
