"""The base of the faults of the cluster: what happens at the begin and at the end of each, and what it acts on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from trimtab.kube.kinds.pods import Resources
from trimtab.lab.faults.plan import Fault, FaultDetails, FaultInjector, FaultKind
from trimtab.lab.faults.trace import RunTrace
from trimtab.lab.faults.watch_faults import WatchHub
from trimtab.lab.faults.worlds import WorldSpec, draw_managed
from trimtab.lab.simulator.objects import SimulatedWorkload
from trimtab.lab.simulator.world import SimulatedWorld

CHANGES = ("annotate", "resize")
"""The calls of a change with which most faults begin."""


def draw_workload(rng: random.Random, world: WorldSpec) -> FaultDetails:
    """Draw a workload, a share of its pods and a factor."""
    return FaultDetails(
        target=str(draw_managed(rng, world)),
        share=rng.choice([0.5, 1.0, 1.0]),
        amount=rng.choice([1.2, 1.5, 2.0, 4.0]),
    )


def scale_resources(resources: Resources, factor: float) -> Resources:
    """Return resources multiplied by a factor, in whole millicores and MiB."""
    return Resources.from_pairs(
        resources.cpu.map(lambda amount: max(1, int(amount * factor))),
        resources.memory.map(lambda amount: max(1 << 20, int(amount * factor) >> 20 << 20)),
    )


@dataclass(slots=True)
class FaultContext:
    """Everything that a fault of the cluster acts on."""

    world: SimulatedWorld
    hub: WatchHub
    injector: FaultInjector
    trace: RunTrace
    memory: dict[int, object] = field(default_factory=dict)
    """The state that a fault keeps from its start to its end, by its seed."""

    def find_workload(self, fault: Fault) -> SimulatedWorkload | None:
        return next((each for key, each in self.world.workloads.items() if str(key) == fault.target), None)

    def touch(self, workload: SimulatedWorkload) -> None:
        """Have the workload's controller see a change."""
        workload.generation += 1
        self.world.enqueue(workload)
        self.world.process_due(self.world.control_time)


Handler = Callable[[FaultContext, Fault], None]


def nothing(context: FaultContext, fault: Fault) -> None:
    """Leave the cluster as it is: the fault only answers calls."""
    del context, fault


@dataclass(frozen=True, slots=True)
class ClusterFault:
    """A kind of fault with its begin and its end."""

    kind: FaultKind
    begin: Handler = nothing
    end: Handler = nothing
    every: float | None = None
    """The seconds after which `begin` is repeated while the fault lasts."""


def cluster_fault(
    name: str,
    sentence: str,
    begin: Handler = nothing,
    end: Handler = nothing,
    *,
    draw: Callable[[random.Random, WorldSpec], FaultDetails] = draw_workload,
    every: float | None = None,
    hides_usage: bool = False,
    calls: tuple[str, ...] = (),
    contract: str = "process",
    duration: tuple[float, float] = (300.0, 6 * 3600.0),
    weight: float = 1.0,
) -> ClusterFault:
    """Build a fault of the cluster; each argument is that of its kind."""
    kind = FaultKind(
        name=name,
        sentence=sentence,
        draw=draw,
        hides_usage=hides_usage,
        calls=calls,
        contract=contract,
        duration=duration,
        weight=weight,
    )
    return ClusterFault(kind, begin, end, every)
