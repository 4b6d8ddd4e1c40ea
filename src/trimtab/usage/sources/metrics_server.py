"""Usage from metrics-server by the resource metrics API, the values of `kubectl top`."""

from __future__ import annotations

from datetime import datetime
from sys import intern

import msgspec

from trimtab.kube.errors import DECODE_ERRORS, KubeError, NotFound, describe
from trimtab.kube.rest.resources import Resource
from trimtab.usage.errors import SourceRefused, SourceUnavailable, UsageResponseError
from trimtab.usage.sampled import ContainerSample, PollingSettings, PollingSource, parse_amount
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


class MetricsServer(PollingSource[PollingSettings]):
    """The resource metrics API of a cluster; needs list on pods.metrics.k8s.io."""

    name = "metrics-server"
    settings_type = PollingSettings

    async def snapshot(self) -> list[ContainerSample]:
        if self.client is None:
            raise SourceRefused("metrics-server: needs access to the API server; give a client")
        try:
            return [
                sample
                async for page in self.client.list_pages(POD_METRICS)
                for sample in parse_pod_metrics(page)
            ]
        except NotFound as error:
            raise SourceRefused(
                "metrics-server: the cluster has no resource metrics API; install metrics-server"
            ) from error
        except KubeError as error:
            kind = SourceUnavailable if error.transient else SourceRefused
            raise kind(f"metrics-server: {describe(error)}; see `kubectl top pods`") from error


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
