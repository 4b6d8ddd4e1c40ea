"""Objects whose metadata alone matters, such as the ReplicaSets and Jobs between a pod and its workload.

The server is asked for PartialObjectMetadata, so spec and status are never transferred.
"""

from __future__ import annotations

import msgspec

from trimtab.kube.cache.projection import (
    Labels,
    MetadataWire,
    OwnerReference,
    Projection,
    ProjectionCache,
    parse_resource_version,
    to_unix_seconds,
)

_PARTIAL_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_PARTIAL_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Metadata(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The identity of an object and its controller."""

    namespace: str
    name: str
    uid: str
    version: int
    generation: int
    created: int
    deleting: bool
    owner: OwnerReference | None
    labels: Labels
    annotations: Labels


class _ObjectWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()


def metadata_projection(cache: ProjectionCache | None = None) -> Projection[Metadata]:
    """Read any resource as its metadata alone."""
    shared = cache or ProjectionCache()

    def project(wire: _ObjectWire) -> Metadata:
        found = wire.metadata
        return Metadata(
            namespace=shared.intern[found.namespace],
            name=found.name,
            uid=found.uid,
            version=parse_resource_version(found.resource_version),
            generation=found.generation,
            created=to_unix_seconds(found.creation_timestamp),
            deleting=found.deletion_timestamp is not None,
            owner=shared.read_owner(found.owner_references),
            labels=shared.read_labels(found.labels),
            annotations=shared.read_own_annotations(found.annotations),
        )

    return Projection(
        wire_type=_ObjectWire, project=project, accept=_PARTIAL_METADATA, accept_list=_PARTIAL_METADATA_LIST
    )
