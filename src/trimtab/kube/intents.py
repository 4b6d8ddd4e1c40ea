"""Intents, folded to who they are and what they want.

The status is kept as the JSON that the server sent, so that whoever writes one can see whether it differs, and since
when a verdict stands outlives a restart.
"""

from __future__ import annotations

import msgspec

from trimtab.api import Intent as IntentKind
from trimtab.api.errors import InvalidObjectError
from trimtab.api.intent import IntentSpec, TargetRef
from trimtab.kube.intern import Memo
from trimtab.kube.records import Folding, MetadataWire, Shape, seconds, version_number
from trimtab.kube.workloads import WorkloadKey, kind_name

IntentKey = tuple[str, str]
"""The namespace and the name of an intent."""


class Intent(msgspec.Struct, frozen=True, eq=False):
    """One Intent."""

    namespace: str
    name: str
    uid: str
    version: int
    generation: int
    created: int
    spec: IntentSpec | None
    """None for one that was let in before its kind knew better,"""
    problem: str
    """and this is what is wrong with it."""
    status: bytes
    """As the server sent it."""

    @property
    def key(self) -> IntentKey:
        return self.namespace, self.name

    @property
    def target(self) -> WorkloadKey | None:
        """The workload that it is about, be it there or not."""
        return target_key(self.spec.target_ref, self.namespace) if self.spec else None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class _IntentWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


def target_key(target: TargetRef, namespace: str) -> WorkloadKey:
    group, slash, _ = target.api_version.rpartition("/")
    # A kind may be spelled with its group, as policies do.
    kind = target.kind if "." in target.kind else kind_name(target.kind, group if slash else "")
    return WorkloadKey(kind, namespace, target.name)


def intents(folding: Folding | None = None) -> Shape[Intent]:
    """Read Intents as records."""
    shared = folding or Folding()
    specs = Memo(_read)

    def fold(wire: _IntentWire) -> Intent:
        found = wire.metadata
        spec, problem = specs[bytes(wire.spec)]
        return Intent(
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

    return Shape(wire=_IntentWire, fold=fold)


def _read(raw: bytes) -> tuple[IntentSpec | None, str]:
    try:
        return IntentKind.read({"kind": "Intent", "spec": msgspec.json.decode(raw)}).spec, ""
    except InvalidObjectError as error:
        return None, str(error)
