"""Simulate a cluster: nodes, the pods that fit, and the pods that wait for a node.

python examples/simulate_cluster.py
"""

import numpy as np

from trimtab.kube import Resources
from trimtab.lab import (
    GIB,
    ContainerSpec,
    NodePool,
    Scenario,
    SimulatedWorld,
    WorkloadSpec,
    collect_metrics,
    count_nodes_needed,
)
from trimtab.usage import Trace

# One series of demand, a day at 5-minute steps: half a core and 1 GiB for each replica.
demand = Trace(("steady",), 4 * 86400.0, 300.0, np.full((288, 1), 0.5), np.full((288, 1), GIB))
web = WorkloadSpec(
    name="web",
    replicas=20,
    containers=(
        ContainerSpec(demand_series=0, resources=Resources(cpu_request=1000, memory_request=2 << 30)),
    ),
)
scene = Scenario(pools=(NodePool(count=2, cpu=8, memory=32 * GIB),), workloads=(web,), demand=demand)

world = SimulatedWorld(scene, seed=1)
for name, left in zip(world.nodes.names, world.nodes.cpu_left, strict=True):
    print(f"{name}: {left / 1000:.2f} cores are not requested")
print(
    f"{len(world.pods)} pods, of which {len(world.pending)} are pending: they need {count_nodes_needed(world)} nodes"
)

world.step(300)
now = collect_metrics(world, needed=count_nodes_needed(world))
print(
    f"after a step: {now.cpu_requested:.0f} cores requested, {now.cpu_used:.1f} used, ${now.dollars_month:,.0f} a month"
)
