"""Events on the real API server, as a user of kubectl sees them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime

import pytest
import yaml
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from harness.builders.objects import node
from harness.cluster.port import ApiServer
from harness.faults import faults
from harness.faults.faultproxy import FaultProxy
from trimtab.kube.auth.connection import load_connection
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import CONFIG_MAPS, EVENTS, NODES, Resource
from trimtab.kube.rest.retry import RetryPolicy
from trimtab.kube.runtime.event_correlator import CorrelatorOptions, ObjectReference
from trimtab.kube.runtime.event_recorder import EventRecorder
from trimtab.timing import Backoff

QUICK = RetryPolicy(attempts=4, backoff=Backoff(first=0.01, ceiling=0.05))
EAGER = CorrelatorOptions(rewrite_interval=0.05)


def recorder(client: Client, restraint: CorrelatorOptions | None = None) -> EventRecorder:
    return EventRecorder(
        client,
        component="trimtab.io/operator",
        instance="operator-0",
        now=lambda: datetime.now(UTC),
        options=restraint,
    )


@pytest.fixture
def events(client: Client) -> EventRecorder:
    return recorder(client)


@pytest.fixture
async def about(client: Client, namespace: str) -> ObjectReference:
    """Something for events to be about."""
    made = await client.create(CONFIG_MAPS, {"metadata": {"name": "web"}}, namespace=namespace)
    return reference(CONFIG_MAPS, made)


@pytest.fixture
async def proxied(fault_proxy: FaultProxy) -> AsyncIterator[Client]:
    async with Client(load_connection(kubeconfig=fault_proxy.kubeconfig), retry=QUICK) as client:
        yield client


def reference(resource: Resource, made: Object) -> ObjectReference:
    metadata = made["metadata"]
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        uid=metadata["uid"],
    )


def say(
    events: EventRecorder, about: ObjectReference, message: str = "250m is too much", *, times: int = 1
) -> None:
    for _ in range(times):
        events.record(about, type="Normal", reason="Resized", message=message, action="ResizeInPlace")


def dropped(why: str) -> float:
    return REGISTRY.get_sample_value("trimtab_events_dropped_total", {"reason": why}) or 0.0


async def written(client: Client, namespace: str) -> list[Object]:
    return await client.list_objects(
        EVENTS, namespace=namespace, fields="reportingController=trimtab.io/operator"
    )


async def test_recorder_event_names_actor_object_action_and_reason(
    events: EventRecorder, client: Client, about: ObjectReference
) -> None:
    pod = ObjectReference(api_version="v1", kind="Pod", name="web-1", namespace=about.namespace, uid="u-1")
    events.record(about, type="Warning", reason="Reverted", message="it hurt", action="Revert", related=pod)
    await events.flush()
    (event,) = await written(client, about.namespace)
    assert event["metadata"]["name"].startswith("web.")
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "web",
        "namespace": about.namespace,
        "uid": about.uid,
    }
    assert event["related"]["name"] == "web-1"
    said = [event[field] for field in ("type", "reason", "note", "action", "reportingInstance")]
    assert said == ["Warning", "Reverted", "it hurt", "Revert", "operator-0"]
    assert "series" not in event


@pytest.fixture
def node_name(cluster: ApiServer, namespace: str) -> Iterator[str]:
    cluster.call("POST", NODES.path(), node(namespace))
    yield namespace
    cluster.call("DELETE", NODES.path(name=namespace))


async def test_events_of_an_object_without_a_namespace_are_in_the_default_one(
    events: EventRecorder, client: Client, cluster: ApiServer, node_name: str
) -> None:
    say(events, reference(NODES, await client.get(NODES, node_name)))
    await events.flush()
    assert node_name in {event["regarding"]["name"] for event in await written(client, "default")}


async def test_recorder_writes_in_the_background_and_updates_counts(
    client: Client, about: ObjectReference
) -> None:
    events = recorder(client, EAGER)
    running = asyncio.create_task(events.run())

    async def count() -> int:
        found = await written(client, about.namespace)
        return sum(event.get("series", {}).get("count", 1) for event in found)

    async with asyncio.timeout(30):
        for total in (1, 2, 7):
            say(events, about, times=total - await count())
            while await count() < total:
                await asyncio.sleep(0.02)
    running.cancel()
    assert len(await written(client, about.namespace)) == 1


@pytest.mark.parametrize("letter", ["x", "ü", "𝄞"])
async def test_recorder_truncates_a_long_message(
    events: EventRecorder, client: Client, about: ObjectReference, letter: str
) -> None:
    say(events, about, "!" + letter * 2000)
    await events.flush()
    (event,) = await written(client, about.namespace)
    assert event["note"].endswith(letter + "…")
    assert 1020 <= len(event["note"].encode()) <= 1024


@pytest.mark.parametrize(
    ("reason", "action"),
    [("", "Resize"), ("too small", "Resize"), ("resized", "Resize"), ("Resized", ""), ("R" * 129, "R")],
)
async def test_recorder_logs_an_invalid_reason_and_does_not_raise(
    events: EventRecorder, client: Client, about: ObjectReference, reason: str, action: str
) -> None:
    before = dropped("invalid")
    with capture_logs() as lines:
        events.record(about, type="Normal", reason=reason, message="m", action=action)
    await events.flush()
    assert [line["fix"] for line in lines] == ["make both a CamelCase word"]
    assert dropped("invalid") == before + 1
    assert await written(client, about.namespace) == []


async def test_recorder_accepts_the_longest_names(client: Client, about: ObjectReference) -> None:
    events = EventRecorder(
        client, component="trimtab.io/operator", instance="i" * 253, now=lambda: datetime.now(UTC)
    )
    events.record(about, type="Normal", reason="R" * 128, message="", action="A" * 128)
    await events.flush()
    assert len(await written(client, about.namespace)) == 1


async def test_recorder_drops_and_counts_events_beyond_its_queue(
    client: Client, about: ObjectReference
) -> None:
    events = recorder(client, CorrelatorOptions(max_queued=10))
    before = dropped("queue_full")
    say(events, about, times=25)
    assert dropped("queue_full") == before + 15
    await events.flush()
    (event,) = await written(client, about.namespace)
    assert event["series"]["count"] == 10


async def test_recorder_limits_an_object_with_too_many_events(
    events: EventRecorder, client: Client, about: ObjectReference
) -> None:
    before = dropped("rate_limited")
    for number in range(30):
        say(events, about, f"number {number}")
    await events.flush()
    assert len(await written(client, about.namespace)) == 25
    assert dropped("rate_limited") == before + 5


async def test_recorder_recreates_an_expired_event_with_its_count(
    events: EventRecorder, client: Client, about: ObjectReference
) -> None:
    say(events, about)
    await events.flush()
    (event,) = await written(client, about.namespace)
    await client.delete(EVENTS, event["metadata"]["name"], namespace=about.namespace)
    say(events, about)
    await events.flush()
    (event,) = await written(client, about.namespace)
    assert event["series"]["count"] == 2


async def test_recorder_logs_a_deleted_namespace_in_one_line(
    events: EventRecorder, client: Client, about: ObjectReference
) -> None:
    say(events, ObjectReference(api_version="v1", kind="Pod", name="web", namespace="no-such-namespace"))
    say(events, about)
    with capture_logs() as lines:
        await events.flush()
    (line,) = lines
    assert line["regarding"] == "Pod no-such-namespace/web"
    assert 'namespaces "no-such-namespace" not found' in line["error"]
    assert len(await written(client, about.namespace)) == 1


async def test_recorder_logs_each_forbidden_event_in_one_line(
    cluster: ApiServer, about: ObjectReference, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"]["as"] = "nobody-in-particular"
    kubeconfig = tmp_path_factory.mktemp("nobody") / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    before = dropped("Forbidden")
    async with Client(load_connection(kubeconfig=kubeconfig)) as nobody:
        events = recorder(nobody)
        say(events, about)
        with capture_logs() as lines:
            await events.flush()
    (line,) = lines
    assert "nobody-in-particular" in line["error"]
    assert dropped("Forbidden") == before + 1


@pytest.mark.parametrize("fault", [faults.status(503), faults.lose_answer()], ids=lambda fault: fault.name)
async def test_recorder_writes_an_event_once_through_faults(
    proxied: Client, client: Client, fault_proxy: FaultProxy, about: ObjectReference, fault: faults.Fault
) -> None:
    events = recorder(proxied)
    fault_proxy.fail_next(fault, count=2)
    say(events, about, times=3)
    await events.flush()
    (event,) = await written(client, about.namespace)
    assert event["series"]["count"] == 3
    assert fault_proxy.injected[fault.name] == 2


async def test_recorder_flushes_a_write_that_was_cancelled(
    proxied: Client, client: Client, fault_proxy: FaultProxy, about: ObjectReference
) -> None:
    events = recorder(proxied)
    fault_proxy.fail_next(faults.delay(3600))
    running = asyncio.create_task(events.run())
    say(events, about)
    say(events, about, "another")
    await until(lambda: fault_proxy.injected["delay"] == 1)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await events.flush()
    assert len(await written(client, about.namespace)) == 2


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)
