"""The lab: simulator, workload generators, environments, training, back-tests and the emulator."""

from typing import TYPE_CHECKING

from trimtab.lazy import lazy_exports

if TYPE_CHECKING:
    from trimtab.lab.simulator.cluster_generator import generate_cluster, generate_cluster_from_trace
    from trimtab.lab.simulator.scenario import ContainerSpec, NodePool, Scenario, ServiceSpec, WorkloadSpec
    from trimtab.lab.simulator.simulation import Simulation
    from trimtab.lab.simulator.world import SimulatedWorld
    from trimtab.lab.workloads import WorkloadLibrary, generate

__all__ = [
    "ContainerSpec",
    "NodePool",
    "Scenario",
    "ServiceSpec",
    "SimulatedWorld",
    "Simulation",
    "WorkloadLibrary",
    "WorkloadSpec",
    "generate",
    "generate_cluster",
    "generate_cluster_from_trace",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "ContainerSpec": "simulator.scenario",
        "NodePool": "simulator.scenario",
        "Scenario": "simulator.scenario",
        "ServiceSpec": "simulator.scenario",
        "SimulatedWorld": "simulator.world",
        "Simulation": "simulator.simulation",
        "WorkloadLibrary": "workloads",
        "WorkloadSpec": "simulator.scenario",
        "generate": "workloads",
        "generate_cluster": "simulator.cluster_generator",
        "generate_cluster_from_trace": "simulator.cluster_generator",
    },
)
