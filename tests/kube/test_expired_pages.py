"""A list that takes longer than the server remembers: the token for its next page expires while it is read."""

import asyncio

import pytest

from harness.cluster import etcd
from harness.cluster.cluster import Cluster
from harness.cluster.port import ApiServer
from harness.e2e.informer_probe import eventually, watching
from harness.fake_api.server import FakeApiServer
from harness.faults import faults
from harness.faults.faultproxy import FaultProxy
from harness.faults.faults import Asked
from trimtab.kube.auth import load_connection
from trimtab.kube.cache import informer as informing
from trimtab.kube.cache.list_pages import PageDecoder, list_records
from trimtab.kube.errors import Gone
from trimtab.kube.kinds.metadata import metadata_projection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import CONFIG_MAPS

NAMES = [f"m{number:03}" for number in range(9)]
OURS = "metadata.name!=kube-root-ca.crt"


def compact(cluster: ApiServer) -> None:
    """Let the server forget its snapshots."""
    if isinstance(cluster, FakeApiServer):
        cluster.compact()
    else:
        assert isinstance(cluster, Cluster)
        etcd.compact(cluster.etcd)
        cluster.kill_apiserver()  # it keeps snapshots of its own for a while
        cluster.start_apiserver()


def is_continued(asked: Asked) -> bool:
    return "continue" in asked.query


def is_streamed_list(asked: Asked) -> bool:
    return "sendInitialEvents" in asked.query


async def fill(client: Client, namespace: str, *, count: int = len(NAMES)) -> set[str]:
    names = [f"m{number:03}" for number in range(count)]
    for name in names:
        await client.create(CONFIG_MAPS, {"metadata": {"name": name}}, namespace=namespace)
    return set(names)


async def test_list_pages_continue_with_current_objects_after_the_snapshot_expired(
    client: Client, cluster: ApiServer, namespace: str
) -> None:
    await fill(client, namespace)
    decoder = PageDecoder(CONFIG_MAPS, metadata_projection())
    patient = client.list_pages(CONFIG_MAPS, namespace=namespace, fields=OURS, limit=3)
    strict = client.list_pages(CONFIG_MAPS, namespace=namespace, fields=OURS, limit=3, consistent=True)
    found = [record.name for record in decoder.decode(await anext(patient))[0]]
    await anext(strict)
    await client.delete(CONFIG_MAPS, "m000", namespace=namespace)
    await client.create(CONFIG_MAPS, {"metadata": {"name": "new"}}, namespace=namespace)
    await asyncio.to_thread(compact, cluster)
    async for page in patient:
        found += [record.name for record in decoder.decode(page)[0]]
    assert found == [*NAMES, "new"]
    with pytest.raises(Gone):
        await anext(strict)


async def test_records_come_once_each_when_the_server_cannot_give_the_rest_of_an_expired_list(
    client: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    wanted = await fill(client, namespace, count=510)
    fault_proxy.fail_next(faults.status(410), match=is_continued)
    async with Client(load_connection(kubeconfig=fault_proxy.kubeconfig)) as far:
        found = [
            each.name
            async for each in list_records(
                far, CONFIG_MAPS, metadata_projection(), namespace=namespace, fields=OURS
            )
        ]
        assert len(found) == len(wanted)
        assert set(found) == wanted
        fault_proxy.fail_next(faults.status(410), match=is_continued, count=99)
        with pytest.raises(Gone):
            _ = [
                each
                async for each in list_records(far, CONFIG_MAPS, metadata_projection(), namespace=namespace)
            ]


async def test_informer_lists_in_one_piece_after_its_pages_expired(
    client: Client, fault_proxy: FaultProxy, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it would be begun, a list that takes too long page by page takes too long."""
    monkeypatch.setattr(informing, "_PAGE_SIZE", 3)
    wanted = await fill(client, namespace)
    fault_proxy.fail_next(faults.status(400), count=99, match=is_streamed_list)
    fault_proxy.fail_next(faults.status(410), count=100_000, match=is_continued)
    async with watching(fault_proxy.kubeconfig, namespace) as (informer, probe):
        await informer.wait_synced(timeout=30)
        assert {record.name for record in informer.cache} == wanted
        await client.delete(CONFIG_MAPS, "m007", namespace=namespace)
        await eventually(lambda: len(informer.cache) == len(wanted) - 1, what="the watch goes on")
        assert probe.faults == []
        assert informer.last_error is None
