"""A cache that missed an event is found and repaired, by the informer that production runs, on a real API server."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from harness.e2e.informer_probe import HASTY, eventually, watching
from harness.faults.faultproxy import FaultProxy
from trimtab.kube.auth import load_connection
from trimtab.kube.cache.informer import WatchTimeouts
from trimtab.kube.cache.informer_set import InformerSet
from trimtab.kube.cache.list_pages import list_records
from trimtab.kube.cache.store import Cache
from trimtab.kube.cache.verifier import CacheVerifier
from trimtab.kube.kinds.metadata import Metadata, metadata_projection
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.resources import CONFIG_MAPS

OFTEN = replace(HASTY, idle_timeout=30.0, verify_interval=0.3)


def config_map(name: str) -> Object:
    return {"metadata": {"name": name}}


def drift() -> float:
    return REGISTRY.get_sample_value("trimtab_informer_drift_total", {"resource": "configmaps"}) or 0.0


def verified() -> float:
    return REGISTRY.get_sample_value("trimtab_informer_verified_total", {"resource": "configmaps"}) or 0.0


@pytest.mark.parametrize("event", ["ADDED", "MODIFIED", "DELETED"])
async def test_informer_finds_and_repairs_a_missed_event(
    client: Client, fault_proxy: FaultProxy, namespace: str, event: str
) -> None:
    if event != "ADDED":
        await client.create(CONFIG_MAPS, config_map("web"), namespace=namespace)
    async with watching(fault_proxy.kubeconfig, namespace, patience=OFTEN) as (informer, probe):
        await informer.wait_synced(timeout=30)
        old = informer.cache.get("web", namespace)
        before = drift()
        found_again = fault_proxy.swallow(b'"name":"web"')
        match event:
            case "ADDED":
                await client.create(CONFIG_MAPS, config_map("web"), namespace=namespace)
            case "MODIFIED":
                body = {"data": {"a": "b"}}
                kind = PatchType.MERGE
                await client.patch(CONFIG_MAPS, "web", body, type=kind, namespace=namespace)
            case _:
                await client.delete(CONFIG_MAPS, "web", namespace=namespace)
        # The watch goes on: what comes later is known, and what was lost is not.
        await client.create(CONFIG_MAPS, config_map("later"), namespace=namespace)
        await eventually(lambda: informer.cache.get("later", namespace) is not None, what="the watch goes on")
        assert informer.cache.get("web", namespace) is old
        found_again()
        with capture_logs() as logs:
            await eventually(
                lambda: informer.cache.get("web", namespace) is not old, what="the missed event is repaired"
            )
        assert drift() == before + 1
        [line] = [each for each in logs if each["event"] == "informer.drift_found"]
        assert line["objects"] == [f"{namespace}/web"]
        assert (informer.cache.get("web", namespace) is None) is (event == "DELETED")
        assert probe.faults == []


async def test_informer_finds_no_drift_while_objects_come_and_go(
    client: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    """The cache is always a moment behind the server, which is no missed event."""
    timeouts = replace(OFTEN, verify_interval=0.02)
    async with watching(fault_proxy.kubeconfig, namespace, patience=timeouts) as (informer, probe):
        await informer.wait_synced(timeout=30)
        before, compared = drift(), verified()

        async def come_and_go(which: int) -> None:
            for turn in range(15):
                name = f"c-{which}-{turn % 3}"
                with suppress(Exception):
                    await client.create(CONFIG_MAPS, config_map(name), namespace=namespace)
                body = {"data": {"turn": str(turn)}}
                with suppress(Exception):
                    await client.patch(CONFIG_MAPS, name, body, type=PatchType.MERGE, namespace=namespace)
                if turn % 2:
                    with suppress(Exception):
                        await client.delete(CONFIG_MAPS, name, namespace=namespace)

        await asyncio.gather(*map(come_and_go, range(5)))
        await eventually(lambda: verified() > compared + 50, what="many objects are compared")
        assert drift() == before
        assert probe.faults == []


async def test_verifier_compares_all_pages_in_turn(client: Client, namespace: str) -> None:
    for name in "abcdef":
        await client.create(CONFIG_MAPS, config_map(name), namespace=namespace)
    projection = metadata_projection()
    cache: Cache[Metadata] = Cache()

    async def passed(version: int) -> bool:
        return version > 0

    def verifier() -> CacheVerifier[Metadata]:
        return CacheVerifier(
            client,
            CONFIG_MAPS,
            projection,
            cache,
            namespace=namespace,
            labels="",
            fields="metadata.name!=kube-root-ca.crt",
            name="paged",
            passed=passed,
            page_size=2,
        )

    async for record in list_records(client, CONFIG_MAPS, projection, namespace=namespace):
        if record.name != "kube-root-ca.crt":
            cache.put(record)
    assert len(cache) == 6
    ours = verifier()
    assert [await ours.check() for _ in range(8)] == [False] * 8  # twice round
    await client.delete(CONFIG_MAPS, "e", namespace=namespace)
    assert [await ours.check() for _ in range(6)].count(True) >= 1
    gone = cache.get("e", namespace)
    assert gone is not None
    cache.remove(gone)
    await client.delete(CONFIG_MAPS, "f", namespace=namespace)  # the last, which no page can end with
    ours = verifier()
    assert True in [await ours.check() for _ in range(4)]


async def test_informer_set_repairs_a_missed_event_of_each_resource(
    client: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    async with Client(load_connection(kubeconfig=fault_proxy.kubeconfig)) as watcher:
        informers = InformerSet(watcher, timeouts=OFTEN)
        cache = informers.watch_resource(CONFIG_MAPS, metadata_projection())
        running = asyncio.create_task(informers.run())
        await informers.wait_synced()
        found_again = fault_proxy.swallow(b'"name":"lost"')
        await client.create(CONFIG_MAPS, config_map("lost"), namespace=namespace)
        await client.create(CONFIG_MAPS, config_map("later"), namespace=namespace)
        await eventually(lambda: cache.get("later", namespace) is not None, what="the watch goes on")
        found_again()
        await eventually(lambda: cache.get("lost", namespace) is not None, what="the event is repaired")
        running.cancel()
        await asyncio.wait([running])
    assert WatchTimeouts().verify_interval <= 600, "production compares too"
