"""Tells the API server what the node uses: its own NodeMetric, made where there is none, about once a minute.

The wait has jitter, so that a thousand agents that were started together do not report together. How to collect is
read from the object's spec each time, so that a change holds from the next report on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Never

import structlog
from prometheus_client import CollectorRegistry, Counter

from trimtab.api import API_VERSION, NodeMetric
from trimtab.api.errors import InvalidObjectError
from trimtab.api.nodemetric import MetricCollectPolicy, NodeMetricStatus
from trimtab.kube.client import Client, PatchType
from trimtab.kube.errors import Conflict, KubeError, NotFound, describe
from trimtab.kube.resources import NODE_METRICS

log = structlog.get_logger(__name__)

FIRST = 5.0
"""Seconds within which the first report is made, which tells little but reads how to collect."""
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
        registry: CollectorRegistry,
        rng: random.Random | None = None,
    ) -> None:
        self._client = client
        self._node = node
        self._status = status
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
        await asyncio.sleep(self._rng.uniform(0, FIRST))
        while True:
            try:
                await self.report()
                self._reports.labels("sent").inc()
            except KubeError as error:
                self._reports.labels("failed").inc()
                log.warning("report.failed", error=describe(error))
            interval = self.policy.report_interval_seconds
            await asyncio.sleep(interval * self._rng.uniform(1 - JITTER, 1 + JITTER))

    async def report(self) -> None:
        """Once, now."""
        self.policy = await self._read()
        status = self._status(self.policy).model_dump(mode="json", by_alias=True)
        # The whole of it: what is no longer known must not stay from the last time.
        change = [{"op": "add", "path": "/status", "value": status}]
        await self._client.patch(NODE_METRICS, self._node, change, type=PatchType.JSON, subresource="status")

    async def _read(self) -> MetricCollectPolicy:
        try:
            found = await self._client.get(NODE_METRICS, self._node)
        except NotFound:
            await self._make()
            return MetricCollectPolicy()
        spec: dict[str, Any] = {"kind": "NodeMetric", "spec": found.get("spec", {})}
        try:
            return NodeMetric.read(spec).spec.metric_collect_policy
        except InvalidObjectError as error:
            log.warning("report.policy_ignored", reason=str(error))
            return self.policy

    async def _make(self) -> None:
        body = {"apiVersion": API_VERSION, "kind": "NodeMetric", "metadata": {"name": self._node}}
        try:
            await self._client.create(NODE_METRICS, body)
        except Conflict:
            return  # somebody else was first
