"""Resize a pod of a simulated cluster in place, see a resize rejected, an OOM kill and an eviction.

python examples/simulate_pods.py
"""

import asyncio

import numpy as np

from trimtab.kube import Resources
from trimtab.lab import GIB, ContainerSpec, NodePool, Scenario, SimulatedCluster, SimulatedWorld, WorkloadSpec
from trimtab.usage import Trace

MIB = 1 << 20


async def main() -> None:
    """Use the only pod of a workload that needs 300 MiB, and from the fourth step on 700 MiB."""
    memory = np.array([300.0] * 3 + [700.0] * 3)[:, None] * MIB
    demand = Trace(("grows",), 4 * 86400.0, 300.0, np.full((6, 1), 0.2), memory)
    first = Resources(cpu_request=500, memory_request=512 * MIB, memory_limit=512 * MIB)
    spec = WorkloadSpec(name="app", containers=(ContainerSpec(demand_series=0, resources=first),))
    scene = Scenario(
        pools=(NodePool(count=2, cpu=4, memory=16 * GIB),), workloads=(spec,), demand=demand, noise=0
    )
    world = SimulatedWorld(scene)
    cluster = SimulatedCluster(world)
    workload = await cluster.get_workload(spec.key)
    assert workload is not None

    world.step(300)
    (pod,) = await cluster.list_pods(workload)
    await cluster.resize(pod, {"main": Resources(250, None, 512 * MIB, 512 * MIB)})
    world.step(300)
    (pod,) = await cluster.list_pods(workload)
    print(f"{pod.name} on {pod.node} has {pod.container_statuses[0].actual_resources}")

    await cluster.resize(pod, {"main": Resources(250, None, 128 * MIB, 128 * MIB)})
    world.step(300)
    (pod,) = await cluster.list_pods(workload)
    print(f"less memory than it uses: {pod.resize.reason}: {pod.resize.message}" if pod.resize else "resized")

    world.step(300)
    (pod,) = await cluster.list_pods(workload)
    print(
        f"more memory than its limit: {pod.container_statuses[0].restarts} restart, {pod.container_statuses[0].last_termination}"
    )

    await cluster.evict(pod)
    (other,) = await cluster.list_pods(workload)
    print(f"evicted {pod.name}, and {other.name} replaces it")


asyncio.run(main())
