"""Tells each NodeQoSPolicy on how many nodes it holds.

The leader counts, from the nodes and policies that it follows anyway: thousands of agents that each wrote into one object
would only refuse each other. Which policy the agent of a node really follows is in that node's NodeMetric.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Never

import msgspec
import structlog

from trimtab.api.fields import format_time
from trimtab.kube.cache.store import Cache
from trimtab.kube.errors import KubeError, NotFound, describe
from trimtab.kube.kinds.custom import QosPolicy, select_qos_policy
from trimtab.kube.kinds.nodes import Node
from trimtab.kube.rest.object_client import ObjectClient
from trimtab.kube.rest.resources import NODE_QOS_POLICIES

log = structlog.get_logger(__name__)

Document = dict[str, Any]

INTERVAL = 15.0
"""Seconds between two looks: nodes come and go together, and their number is for people to read."""


class NodeQosStatusWriter:
    """The statuses of NodeQoSPolicies; `run` it as a task."""

    def __init__(
        self,
        client: ObjectClient,
        *,
        policies: Cache[QosPolicy],
        nodes: Cache[Node],
        may_write: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._client = client
        self._policies = policies
        self._nodes = nodes
        self._may_write = may_write
        self._now = now

    async def run(self) -> Never:
        while True:
            await self.write_statuses()
            await asyncio.sleep(INTERVAL)

    async def write_statuses(self) -> None:
        """Write each status that is not what it should be."""
        found = list(self._policies)
        held = count_nodes_by_policy(found, self._nodes)
        for policy in found:
            before: Document = msgspec.json.decode(policy.status)
            status = build_qos_status(policy, held[policy.uid], before=before, now=self._now())
            if status != before and self._may_write():
                await self._write(policy, status)

    async def _write(self, policy: QosPolicy, status: Document) -> None:
        body = {"metadata": {"name": policy.name, "uid": policy.uid}, "status": status}
        try:
            await self._client.apply(NODE_QOS_POLICIES, body, subresource="status", force=True)
        except NotFound:
            return  # deleted meanwhile
        except KubeError as error:  # the others are told all the same
            log.warning("nodeqospolicies.not_told", policy=policy.name, error=describe(error))


def count_nodes_by_policy(policies: list[QosPolicy], nodes: Iterable[Node]) -> Counter[str]:
    """On how many nodes each policy holds, by its uid."""
    holding = (select_qos_policy(dict(node.labels), policies) for node in nodes) if policies else ()
    return Counter(policy.uid for policy in holding if policy)


def build_qos_status(policy: QosPolicy, nodes: int, *, before: Document, now: float) -> Document:
    """What is to be read of a policy; `before` is what is there."""
    if policy.spec is None:
        ready = False, "SpecInvalid", policy.problem
    elif nodes:
        ready = True, "Holds", "The agents of its nodes follow it."
    else:
        ready = False, "NoNode", "No node is selected by it, or all of them by a heavier one."
    holds, reason, message = ready
    condition = {"type": "Ready", "status": str(holds), "reason": reason, "message": message[:4096]}
    old: Document = next((each for each in before.get("conditions", ()) if each["type"] == "Ready"), {})
    same = old.get("status") == condition["status"]
    since = old["lastTransitionTime"] if same else format_time(now)
    return {
        "observedGeneration": policy.generation,
        "conditions": [{**condition, "lastTransitionTime": since, "observedGeneration": policy.generation}],
        "nodes": nodes,
    }
