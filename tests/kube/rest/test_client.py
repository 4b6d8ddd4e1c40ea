"""Requests to the real API server, and every kind of refusal it has."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import yaml

from harness.builders.objects import pod
from harness.cluster.port import ApiServer
from trimtab.kube import errors
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import FIELD_MANAGER, Client, Object, PatchType
from trimtab.kube.rest.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    JSON,
    NAMESPACES,
    PODS,
)
from trimtab.kube.rest.retry import RetryPolicy

IMPATIENT = RetryPolicy(attempts=1)


def config_map(name: str, namespace: str, **data: str) -> Object:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


@asynccontextmanager
async def connected(
    cluster: ApiServer, *, user: Object | None = None, server: Object | None = None
) -> AsyncIterator[Client]:
    """A client of the cluster whose kubeconfig has another user, server or authority."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] |= user or {}
    config["clusters"][0]["cluster"] |= server or {}
    altered = cluster.directory / "altered-kubeconfig"
    altered.write_text(yaml.safe_dump(config))
    async with Client(load_connection(kubeconfig=altered), retry=IMPATIENT) as client:
        yield client


async def test_client_creates_reads_changes_and_deletes(client: Client, namespace: str) -> None:
    created = await client.create(CONFIG_MAPS, config_map("a", namespace, size="1"), namespace=namespace)
    assert created["metadata"]["uid"]
    read = await client.get(CONFIG_MAPS, "a", namespace=namespace)
    assert read["data"] == {"size": "1"}
    read["data"]["size"] = "2"
    replaced = await client.replace(CONFIG_MAPS, read)
    assert replaced["data"] == {"size": "2"}
    assert await client.delete(CONFIG_MAPS, "a", namespace=namespace)
    assert not await client.delete(CONFIG_MAPS, "a", namespace=namespace)


async def test_client_deletes_only_the_object_with_that_uid(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map("a", namespace), namespace=namespace)
    with pytest.raises(errors.Conflict):
        await client.delete(CONFIG_MAPS, "a", namespace=namespace, uid="another")
    assert await client.get(CONFIG_MAPS, "a", namespace=namespace)


@pytest.mark.parametrize("by_uid", [False, True])
async def test_client_dry_run_deletes_nothing(client: Client, namespace: str, *, by_uid: bool) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", namespace), namespace=namespace)
    uid = made["metadata"]["uid"] if by_uid else None
    assert await client.delete(CONFIG_MAPS, "a", namespace=namespace, uid=uid, dry_run=True)
    assert "deletionTimestamp" not in (await client.get(CONFIG_MAPS, "a", namespace=namespace))["metadata"]


async def test_client_dry_run_evicts_nothing(client: Client, namespace: str) -> None:
    made = await client.create(PODS, pod("web", namespace=namespace, owned=False), namespace=namespace)
    for uid in (None, made["metadata"]["uid"]):
        assert await client.evict("web", namespace=namespace, uid=uid, dry_run=True)
    assert "deletionTimestamp" not in (await client.get(PODS, "web", namespace=namespace))["metadata"]


async def test_client_dry_run_is_validated_and_stores_nothing(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", namespace), namespace=namespace, dry_run=True)
    assert made["metadata"]["name"] == "a"
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAPS, "a", namespace=namespace)


async def test_client_lists_in_pages_and_whole(client: Client, namespace: str) -> None:
    await asyncio.gather(
        *(client.create(CONFIG_MAPS, config_map(f"m{n}", namespace), namespace=namespace) for n in range(25))
    )
    pages = [page async for page in client.list_pages(CONFIG_MAPS, namespace=namespace, limit=10)]
    assert len(pages) == 3
    found = await client.list_objects(
        CONFIG_MAPS, namespace=namespace, fields="metadata.name!=kube-root-ca.crt"
    )
    assert {item["metadata"]["name"] for item in found} == {f"m{n}" for n in range(25)}


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        (PatchType.MERGE, {"data": {"size": "2"}}),
        (PatchType.STRATEGIC, {"data": {"size": "2"}}),
        (PatchType.JSON, [{"op": "replace", "path": "/data/size", "value": "2"}]),
    ],
    ids=lambda value: value.name if isinstance(value, PatchType) else "",
)
async def test_client_sends_each_kind_of_patch(
    client: Client, namespace: str, kind: PatchType, patch: Any
) -> None:
    await client.create(CONFIG_MAPS, config_map("a", namespace, size="1", colour="red"), namespace=namespace)
    patched = await client.patch(CONFIG_MAPS, "a", patch, type=kind, namespace=namespace)
    assert patched["data"] == {"size": "2", "colour": "red"}


