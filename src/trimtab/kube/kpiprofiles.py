"""KPIProfiles, folded to who they are and how they measure."""

from __future__ import annotations

import msgspec

from trimtab.api import KPIProfile as KPIProfileKind
from trimtab.api.errors import InvalidObjectError
from trimtab.api.kpiprofile import KPIProfileSpec
from trimtab.kube.intern import Memo
from trimtab.kube.records import Folding, MetadataWire, Shape, version_number

ProfileKey = tuple[str, str]
"""The namespace and the name of a profile."""


class KPIProfile(msgspec.Struct, frozen=True, eq=False):
    """One KPIProfile."""

    namespace: str
    name: str
    uid: str
    version: int
    generation: int
    spec: KPIProfileSpec | None
    """None for one that was let in before its kind knew better,"""
    problem: str
    """and this is what is wrong with it."""
    status: bytes
    """As the server sent it."""

    @property
    def key(self) -> ProfileKey:
        return self.namespace, self.name


class _ProfileWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


def profile_key(measured_by: str, namespace: str) -> ProfileKey:
    """Which profile an objective of this namespace means."""
    elsewhere, slash, name = measured_by.rpartition("/")
    return (elsewhere if slash else namespace), name


def kpi_profiles(folding: Folding | None = None) -> Shape[KPIProfile]:
    """Read KPIProfiles as records."""
    shared = folding or Folding()
    specs = Memo(_read)

    def fold(wire: _ProfileWire) -> KPIProfile:
        found = wire.metadata
        spec, problem = specs[bytes(wire.spec)]
        return KPIProfile(
            namespace=shared.intern[found.namespace],
            name=found.name,
            uid=found.uid,
            version=version_number(found.resource_version),
            generation=found.generation,
            spec=spec,
            problem=problem,
            status=bytes(wire.status),
        )

    return Shape(wire=_ProfileWire, fold=fold)


def _read(raw: bytes) -> tuple[KPIProfileSpec | None, str]:
    try:
        return KPIProfileKind.read({"kind": "KPIProfile", "spec": msgspec.json.decode(raw)}).spec, ""
    except InvalidObjectError as error:
        return None, str(error)
