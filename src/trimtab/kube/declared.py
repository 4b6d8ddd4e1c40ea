"""What users declare in kinds of ours: who an object is, what it wants, and its status as the server sent it.

Equal specs are read once. The status stays the JSON that it came in, so that whoever writes one can see whether it
differs, and since when a verdict stands outlives a restart. Left out: OptimizationPolicies, of which there may be
thousands, and which nobody reads the status of (`policies`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from trimtab.api.errors import InvalidObjectError
from trimtab.api.kind import Kind
from trimtab.kube.intern import Memo
from trimtab.kube.records import Folding, MetadataWire, Shape, seconds, version_number

S = TypeVar("S")


class Declared(msgspec.Struct, Generic[S], frozen=True, eq=False):
    """One object; `S` is the model of its spec."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    version: int = 0
    generation: int = 0
    created: int = 0
    spec: S | None = None
    """None for one that was let in before its kind knew better,"""
    problem: str = ""
    """and this is what is wrong with it."""
    status: bytes = b"{}"
    """As the server sent it."""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


D = TypeVar("D", bound=Declared[Any])


class _DeclaredWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


def declared(kind: type[Kind], record: type[D], folding: Folding | None = None) -> Shape[D]:
    """Read objects of a kind as such records."""
    shared = folding or Folding()
    specs = Memo(partial(_read, kind))

    def fold(wire: _DeclaredWire) -> D:
        found = wire.metadata
        spec, problem = specs[bytes(wire.spec)]
        return record(
            namespace=shared.intern[found.namespace],
            name=found.name,
            uid=found.uid,
            version=version_number(found.resource_version),
            generation=found.generation,
            created=seconds(found.creation_timestamp),
            spec=spec,
            problem=problem,
            status=bytes(wire.status),
        )

    return Shape(wire=_DeclaredWire, fold=fold)


def _read(kind: type[Kind], raw: bytes) -> tuple[Any, str]:
    try:
        found = kind.read({"kind": kind.__name__, "spec": msgspec.json.decode(raw)})
    except InvalidObjectError as error:
        return None, str(error)
    return vars(found)["spec"], ""
