"""NodeQoSPolicies, and which of them holds on a node: the heaviest that selects it, and of equals the first by name.

The agent of a node asks for its own; the operator counts on how many nodes each holds. Both ask here, and so agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from trimtab.api import NodeQoSPolicy
from trimtab.api.errors import InvalidObjectError
from trimtab.api.nodeqospolicy import NodeQoSPolicySpec
from trimtab.kube.intern import Memo
from trimtab.kube.records import MetadataWire, Shape, version_number


class QosPolicy(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One NodeQoSPolicy."""

    name: str
    uid: str
    version: int
    generation: int = 0
    spec: NodeQoSPolicySpec | None
    """None for one that makes no sense, let in before its kind knew better; it then holds nowhere,"""
    problem: str = ""
    """and this is what is wrong with it."""
    status: bytes = b"{}"
    """As the server sent it."""
    namespace: str = ""


class _PolicyWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


def qos_policies() -> Shape[QosPolicy]:
    """Read NodeQoSPolicies as records; equal specs are read once."""
    specs = Memo(_read)

    def fold(wire: _PolicyWire) -> QosPolicy:
        found = wire.metadata
        spec, problem = specs[bytes(wire.spec)]
        return QosPolicy(
            name=found.name,
            uid=found.uid,
            version=version_number(found.resource_version),
            generation=found.generation,
            spec=spec,
            problem=problem,
            status=bytes(wire.status),
        )

    return Shape(wire=_PolicyWire, fold=fold)


def policy_for(labels: Mapping[str, str], policies: Iterable[QosPolicy]) -> QosPolicy | None:
    """The one that holds on a node with these labels."""
    selecting = [
        (-policy.spec.weight, policy.name, policy)
        for policy in policies
        if policy.spec is not None
        and (policy.spec.node_selector is None or policy.spec.node_selector.matches(labels))
    ]
    return min(selecting, key=lambda one: one[:2])[2] if selecting else None


def _read(raw: bytes) -> tuple[NodeQoSPolicySpec | None, str]:
    try:
        return NodeQoSPolicy.read({"kind": "NodeQoSPolicy", "spec": msgspec.json.decode(raw)}).spec, ""
    except InvalidObjectError as error:
        return None, str(error)
