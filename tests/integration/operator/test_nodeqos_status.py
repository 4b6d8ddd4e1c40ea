"""The status of a NodeQoSPolicy: the nodes to which it applies."""

from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from harness.builders.objects import node
from harness.builders.records import project_object
from harness.faults.faultproxy import FaultProxy
from harness.faults.faults import Fault, Kind
from trimtab.kube.auth import load_connection
from trimtab.kube.cache.store import Cache
from trimtab.kube.kinds.custom import QosPolicy, qos_policy_projection
from trimtab.kube.kinds.nodes import Node, node_projection
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import NODE_QOS_POLICIES
from trimtab.operator.nodeqos_status import NodeQosStatusWriter


class CreatePolicy(Protocol):
    """Creates a NodeQoSPolicy of this name and spec."""

    async def __call__(self, name: str, **spec: object) -> None: ...


@pytest.fixture
async def policy(client: Client, kinds: None, namespace: str) -> AsyncIterator[CreatePolicy]:
    """Create a NodeQoSPolicy on the real server; it goes with the test."""
    made = []

    async def create(name: str, **spec: object) -> None:
        made.append(f"{namespace}-{name}")
        head = {"apiVersion": NODE_QOS_POLICIES.api_version, "kind": NODE_QOS_POLICIES.kind}
        await client.create(NODE_QOS_POLICIES, {**head, "metadata": {"name": made[-1]}, "spec": spec})

    yield create
    for name in made:
        await client.delete(NODE_QOS_POLICIES, name)


def machines(*names: str) -> Cache[Node]:
    shape, found = node_projection(), Cache[Node]()
    for name in names:
        described = node(name)
        described["metadata"] |= {"uid": name, "resourceVersion": "1"}
        found.put(project_object(shape, described))
    return found


async def written_statuses(client: Client, there: Cache[Node], namespace: str) -> dict[str, Object]:
    """Return the statuses after one reconcile."""
    shape, found = qos_policy_projection(), Cache[QosPolicy]()
    for each in await client.list_objects(NODE_QOS_POLICIES):
        if each["metadata"]["name"].startswith(namespace):
            found.put(project_object(shape, each))
    await NodeQosStatusWriter(
        client, policies=found, nodes=there, may_write=lambda: True, now=lambda: 1e9
    ).write_statuses()
    after = await client.list_objects(NODE_QOS_POLICIES)
    return {each["metadata"]["name"].removeprefix(f"{namespace}-"): each.get("status", {}) for each in after}


async def test_nodeqos_status_counts_the_nodes_of_each_policy(
    client: Client, policy: CreatePolicy, namespace: str
) -> None:
    await policy("everywhere")
    await policy("one", weight=200, nodeSelector={"matchLabels": {"kubernetes.io/hostname": "b"}})
    await policy("nowhere", nodeSelector={"matchLabels": {"kubernetes.io/hostname": "z"}})
    found = await written_statuses(client, machines("a", "b", "c"), namespace)
    assert {name: status["nodes"] for name, status in found.items()} == {
        "everywhere": 2,
        "one": 1,
        "nowhere": 0,
    }
    ready = {name: status["conditions"][0] for name, status in found.items()}
    assert {name: (each["status"], each["reason"]) for name, each in ready.items()} == {
        "everywhere": ("True", "Holds"),
        "one": ("True", "Holds"),
        "nowhere": ("False", "NoNode"),
    }


async def test_nodeqos_status_is_not_written_again_unchanged(
    client: Client, policy: CreatePolicy, namespace: str
) -> None:
    await policy("everywhere")
    await written_statuses(client, machines("a"), namespace)
    before = await client.get(NODE_QOS_POLICIES, f"{namespace}-everywhere")
    await written_statuses(client, machines("a"), namespace)
    after = await client.get(NODE_QOS_POLICIES, f"{namespace}-everywhere")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert (await written_statuses(client, machines("a", "b"), namespace))["everywhere"]["nodes"] == 2


async def test_nodeqos_status_failure_does_not_affect_other_policies(
    client: Client, policy: CreatePolicy, namespace: str, fault_proxy: FaultProxy
) -> None:
    for name in ("a", "b"):
        await policy(name)
    refused = Fault(kind=Kind.STATUS, status=403)
    fault_proxy.fail_next(refused, match=lambda asked: asked.path.endswith("/status"))
    async with Client(load_connection(kubeconfig=fault_proxy.kubeconfig)) as proxied:
        found = await written_statuses(proxied, machines("one"), namespace)
    assert sorted(name for name, status in found.items() if status) == ["b"]
