"""Usage from metrics-server by the resource metrics API, the values of `kubectl top`."""

from __future__ import annotations

from datetime import datetime
from sys import intern

import msgspec

from trimtab.kube.errors import DECODE_ERRORS
from trimtab.kube.rest.rbac import RbacRule
from trimtab.kube.rest.resources import Resource
from trimtab.usage.errors import UsageResponseError
from trimtab.usage.sampled import ContainerSample, ListPollingSource, parse_amount
from trimtab.usage.usage import PodContainer

POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")


class _Metadata(msgspec.Struct, gc=False):
    name: str
    namespace: str


class _Container(msgspec.Struct, gc=False):
    name: str
    usage: dict[str, str] = {}


class _Pod(msgspec.Struct, gc=False):
    metadata: _Metadata
    timestamp: datetime
    containers: list[_Container] | None = None
    """The containers; Go encodes an empty list as null."""


class _Pods(msgspec.Struct, gc=False):
    items: list[_Pod] | None = None


_DECODER = msgspec.json.Decoder(_Pods)


class MetricsServer(ListPollingSource):
    """The resource metrics API of a cluster; needs list on pods.metrics.k8s.io."""

    name = "metrics-server"
    resource = POD_METRICS
    rules = (RbacRule(POD_METRICS.group, POD_METRICS.plural, ("list",)),)
    not_found = "resource metrics API; install metrics-server"
    advice = "see `kubectl top pods`"

    def parse_page(self, page: bytes) -> list[ContainerSample]:
        return parse_pod_metrics(page)


def parse_pod_metrics(page: bytes) -> list[ContainerSample]:
    """Return the samples of a list of PodMetrics."""
    try:
        found = _DECODER.decode(page)
    except DECODE_ERRORS as error:
        raise UsageResponseError(
            f"metrics-server: the response is not a list of PodMetrics: {error}; see `kubectl top pods`"
        ) from error
    return [
        ContainerSample(
            PodContainer(intern(pod.metadata.namespace), pod.metadata.name, intern(container.name)),
            pod.timestamp.timestamp(),
            cpu=parse_amount(container.usage.get("cpu")),
            memory=parse_amount(container.usage.get("memory")),
        )
        for pod in found.items or ()
        for container in pod.containers or ()
    ]
