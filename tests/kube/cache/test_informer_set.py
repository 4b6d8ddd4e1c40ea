"""The informer set watches resources as long as discovery lists them, which may take a while."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from harness.e2e.informer_probe import HASTY, eventually
from harness.faults import faults
from harness.faults.faultproxy import FaultProxy
from trimtab.kube.auth import load_connection
from trimtab.kube.cache import informer_set
from trimtab.kube.cache.informer import Scope
from trimtab.kube.cache.informer_set import GRANT_GET, GRANT_RIGHTS, NOT_SERVED, InformerSet
from trimtab.kube.kinds.metadata import metadata_projection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.discovery import Discovery, discover
from trimtab.kube.rest.resources import CONFIG_MAPS, HPAS, JOBS, NAMESPACES, OPTIMIZATION_POLICIES, VPAS
from trimtab.kube.rest.retry import RateLimiter
from trimtab.kube.rest.watched_namespaces import WatchedNamespaces
from trimtab.operator.policy.status import list_forbidden


async def test_informer_set_keeps_a_resource_that_one_discovery_misses(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real server that has just started answers for a moment without any custom kind."""
    finds = iter((True, False, True, False, False, True))

    async def look(client: Client) -> Discovery:
        there = await discover(client)
        return there if next(finds) else replace(there, resources=there.resources - {CONFIG_MAPS})

    monkeypatch.setattr(informer_set, "discover", look)
    await client.create(CONFIG_MAPS, {"metadata": {"name": "stays"}}, namespace=namespace)
    follower = InformerSet(client)
    cache = follower.watch_resource(CONFIG_MAPS, metadata_projection(), scope=Scope(namespace), optional=True)
    deletions: list[str] = []
    cache.on_change(lambda old, new: deletions.append(old.name) if old and not new else None)
    async with asyncio.TaskGroup() as group:
        await follower._discover(group)
        await follower.wait_synced()
        for _ in range(3):
            await follower._discover(group)
        assert cache.get("stays", namespace) is not None
        assert not deletions
        await follower._discover(group)
        assert "stays" in deletions
        assert follower.errors_by_resource() == {"configmaps": NOT_SERVED}
        await follower._discover(group)
        await follower.wait_synced()
        assert cache.get("stays", namespace) is not None
        await follower._watched[0].stop()


async def test_informer_set_reports_an_absent_server_in_one_line(
    fault_proxy: FaultProxy, namespace: str
) -> None:
    followed = (CONFIG_MAPS, HPAS, JOBS)
    async with Client(
        load_connection(kubeconfig=fault_proxy.kubeconfig), rate=RateLimiter(1000, 1000)
    ) as client:
        follower = InformerSet(client, timeouts=HASTY)
        for resource in followed:
            follower.watch_resource(resource, metadata_projection(), scope=Scope(namespace))
        running = asyncio.create_task(follower.run())
        await follower.wait_synced()
        with capture_logs() as lines:

            def broke() -> list[str]:
                return [line["resources"] for line in lines if line["event"] == "informer.failed"]

            assert fault_proxy.strike(faults.cut()) == len(followed)
            await eventually(lambda: bool(broke()), what="the error is reported")
            (broken,) = broke()
            assert sorted(broken.split(", ")) == sorted(map(str, followed))
        running.cancel()
        await asyncio.wait([running])


async def test_missing_right_in_one_namespace_leaves_that_namespace_unsynced(
    fault_proxy: FaultProxy, namespace: str
) -> None:
    """An operator with Roles took the namespace for synced, because it could read another one."""
    fault_proxy.forbid(f"/namespaces/{namespace}/configmaps")
    fault_proxy.forbid(f"/namespaces/{namespace}")
    async with Client(
        load_connection(kubeconfig=fault_proxy.kubeconfig),
        rate=RateLimiter(1000, 1000),
        scope=WatchedNamespaces((namespace, "default"), "default"),
    ) as client:
        follower = InformerSet(client, timeouts=HASTY)
        for resource in (CONFIG_MAPS, HPAS, NAMESPACES):
            follower.watch_resource(resource, metadata_projection())
        running = asyncio.create_task(follower.run())
        async with asyncio.timeout(30):
            await follower.wait_synced()
        assert GRANT_RIGHTS in follower.unsynced_reason(CONFIG_MAPS, namespace)
        assert follower.unsynced_reason(CONFIG_MAPS, "default") == ""
        assert follower.unsynced_reason(HPAS, namespace) == ""
        assert GRANT_GET in follower.unsynced_reason(NAMESPACES, namespace)
        assert follower.unsynced_reason(NAMESPACES, "default") == ""
        assert [GRANT_GET in each for each in list_forbidden(follower.errors_by_resource())] == [False, True]
        running.cancel()
        await asyncio.wait([running])


def test_policies_of_the_own_namespace_affect_all_namespaces() -> None:
    watched = WatchedNamespaces(("shop", "lab"), "trimtab-system")
    assert watched.namespaces_affecting(OPTIMIZATION_POLICIES, "lab") == ("lab", "trimtab-system")
    assert watched.namespaces_affecting(VPAS, "lab") == ("lab",)
