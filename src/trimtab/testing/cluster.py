"""A simulated cluster behind the port of actuation, for tests of whatever resizes, evicts, scales or annotates."""

from __future__ import annotations

import numpy as np

from trimtab.api.quantity import GIB
from trimtab.kube.kinds.pods import Pod, Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lab.simulator.fake_cluster import SimulatedCluster
from trimtab.lab.simulator.scenario import ContainerSpec, NodePool, Scenario, WorkloadSpec
from trimtab.lab.simulator.world import SimulatedEvent, SimulatedWorld
from trimtab.usage.trace import Trace

_STEP_SECONDS = 5.0
_STEADY_USE = (0.05, 32.0 * (1 << 20))
"""The cores and bytes that each container uses, unless a test gives a trace."""


class FakeCluster(SimulatedCluster):
    """Implements `trimtab.actuation.port.ClusterPort`; a scheduler, kubelets and controllers run in simulated time.

    A write based on an old version is a Conflict, a pod that is gone is NotFound, and a resize that the API server
    would reject is Invalid. What takes time in a cluster takes `advance` here.
    """

    def __init__(
        self,
        *workloads: WorkloadSpec,
        nodes: int = 2,
        cores: float = 4.0,
        memory: float = 16.0 * GIB,
        demand: Trace | None = None,
    ) -> None:
        if demand is None:
            cpu, bytes_ = (np.full((12, 1), use) for use in _STEADY_USE)
            demand = Trace(("steady",), 0.0, 300.0, cpu, bytes_)
        pool = NodePool(count=nodes, cpu=cores, memory=memory)
        self.world = SimulatedWorld(Scenario(pools=(pool,), workloads=workloads, demand=demand, noise=0.0))
        super().__init__(self.world)

    @staticmethod
    def workload(
        name: str,
        resources: Resources,
        *,
        namespace: str = "default",
        replicas: int = 1,
        max_unavailable: int | None = None,
        restart_on_memory_resize: bool = False,
    ) -> WorkloadSpec:
        """Return a Deployment of one container `main`, to be given to the constructor."""
        container = ContainerSpec(
            demand_series=0, resources=resources, restart_on_memory_resize=restart_on_memory_resize
        )
        return WorkloadSpec(
            name=name,
            namespace=namespace,
            replicas=replicas,
            containers=(container,),
            max_unavailable=max_unavailable,
        )

    @property
    def now(self) -> float:
        """The simulated time, in seconds since 1970."""
        return self.world.now

    @property
    def events(self) -> list[SimulatedEvent]:
        """The events of the cluster and of what acted on it, oldest first."""
        return self.world.events

    def advance(self, seconds: float) -> None:
        """Let time pass: pods start, resizes are decided, rollouts go on."""
        end = self.world.now + seconds
        while self.world.now < end:
            self.world.step(min(_STEP_SECONDS, end - self.world.now))

    def change_workload(self, key: WorkloadKey) -> None:
        """Change a workload as another client would, so that what was read before is old."""
        self.world.mark_changed(self.world.workloads[key])

    def change_pod(self, pod: Pod) -> None:
        """Change a pod as another client would."""
        self.world.mark_changed(self.world.pods[pod.uid])
