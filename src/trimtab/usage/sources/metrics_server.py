"""Usage from metrics-server, by the resource metrics API: what `kubectl top` shows, for all pods at once."""

from __future__ import annotations

import math
from datetime import datetime
from sys import intern

import msgspec

from trimtab.api import Quantity, QuantityError
from trimtab.kube.errors import NOT_UNDERSTOOD, KubeError, NotFound, describe
from trimtab.kube.rest.resources import Resource
from trimtab.usage.errors import BadAnswer, SourceAway, SourceRefused
from trimtab.usage.sampled import Sample, Sampled, SampledSettings
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
    """Null is how Go writes an empty list."""


class _Pods(msgspec.Struct, gc=False):
    items: list[_Pod] | None = None


_PODS = msgspec.json.Decoder(_Pods)


class MetricsServer(Sampled[SampledSettings]):
    """The resource metrics API of a cluster; needs the right to list pods.metrics.k8s.io."""

    name = "metrics-server"
    settings_type = SampledSettings

    async def snapshot(self) -> list[Sample]:
        if self.client is None:
            raise SourceRefused("metrics-server: is read through the API server; give a client")
        try:
            return [sample async for page in self.client.pages(POD_METRICS) for sample in samples(page)]
        except NotFound as error:
            raise SourceRefused("metrics-server: the cluster has no resource metrics; install it") from error
        except KubeError as error:
            kind = SourceAway if error.transient else SourceRefused
            raise kind(f"metrics-server: {describe(error)}; see `kubectl top pods`") from error


def samples(page: bytes) -> list[Sample]:
    """What a list of PodMetrics says."""
    try:
        found = _PODS.decode(page)
    except NOT_UNDERSTOOD as error:
        raise BadAnswer(f"metrics-server: no list of PodMetrics: {error}; see `kubectl top pods`") from error
    return [
        Sample(
            PodContainer(intern(pod.metadata.namespace), pod.metadata.name, intern(container.name)),
            pod.timestamp.timestamp(),
            cpu=_number(container.usage.get("cpu")),
            memory=_number(container.usage.get("memory")),
        )
        for pod in found.items or ()
        for container in pod.containers or ()
    ]


def _number(quantity: str | None) -> float:
    """NaN for what is no quantity: one bad value is no reason to lose the others."""
    try:
        return Quantity.parse(quantity).cores if quantity else math.nan
    except QuantityError:
        return math.nan
