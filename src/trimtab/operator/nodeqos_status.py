"""Write to each NodeQoSPolicy's status on how many nodes it applies.

The leader counts, from the nodes and policies that it watches anyway: thousands of agents writing one object would only
conflict. Each node's NodeMetric says which policy its agent really follows.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Never

import msgspec
import structlog

from trimtab.api.meta import Document, build_condition, set_conditions
from trimtab.kube.cache.store import Cache
from trimtab.kube.errors import KubeError, NotFound, describe
from trimtab.kube.kinds.custom import QosPolicy, select_qos_policy
from trimtab.kube.kinds.nodes import Node
from trimtab.kube.rest.object_client import ObjectClient
from trimtab.kube.rest.resources import NODE_QOS_POLICIES
from trimtab.plural import pluralize

log = structlog.get_logger(__name__)

INTERVAL = 15.0
"""The seconds between two cycles: nodes come and go together, and the count is for people."""


class NodeQosStatusWriter:
    """Writes the statuses of NodeQoSPolicies; `run` it as a task."""

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
        """Write each status that has changed."""
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
            return  # the policy was deleted meanwhile
        except KubeError as error:  # continue with the other policies
            log.warning("nodeqospolicy.status_write_failed", policy=policy.name, error=describe(error))


def count_nodes_by_policy(policies: list[QosPolicy], nodes: Iterable[Node]) -> Counter[str]:
    """Return the number of nodes that each policy applies to, by the policy's uid."""
    holding = (select_qos_policy(dict(node.labels), policies) for node in nodes) if policies else ()
    return Counter(policy.uid for policy in holding if policy)


def build_qos_status(policy: QosPolicy, nodes: int, *, before: Document, now: float) -> Document:
    """Return a policy's status; `before` is the present one."""
    if policy.spec is None:
        reason, message = "SpecInvalid", policy.problem
    elif nodes:
        reason, message = (
            "Holds",
            f"The policy applies to {pluralize(nodes, 'node')}; their agents follow it.",
        )
    else:
        reason = "NoNode"
        message = "The policy applies to no node: its nodeSelector matches none, or policies with a higher weight do."
    ready = build_condition("Ready", holds=reason == "Holds", reason=reason, message=message)
    return {
        "observedGeneration": policy.generation,
        "conditions": set_conditions(
            [ready], before.get("conditions") or (), now=now, generation=policy.generation
        ),
        "nodes": nodes,
    }
