"""Small scenes for tests: a few workloads on a few nodes, with demand that is easy to reckon with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.kube.kinds.pods import Resources
from trimtab.lab.simulator.scenario import ContainerSpec, NodePool, Scenario, ServiceSpec, WorkloadSpec
from trimtab.usage.trace import Trace

GIB = 1 << 30
MIB = 1 << 20
STEP = 300.0


def flat(*pairs: tuple[float, float], steps: int = 12) -> Trace:
    """Demand that never changes: cores and bytes of each series."""
    cpu, memory = (np.tile(np.array([pair[place] for pair in pairs], float), (steps, 1)) for place in (0, 1))
    return Trace(tuple(f"s{place}" for place in range(len(pairs))), 4 * 86400.0, STEP, cpu, memory)


def sized(
    cpu: int | None, memory: int | None, cpu_limit: int | None = None, memory_limit: int | None = None
) -> Resources:
    return Resources(cpu, cpu_limit, memory, memory_limit)


def workload(
    name: str, resources: Resources, *, series: int = 0, replicas: int = 1, service: ServiceSpec | None = None
) -> WorkloadSpec:
    return WorkloadSpec(
        name=name,
        replicas=replicas,
        containers=(ContainerSpec(demand_series=series, resources=resources),),
        service=service,
    )


def scene(workloads: Sequence[WorkloadSpec], demand: Trace, *, nodes: int = 2, cpu: float = 4.0) -> Scenario:
    pool = NodePool(count=nodes, cpu=cpu, memory=16.0 * GIB)
    return Scenario(pools=(pool,), workloads=tuple(workloads), demand=demand, noise=0.0)
