"""Which resources a server has, and which of them scale: all of it in two requests.

Custom kinds come and go with their CRDs. The server's own discovery tells of them to everyone who may log in, so no
right to read CRDs is needed, and an aggregated API counts like any other.
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
    "application/json"  # what a server answers that is too old: then the reason can be told
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
    """What a server has."""

    resources: frozenset[Resource]
    """Every resource in each version that is served."""
    scalable: frozenset[Resource]
    """Those with a scale subresource, each in the version that the server prefers."""
    unavailable_groups: frozenset[str]
    """Groups whose own server does not answer now: nothing is known of them."""

    def has_resource(self, resource: Resource) -> bool | None:
        """Whether a resource is there; None when its group is silent."""
        if resource in self.resources:
            return True
        return None if resource.group in self.unavailable_groups else False


async def discover(client: Client) -> Discovery:
    """Ask a server what it has."""
    answers = await asyncio.gather(
        *(client.request("GET", path, accept=_ACCEPT, read=_GROUPS.decode) for path in ("/api", "/apis"))
    )
    if any(answer.kind != _DISCOVERY_LIST for answer in answers):
        raise KubeError("the server's discovery is not understood; Kubernetes 1.27 or later is needed")
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
