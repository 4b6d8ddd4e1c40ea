"""The rules of the port to a cluster, which the fake keeps and tests/integration/testing holds the API server to."""

import pytest

from testing.ports import MIB, SERVED, ClusterUnderTest, write_fresh
from trimtab.actuation.resources import container_sizes
from trimtab.kube.errors import Conflict, Invalid
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey

LARGER = Resources(150, 200, 96 * MIB, 128 * MIB)


async def test_cluster_returns_no_workload_that_does_not_exist(cluster_under_test: ClusterUnderTest) -> None:
    key = WorkloadKey("Deployment", cluster_under_test.key.namespace, "missing")
    assert await cluster_under_test.port.get_workload(key) is None


async def test_cluster_lists_the_pods_of_a_workload(cluster_under_test: ClusterUnderTest) -> None:
    workload = await cluster_under_test.workload()
    pods = await cluster_under_test.port.list_pods(workload)
    assert len(pods) == workload.replicas == 2
    assert {container_sizes(pod.containers)["main"] for pod in pods} == {SERVED}


async def test_cluster_resizes_one_pod(cluster_under_test: ClusterUnderTest) -> None:
    port, workload = cluster_under_test.port, await cluster_under_test.workload()
    first, *_ = await port.list_pods(workload)
    await port.resize(first, {"main": LARGER})
    sizes = {pod.uid: container_sizes(pod.containers)["main"] for pod in await port.list_pods(workload)}
    assert sizes.pop(first.uid) == LARGER
    assert set(sizes.values()) == {SERVED}


async def test_cluster_rejects_the_resize_of_a_pod_that_has_changed(
    cluster_under_test: ClusterUnderTest,
) -> None:
    port, workload = cluster_under_test.port, await cluster_under_test.workload()
    first, *_ = await port.list_pods(workload)
    await cluster_under_test.change_pod(first)
    with pytest.raises(Conflict):
        await port.resize(first, {"main": LARGER})


@pytest.mark.parametrize(
    "resources",
    [
        pytest.param(Resources(201, 200, 64 * MIB, 128 * MIB), id="request above the limit"),
        pytest.param(Resources(200, 200, 128 * MIB, 128 * MIB), id="another QoS class"),
    ],
)
async def test_cluster_rejects_invalid_resizes(
    cluster_under_test: ClusterUnderTest, resources: Resources
) -> None:
    port, workload = cluster_under_test.port, await cluster_under_test.workload()
    first, *_ = await port.list_pods(workload)
    with pytest.raises(Invalid):
        await port.resize(first, {"main": resources})


async def test_cluster_replaces_an_evicted_pod_once(cluster_under_test: ClusterUnderTest) -> None:
    port, workload = cluster_under_test.port, await cluster_under_test.workload()
    first, *_ = await port.list_pods(workload)
    await port.evict(first)
    pods = await port.list_pods(await cluster_under_test.workload())
    assert len(pods) == 2
    assert first.uid not in {pod.uid for pod in pods}
    await port.evict(first)
    assert {pod.uid for pod in await port.list_pods(workload)} == {pod.uid for pod in pods}


async def test_cluster_scales_a_workload(cluster_under_test: ClusterUnderTest) -> None:
    await write_fresh(cluster_under_test, lambda workload: cluster_under_test.port.scale(workload, 3))
    workload = await cluster_under_test.workload()
    assert workload.replicas == len(await cluster_under_test.port.list_pods(workload)) == 3


async def test_cluster_rejects_a_scale_from_an_old_number_of_replicas(
    cluster_under_test: ClusterUnderTest,
) -> None:
    before = await cluster_under_test.workload()
    await write_fresh(cluster_under_test, lambda workload: cluster_under_test.port.scale(workload, 3))
    with pytest.raises(Conflict):
        await cluster_under_test.port.scale(before, 1)


async def test_cluster_replaces_our_annotations(cluster_under_test: ClusterUnderTest) -> None:
    port = cluster_under_test.port
    await write_fresh(
        cluster_under_test, lambda found: port.annotate(found, {"trimtab.io/a": "1", "trimtab.io/b": "2"})
    )
    await write_fresh(cluster_under_test, lambda found: port.annotate(found, {"trimtab.io/b": "3"}))
    found = dict((await cluster_under_test.workload()).annotations)
    assert {key: value for key, value in found.items() if key.startswith("trimtab.io/")} == {
        "trimtab.io/b": "3"
    }


async def test_cluster_rejects_annotations_of_a_workload_that_has_changed(
    cluster_under_test: ClusterUnderTest,
) -> None:
    workload = await cluster_under_test.workload()
    await cluster_under_test.change_workload()
    with pytest.raises(Conflict):
        await cluster_under_test.port.annotate(workload, {"trimtab.io/a": "1"})


async def test_cluster_gives_new_pods_the_patched_template(cluster_under_test: ClusterUnderTest) -> None:
    port = cluster_under_test.port
    await write_fresh(
        cluster_under_test,
        lambda workload: port.patch_template(workload, {"main": LARGER}, take_ownership=True),
    )
    workload = await port.get_workload(cluster_under_test.key)
    assert workload is not None
    assert container_sizes(workload.containers)["main"] == LARGER
