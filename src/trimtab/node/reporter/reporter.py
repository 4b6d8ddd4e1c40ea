"""Tells the API server what the node uses: its own NodeMetric, made where there is none, about once a minute.

The wait has jitter, so that a thousand agents that were started together do not report together. How to collect is
read from the object's spec each time, so that a change holds from the next report on. The object belongs to its Node and
goes with it: where nodes come and go, those of the past would fill the cluster's memory.
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
"""Seconds within which the first report is made, which tells little but reads how to collect; and tried again, while
there is no Node to report of."""
JITTER = 0.1
"""Of the interval, to either side."""


class Reporter:
    """Reports for one node; `run` it as a task."""

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
        """That of the Node; empty while there is none."""
        self._rng = rng or random.Random()  # noqa: S311 - jitter
        self.policy = MetricCollectPolicy()
        """How to collect, as it was last read."""
        self._reports = Counter(
            "trimtab_agent_reports_total",
            "NodeMetrics sent, by what came of it",
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
        """Once, now; whether there is a Node to report of."""
        found = await self._read_policy()
        if found is None:
            return False
        self.policy = found
        status = self._status(self.policy).model_dump(mode="json", by_alias=True)
        # The whole of it: what is no longer known must not stay from the last time.
        change = [{"op": "add", "path": "/status", "value": status}]
        await self._client.patch(NODE_METRICS, self._node, change, type=PatchType.JSON, subresource="status")
        return True

    async def _read_policy(self) -> MetricCollectPolicy | None:
        """How to collect; None where nothing is to be told yet."""
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
        with suppress(Conflict):  # somebody else was first
            await self._client.create(
                NODE_METRICS, {"apiVersion": API_VERSION, "kind": "NodeMetric", "metadata": metadata}
            )
        return True
