"""Workloads of every kind are folded to the same few fields, as the real API server sends them."""

import pytest

from kube.kinds.test_workloads import SPECS
from trimtab.kube.cache.list_pages import list_records
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import Workload, WorkloadKey, workload_projection
from trimtab.kube.rest.client import Client, PatchType
from trimtab.kube.rest.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)


async def read(client: Client, resource: Resource, namespace: str) -> Workload:
    shape = workload_projection(resource)
    return shape.project(await client.get(resource, "web", namespace=namespace, into=shape.wire_type))


@pytest.mark.parametrize("resource", SPECS, ids=str)
async def test_workload_of_each_kind_has_its_identity_and_pods(
    client: Client, namespace: str, resource: Resource
) -> None:
    metadata = {
        "name": "web",
        "labels": {"team": "a"},
        "annotations": {"trimtab.io/hold": "yes", "example.com/other": "no"},
    }
    await client.create(resource, {"metadata": metadata, "spec": SPECS[resource]}, namespace=namespace)
    found = await read(client, resource, namespace)
    assert found.key == WorkloadKey(resource.kind, namespace, "web")
    assert dict(found.labels)["team"] == "a"
    assert found.annotations == (("trimtab.io/hold", "yes"),)
    assert [(container.name, container.role) for container in found.containers] == [
        ("web", "main"),
        ("log", "sidecar"),
        ("wait", "init"),
    ]
    assert found.containers[0].resources == Resources(1500, None, 1 << 30, 2 << 30)
    assert found.containers[0].restart_on_memory_resize
    assert found.paused == (resource in (DEPLOYMENTS, JOBS, CRON_JOBS))
    assert not found.finished
    expected = {DEPLOYMENTS: 3, STATEFUL_SETS: 2, DAEMON_SETS: 0, REPLICA_SETS: 0, JOBS: 4, CRON_JOBS: 1}
    assert found.replicas == expected[resource]
    assert found.update_strategy == {
        DEPLOYMENTS: "RollingUpdate",
        STATEFUL_SETS: "OnDelete",
        DAEMON_SETS: "RollingUpdate",
    }.get(resource, "")


async def test_cron_job_stays_known_while_its_job_runs(client: Client, namespace: str) -> None:
    await client.create(
        CRON_JOBS, {"metadata": {"name": "web"}, "spec": SPECS[CRON_JOBS]}, namespace=namespace
    )
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "web-1", "namespace": namespace, "uid": "1"}
    await client.patch(
        CRON_JOBS,
        "web",
        {"status": {"active": [job]}},
        type=PatchType.MERGE,
        namespace=namespace,
        subresource="status",
    )
    listed = [
        found
        async for found in list_records(
            client, CRON_JOBS, workload_projection(CRON_JOBS), namespace=namespace
        )
    ]
    assert [found.name for found in listed] == ["web"]
