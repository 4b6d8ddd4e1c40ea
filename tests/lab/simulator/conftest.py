"""A simulated namespace with a Deployment, for the tests of quotas and LimitRanges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from lab.simulator.test_namespace_limits import LimitedNamespace
from testing.ports import MIB, SERVED
from trimtab.actuation.port import ClusterPort
from trimtab.api.quantity import GIB
from trimtab.kube.kinds.quotas import limit_range_projection, resource_quota_projection
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.client import Object
from trimtab.lab.simulator.fake_cluster import SimulatedCluster
from trimtab.lab.simulator.scenario import ContainerSpec, NodePool, Scenario, WorkloadSpec
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.usage.trace import Trace


@dataclass
class _SimulatedNamespace:
    world: SimulatedWorld
    port: ClusterPort

    async def workload(self, *, pods: int = 2) -> Workload:
        self.world.step(60.0)
        (found,) = self.world.workloads.values()
        assert len(found.pods) == pods
        return found.to_record()

    async def denied(self) -> None:
        assert "FailedCreate" in {event.reason for event in self.world.events}

    async def add_quota(self, hard: Mapping[str, str]) -> None:
        projection = resource_quota_projection()
        wire = {
            "metadata": {"name": "quota", "namespace": "default", "resourceVersion": "1"},
            "status": {"hard": dict(hard)},
        }
        quota = projection.project(msgspec.convert(wire, projection.wire_type))
        self.world.quotas["default"] = quota

    async def add_limit_range(self, limit: Object) -> None:
        projection = limit_range_projection()
        wire = {
            "metadata": {"name": "limits", "namespace": "default", "resourceVersion": "1"},
            "spec": {"limits": [limit]},
        }
        self.world.limit_ranges["default"] = projection.project(msgspec.convert(wire, projection.wire_type))


@pytest.fixture
def limited_namespace() -> LimitedNamespace:
    demand = Trace(
        names=("main",), start=0.0, step=60.0, cpu=np.full((60, 1), 0.01), memory=np.full((60, 1), 1.0 * MIB)
    )
    web = WorkloadSpec(
        name="web",
        replicas=2,
        containers=(ContainerSpec(demand_series=0, resources=SERVED),),
        startup_seconds=0.0,
    )
    world = SimulatedWorld(
        Scenario(pools=(NodePool(count=1, cpu=8, memory=16 * GIB),), workloads=(web,), demand=demand)
    )
    return _SimulatedNamespace(world, SimulatedCluster(world))
