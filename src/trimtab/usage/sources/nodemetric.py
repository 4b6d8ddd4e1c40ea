"""Usage from Trimtab's node agents: one list of the NodeMetrics that they report.

The values are averages over the agents' window, five minutes by default, and memory without page cache. A
node whose agent stopped reporting is a gap for its containers: its last report becomes too old to count.
"""

from __future__ import annotations

from datetime import datetime
from sys import intern

import msgspec

from trimtab.kube.errors import DECODE_ERRORS
from trimtab.kube.rest.rbac import RbacRule
from trimtab.kube.rest.resources import NODE_METRICS
from trimtab.usage.errors import UsageResponseError
from trimtab.usage.sampled import ContainerSample, ListPollingSource, parse_amount
from trimtab.usage.usage import PodContainer


class _Usage(msgspec.Struct, frozen=True, gc=False):
    cpu: str | int | None = None
    memory: str | int | None = None


class _Container(msgspec.Struct, frozen=True, gc=False):
    name: str
    usage: _Usage = _Usage()


class _Pod(msgspec.Struct, frozen=True, gc=False):
    namespace: str
    name: str
    containers: list[_Container] = []


class _Status(msgspec.Struct, rename="camel", frozen=True, gc=False):
    update_time: datetime | None = None
    pods_metric: list[_Pod] = []


class _NodeMetric(msgspec.Struct, frozen=True, gc=False):
    status: _Status = _Status()


class _NodeMetricList(msgspec.Struct, frozen=True, gc=False):
    items: list[_NodeMetric] = []


_DECODER = msgspec.json.Decoder(_NodeMetricList)


class NodeMetrics(ListPollingSource):
    """The NodeMetrics of a cluster; needs list on nodemetrics.trimtab.io and the node agent."""

    name = "nodemetric"
    resource = NODE_METRICS
    rules = (RbacRule(NODE_METRICS.group, NODE_METRICS.plural, ("list",)),)
    not_found = "NodeMetric kind; install Trimtab's CRDs and the node agent"
    advice = "grant list on nodemetrics.trimtab.io"

    def parse_page(self, page: bytes) -> list[ContainerSample]:
        return parse_node_metrics(page)


def parse_node_metrics(page: bytes) -> list[ContainerSample]:
    """Return the samples of a list of NodeMetrics."""
    try:
        found = _DECODER.decode(page)
    except DECODE_ERRORS as error:
        raise UsageResponseError(
            f"nodemetric: the response is not a list of NodeMetrics: {error}; see `kubectl get nodemetrics`"
        ) from error
    return [
        ContainerSample(
            PodContainer(intern(pod.namespace), pod.name, intern(container.name)),
            metric.status.update_time.timestamp(),
            cpu=parse_amount(container.usage.cpu),
            memory=parse_amount(container.usage.memory),
        )
        for metric in found.items
        if metric.status.update_time is not None
        for pod in metric.status.pods_metric
        for container in pod.containers
    ]
