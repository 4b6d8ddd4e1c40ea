"""ResourceQuotas and LimitRanges, kept by the simulated cluster, and by a real API server in tests/integration."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

import pytest

from testing.ports import MIB
from trimtab.actuation.port import ClusterPort
from trimtab.actuation.resources import container_sizes
from trimtab.kube.errors import Conflict, Forbidden, NotFound
from trimtab.kube.kinds.pods import Pod, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.client import Object


class LimitedNamespace(Protocol):
    """A namespace with a Deployment of two pods, whose container `main` has the resources SERVED."""

    @property
    def port(self) -> ClusterPort: ...

    async def workload(self, *, pods: int = 2) -> Workload:
        """Return the workload once it has so many pods."""
        ...

    async def denied(self) -> None:
        """Wait until the creation of a pod was denied."""
        ...

    async def add_quota(self, hard: Mapping[str, str]) -> None: ...

    async def add_limit_range(self, limit: Object) -> None: ...


async def _first_pod(namespace: LimitedNamespace) -> Pod:
    first, *_ = await namespace.port.list_pods(await namespace.workload())
    return first


async def _scale(namespace: LimitedNamespace, replicas: int) -> None:
    for _ in range(20):
        with suppress(Conflict):
            await namespace.port.scale(await namespace.workload(), replicas)
            return
    raise AssertionError("each of 20 attempts was a conflict")


async def test_quota_forbids_a_resize_that_adds_too_much(limited_namespace: LimitedNamespace) -> None:
    await limited_namespace.add_quota({"requests.cpu": "220m"})
    pod = await _first_pod(limited_namespace)
    with pytest.raises(Forbidden, match="exceeded quota"):
        await limited_namespace.port.resize(pod, {"main": Resources(130, 200, 64 * MIB, 128 * MIB)})
    resized = await limited_namespace.port.resize(pod, {"main": Resources(120, 200, 64 * MIB, 128 * MIB)})
    assert container_sizes(resized.containers)["main"].cpu_request == 120


async def test_quota_that_is_exceeded_permits_a_resize_to_less(limited_namespace: LimitedNamespace) -> None:
    await limited_namespace.workload()
    await limited_namespace.add_quota({"requests.cpu": "150m", "limits.memory": "100Mi"})
    pod = await _first_pod(limited_namespace)
    smaller = Resources(90, 200, 80 * MIB, 128 * MIB)  # memory requests are not in the quota
    resized = await limited_namespace.port.resize(pod, {"main": smaller})
    assert container_sizes(resized.containers)["main"] == smaller


async def test_quota_forbids_another_pod(limited_namespace: LimitedNamespace) -> None:
    await limited_namespace.add_quota({"limits.memory": "300Mi"})
    await _scale(limited_namespace, 3)
    await limited_namespace.denied()
    assert (await limited_namespace.workload(pods=2)).replicas == 3


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (Resources(100, 200, 64 * MIB, 160 * MIB), "maximum memory usage per Container"),
        (Resources(40, 200, 64 * MIB, 128 * MIB), "minimum cpu usage per Container"),
    ],
)
async def test_limit_range_forbids_resizes_beyond_it(
    limited_namespace: LimitedNamespace, resources: Resources, message: str
) -> None:
    await limited_namespace.workload()
    await limited_namespace.add_limit_range(
        {"type": "Container", "min": {"cpu": "50m"}, "max": {"memory": "150Mi"}}
    )
    pod = await _first_pod(limited_namespace)
    with pytest.raises(Forbidden, match=message):
        await limited_namespace.port.resize(pod, {"main": resources})


async def test_resize_of_a_pod_that_was_scaled_in_is_not_found(limited_namespace: LimitedNamespace) -> None:
    pod = await _first_pod(limited_namespace)
    await _scale(limited_namespace, 0)
    assert (await limited_namespace.workload(pods=0)).replicas == 0
    with pytest.raises(NotFound):
        await limited_namespace.port.resize(pod, {"main": Resources(110, 200, 64 * MIB, 128 * MIB)})
