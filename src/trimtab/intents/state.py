"""State: what is known of a workload at one moment, or what is expected of it after some deeds.

One record for both, so that an actuator's prediction can be planned on like an observation. What is unknown is None,
never a number that could be taken for a measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class PodState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod, as far as planning looks at it."""

    name: str
    node: str = ""
    """Empty while it is not placed."""
    state: str = "Running"
    qos: str = "Burstable"
    availability: float = 1.0
    """The share of its time in which it serves: MTBF / (MTBF + MTTR)."""


class ContainerSize(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one container of every pod asks for and may use, in cores and bytes; None where it has none."""

    container: str
    cpu_request: float | None = None
    cpu_limit: float | None = None
    memory_request: float | None = None
    memory_limit: float | None = None

    @property
    def cpu(self) -> float | None:
        """What it can count on: the limit is what slows it down; without one, the request is what it is given."""
        return self.cpu_request if self.cpu_limit is None else self.cpu_limit

    @property
    def memory(self) -> float | None:
        return self.memory_request if self.memory_limit is None else self.memory_limit


class TargetState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    objectives: Mapping[str, float | None]
    """Each objective as it is now; None: unknown."""
    pods: tuple[PodState, ...] = ()
    replicas: int = 1
    """How many pods are wanted; those that do not run yet are among them."""
    unplaced: int = 0
    """How many of them have no place: no node has room for them, or they may not even be made, as by a quota. They bring
    nothing, and are the first to go."""
    sizes: tuple[ContainerSize, ...] = ()
    """One for each container of a pod."""
    main: int = 0
    """Which of `sizes` does the work; sidecars are left as they are."""
    load: float | None = None
    """What is asked of all pods together, such as requests per second."""
    cpu_used: float | None = None
    """What the main containers of all pods use together, in cores."""
    memory_used: float | None = None
    """What the main container of the hungriest pod uses at its peak, in bytes."""
    memory_median: float | None = None
    """What that of the median pod uses at its peak, in bytes."""
    cache_class: str | None = None
    power_profile: str | None = None
    excluded_nodes: frozenset[str] = frozenset()
    """Nodes that its pods may not go to, as for taints that they do not tolerate."""
    annotations: Mapping[str, str] = {}
    data: Mapping[str, Any] = {}
    """What else is known, such as telemetry of the nodes; for plugins."""
    log_spread: Mapping[str, float] = {}
    """How unsure each objective is, as the standard deviation of its logarithm; nothing when it was measured."""

    @property
    def placed(self) -> int:
        """How many pods can do the work; at least one."""
        return max(1, self.replicas - self.unplaced)

    @property
    def main_size(self) -> ContainerSize | None:
        """The size of the container that does the work."""
        return self.sizes[self.main] if self.main < len(self.sizes) else None

    @property
    def cpu(self) -> float | None:
        """Cores that the main container of one pod can count on."""
        size = self.main_size
        return None if size is None else size.cpu

    @property
    def memory(self) -> float | None:
        """Bytes that the main container of one pod may use."""
        size = self.main_size
        return None if size is None else size.memory

    def requests_per_pod(self) -> tuple[float, float]:
        """Cores and bytes that one pod asks the scheduler for."""
        cpu = memory = 0.0
        for size in self.sizes:
            cpu += (size.cpu_request if size.cpu_request is not None else size.cpu_limit) or 0.0
            memory += (size.memory_request if size.memory_request is not None else size.memory_limit) or 0.0
        return cpu, memory


def count_unplaced(state: TargetState, replicas: int) -> int:
    """How many pods no node has room for once so many are wanted: of fewer, those go first, as a ReplicaSet has it."""
    return max(0, state.unplaced - max(0, state.replicas - replicas))