async def test_client_apply_owns_its_fields_and_releases_omitted_ones(client: Client, namespace: str) -> None:
    applied = await client.apply(CONFIG_MAPS, config_map("a", namespace, size="1", colour="red"))
    owners = {entry["manager"]: entry["operation"] for entry in applied["metadata"]["managedFields"]}
    assert owners == {FIELD_MANAGER: "Apply"}
    applied = await client.apply(CONFIG_MAPS, config_map("a", namespace, size="2"))
    assert applied["data"] == {"size": "2"}


async def test_client_takes_a_field_of_another_manager_only_by_force(
    client: Client, cluster: ApiServer, namespace: str
) -> None:
    await client.apply(CONFIG_MAPS, config_map("a", namespace, size="1"), manager="gitops")
    with pytest.raises(errors.FieldManagerConflict, match="gitops"):
        await client.apply(CONFIG_MAPS, config_map("a", namespace, size="2"))
    taken = await client.apply(CONFIG_MAPS, config_map("a", namespace, size="2"), force=True)
    assert taken["data"] == {"size": "2"}


async def test_client_retries_after_a_version_conflict(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map("counter", namespace, n="0"), namespace=namespace)

    def count(now: Object) -> Object:
        now["data"]["n"] = str(int(now["data"]["n"]) + 1)
        return now

    await asyncio.gather(
        *(client.update(CONFIG_MAPS, "counter", count, namespace=namespace) for _ in range(4))
    )
    assert (await client.get(CONFIG_MAPS, "counter", namespace=namespace))["data"] == {"n": "4"}


