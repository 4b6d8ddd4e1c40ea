"""Events on the real API server, as a user of kubectl sees them, and as the server accepts them."""

from harness.cluster.cluster import Cluster
from kube.runtime.test_event_recorder import (  # noqa: F401 - tests and fixtures
    about,
    events,
    node_name,
    proxied,
    recorder,
    reference,
    say,
    test_events_of_an_object_without_a_namespace_are_in_the_default_one,
    test_recorder_accepts_the_longest_names,
    test_recorder_event_names_actor_object_action_and_reason,
    test_recorder_logs_a_deleted_namespace_in_one_line,
    test_recorder_logs_each_forbidden_event_in_one_line,
    test_recorder_recreates_an_expired_event_with_its_count,
    test_recorder_truncates_a_long_message,
    written,
)
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import DEPLOYMENTS, NODES
from trimtab.kube.runtime.event_correlator import ObjectReference
from trimtab.kube.runtime.event_recorder import EventRecorder


async def test_recorder_aggregates_repeated_events_with_a_count(
    events: EventRecorder, client: Client, cluster: Cluster, about: ObjectReference
) -> None:
    say(events, about)
    await events.flush()
    say(events, about, times=4)
    await events.flush()
    say(events, about, "100m is too little", times=2)
    await events.flush()
    assert len(await written(client, about.namespace)) == 2
    shown = cluster.kubectl("get", "events", "--namespace", about.namespace, "--output", "wide")
    header, *lines = shown.splitlines()
    counts = {line[header.index("MESSAGE") :].split("  ")[0]: line.split()[-2] for line in lines}
    assert counts == {"250m is too much": "5", "100m is too little": "2"}
    assert all("configmap/web" in line and "Resized" in line for line in lines)


async def test_kubectl_describe_shows_recorded_events(
    events: EventRecorder, client: Client, cluster: Cluster, namespace: str
) -> None:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    made = await client.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, namespace=namespace)
    say(events, reference(DEPLOYMENTS, made), times=3)
    await events.flush()
    shown = cluster.kubectl("describe", "deployment", "web", "--namespace", namespace)
    (line,) = [line for line in shown.splitlines() if "Resized" in line]
    assert "(x3 over" in line
    assert "trimtab.io/operator" in line
    assert "250m is too much" in line


async def test_kubectl_describe_finds_events_of_a_node(
    events: EventRecorder, client: Client, cluster: Cluster, node_name: str
) -> None:
    say(events, reference(NODES, await client.get(NODES, node_name)))
    await events.flush()
    assert "250m is too much" in cluster.kubectl("describe", "node", node_name)
