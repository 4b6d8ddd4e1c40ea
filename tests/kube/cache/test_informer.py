"""An informer's cache equals the server, whatever happens to the connection between them."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import permutations
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY

from harness.builders.objects import pod, pod_status
from harness.builders.records import project_object
from harness.cluster.port import ApiServer
from harness.e2e.informer_probe import eventually, watching
from harness.faults import faults
from harness.faults.faultproxy import FaultProxy
from harness.faults.faults import Asked
from trimtab.kube.auth import load_connection
from trimtab.kube.cache.informer import Informer, Scope
from trimtab.kube.cache.watch import WatchEventDecoder, split_lines
from trimtab.kube.errors import Forbidden, Gone, KubeResponseError, TimedOut
from trimtab.kube.kinds.metadata import Metadata, metadata_projection
from trimtab.kube.kinds.pods import Resources, pod_projection
from trimtab.kube.kinds.quotas import limit_range_projection
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.resources import CONFIG_MAPS, JSON, LIMIT_RANGES, PODS

PENDING = {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "too large"}
IN_PROGRESS = {"type": "PodResizeInProgress", "status": "True", "reason": "", "message": ""}


@pytest.mark.parametrize("conditions", list(permutations([PENDING, IN_PROGRESS])))
def test_pod_record_with_both_resize_conditions_has_the_reason_of_the_later_resize(
    conditions: tuple[Object, ...],
) -> None:
    manifest = {"metadata": {"name": "web"}, "status": {"conditions": list(conditions)}}
    found = project_object(pod_projection(), manifest).resize
    assert found is not None
    assert (found.condition, found.reason, found.message) == ("PodResizePending", "Infeasible", "too large")


@pytest.mark.parametrize(
    ("condition", "since"),
    [
        ({"status": "True", "lastTransitionTime": "2026-11-01T09:00:00Z"}, 1793523600),
        ({"status": "False", "lastTransitionTime": "2026-11-01T09:00:00Z"}, 0),
        ({"status": "True", "lastTransitionTime": None}, 0),
        ({"status": "True", "lastTransitionTime": "soon"}, 0),
        ({"status": "True"}, 0),
    ],
)
def test_pod_record_has_the_time_since_which_it_is_ready(condition: Object, since: int) -> None:
    manifest = {"metadata": {"name": "web"}, "status": {"conditions": [{"type": "Ready", **condition}]}}
    assert project_object(pod_projection(), manifest).ready_since == since


class _Lines:
    """A server whose watch says these lines and then no more."""

    def __init__(self, *lines: bytes) -> None:
        self._lines = lines

    @asynccontextmanager
    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        async def chunks() -> AsyncIterator[bytes]:
            for line in self._lines:
                yield line + b"\n"
            await asyncio.Event().wait()

        yield chunks()


def _encode_event(kind: str, version: int, **spec: Any) -> bytes:
    found = {"metadata": {"name": "odd", "uid": "1", "resourceVersion": str(version)}, "spec": spec}
    return msgspec.json.encode({"type": kind, "object": found})


LISTED = msgspec.json.encode(
    {
        "type": "BOOKMARK",
        "object": {
            "metadata": {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}
        },
    }
)
UNDECODABLE = {"limits": "none"}
UNFOLDABLE = {"limits": [{"type": "Container", "max": {"cpu": "a lot"}}]}


@pytest.mark.parametrize("malformed", [UNDECODABLE, UNFOLDABLE], ids=["undecodable", "unfoldable"])
@pytest.mark.parametrize("kind", ["MODIFIED", "DELETED"])
async def test_informer_forgets_an_object_that_can_no_longer_be_read(kind: str, malformed: Object) -> None:
    server: Any = _Lines(_encode_event("ADDED", 1, limits=[]), LISTED, _encode_event(kind, 2, **malformed))
    informer = Informer(server, LIMIT_RANGES, limit_range_projection())
    changes: list[tuple[bool, bool]] = []
    informer.cache.on_change(lambda old, new: changes.append((old is not None, new is not None)))
    following = asyncio.create_task(informer.run())
    await eventually(lambda: len(changes) == 2, what="both events were taken in")
    assert changes == [(False, True), (True, False)]
    assert len(informer.cache) == 0
    following.cancel()
    await asyncio.wait([following])


IS_WATCH: Callable[[Asked], bool] = lambda asked: asked.is_watch  # noqa: E731 - reads as what it is


def config_map(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels}}


def names(informer: Informer[Metadata]) -> set[str]:
    return {record.name for record in informer.cache}


async def test_informer_removes_its_lag_gauge_when_stopped(client: Client, namespace: str) -> None:
    """Or what a cluster does not have, as most have no VPA, would be further and further behind."""

    def event_names() -> set[str]:
        names = ("trimtab_informer_lag_seconds", "trimtab_informer_records")
        return {
            name for name in names if REGISTRY.get_sample_value(name, {"resource": "configmaps"}) is not None
        }

    informer = Informer(client, CONFIG_MAPS, metadata_projection(), scope=Scope(namespace))
    assert event_names() == set()
    following = asyncio.create_task(informer.run())
    await informer.wait_synced(timeout=30)
    assert len(event_names()) == 2
    following.cancel()
    await asyncio.wait([following])
    assert event_names() == set()


async def test_informer_without_rights_has_no_lag_until_they_are_granted(
    client: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    """Or the alert that the operator is behind would be raised for ever where the rights grant no custom kinds."""

    def lag() -> float | None:
        return REGISTRY.get_sample_value("trimtab_informer_lag_seconds", {"resource": "refused"})

    grant = fault_proxy.forbid("/configmaps")
    async with Client(load_connection(kubeconfig=fault_proxy.kubeconfig)) as asking:
        informer = Informer(
            asking, CONFIG_MAPS, metadata_projection(), scope=Scope(namespace, display_name="refused")
        )
        following = asyncio.create_task(informer.run())
        await informer.wait_synced_or_failed()
        assert isinstance(informer.last_error, Forbidden)
        assert lag() is None
        grant()
        await informer.wait_synced(timeout=60)
        assert lag() is not None
        fault_proxy.forbid("/configmaps")
        fault_proxy.strike(faults.cut(), match=IS_WATCH)
        await eventually(lambda: isinstance(informer.last_error, Forbidden), what="it is refused again")
        assert lag() is not None, "what it knows is getting old"
        following.cancel()
        await asyncio.wait([following])


async def test_informer_waits_for_a_missing_optional_resource_only_during_failures(
    client: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    """Without the policies that it could not list yet, an operator would act by others that give way to them."""
    await client.create(CONFIG_MAPS, config_map("there"), namespace=namespace)
    fault_proxy.fail_next(faults.status(503), count=2, match=IS_WATCH)
    fault_proxy.fail_next(faults.status(422), match=lambda asked: "sendInitialEvents" in asked.query)
    async with watching(fault_proxy.kubeconfig, namespace) as (informer, _):
        await informer.wait_synced_or_failed()
        assert fault_proxy.injected["422"] == 1
        assert names(informer) == {"there"}


@pytest.mark.parametrize(("code", "tries"), [(403, 1), (500, 6)])
async def test_informer_start_does_not_wait_for_a_forbidden_or_failing_resource(
    fault_proxy: FaultProxy, namespace: str, code: int, tries: int
) -> None:
    fault_proxy.fail_next(faults.status(code), count=1000, match=lambda asked: "configmaps" in asked.path)
    async with watching(fault_proxy.kubeconfig, namespace) as (informer, _):
        await informer.wait_synced_or_failed()
        assert fault_proxy.injected[str(code)] >= tries
        assert informer.last_error


async def test_informer_lists_and_watches(client: Client, cluster: ApiServer, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map("old", app="web"), namespace=namespace)
    async with watching(cluster.kubeconfig, namespace) as (informer, probe):
        await informer.wait_synced(timeout=30)
        assert names(informer) == {"old"}
        await client.create(CONFIG_MAPS, config_map("new"), namespace=namespace)
        await eventually(lambda: names(informer) == {"old", "new"}, what="the new object is known")
        await client.patch(
            CONFIG_MAPS,
            "old",
            {"metadata": {"labels": {"app": "shop"}}},
            type=PatchType.MERGE,
            namespace=namespace,
        )
        await eventually(
            lambda: (
                dict(found.labels if (found := informer.cache.get("old", namespace)) else ())
                == {"app": "shop"}
            ),
            what="the change is known",
        )
        await client.delete(CONFIG_MAPS, "old", namespace=namespace)
        await eventually(lambda: names(informer) == {"new"}, what="the deletion is known")
        assert probe.faults == []


async def test_informer_projects_pods_to_needed_fields(client: Client, namespace: str) -> None:
    body = pod("web-1", namespace=namespace, node="n1", app="web", cpu="250m", memory="512Mi", owned=False)
    body["metadata"]["annotations"]["trimtab.io/hold"] = "true"
    body["spec"]["initContainers"] = [
        {"name": "log", "image": "log", "restartPolicy": "Always"},
        {"name": "wait", "image": "wait", "resources": {"requests": {"cpu": "1.5"}}},
    ]
    await client.create(PODS, body, namespace=namespace)
    status = pod_status(body)
    status["containerStatuses"][1] |= {
        "restartCount": 3,
        "lastState": {
            "terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-11-01T09:00:00Z"}
        },
    }
    status["conditions"].append(
        {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "node is full"}
    )
    await client.patch(
        PODS, "web-1", {"status": status}, type=PatchType.STRATEGIC, namespace=namespace, subresource="status"
    )
    informer = Informer(
        client,
        PODS,
        pod_projection(),
        scope=Scope(namespace=namespace),
        indexes={"node": lambda found: found.node or None},
    )
    following = asyncio.create_task(informer.run())
    await informer.wait_synced(timeout=30)
    following.cancel()
    (found,) = informer.cache.find("node", "n1")
    assert (found.name, found.phase, found.qos_class, found.ready) == ("web-1", "Running", "Burstable", True)
    assert found.started == 1793520000
    assert found.annotations == (("trimtab.io/hold", "true"),)
    assert dict(found.labels)["app.kubernetes.io/name"] == "web"
    assert [(c.name, c.role) for c in found.containers] == [
        ("web", "main"),
        ("proxy", "main"),
        ("log", "sidecar"),
        ("wait", "init"),
    ]
    assert found.containers[0].resources == Resources(250, None, 512 << 20, 512 << 20)
    assert found.containers[3].resources.cpu_request == 1500
    web, proxy = found.container_statuses
    assert (web.ready, web.restarts, web.last_termination) == (True, 0, None)
    assert web.actual_resources == found.containers[0].resources
    assert proxy.restarts == 3
    assert proxy.last_termination is not None
    assert (
        proxy.last_termination.reason,
        proxy.last_termination.exit_code,
        proxy.last_termination.finished_at,
    ) == (
        "OOMKilled",
        137,
        1793523600,
    )
    assert found.resize is not None
    assert (found.resize.condition, found.resize.reason) == ("PodResizePending", "Deferred")


async def test_informer_resumes_a_cut_watch_without_a_list(
    client: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    async with watching(fault_proxy.kubeconfig, namespace) as (informer, probe):
        await informer.wait_synced(timeout=30)
        for number, fault in enumerate((faults.cut(), faults.tear(), faults.end())):
            await client.create(CONFIG_MAPS, config_map(f"before-{number}"), namespace=namespace)
            await eventually(lambda n=number: f"before-{n}" in names(informer), what="the first is known")  # type: ignore[misc]
            assert fault_proxy.strike(fault, match=IS_WATCH) == 1
            await client.create(CONFIG_MAPS, config_map(f"after-{number}"), namespace=namespace)
            await eventually(lambda n=number: f"after-{n}" in names(informer), what="the second is known")  # type: ignore[misc]
        lists = [asked for asked in fault_proxy.asked if asked.query.get("sendInitialEvents")]
        assert len(lists) == 1
        assert probe.faults == []


@pytest.mark.parametrize(
    "fault", [faults.gone_event(), faults.status(410)], ids=["in the stream", "as the answer"]
)
async def test_informer_lists_again_only_for_an_expired_version_and_reports_deletions(
    client: Client, fault_proxy: FaultProxy, namespace: str, fault: faults.Fault
) -> None:
    await client.create(CONFIG_MAPS, config_map("stays"), namespace=namespace)
    await client.create(CONFIG_MAPS, config_map("goes"), namespace=namespace)
    async with watching(fault_proxy.kubeconfig, namespace) as (informer, probe):
        await informer.wait_synced(timeout=30)
        async with fault_proxy.refusing():
            await client.delete(CONFIG_MAPS, "goes", namespace=namespace)
            await client.delete(CONFIG_MAPS, "stays", namespace=namespace)
            await client.create(CONFIG_MAPS, config_map("stays"), namespace=namespace)
            fault_proxy.fail_next(
                fault, match=lambda asked: asked.is_watch and "resourceVersion" in asked.query
            )
        await eventually(
            lambda: names(informer) == {"stays"} and probe.deletions == 2, what="the cache caught up"
        )
        lists = [asked for asked in fault_proxy.asked if asked.query.get("sendInitialEvents")]
        assert len(lists) == 2
        assert probe.faults == []


async def test_informer_resumes_a_silent_watch(
    client: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    async with watching(fault_proxy.kubeconfig, namespace) as (informer, probe):
        await informer.wait_synced(timeout=30)
        fault_proxy.strike(faults.silence(), match=IS_WATCH)
        await client.create(CONFIG_MAPS, config_map("unheard"), namespace=namespace)
        await eventually(lambda: "unheard" in names(informer), what="a new connection heard of it")
        assert probe.faults == []
        assert informer.last_error is None, "silence alone is no trouble"


async def test_informer_lists_again_after_the_server_went_back_in_time(
    client: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    """As after its data was restored from a backup: it says nothing of what comes after a version yet to be."""
    async with watching(fault_proxy.kubeconfig, namespace) as (informer, _):
        await informer.wait_synced(timeout=30)
        informer._version = str(10**15)
        fault_proxy.strike(faults.cut(), match=IS_WATCH)
        await client.create(CONFIG_MAPS, config_map("unheard"), namespace=namespace)
        await eventually(lambda: "unheard" in names(informer), what="the list was read again")
        assert fault_proxy.asked[-1].query.get("resourceVersion") != str(10**15)


async def test_informer_reports_a_server_that_does_not_answer(
    fault_proxy: FaultProxy, namespace: str
) -> None:
    async with watching(fault_proxy.kubeconfig, namespace) as (informer, _):
        await informer.wait_synced(timeout=30)
        fault_proxy.fail_next(faults.delay(3600), count=99, match=IS_WATCH)
        fault_proxy.strike(faults.cut(), match=IS_WATCH)
        await eventually(lambda: isinstance(informer.last_error, TimedOut), what="the error is reported")


@pytest.mark.parametrize("code", [400, 422])
async def test_informer_reads_pages_of_a_server_without_streamed_lists(
    client: Client, fault_proxy: FaultProxy, namespace: str, code: int
) -> None:
    await asyncio.gather(
        *(client.create(CONFIG_MAPS, config_map(f"m{n:03}"), namespace=namespace) for n in range(30))
    )
    fault_proxy.fail_next(
        faults.status(code), count=99, match=lambda asked: "sendInitialEvents" in asked.query
    )
    async with watching(fault_proxy.kubeconfig, namespace) as (informer, probe):
        await informer.wait_synced(timeout=30)
        assert len(informer.cache) == 30
        await client.delete(CONFIG_MAPS, "m007", namespace=namespace)
        await eventually(lambda: len(informer.cache) == 29, what="the watch goes on after the pages")
        assert probe.faults == []


async def test_informer_reads_pages_once_after_a_slow_streamed_list(
    client: Client, fault_proxy: FaultProxy, namespace: str
) -> None:
    await client.create(CONFIG_MAPS, config_map("stays"), namespace=namespace)
    fault_proxy.fail_next(faults.silence(), match=lambda asked: "sendInitialEvents" in asked.query)
    async with watching(fault_proxy.kubeconfig, namespace) as (informer, probe):
        await informer.wait_synced(timeout=30)
        fault_proxy.fail_next(faults.status(410), match=IS_WATCH)
        fault_proxy.strike(faults.cut(), match=IS_WATCH)

        def read_stream() -> int:
            return sum("sendInitialEvents" in asked.query for asked in fault_proxy.asked)

        await eventually(lambda: read_stream() == 2, what="the list is streamed again")
        await client.create(CONFIG_MAPS, config_map("new"), namespace=namespace)
        await eventually(lambda: names(informer) == {"stays", "new"}, what="the watch goes on")
        assert probe.faults == []


@pytest.mark.parametrize("refused", [0, 99], ids=["streamed", "in pages"])
async def test_informer_rejects_a_page_of_an_intermediary(
    client: Client, fault_proxy: FaultProxy, namespace: str, refused: int
) -> None:
    await client.create(CONFIG_MAPS, config_map("there"), namespace=namespace)
    fault_proxy.fail_next(
        faults.status(400), count=refused, match=lambda asked: "sendInitialEvents" in asked.query
    )
    fault_proxy.fail_next(faults.garble(), count=7)
    async with watching(fault_proxy.kubeconfig, namespace) as (informer, probe):
        await eventually(
            lambda: isinstance(informer.last_error, KubeResponseError), what="its error is reported"
        )
        await informer.wait_synced(timeout=30)
        assert names(informer) == {"there"}
        assert probe.faults == []


async def test_informer_accepts_an_empty_list(fault_proxy: FaultProxy, namespace: str) -> None:
    fault_proxy.fail_next(
        faults.status(400), count=99, match=lambda asked: "sendInitialEvents" in asked.query
    )
    async with watching(fault_proxy.kubeconfig, namespace) as (informer, _):
        await informer.wait_synced(timeout=30)
        assert len(informer.cache) == 0


async def test_informer_outlasts_an_absent_server_that_forgot_old_versions(
    client: Client, cluster: ApiServer, namespace: str
) -> None:
    await client.create(CONFIG_MAPS, config_map("before"), namespace=namespace)
    async with watching(cluster.kubeconfig, namespace) as (informer, probe):
        await informer.wait_synced(timeout=30)
        cluster.kill_apiserver()
        await asyncio.sleep(0.5)
        assert names(informer) == {"before"}, "what was last known is kept"
        cluster.start_apiserver()
        await client.create(CONFIG_MAPS, config_map("after"), namespace=namespace)
        await eventually(lambda: names(informer) == {"before", "after"}, what="the cache caught up")
        assert probe.faults == []
    decoder = WatchEventDecoder(metadata_projection())
    with pytest.raises(Gone):
        async with client.watch(
            CONFIG_MAPS, namespace=None, params={"resourceVersion": "1"}, accept=JSON, idle_timeout=10
        ) as chunks:
            async for lines in split_lines(chunks):
                decoder.decode(lines)


async def test_informer_reports_a_sync_timeout(
    cluster: ApiServer, fault_proxy: FaultProxy, namespace: str
) -> None:
    fault_proxy.fail_next(faults.status(500), count=10_000)
    async with watching(fault_proxy.kubeconfig, namespace) as (informer, _):
        with pytest.raises(TimeoutError):
            await informer.wait_synced(timeout=0.5)
        assert not informer.is_synced


async def test_informer_requests_only_metadata_if_possible(client: Client, namespace: str) -> None:
    secret = secrets.token_hex(2000)
    await client.create(
        CONFIG_MAPS, {"metadata": {"name": "big"}, "data": {"text": secret}}, namespace=namespace
    )
    async for page in client.list_pages(
        CONFIG_MAPS, namespace=namespace, accept=metadata_projection().accept_list
    ):
        assert secret.encode() not in page
        assert b"PartialObjectMetadata" in page
