"""Report the node's usage to the API server about once a minute, in its own NodeMetric.

The interval has jitter, so that agents that started together do not report together. The collection policy is
read from the object's spec each time. The object is owned by its Node and deleted with it; otherwise the
objects of removed nodes would fill the cluster.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Never

import structlog
from prometheus_client import CollectorRegistry, Counter

from trimtab.api import API_VERSION, NodeMetric
from trimtab.api.errors import InvalidObjectError
from trimtab.api.nodemetric import MetricCollectPolicy, NodeMetricStatus
from trimtab.kube.errors import Conflict, KubeError, NotFound, describe
from trimtab.kube.rest.client import Client, PatchType
from trimtab.kube.rest.resources import NODE_METRICS

log = structlog.get_logger(__name__)

FIRST_REPORT_SECONDS = 5.0
"""The seconds within which the first report is sent, and retried while there is no Node.

It has little data yet, but reads the collection policy.
"""
JITTER = 0.1
"""The jitter as a share of the interval, to either side."""


class Reporter:
    """Reports for one node; run it as a task."""

    def __init__(
        self,
        client: Client,
        node: str,
        status: Callable[[MetricCollectPolicy], NodeMetricStatus],
        *,
        uid: Callable[[], str],
        registry: CollectorRegistry,
        rng: random.Random | None = None,
    ) -> None:
        self._client = client
        self._node = node
        self._status = status
        self._uid = uid
        """Returns the uid of the Node; empty while there is none."""
        self._rng = rng or random.Random()  # noqa: S311 - jitter
        self.policy = MetricCollectPolicy()
        """The last collection policy."""
        self._reports = Counter(
            "trimtab_agent_reports_total",
            "NodeMetric reports by result",
            ["result"],
            registry=registry,
        )

    async def run(self) -> Never:
        await asyncio.sleep(self._rng.uniform(0, FIRST_REPORT_SECONDS))
        while True:
            interval = float(self.policy.report_interval_seconds)
            try:
                if await self.report():
                    self._reports.labels("sent").inc()
                    interval = float(self.policy.report_interval_seconds)
                else:
                    interval = FIRST_REPORT_SECONDS
            except KubeError as error:
                self._reports.labels("failed").inc()
                log.warning("report.failed", error=describe(error))
            await asyncio.sleep(interval * self._rng.uniform(1 - JITTER, 1 + JITTER))

    async def report(self) -> bool:
        """Report once, now; return whether the Node exists."""
        found = await self._read_policy()
        if found is None:
            return False
        self.policy = found
        status = self._status(self.policy).model_dump(mode="json", by_alias=True)
        # Replace the whole status, so that values that are no longer known disappear.
        change = [{"op": "add", "path": "/status", "value": status}]
        await self._client.patch(NODE_METRICS, self._node, change, type=PatchType.JSON, subresource="status")
        return True

    async def _read_policy(self) -> MetricCollectPolicy | None:
        """Return the collection policy; None if there is nothing to report yet."""
        try:
            found = await self._client.get(NODE_METRICS, self._node)
        except NotFound:
            return MetricCollectPolicy() if await self._create_object() else None
        spec: dict[str, Any] = {"kind": "NodeMetric", "spec": found.get("spec", {})}
        try:
            return NodeMetric.read(spec).spec.metric_collect_policy
        except InvalidObjectError as error:
            log.warning("report.policy_ignored", reason=str(error))
            return self.policy

    async def _create_object(self) -> bool:
        uid = self._uid()
        if not uid:
            return False
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid}
        metadata = {"name": self._node, "ownerReferences": [owner]}
        with suppress(Conflict):  # it was created meanwhile
            await self._client.create(
                NODE_METRICS, {"apiVersion": API_VERSION, "kind": "NodeMetric", "metadata": metadata}
            )
        return True
