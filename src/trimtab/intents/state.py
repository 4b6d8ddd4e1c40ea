"""The state of a workload: observed now, or expected after some actions.

One record serves both, so that the planner can continue from a prediction as from an observation. Unknown values
are None, never a number that looks like a measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class PodState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod as the planner sees it."""

    name: str
    node: str = ""
    """The node; empty while the pod is not scheduled."""
    state: str = "Running"
    qos: str = "Burstable"
    availability: float = 1.0
    """The share of time in which the pod serves: MTBF / (MTBF + MTTR)."""


class ContainerSize(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Requests and limits of one container of every pod, in cores and bytes; None if not set."""

    container: str
    cpu_request: float | None = None
    cpu_limit: float | None = None
    memory_request: float | None = None
    memory_limit: float | None = None

    @property
    def cpu(self) -> float | None:
        """Return the CPU that the container can count on: the limit that throttles it, otherwise the request."""
        return self.cpu_request if self.cpu_limit is None else self.cpu_limit

    @property
    def memory(self) -> float | None:
        return self.memory_request if self.memory_limit is None else self.memory_limit


class TargetState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    objectives: Mapping[str, float | None]
    """The current value of each objective; None if it is unknown."""
    pods: tuple[PodState, ...] = ()
    replicas: int = 1
    """The number of wanted pods, including those that do not run yet."""
    unplaced: int = 0
    """The number of pods that are not scheduled or could not be created, such as because of a quota. They serve no
    load, and are deleted first."""
    sizes: tuple[ContainerSize, ...] = ()
    """The size of each container of a pod."""
    main: int = 0
    """The index in `sizes` of the main container; sidecars stay unchanged."""
    load: float | None = None
    """The load on all pods together, such as requests per second."""
    cpu_used: float | None = None
    """The cores that the main containers of all pods use together."""
    memory_used: float | None = None
    """The peak usage of the main container in the pod that uses most, in bytes."""
    memory_median: float | None = None
    """The peak usage of the main container in the median pod, in bytes."""
    cache_class: str | None = None
    power_profile: str | None = None
    excluded_nodes: frozenset[str] = frozenset()
    """The nodes that the pods cannot use, such as because of taints."""
    annotations: Mapping[str, str] = {}
    data: Mapping[str, Any] = {}
    """Additional data for plugins, such as telemetry of the nodes."""
    log_spread: Mapping[str, float] = {}
    """The uncertainty of each objective, as the standard deviation of its logarithm; empty for measured values."""

    @property
    def placed(self) -> int:
        """The number of pods that can serve load, at least one."""
        return max(1, self.replicas - self.unplaced)

    @property
    def main_size(self) -> ContainerSize | None:
        """The size of the main container."""
        return self.sizes[self.main] if self.main < len(self.sizes) else None

    @property
    def cpu(self) -> float | None:
        """The cores that the main container of one pod can count on."""
        size = self.main_size
        return None if size is None else size.cpu

    @property
    def memory(self) -> float | None:
        """The bytes that the main container of one pod may use."""
        size = self.main_size
        return None if size is None else size.memory

    def requests_per_pod(self) -> tuple[float, float]:
        """Return the cores and bytes that one pod requests from the scheduler."""
        cpu = memory = 0.0
        for size in self.sizes:
            cpu += (size.cpu_request if size.cpu_request is not None else size.cpu_limit) or 0.0
            memory += (size.memory_request if size.memory_request is not None else size.memory_limit) or 0.0
        return cpu, memory


def count_unplaced(state: TargetState, replicas: int) -> int:
    """Return the number of unscheduled pods after scaling; on scale-in a ReplicaSet deletes those first."""
    return max(0, state.unplaced - max(0, state.replicas - replicas))
