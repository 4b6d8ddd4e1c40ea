"""Usage from the kubelets: each node's `/stats/summary`.

For clusters without metrics-server, and for samples as fresh as the kubelet has them (10 s). In a pod each
kubelet is queried directly, which needs get on nodes/stats; from outside, the API server forwards the
request, which needs get on nodes/proxy. A node that does not respond is a gap for its containers; the source
fails only if no node responds.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from datetime import UTC, datetime
from sys import intern
from typing import Annotated, Literal

import msgspec
from pydantic import Field
from yarl import URL

from trimtab.kube.auth import is_running_in_pod
from trimtab.kube.auth.tls import Trust
from trimtab.kube.errors import DECODE_ERRORS, KubeError, describe
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.rbac import RbacRule
from trimtab.kube.rest.resources import NODES
from trimtab.usage.errors import SourceRefused, SourceUnavailable, UsageError
from trimtab.usage.http_client import UsageHttpClient
from trimtab.usage.sampled import ContainerSample, PollingSettings, PollingSource
from trimtab.usage.usage import PodContainer

NANO = 1e-9
MAX_NODE_RESPONSE_BYTES = 64 << 20


class _Cpu(msgspec.Struct, rename="camel", frozen=True, gc=False):
    time: datetime
    usage_nano_cores: float | None = None


class _Memory(msgspec.Struct, rename="camel", frozen=True, gc=False):
    working_set_bytes: float | None = None


class _Container(msgspec.Struct, frozen=True, gc=False):
    name: str
    cpu: _Cpu | None = None
    memory: _Memory | None = None


class _PodRef(msgspec.Struct, frozen=True, gc=False):
    name: str
    namespace: str


class _Pod(msgspec.Struct, rename="camel", frozen=True, gc=False):
    pod_ref: _PodRef
    containers: list[_Container] | None = None
    """The containers; null for a pod with only a sandbox, as Go encodes an empty list."""


class _Summary(msgspec.Struct, frozen=True, gc=False):
    pods: list[_Pod] | None = None


class _Address(msgspec.Struct, frozen=True, gc=False):
    type: str
    address: str


class _Endpoint(msgspec.Struct, rename={"port": "Port"}, frozen=True, gc=False):
    port: int = 10250


class _Endpoints(msgspec.Struct, rename="camel", frozen=True, gc=False):
    kubelet_endpoint: _Endpoint = _Endpoint()


class _Status(msgspec.Struct, rename="camel", frozen=True, gc=False):
    addresses: list[_Address] = []
    daemon_endpoints: _Endpoints = _Endpoints()


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    name: str


class KubeletNode(msgspec.Struct, frozen=True, gc=False):
    """The part of a Node that is needed to find its kubelet."""

    metadata: _Metadata
    status: _Status = _Status()

    def kubelet_url(self, kind: str) -> str:
        """Return the kubelet's URL at this kind of address, or at the node's name."""
        # The first of a kind has the cluster's preferred IP family; pods may have no route to the other.
        known = {address.type: address.address for address in reversed(self.status.addresses)}
        port = self.status.daemon_endpoints.kubelet_endpoint.port
        return str(URL.build(scheme="https", host=known.get(kind, self.metadata.name), port=port))


class _Nodes(msgspec.Struct, frozen=True, gc=False):
    items: list[KubeletNode] = []


class KubeletSettings(PollingSettings):
    """The settings for reading the kubelets' summaries."""

    reach: Literal["auto", "direct", "proxy"] = "auto"
    """The route to kubelets: direct, by the API server's proxy, or auto (direct in a pod)."""

    address: Literal["InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"] = "InternalIP"
    """The type of node address for direct requests."""

    insecure: bool = False
    """Accept any certificate of a directly reached kubelet and send it our token; many are self-signed."""

    concurrency: Annotated[int, Field(ge=1, le=100)] = 10
    """The maximum number of nodes that are queried at the same time."""

    timeout: Annotated[float, Field(gt=0)] = 10.0
    """The timeout per node in seconds."""


class Kubelet(PollingSource[KubeletSettings]):
    """All nodes of a cluster; needs list on nodes and get on nodes/stats or nodes/proxy."""

    name = "kubelet"
    settings_type = KubeletSettings
    rules = (RbacRule("", "nodes", ("list",)), RbacRule("", "nodes/stats", ("get",)))

    async def snapshot(self) -> list[ContainerSample]:
        if self.client is None:
            raise SourceRefused("kubelet: needs access to the API server; give a client")
        client, slots = self.client, asyncio.Semaphore(self.settings.concurrency)

        async def fetch(node: KubeletNode) -> list[ContainerSample] | UsageError:
            try:
                async with slots, asyncio.timeout(self.settings.timeout):
                    return parse_summary(await self._fetch_summary(client, node))
            except TimeoutError:
                return SourceUnavailable(f"no response within {self.settings.timeout:g} s")
            except UsageError as error:
                return error
            except (KubeError, *DECODE_ERRORS) as error:
                return SourceUnavailable(describe(error))

        try:
            pages = [msgspec.json.decode(page, type=_Nodes) async for page in client.list_pages(NODES)]
        except (KubeError, *DECODE_ERRORS) as error:
            raise SourceUnavailable(f"kubelet: {describe(error)}; grant list on nodes") from error
        nodes = [node for page in pages for node in page.items]
        answers = await asyncio.gather(*map(fetch, nodes))
        found = [answer for answer in answers if not isinstance(answer, UsageError)]
        if answers and not found:
            advice = "grant get on nodes/proxy or nodes/stats, and check the kubelets' certificates"
            raise SourceUnavailable(
                f"kubelet: no node responds, {nodes[0].metadata.name}: {answers[0]}; {advice}"
            )
        return [sample for answer in found for sample in answer]

    async def _fetch_summary(self, client: Client, node: KubeletNode) -> _Summary:
        if not self._is_direct:
            name = node.metadata.name
            return await client.get(NODES, name, subresource="proxy/stats/summary", into=_Summary)
        trust = Trust(None, insecure=True) if self.settings.insecure else client.connection.trust
        connection = replace(
            client.connection,
            server=node.kubelet_url(self.settings.address),
            server_hostname=None,
            trust=trust,
        )
        async with UsageHttpClient(
            connection, timeout=self.settings.timeout, max_response_bytes=MAX_NODE_RESPONSE_BYTES
        ) as kubelet:
            return await kubelet.get(
                "/stats/summary", {}, lambda body: msgspec.json.decode(body, type=_Summary)
            )

    @property
    def _is_direct(self) -> bool:
        if self.settings.reach == "auto":
            return is_running_in_pod()
        return self.settings.reach == "direct"


def parse_summary(summary: _Summary) -> list[ContainerSample]:
    """Return the samples of the containers in a summary that have a time."""
    return [
        ContainerSample(
            PodContainer(intern(pod.pod_ref.namespace), pod.pod_ref.name, intern(container.name)),
            container.cpu.time.astimezone(UTC).timestamp(),
            cpu=math.nan if container.cpu.usage_nano_cores is None else container.cpu.usage_nano_cores * NANO,
            memory=_working_set(container.memory),
        )
        for pod in summary.pods or ()
        for container in pod.containers or ()
        if container.cpu is not None
    ]


def _working_set(memory: _Memory | None) -> float:
    return math.nan if memory is None or memory.working_set_bytes is None else memory.working_set_bytes
