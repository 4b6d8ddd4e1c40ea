"""Objects of our own kinds: identity, spec, and the status as the server sent it.

Equal specs are decoded once. The status stays raw JSON, so that a status writer can compare it with the new one, and
the time of a condition survives a restart. OptimizationPolicies are in `policies`: there may be thousands, and nobody
reads their status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from trimtab.api import Intent as IntentKind
from trimtab.api import KPIProfile as KPIProfileKind
from trimtab.api import NodeQoSPolicy
from trimtab.api.errors import InvalidObjectError
from trimtab.api.intent import IntentSpec, IntentStatus, TargetRef
from trimtab.api.kind import Kind
from trimtab.api.kpiprofile import KPIProfileSpec
from trimtab.api.meta import Document
from trimtab.api.model import upgrade_fields
from trimtab.api.nodeqospolicy import NodeQoSPolicySpec
from trimtab.kube.cache.interning import Memo
from trimtab.kube.cache.projection import (
    MetadataWire,
    Projection,
    ProjectionCache,
    parse_resource_version,
    to_unix_seconds,
)
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.kube.kinds.workloads import WorkloadKey, qualify_kind

S = TypeVar("S")


class CustomResource(msgspec.Struct, Generic[S], frozen=True, eq=False):
    """One object of our own kinds; `S` is the model of its spec."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    version: int = 0
    generation: int = 0
    created: int = 0
    spec: S | None = None
    """The spec, or None for an object that was admitted before its kind was validated this way."""
    problem: str = ""
    """The reason why the spec is invalid; empty if it is valid."""
    status: bytes = b"{}"
    """The status as the server sent it."""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


D = TypeVar("D", bound=CustomResource[Any])


class _CustomResourceWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


def custom_resource_projection(
    kind: type[Kind], record: type[D], cache: ProjectionCache | None = None
) -> Projection[D]:
    """Read objects of a kind as records of this type."""
    shared = cache or ProjectionCache()
    specs = Memo(partial(_read_spec, kind))

    def project(wire: _CustomResourceWire) -> D:
        found = wire.metadata
        spec, problem = specs[bytes(wire.spec)]
        return record(
            namespace=shared.intern[found.namespace],
            name=found.name,
            uid=found.uid,
            version=parse_resource_version(found.resource_version),
            generation=found.generation,
            created=to_unix_seconds(found.creation_timestamp),
            spec=spec,
            problem=problem,
            status=bytes(wire.status),
        )

    return Projection(wire_type=_CustomResourceWire, project=project)


def _read_spec(kind: type[Kind], raw: bytes) -> tuple[Any, str]:
    try:
        found = kind.read({"kind": kind.__name__, "spec": msgspec.json.decode(raw)})
    except InvalidObjectError as error:
        return None, str(error)
    return vars(found)["spec"], ""


IntentKey = tuple[str, str]
"""The namespace and the name of an intent."""


class IntentRecord(CustomResource[IntentSpec], frozen=True, eq=False):
    """One Intent."""

    @property
    def target(self) -> WorkloadKey | None:
        """The workload that the intent targets; it need not exist."""
        return resolve_target_key(self.spec.target_ref, self.namespace) if self.spec else None

    def read_status(self) -> Document:
        """Return the stored status; empty where the operator cannot have written it.

        Whoever may write the status can store anything: the API server accepts the 31st of February.
        """
        try:
            status = upgrade_intent_status(msgspec.json.decode(self.status) or {})
            IntentStatus.model_validate(status)
        except (*DECODE_ERRORS, AttributeError, TypeError, ValueError):
            return {}
        return status

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def upgrade_intent_status(status: Document) -> Document:
    """Return a status with the fields of the first version under their present names.

    The status is also the loop's memory: without the old `performedAt`, an upgrade would end a cool-down early.
    """
    return upgrade_fields(IntentStatus, status)[0]


def resolve_target_key(target: TargetRef, namespace: str) -> WorkloadKey:
    group, slash, _ = target.api_version.rpartition("/")
    # A kind may include its group, as in policies.
    kind = target.kind if "." in target.kind else qualify_kind(target.kind, group if slash else "")
    return WorkloadKey(kind, namespace, target.name)


def intent_projection(cache: ProjectionCache | None = None) -> Projection[IntentRecord]:
    """Read Intents as records."""
    return custom_resource_projection(IntentKind, IntentRecord, cache)


ProfileKey = tuple[str, str]
"""The namespace and the name of a profile."""


class KPIProfileRecord(CustomResource[KPIProfileSpec], frozen=True, eq=False):
    """One KPIProfile."""


def resolve_profile_key(measured_by: str, namespace: str) -> ProfileKey:
    """Return the key of the profile that an objective in this namespace refers to."""
    elsewhere, slash, name = measured_by.rpartition("/")
    return (elsewhere if slash else namespace), name


def kpi_profile_projection(cache: ProjectionCache | None = None) -> Projection[KPIProfileRecord]:
    """Read KPIProfiles as records."""
    return custom_resource_projection(KPIProfileKind, KPIProfileRecord, cache)


class QosPolicy(CustomResource[NodeQoSPolicySpec], frozen=True, eq=False):
    """One NodeQoSPolicy; a policy with an invalid spec applies nowhere."""


def qos_policy_projection() -> Projection[QosPolicy]:
    """Read NodeQoSPolicies as records."""
    return custom_resource_projection(NodeQoSPolicy, QosPolicy)


def select_qos_policy(labels: Mapping[str, str], policies: Iterable[QosPolicy]) -> QosPolicy | None:
    """Return the policy that applies on a node with these labels: the heaviest, then the first by name."""
    selecting = [
        (-policy.spec.weight, policy.name, policy)
        for policy in policies
        if policy.spec is not None
        and (policy.spec.node_selector is None or policy.spec.node_selector.matches(labels))
    ]
    return min(selecting, key=lambda one: one[:2])[2] if selecting else None


class NodeKnob(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A kernel setting that the agent manages, with the reason for its value."""

    where: str = ""
    knob: str = ""
    value: str = ""
    why: str = ""


class NodeReport(msgspec.Struct, frozen=True, gc=False):
    """The last report of an agent about its node."""

    name: str
    uid: str = ""
    version: int = 0
    reported_at: float | None = None
    pressure: tuple[tuple[str, float], ...] = ()
    """The share of time, 0 to 1, in which some task waited for each resource."""
    knobs: tuple[NodeKnob, ...] = ()
    policy: str = ""

    @property
    def namespace(self) -> str:
        return ""


class _StatusWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    update_time: datetime | None = None
    pressure: dict[str, float | None] | None = None
    knobs: tuple[NodeKnob, ...] = ()
    qos_policy: str | None = None


class _NodeMetricWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    status: _StatusWire = _StatusWire()


def node_report_projection() -> Projection[NodeReport]:
    """Read NodeMetrics as compact records."""

    def project(wire: _NodeMetricWire) -> NodeReport:
        metadata, status = wire.metadata, wire.status
        return NodeReport(
            name=metadata.name,
            uid=metadata.uid,
            version=parse_resource_version(metadata.resource_version),
            reported_at=status.update_time.timestamp() if status.update_time else None,
            pressure=tuple(
                (name, each) for name, each in (status.pressure or {}).items() if each is not None
            ),
            knobs=status.knobs,
            policy=status.qos_policy or "",
        )

    return Projection(wire_type=_NodeMetricWire, project=project)
