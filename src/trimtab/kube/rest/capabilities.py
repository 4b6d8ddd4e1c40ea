"""The capabilities of a cluster: its uid, its version, its resources, in-place resize.

They are read from the server's discovery and not derived from its version, which managed offerings and feature gates
make unreliable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from trimtab.kube.errors import ApiError, NotFound, Status
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import NAMESPACES


@dataclass(frozen=True, slots=True, order=True)
class KubeVersion:
    """The major and minor version of Kubernetes."""

    major: int
    minor: int

    @classmethod
    @lru_cache(maxsize=256)
    def parse(cls, text: str) -> KubeVersion:
        """Parse `v1.36.3`, `1.36` or a provider's variant such as `v1.30.4-gke.100`; 0.0 if it cannot be parsed."""
        found = re.match(r"v?(\d+)\.(\d+)", text)
        return cls(int(found[1]), int(found[2])) if found else cls(0, 0)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


MEMORY_LIMIT_DECREASE_VERSION = KubeVersion(1, 34)
"""The first version that lowers the memory limit of a running container without a restart; older servers reject it
(kubernetes/kubernetes#133012)."""


def can_lower_memory_limits(*versions: KubeVersion) -> bool:
    """Return True if servers and kubelets of these versions lower memory limits in place; unknown versions are
    ignored.
    """
    return all(each >= MEMORY_LIMIT_DECREASE_VERSION for each in versions if each.major)


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """The version that a server reports."""

    text: str
    version: KubeVersion


class _Resource(msgspec.Struct, frozen=True):
    name: str


class _ResourceList(msgspec.Struct, frozen=True):
    resources: tuple[_Resource, ...] = ()


_RESOURCES = msgspec.json.Decoder(_ResourceList)


async def get_server_version(client: Client) -> ServerVersion:
    response = await client.get_version()
    text = str(response.get("gitVersion", "unknown"))
    return ServerVersion(text=text, version=KubeVersion.parse(text))


async def list_served_resources(client: Client, group_version: str) -> frozenset[str]:
    """List the resources (`pods`, `pods/resize`, …) of a group and version; empty if the server does not have the
    group.
    """
    path = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    try:
        answer = await client.request("GET", path, read=_RESOURCES.decode)
    except NotFound:
        return frozenset()
    return frozenset(resource.name for resource in answer.resources)


async def supports_in_place_resize(client: Client) -> bool:
    """Return True if running pods can be resized: the subresource is served exactly when the feature is on."""
    return "pods/resize" in await list_served_resources(client, "v1")


class ServerFeatures:
    """The features of a server, as of the last `detect`; before the first, it has none."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.can_resize_in_place = False
        self.version = KubeVersion(0, 0)

    async def detect(self) -> None:
        """Detect the features; if the server does not answer, raise KubeError and keep the known ones."""
        can_resize = await supports_in_place_resize(self._client)
        self.version = (await get_server_version(self._client)).version
        self.can_resize_in_place = can_resize


async def get_cluster_uid(client: Client) -> str:
    """Return the uid of the namespace kube-system, which identifies a cluster.

    The namespace is listed and not fetched, because the operator lists namespaces anyway and so needs no further
    permission.
    """
    if client.scope:  # it may not list namespaces, but the uid of its own one is as unique
        return str((await client.get(NAMESPACES, client.scope.home))["metadata"]["uid"])
    found = await client.list_objects(NAMESPACES, fields="metadata.name=kube-system")
    if not found:
        raise NotFound(Status(message='namespaces "kube-system" not found', reason="NotFound", code=404))
    return str(found[0]["metadata"]["uid"])


async def is_path_served(client: Client, path: str) -> bool:
    """Return True if a path is served and its server is up; an aggregated API can be registered and yet be down."""
    try:
        await client.request("GET", path, read=bytes)
    except ApiError:
        return False
    return True
