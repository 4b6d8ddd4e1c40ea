"""Project raw JSON to the compact records that caches keep.

The API server sends objects of several kilobytes; a controller needs a few hundred bytes of each. A `Projection`
names the part of the JSON that is decoded (a `wire` struct: msgspec skips the rest without building it) and the
function that turns it into a compact, interned record. The raw object is never kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Generic, Protocol, TypeVar

import msgspec

from trimtab.kube.cache.interning import InternTable, Memo
from trimtab.kube.rest.resources import JSON

W = TypeVar("W")

_ANNOTATION_PREFIX = b"trimtab.io/"

Labels = tuple[tuple[str, str], ...]
"""Labels or annotations as sorted pairs, which are hashable, so that equal sets are kept once; `dict(labels)` gives a
mapping."""


class Versioned(Protocol):
    """One version of an object."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...


class CachedObject(Versioned, Protocol):
    """An object in a cache, identified by uid and ordered by version."""

    @property
    def uid(self) -> str: ...


R = TypeVar("R", bound=CachedObject)
R_co = TypeVar("R_co", bound=CachedObject, covariant=True)


class OwnerReference(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The controller of an object."""

    kind: str
    name: str
    uid: str


class _OwnerReferenceWire(msgspec.Struct, frozen=True, gc=False):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


def decoded_as(kind: Any) -> msgspec.Meta:
    """Declare the type that a raw part of a wire struct is decoded as later; tests check it against the server's
    schema.
    """
    return msgspec.Meta(extra={"decoded_as": kind})


RawLabels = Annotated[msgspec.Raw, decoded_as(dict[str, str])]


class MetadataWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Metadata as sent. The parts that replicas share stay raw, so that they are decoded once for all of them."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    generation: int = 0
    labels: RawLabels = msgspec.Raw(b"{}")
    annotations: RawLabels = msgspec.Raw(b"{}")
    owner_references: Annotated[msgspec.Raw, decoded_as(list[_OwnerReferenceWire])] = msgspec.Raw(b"[]")

    @property
    def version(self) -> int:
        return parse_resource_version(self.resource_version)


_LABELS = msgspec.json.Decoder(dict[str, str])
_OWNERS = msgspec.json.Decoder(list[_OwnerReferenceWire])


@dataclass(frozen=True, slots=True)
class Projection(Generic[R_co]):
    """The way one resource is read: the media types to request, the struct to decode, the function to project it."""

    wire_type: type[Any]
    project: Callable[[Any], R_co]
    accept: str = JSON
    """The media type of a watched object."""
    accept_list: str = JSON
    """The media type of a page of a list."""


MAX_KEPT_ANNOTATION = 256
"""The longest value of an annotation of others that is kept."""


class ProjectionCache:
    """The interned values and memoized JSON that all projections share."""

    def __init__(self, *, annotations: Iterable[str] = ()) -> None:
        """Create an empty cache; `annotations` are the keys of those that are kept besides our own."""
        self._kept_annotations = frozenset(annotations)
        self._kept_bytes = tuple(key.encode() for key in self._kept_annotations)
        self.intern = InternTable()
        self._labels = Memo(self._parse_labels)
        self._owners = Memo(self._parse_owner)

    def read_labels(self, raw: msgspec.Raw) -> Labels:
        return self._labels[bytes(raw)]

    def read_own_annotations(self, raw: msgspec.Raw) -> Labels:
        """Return our own annotations, and short ones that are kept: those of others can be of any size."""
        text = bytes(raw)
        if _ANNOTATION_PREFIX not in text and not any(key in text for key in self._kept_bytes):
            return ()
        return tuple(pair for pair in self._parse_labels(text) if self._is_kept(*pair))

    def _is_kept(self, key: str, value: str) -> bool:
        return key.startswith(_ANNOTATION_PREFIX.decode()) or (
            key in self._kept_annotations and len(value) <= MAX_KEPT_ANNOTATION
        )

    def read_owner(self, raw: msgspec.Raw) -> OwnerReference | None:
        return self._owners[bytes(raw)]

    def _parse_labels(self, text: bytes) -> Labels:
        intern = self.intern
        pairs = sorted(_LABELS.decode(text).items())
        labels: Labels = intern[tuple([intern[intern[key], value] for key, value in pairs])]
        return labels

    def _parse_owner(self, text: bytes) -> OwnerReference | None:
        for found in _OWNERS.decode(text):
            if found.controller:
                owner: OwnerReference = self.intern[
                    OwnerReference(self.intern[found.kind], found.name, found.uid)
                ]
                return owner
        return None


def parse_resource_version(resource_version: str) -> int:
    """Parse a resource version to a number, which Kubernetes 1.35 and later guarantee to be comparable; 0 if it is
    not a number.
    """
    return int(resource_version) if resource_version.isdecimal() else 0


def to_unix_seconds(time: datetime | None) -> int:
    """Convert a time to whole seconds since 1970; 0 if there is none."""
    return int(time.timestamp()) if time is not None else 0