async def test_status_and_scale_are_written_through_their_subresources(
    client: Client, namespace: str
) -> None:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "nowhere.invalid/web"}]},
    }
    body = {
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    await client.create(DEPLOYMENTS, body, namespace=namespace)
    scaled = await client.scale(DEPLOYMENTS, "web", 3, namespace=namespace)
    assert scaled["spec"]["replicas"] == 3
    condition = {"type": "Trimmed", "status": "True", "reason": "Test", "message": ""}
    patched = await client.patch(
        DEPLOYMENTS,
        "web",
        {"status": {"conditions": [condition]}},
        type=PatchType.STRATEGIC,
        namespace=namespace,
        subresource="status",
    )
    assert "Trimmed" in {found["type"] for found in patched["status"]["conditions"]}


async def test_client_resizes_a_pod_through_its_subresource(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("web", namespace=namespace, cpu="250m", owned=False), namespace=namespace)
    resized = await client.resize(
        "web", [{"name": "web", "resources": {"requests": {"cpu": "300m"}}}], namespace=namespace
    )
    assert resized["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "300m"


async def test_client_serves_requests_beside_many_watches(cluster: ApiServer) -> None:
    """A cluster may have any number of custom kinds that scale, and each is watched."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connected(cluster))
        for _ in range(70):
            watch = client.watch(CONFIG_MAPS, namespace="default", params={}, accept=JSON, idle_timeout=10)
            await stack.enter_async_context(watch)
        assert "gitVersion" in await client.get_version()


class TestEveryRefusal:
    """The real server produces each status where possible; test_informer produces `Gone`."""

    async def test_bad_request(self, client: Client, namespace: str) -> None:
        with pytest.raises(errors.BadRequest):
            await client.create(CONFIG_MAPS, {"metadata": "not an object"}, namespace=namespace)

    async def test_unauthorized(self, cluster: ApiServer) -> None:
        async with connected(cluster, user={"token": "wrong"}) as stranger:
            with pytest.raises(errors.Unauthorized):
                await stranger.list_objects(NAMESPACES)

    async def test_forbidden_names_the_verb_and_the_user(self, cluster: ApiServer, namespace: str) -> None:
        async with connected(cluster, user={"as": "nobody-special"}) as nobody:
            with pytest.raises(errors.Forbidden, match=r'User "nobody-special" cannot list resource "pods"'):
                await nobody.list_objects(PODS, namespace=namespace)

    async def test_client_raises_not_found(self, client: Client, namespace: str) -> None:
        with pytest.raises(errors.NotFound):
            await client.get(PODS, "nobody", namespace=namespace)

    async def test_method_not_allowed(self, client: Client) -> None:
        with pytest.raises(errors.MethodNotAllowed):
            await client._transport.request("PUT", "/api/v1/namespaces", body=b"{}", read=bytes)

    async def test_client_raises_not_acceptable(self, client: Client) -> None:
        with pytest.raises(errors.NotAcceptable):
            await client.request("GET", "/api/v1/namespaces", accept="text/html", read=bytes)

    async def test_conflict_on_an_old_version(self, client: Client, namespace: str) -> None:
        old = await client.create(CONFIG_MAPS, config_map("a", namespace, n="1"), namespace=namespace)
        await client.replace(CONFIG_MAPS, old | {"data": {"n": "2"}})
        with pytest.raises(errors.Conflict, match="the object has been modified"):
            await client.replace(CONFIG_MAPS, old | {"data": {"n": "3"}})

    async def test_already_exists(self, client: Client, namespace: str) -> None:
        await client.create(CONFIG_MAPS, config_map("a", namespace), namespace=namespace)
        with pytest.raises(errors.AlreadyExists):
            await client.create(CONFIG_MAPS, config_map("a", namespace), namespace=namespace)

    async def test_too_large(self, client: Client, namespace: str) -> None:
        with pytest.raises(errors.TooLarge):
            await client.create(
                CONFIG_MAPS, config_map("a", namespace, big="x" * 4_000_000), namespace=namespace
            )

    async def test_unsupported_media_type(self, client: Client) -> None:
        with pytest.raises(errors.UnsupportedMediaType):
            await client._transport.request(
                "PATCH", "/api/v1/namespaces/default", body=b"{}", content_type="text/plain", read=bytes
            )

    async def test_invalid_names_the_field(self, client: Client, namespace: str) -> None:
        with pytest.raises(errors.Invalid) as caught:
            await client.create(
                PODS, {"metadata": {"name": "web"}, "spec": {"containers": []}}, namespace=namespace
            )
        assert any(
            each.field == "spec.containers" and each.message.startswith("Required value")
            for each in caught.value.causes
        )

    async def test_client_raises_disruption_blocked(self, client: Client, namespace: str) -> None:
        await client.create(
            PODS, pod("web", namespace=namespace, node="nowhere", owned=False), namespace=namespace
        )
        ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await client.patch(
            PODS, "web", ready, type=PatchType.STRATEGIC, namespace=namespace, subresource="status"
        )
        budget = {
            "metadata": {"name": "web"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app.kubernetes.io/name": "web"}}},
        }
        await client.create(DISRUPTION_BUDGETS, budget, namespace=namespace)
        with pytest.raises(errors.DisruptionBlocked):
            await client.evict("web", namespace=namespace)
        assert await client.delete(DISRUPTION_BUDGETS, "web", namespace=namespace)
        assert await client.evict("web", namespace=namespace)
        assert not await client.evict("nobody", namespace=namespace)

    async def test_client_reports_unreachable_without_a_listener(self, cluster: ApiServer) -> None:
        async with connected(cluster, server={"server": "https://127.0.0.1:9"}) as lost:
            with pytest.raises(errors.Unreachable) as caught:
                await lost.get_version()
        assert not caught.value.sent

    async def test_client_reports_an_untrusted_server_as_a_configuration_error(
        self, cluster: ApiServer
    ) -> None:
        async with connected(cluster, server={"tls-server-name": "elsewhere"}) as wary:
            with pytest.raises(errors.ConfigError, match="certificate"):
                await wary.get_version()

    async def test_client_retries_a_server_that_cannot_speak_tls_yet(self, cluster: ApiServer) -> None:
        """An API server that starts has no certificate for a moment, and says so in an alert."""

        async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(bytes([21, 3, 1, 0, 2, 2, 80]))
            writer.close()

        async with await asyncio.start_server(alert, "127.0.0.1", 0) as starting:
            address = starting.sockets[0].getsockname()
            async with connected(cluster, server={"server": f"https://127.0.0.1:{address[1]}"}) as client:
                with pytest.raises(
                    errors.Unreachable, match=r"cannot connect: .*alert internal error"
                ) as caught:
                    await client.get_version()
        assert caught.value.transient
        assert not caught.value.sent
