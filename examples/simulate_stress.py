"""Run a stress test without a node: a container follows a workload until its limits throttle or kill it.

    python examples/simulate_stress.py

`trimtab stress` lets a real pod on a real node follow the same workload.
"""

from trimtab.kube import Resources
from trimtab.lab import GIB, ContainerSpec, NodePool, Scenario, SimulatedWorld, WorkloadSpec, generate

MIB = 1 << 20

# An hour with a new level every ten minutes and a sample every minute.
workload = generate("step", seed=5, step=60.0, duration=3600.0, hold=600.0, regular=True)
tight = Resources(cpu_request=300, cpu_limit=500, memory_request=256 * MIB, memory_limit=420 * MIB)
spec = WorkloadSpec(
    name="stress", containers=(ContainerSpec(demand_series=0, resources=tight),), startup_seconds=1.0
)
scene = Scenario(
    pools=(NodePool(count=1, cpu=2, memory=4 * GIB),), workloads=(spec,), demand=workload.to_trace(), noise=0
)
world = SimulatedWorld(scene)
print("minute  needed       used         throttled  restarts")
for minute in range(60):
    world.step(60.0)
    if minute % 5 == 4:
        (pod,) = world.pods.values()
        row, containers = pod.rows[0], world.container_arrays.containers
        print(
            f"{minute + 1:6}  {world.container_arrays.cpu_demand[row]:.2f} {world.container_arrays.memory_demand[row] / MIB:4.0f} MiB"
            f"  {containers.cpu[row]:.2f} {containers.memory[row] / MIB:4.0f} MiB"
            f"  {containers.throttled[row]:9.0%}  {pod.restarts[0]:8}"
        )
