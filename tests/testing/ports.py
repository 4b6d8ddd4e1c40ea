"""Parts under test, which are fakes in tests/testing and real in tests/integration/testing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from trimtab.actuation.port import ClusterPort
from trimtab.kube.cache.informer_set import InformerPort
from trimtab.kube.errors import Conflict
from trimtab.kube.kinds.pods import Pod, Resources
from trimtab.kube.kinds.workloads import Workload, WorkloadKey

MIB = 1 << 20
SERVED = Resources(100, 200, 64 * MIB, 128 * MIB)
"""The resources of the workload's only container, `main`."""


class ClusterUnderTest(Protocol):
    """A cluster with one Deployment of two pods."""

    @property
    def port(self) -> ClusterPort: ...

    @property
    def key(self) -> WorkloadKey: ...

    async def change_workload(self) -> None:
        """Change the workload as another client would."""
        ...

    async def change_pod(self, pod: Pod) -> None:
        """Change a pod as another client would."""
        ...

    async def workload(self) -> Workload:
        """Return the workload as soon as it has its pods."""
        ...


class InformersUnderTest(Protocol):
    """Informers, and a server whose ConfigMaps the test changes."""

    @property
    def informers(self) -> InformerPort: ...

    @property
    def namespace(self) -> str: ...

    async def create(self, name: str, labels: Mapping[str, str]) -> None: ...

    async def delete(self, name: str) -> None: ...

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until the informers have what was changed."""
        ...


async def write_fresh(cluster: ClusterUnderTest, write: Callable[[Workload], Awaitable[object]]) -> None:
    """Read and write until no controller was in between, as a reconciler does by its next attempt."""
    for _ in range(20):
        try:
            await write(await cluster.workload())
        except Conflict:
            continue
        return
    raise AssertionError("each of 20 attempts was a conflict")
