"""The measured usage of stress pods: the kernel's counters through the kubelet's cAdvisor, or any usage source.

Counters cover a whole period: what was used, and how often a limit throttled it. Sources such as metrics-server
sample a moment, as a recommender in production would see it.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from trimtab.kube.auth import is_running_in_pod
from trimtab.kube.auth.tls import Trust
from trimtab.kube.errors import KubeError, describe
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import NODES
from trimtab.lab.emulator.stress_pod import CONTAINER
from trimtab.usage.errors import SourceUnavailable, UsageError
from trimtab.usage.http_client import UsageHttpClient
from trimtab.usage.sampled import PollingSource
from trimtab.usage.source import Source, UsageQuery
from trimtab.usage.sources.kubelet import MAX_NODE_RESPONSE_BYTES, KubeletNode, KubeletSettings

CADVISOR = "cadvisor"
PATH = "/metrics/cadvisor"

_COUNTERS = {
    "container_cpu_usage_seconds_total": "cpu",
    "container_memory_working_set_bytes": "memory",
    "container_cpu_cfs_periods_total": "periods",
    "container_cpu_cfs_throttled_periods_total": "throttled",
}
_LINE = re.compile(r"^(\w+)\{([^}]*)\} (\S+)(?: (\d+))?$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Counters(NamedTuple):
    """Counters of a container since it started."""

    at: float = math.nan
    """The time at which the kubelet read the counters."""
    cpu: float = math.nan
    """Seconds of CPU."""
    memory: float = math.nan
    """Bytes now."""
    periods: float = 0.0
    throttled: float = 0.0


class MeasuredUsage(NamedTuple):
    """Over a stretch of time; NaN where it is not known."""

    cpu: float = math.nan
    """Cores."""
    memory: float = math.nan
    """Bytes."""
    throttled: float = math.nan
    """The share of the kernel's periods in which the limit held it back."""


def diff_counters(before: Counters | None, after: Counters | None) -> MeasuredUsage:
    """Return the usage of a container between two readings of its counters."""
    if after is None:
        return MeasuredUsage()
    if before is None or not after.at > before.at or after.cpu < before.cpu:
        return MeasuredUsage(memory=after.memory)
    periods = after.periods - before.periods
    return MeasuredUsage(
        cpu=(after.cpu - before.cpu) / (after.at - before.at),
        memory=after.memory,
        throttled=(after.throttled - before.throttled) / periods if periods > 0 else 0.0,
    )


def parse_counters(text: str, namespace: str) -> dict[str, Counters]:
    """Parse the counters of the stress pods of a namespace, by pod."""
    found: dict[str, dict[str, float]] = {}
    for name, labels, value, stamp in _LINE.findall(text):
        field = _COUNTERS.get(name)
        if field is None or f'namespace="{namespace}"' not in labels:
            continue
        fields = dict(_LABEL.findall(labels))
        if fields.get("container") != CONTAINER:
            continue
        sample = found.setdefault(fields["pod"], {})
        # Shortly after a restart the endpoint reports the old and the new container; keep the later sample.
        if stamp and int(stamp) / 1000 < sample.get(f"{field}_at", 0.0):
            continue
        sample[field] = float(value)
        sample[f"{field}_at"] = int(stamp) / 1000 if stamp else time.time()
    return {
        pod: Counters(
            at=sample["cpu_at"], **{key: sample[key] for key in _COUNTERS.values() if key in sample}
        )
        for pod, sample in found.items()
        if "cpu" in sample
    }


class Cadvisor:
    """Read the counters of the nodes' cAdvisor, through the API server's proxy or from each kubelet directly."""

    def __init__(self, client: Client, *, namespace: str, settings: KubeletSettings) -> None:
        self._client, self._namespace, self._settings = client, namespace, settings
        self._urls: dict[str, str] = {}

    async def read_node(self, node: str) -> dict[str, Counters]:
        """Read the counters of the stress pods on a node; needs get on nodes/proxy or nodes/metrics."""
        try:
            text = await (self._read_directly(node) if self._is_direct else self._read_through_proxy(node))
        except (KubeError, UsageError) as error:
            raise SourceUnavailable(
                f"{CADVISOR}: {node}: {describe(error) if isinstance(error, KubeError) else error}; "
                "grant get on nodes/proxy, try --source-setting reach=direct, or choose another --source"
            ) from None
        return parse_counters(text.decode(), self._namespace)

    @property
    def _is_direct(self) -> bool:
        auto = "direct" if is_running_in_pod() else "proxy"
        return (auto if self._settings.reach == "auto" else self._settings.reach) == "direct"

    async def _read_through_proxy(self, node: str) -> bytes:
        path = NODES.path(name=node, subresource="proxy") + PATH
        return await self._client.request("GET", path, accept="text/plain", read=bytes)

    async def _read_directly(self, node: str) -> bytes:
        if node not in self._urls:
            found = await self._client.get(NODES, node, into=KubeletNode)
            self._urls[node] = found.kubelet_url(self._settings.address)
        known = self._client.connection
        trust = Trust(None, insecure=True) if self._settings.insecure else known.trust
        connection = replace(known, server=self._urls[node], server_hostname=None, trust=trust)
        timeout = self._settings.timeout
        async with UsageHttpClient(
            connection, timeout=timeout, max_response_bytes=MAX_NODE_RESPONSE_BYTES
        ) as kubelet:
            return await kubelet.get(PATH, {}, bytes)


async def read_current_usage(source: Source[Any], *, namespace: str, span: float) -> dict[str, MeasuredUsage]:
    """Return the current usage of the stress pods by pod, from a usage source."""
    if isinstance(source, PollingSource):
        samples = await source.snapshot()
        return {
            sample.container.pod: MeasuredUsage(sample.cpu, sample.memory)
            for sample in samples
            if sample.container.namespace == namespace and sample.container.container == CONTAINER
        }
    ask = UsageQuery.last(span, now=time.time(), step=span, namespaces=(namespace,))
    usage = await source.read(ask)
    return {
        each.pod: MeasuredUsage(
            float(_last_known(usage.cpu[:, place])), float(_last_known(usage.memory[:, place]))
        )
        for place, each in enumerate(usage.containers)
        if each.container == CONTAINER
    }


def _last_known(column: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    known = column[np.isfinite(column)]
    return float(known[-1]) if len(known) else math.nan
