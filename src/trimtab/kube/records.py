"""What every cached record has, and how raw JSON becomes one.

The API server sends objects of several kilobytes; a loop needs a few hundred bytes of each. A `Shape`
names the part of the JSON that is read (a `wire` struct: msgspec skips the rest without building it)
and how it folds into the compact, interned record that the cache keeps. The raw object is never kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from trimtab.kube.intern import InternTable

W = TypeVar("W")

JSON = "application/json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

Labels = tuple[tuple[str, str], ...]
"""Labels or annotations as sorted pairs: they hash, so that equal sets are kept once. `dict(labels)` gives a mapping."""


class Record(Protocol):
    """An object in a cache, told from its namesakes by uid and from its former selves by version."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def version(self) -> int: ...


R = TypeVar("R", bound=Record)
R_co = TypeVar("R_co", bound=Record, covariant=True)


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The controller of an object."""

    kind: str
    name: str
    uid: str


class OwnerWire(msgspec.Struct, gc=False):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class MetadataWire(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerWire] = []


@dataclass(frozen=True, slots=True)
class Shape(Generic[R_co]):
    """How one resource is read: what to ask for, what to decode, how to fold it."""

    wire: type[Any]
    fold: Callable[[Any], R_co]
    accept: str = JSON


class Folding:
    """The folding shared by all shapes of one cache, with its table of values seen."""

    OUR_PREFIX = "trimtab.io/"

    def __init__(self, *, intern: InternTable | None = None) -> None:
        self.intern = intern or InternTable()

    def labels(self, labels: Mapping[str, str]) -> Labels:
        if not labels:
            return ()
        intern = self.intern
        return intern(tuple([intern(pair) for pair in sorted(labels.items())]))

    def our_annotations(self, annotations: Mapping[str, str]) -> Labels:
        """Only our own annotations are kept: others' can be of any size."""
        ours = {key: value for key, value in annotations.items() if key.startswith(self.OUR_PREFIX)}
        return self.labels(ours)

    def owner(self, references: list[OwnerWire]) -> Owner | None:
        for reference in references:
            if reference.controller:
                return self.intern(Owner(reference.kind, reference.name, reference.uid))
        return None


def version_number(resource_version: str) -> int:
    """A resource version as a number to compare by, as Kubernetes 1.35 and later promise; 0 when it is none."""
    return int(resource_version) if resource_version.isdecimal() else 0


def seconds(timestamp: str | None) -> int:
    """An RFC 3339 time as whole seconds since 1970; 0 when there is none."""
    return int(datetime.fromisoformat(timestamp).timestamp()) if timestamp else 0
