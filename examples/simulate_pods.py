"""Pods in a simulated cluster: resize one in place, be refused, run out of memory, be evicted.

python examples/simulate_pods.py
"""

import asyncio

import numpy as np

from trimtab.kube.kinds.pods import Resources
from trimtab.lab.simulator.fake_cluster import SimulatedCluster
from trimtab.lab.simulator.scenario import GIB, ContainerSpec, NodePool, Scene, WorkloadSpec
from trimtab.lab.simulator.world import World
from trimtab.usage.trace import Trace

MIB = 1 << 20


async def main() -> None:
    """Do it all to the one pod of a workload that holds 300 MiB, and from the fourth step on 700 MiB."""
    memory = np.array([300.0] * 3 + [700.0] * 3)[:, None] * MIB
    demand = Trace(("grows",), 4 * 86400.0, 300.0, np.full((6, 1), 0.2), memory)
    first = Resources(cpu_request=500, memory_request=512 * MIB, memory_limit=512 * MIB)
    spec = WorkloadSpec(name="app", containers=(ContainerSpec(series=0, resources=first),))
    scene = Scene(
        pools=(NodePool(count=2, cpu=4, memory=16 * GIB),), workloads=(spec,), demand=demand, noise=0
    )
    world = World(scene)
    cluster = SimulatedCluster(world)
    workload = await cluster.workload(spec.key)
    assert workload is not None

    world.step(300)
    (pod,) = await cluster.pods(workload)
    await cluster.resize(pod, {"main": Resources(250, None, 512 * MIB, 512 * MIB)})
    world.step(300)
    (pod,) = await cluster.pods(workload)
    print(f"{pod.name} on {pod.node} has {pod.states[0].applied}")

    await cluster.resize(pod, {"main": Resources(250, None, 128 * MIB, 128 * MIB)})
    world.step(300)
    (pod,) = await cluster.pods(workload)
    print(
        f"less memory than it holds: {pod.resize.reason}: {pod.resize.message}" if pod.resize else "resized"
    )

    world.step(300)
    (pod,) = await cluster.pods(workload)
    print(f"more memory than its limit: {pod.states[0].restarts} restart, {pod.states[0].last_exit}")

    await cluster.evict(pod)
    (other,) = await cluster.pods(workload)
    print(f"evicted {pod.name}, and {other.name} takes its place")


asyncio.run(main())
