"""The lab: simulator, workload generators, environments, training, back-tests and the emulator."""

from typing import TYPE_CHECKING

from trimtab.lazy import lazy_exports

if TYPE_CHECKING:
    from trimtab.api.quantity import GIB
    from trimtab.lab.emulator import EmulationConfig, LoadProfile, StressStrategy, run_stress
    from trimtab.lab.simulator.cluster_generator import generate_cluster, generate_cluster_from_trace
    from trimtab.lab.simulator.comparison import load_policies
    from trimtab.lab.simulator.fake_cluster import SimulatedCluster
    from trimtab.lab.simulator.metrics import collect_metrics, count_nodes_needed
    from trimtab.lab.simulator.scenario import (
        ContainerSpec,
        NodePool,
        Scenario,
        ServiceSpec,
        WorkloadSpec,
    )
    from trimtab.lab.simulator.simulation import Simulation
    from trimtab.lab.simulator.world import SimulatedWorld
    from trimtab.lab.workloads import WorkloadLibrary, generate

__all__ = [
    "GIB",
    "ContainerSpec",
    "EmulationConfig",
    "LoadProfile",
    "NodePool",
    "Scenario",
    "ServiceSpec",
    "SimulatedCluster",
    "SimulatedWorld",
    "Simulation",
    "StressStrategy",
    "WorkloadLibrary",
    "WorkloadSpec",
    "collect_metrics",
    "count_nodes_needed",
    "generate",
    "generate_cluster",
    "generate_cluster_from_trace",
    "load_policies",
    "run_stress",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "GIB": "scores",
        "ContainerSpec": "simulator.scenario",
        "EmulationConfig": "emulator",
        "LoadProfile": "emulator",
        "NodePool": "simulator.scenario",
        "Scenario": "simulator.scenario",
        "ServiceSpec": "simulator.scenario",
        "SimulatedCluster": "simulator.fake_cluster",
        "SimulatedWorld": "simulator.world",
        "Simulation": "simulator.simulation",
        "StressStrategy": "emulator",
        "WorkloadLibrary": "workloads",
        "WorkloadSpec": "simulator.scenario",
        "collect_metrics": "simulator.metrics",
        "count_nodes_needed": "simulator.metrics",
        "generate": "workloads",
        "generate_cluster": "simulator.cluster_generator",
        "generate_cluster_from_trace": "simulator.cluster_generator",
        "load_policies": "simulator.comparison",
        "run_stress": "emulator",
    },
)
