"""What a namespace allows: LimitRanges for each container and pod, ResourceQuotas for all of them together.

Only CPU and memory are read; quotas of storage or of numbers of objects are nothing that sizing could run into.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trimtab.api.quantity import Quantity, memory_bytes, millicores
from trimtab.kube.cache.projection import Folding, MetadataWire, Shape, version_number


class Amounts(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Millicores and bytes; None where nothing is said."""

    cpu: int | None = None
    memory: int | None = None


class Ratios(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """How many times its request a limit may be; None where nothing is said."""

    cpu: float | None = None
    memory: float | None = None


class Limits(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What a LimitRange says of each `Container` or each `Pod`."""

    type: str
    least: Amounts
    most: Amounts
    default_request: Amounts
    default_limit: Amounts
    ratio: Ratios


class LimitRange(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One LimitRange."""

    namespace: str
    name: str
    uid: str
    version: int
    limits: tuple[Limits, ...]


class Quota(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One ResourceQuota: what the requests and limits of a namespace may add up to, and what they do."""

    namespace: str
    name: str
    uid: str
    version: int
    hard_requests: Amounts
    hard_limits: Amounts
    used_requests: Amounts
    used_limits: Amounts
    scoped: bool
    """Whether it counts only some pods, by priority or QoS class."""


class _LimitWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    type: str = ""
    min: dict[str, str] = {}
    max: dict[str, str] = {}
    default: dict[str, str] = {}
    default_request: dict[str, str] = {}
    max_limit_request_ratio: dict[str, str] = {}


class _LimitRangeSpecWire(msgspec.Struct, frozen=True, gc=False):
    limits: tuple[_LimitWire, ...] | None = ()  # null where nothing is limited: the server lets that in


class _LimitRangeWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _LimitRangeSpecWire = _LimitRangeSpecWire()


class _QuotaSpecWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    scopes: tuple[str, ...] = ()
    scope_selector: msgspec.Raw = msgspec.Raw(b"")


class _QuotaStatusWire(msgspec.Struct, frozen=True, gc=False):
    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class _QuotaWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _QuotaSpecWire = _QuotaSpecWire()
    status: _QuotaStatusWire = _QuotaStatusWire()


def limit_ranges(folding: Folding | None = None) -> Shape[LimitRange]:
    """Read LimitRanges as compact records."""
    shared = folding or Folding()

    def fold(wire: _LimitRangeWire) -> LimitRange:
        found = wire.metadata
        return LimitRange(
            namespace=shared.intern[found.namespace],
            name=found.name,
            uid=found.uid,
            version=version_number(found.resource_version),
            limits=shared.intern[tuple(_limits(limit) for limit in wire.spec.limits or ())],
        )

    return Shape(wire=_LimitRangeWire, fold=fold)


def quotas(folding: Folding | None = None) -> Shape[Quota]:
    """Read ResourceQuotas as compact records."""
    shared = folding or Folding()

    def fold(wire: _QuotaWire) -> Quota:
        found, hard, used = wire.metadata, wire.status.hard, wire.status.used
        return Quota(
            namespace=shared.intern[found.namespace],
            name=found.name,
            uid=found.uid,
            version=version_number(found.resource_version),
            hard_requests=_requests(hard),
            hard_limits=_amounts(hard, "limits."),
            used_requests=_requests(used),
            used_limits=_amounts(used, "limits."),
            scoped=bool(wire.spec.scopes or bytes(wire.spec.scope_selector)),
        )

    return Shape(wire=_QuotaWire, fold=fold)


def _limits(wire: _LimitWire) -> Limits:
    ratio = wire.max_limit_request_ratio
    return Limits(
        type=wire.type,
        least=_amounts(wire.min),
        most=_amounts(wire.max),
        default_request=_amounts(wire.default_request),
        default_limit=_amounts(wire.default),
        ratio=Ratios(*(_ratio(ratio.get(resource)) for resource in ("cpu", "memory"))),
    )


def _requests(amounts: Mapping[str, str]) -> Amounts:
    """A quota may call `requests.cpu` plainly `cpu`; of the two the former is what counts."""
    plain, named = _amounts(amounts), _amounts(amounts, "requests.")
    return Amounts(
        plain.cpu if named.cpu is None else named.cpu,
        plain.memory if named.memory is None else named.memory,
    )


def _amounts(amounts: Mapping[str, str], prefix: str = "") -> Amounts:
    cpu, memory = amounts.get(prefix + "cpu"), amounts.get(prefix + "memory")
    return Amounts(None if cpu is None else millicores(cpu), None if memory is None else memory_bytes(memory))


def _ratio(text: str | None) -> float | None:
    return None if text is None else Quantity.parse(text).cores
