"""One step of a simulated cluster: containers run, usage is recorded, nodes come and go, and observers get the metrics."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.lab.simulator.autoscaler import Autoscaler
from trimtab.lab.simulator.metrics import ClusterMetrics, collect_metrics, count_nodes_needed
from trimtab.lab.simulator.usage_source import SimulatedUsageSource
from trimtab.lab.simulator.world import SimulatedWorld

NODE_COUNT_INTERVAL = 3600.0
"""Seconds after which the nodes that are needed are counted again."""

MetricsObserver = Callable[[ClusterMetrics], None]


class StepCycle:
    """Advances a simulated cluster step by step."""

    def __init__(
        self,
        world: SimulatedWorld,
        usage_source: SimulatedUsageSource,
        *,
        step: float,
        autoscale: bool = False,
    ) -> None:
        """Create a cycle with steps of this many seconds; with `autoscale` nodes are added and removed as needed."""
        self._world = world
        self._usage_source = usage_source
        self._step = step
        self._autoscaler = Autoscaler(world) if autoscale else None
        self._observers: list[MetricsObserver] = []
        self._needed, self._counted_at = 0, float("-inf")

    def subscribe(self, observer: MetricsObserver) -> None:
        """Call the observer with the metrics of every step from now on."""
        self._observers.append(observer)

    def run_once(self) -> None:
        """Advance the cluster by one step."""
        world = self._world
        world.step(self._step)
        self._usage_source.record_step()
        if self._autoscaler:
            self._autoscaler.reconcile()
        if world.now - self._counted_at >= NODE_COUNT_INTERVAL:
            self._needed, self._counted_at = count_nodes_needed(world), world.now
        found = collect_metrics(world, needed=self._needed)
        for observer in self._observers:
            observer(found)
