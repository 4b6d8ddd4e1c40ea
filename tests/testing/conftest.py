"""The fakes of `trimtab.testing`; tests/integration/testing gives the same tests their real counterparts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from harness.builders.records import project_object
from testing.ports import SERVED, ClusterUnderTest, InformersUnderTest
from trimtab.actuation.port import ClusterPort
from trimtab.kube.kinds.metadata import metadata_projection
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.resources import CONFIG_MAPS
from trimtab.testing import FakeCluster, FakeInformerSet, FakePromql
from trimtab.usage.source import PromqlClient


@pytest.fixture
def promql() -> PromqlClient:
    """Return a client of a server with two series `depth`, of queues a and b: 1 and 2."""
    return FakePromql({"depth": [({"queue": "a"}, 1.0), ({"queue": "b"}, 2.0)], "sum(depth)": 3.0})


@dataclass
class _FakeClusterUnderTest:
    port: ClusterPort
    fake: FakeCluster
    key: WorkloadKey

    async def change_workload(self) -> None:
        self.fake.change_workload(self.key)

    async def change_pod(self, pod: Pod) -> None:
        self.fake.change_pod(pod)

    async def workload(self) -> Workload:
        found = await self.fake.get_workload(self.key)
        assert found is not None
        return found


@pytest.fixture
def cluster_under_test() -> ClusterUnderTest:
    spec = FakeCluster.workload("web", SERVED, replicas=2)
    fake = FakeCluster(spec)
    fake.advance(60)
    return _FakeClusterUnderTest(fake, fake, spec.key)


@dataclass
class _FakeInformersUnderTest:
    informers: FakeInformerSet
    namespace: str = "shop"
    _version: int = 0

    async def create(self, name: str, labels: Mapping[str, str]) -> None:
        self._version += 1
        metadata = {
            "name": name,
            "namespace": self.namespace,
            "uid": f"uid-{self._version}",
            "resourceVersion": str(self._version),
            "labels": dict(labels),
        }
        self.informers.put(CONFIG_MAPS, project_object(metadata_projection(), {"metadata": metadata}))

    async def delete(self, name: str) -> None:
        self._version += 1
        metadata = {"name": name, "namespace": self.namespace, "resourceVersion": str(self._version)}
        self.informers.remove(CONFIG_MAPS, project_object(metadata_projection(), {"metadata": metadata}))

    async def until(self, is_true: Callable[[], bool]) -> None:
        assert is_true()


@pytest.fixture
def informers_under_test() -> InformersUnderTest:
    return _FakeInformersUnderTest(FakeInformerSet())
