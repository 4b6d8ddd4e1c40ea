"""Scale a Deployment in a simulated cluster, change its template, and watch the rollout.

python examples/simulate_deployment.py
"""

import asyncio

import numpy as np

from trimtab.kube import Resources
from trimtab.lab import (
    GIB,
    ContainerSpec,
    NodePool,
    Scenario,
    ServiceSpec,
    SimulatedCluster,
    SimulatedWorld,
    WorkloadSpec,
)
from trimtab.usage import Trace


async def main() -> None:
    """Start with four replicas that each need a core; fewer replicas share the same load."""
    demand = Trace(("busy",), 4 * 86400.0, 300.0, np.full((12, 1), 1.0), np.full((12, 1), GIB / 2))
    size = Resources(cpu_request=1500, cpu_limit=2500, memory_request=1 << 30)
    spec = WorkloadSpec(
        name="shop",
        replicas=4,
        containers=(ContainerSpec(demand_series=0, resources=size),),
        service=ServiceSpec(cpu_seconds=0.02, latency_objective=0.5),
    )
    world = SimulatedWorld(
        Scenario(
            pools=(NodePool(count=4, cpu=8, memory=32 * GIB),), workloads=(spec,), demand=demand, noise=0
        )
    )
    cluster = SimulatedCluster(world)
    for replicas in (4, 2, 6):
        found = await cluster.get_workload(spec.key)
        assert found is not None
        await cluster.scale(found, replicas)
        world.step(300)
        world.step(300)
        print(f"{replicas} replicas: 99 % of requests take at most {world.latencies[0, -1] * 1000:.0f} ms")

    found = await cluster.get_workload(spec.key)
    assert found is not None
    await cluster.patch_template(found, {"main": Resources(1000, 2500, 1 << 30, None)}, take_ownership=False)
    for seconds in range(0, 60, 5):
        world.process_due(world.now + seconds)
        found = await cluster.get_workload(spec.key)
        assert found is not None
        print(f"{seconds:2} s: {found.updated_replicas} have the new template, {found.ready_replicas} ready")
        if not found.is_rolling_out:
            break


asyncio.run(main())
