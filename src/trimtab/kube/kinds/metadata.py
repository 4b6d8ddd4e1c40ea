"""Objects of which only the metadata matters, such as ReplicaSets and Jobs between a pod and its workload.

The server is asked for PartialObjectMetadata, so spec and status never travel.
"""

from __future__ import annotations

import msgspec

from trimtab.kube.cache.projection import (
    Folding,
    Labels,
    MetadataWire,
    Owner,
    Shape,
    seconds,
    version_number,
)

_ONLY_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_ONLY_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Metadata(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Who an object is and who controls it."""

    namespace: str
    name: str
    uid: str
    version: int
    generation: int
    created: int
    deleting: bool
    owner: Owner | None
    labels: Labels
    annotations: Labels


class _ObjectWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()


def metadata(folding: Folding | None = None) -> Shape[Metadata]:
    """Read any resource as its metadata alone."""
    shared = folding or Folding()

    def fold(wire: _ObjectWire) -> Metadata:
        found = wire.metadata
        return Metadata(
            namespace=shared.intern[found.namespace],
            name=found.name,
            uid=found.uid,
            version=version_number(found.resource_version),
            generation=found.generation,
            created=seconds(found.creation_timestamp),
            deleting=found.deletion_timestamp is not None,
            owner=shared.owner(found.owner_references),
            labels=shared.labels(found.labels),
            annotations=shared.our_annotations(found.annotations),
        )

    return Shape(wire=_ObjectWire, fold=fold, accept=_ONLY_METADATA, accept_list=_ONLY_METADATA_LIST)
