"""Discover the resources of a server, and those that scale, in two requests.

Custom kinds come and go with their CRDs. Every authenticated user may read the server's discovery, so no permission
to read CRDs is needed, and aggregated APIs are included.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from trimtab.kube.errors import KubeError
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import Resource

_DISCOVERY_LIST = "APIGroupDiscoveryList"
_ACCEPT = (
    f"application/json;g=apidiscovery.k8s.io;v=v2;as={_DISCOVERY_LIST},"
    f"application/json;g=apidiscovery.k8s.io;v=v2beta1;as={_DISCOVERY_LIST},"
    "application/json"  # the fallback of older servers, so that the error can name the reason
)


class _Kind(msgspec.Struct, frozen=True, gc=False):
    kind: str = ""


class _Subresource(msgspec.Struct, frozen=True, gc=False):
    subresource: str = ""


class _Resource(msgspec.Struct, rename="camel", frozen=True, gc=False):
    resource: str = ""
    response_kind: _Kind = _Kind()
    scope: str = ""
    subresources: tuple[_Subresource, ...] = ()


class _Version(msgspec.Struct, frozen=True, gc=False):
    version: str = ""
    freshness: str = ""
    resources: tuple[_Resource, ...] = ()


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _Group(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()
    versions: tuple[_Version, ...] = ()


class _Groups(msgspec.Struct, frozen=True, gc=False):
    kind: str = ""
    items: tuple[_Group, ...] = ()


_GROUPS = msgspec.json.Decoder(_Groups)


@dataclass(frozen=True, slots=True)
class Discovery:
    """The resources of a server."""

    resources: frozenset[Resource]
    """All resources in every served version."""
    scalable: frozenset[Resource]
    """The resources with a scale subresource, each in the version that the server prefers."""
    unavailable_groups: frozenset[str]
    """The groups whose own server does not respond now; their resources are unknown."""

    def has_resource(self, resource: Resource) -> bool | None:
        """Return True if the server has a resource; None if its group is unavailable."""
        if resource in self.resources:
            return True
        return None if resource.group in self.unavailable_groups else False


async def discover(client: Client) -> Discovery:
    """Request the resources of a server."""
    answers = await asyncio.gather(
        *(client.request("GET", path, accept=_ACCEPT, read=_GROUPS.decode) for path in ("/api", "/apis"))
    )
    if any(answer.kind != _DISCOVERY_LIST for answer in answers):
        raise KubeError(
            "the server does not support aggregated discovery; upgrade it to Kubernetes 1.27 or later"
        )
    groups = [group for answer in answers for group in answer.items]
    scalable: dict[tuple[str, str], Resource] = {}
    for group, version, resource in _entries(groups):
        if any(part.subresource == "scale" for part in resource.subresources):
            scalable.setdefault((group, resource.resource), _make_resource(group, version, resource))
    return Discovery(
        resources=frozenset(_make_resource(*entry) for entry in _entries(groups)),
        scalable=frozenset(scalable.values()),
        unavailable_groups=frozenset(
            group.metadata.name
            for group in groups
            if any(version.freshness == "Stale" for version in group.versions)
        ),
    )


def _entries(groups: list[_Group]) -> list[tuple[str, str, _Resource]]:
    return [
        (group.metadata.name, version.version, resource)
        for group in groups
        for version in group.versions
        for resource in version.resources
    ]


def _make_resource(group: str, version: str, resource: _Resource) -> Resource:
    return Resource(
        group,
        version,
        resource.resource,
        resource.response_kind.kind,
        namespaced=resource.scope == "Namespaced",
    )
