"""The constraints of a namespace: LimitRanges for each container and pod, ResourceQuotas for all of them together.

Only CPU and memory are read; quotas of storage or object counts do not affect sizing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trimtab.api.quantity import Quantity, parse_memory_bytes, parse_millicores
from trimtab.kube.cache.projection import MetadataWire, Projection, ProjectionCache, parse_resource_version


class ResourceList(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Millicores and bytes; None if not specified."""

    cpu: int | None = None
    memory: int | None = None


class ResourceRatios(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The maximum ratio of limit to request; None if not specified."""

    cpu: float | None = None
    memory: float | None = None


class LimitRangeItem(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The constraints of a LimitRange for each `Container` or each `Pod`."""

    type: str
    min: ResourceList
    max: ResourceList
    default_request: ResourceList
    default_limit: ResourceList
    max_limit_request_ratio: ResourceRatios


class LimitRange(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One LimitRange."""

    namespace: str
    name: str
    uid: str
    version: int
    limits: tuple[LimitRangeItem, ...]


class ResourceQuota(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One ResourceQuota: the allowed and the current totals of requests and limits in a namespace."""

    namespace: str
    name: str
    uid: str
    version: int
    hard_requests: ResourceList
    hard_limits: ResourceList
    used_requests: ResourceList
    used_limits: ResourceList
    is_scoped: bool
    """The quota counts only some pods, by priority or QoS class."""


class _LimitWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    type: str = ""
    min: dict[str, str] = {}
    max: dict[str, str] = {}
    default: dict[str, str] = {}
    default_request: dict[str, str] = {}
    max_limit_request_ratio: dict[str, str] = {}


class _LimitRangeSpecWire(msgspec.Struct, frozen=True, gc=False):
    limits: tuple[_LimitWire, ...] | None = ()  # may be null: the server accepts that


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


def limit_range_projection(cache: ProjectionCache | None = None) -> Projection[LimitRange]:
    """Read LimitRanges as compact records."""
    shared = cache or ProjectionCache()

    def project(wire: _LimitRangeWire) -> LimitRange:
        found = wire.metadata
        return LimitRange(
            namespace=shared.intern[found.namespace],
            name=found.name,
            uid=found.uid,
            version=parse_resource_version(found.resource_version),
            limits=shared.intern[tuple(_read_limit_range_item(limit) for limit in wire.spec.limits or ())],
        )

    return Projection(wire_type=_LimitRangeWire, project=project)


def resource_quota_projection(cache: ProjectionCache | None = None) -> Projection[ResourceQuota]:
    """Read ResourceQuotas as compact records."""
    shared = cache or ProjectionCache()

    def project(wire: _QuotaWire) -> ResourceQuota:
        found, hard, used = wire.metadata, wire.status.hard, wire.status.used
        return ResourceQuota(
            namespace=shared.intern[found.namespace],
            name=found.name,
            uid=found.uid,
            version=parse_resource_version(found.resource_version),
            hard_requests=_read_requests(hard),
            hard_limits=_read_amounts(hard, "limits."),
            used_requests=_read_requests(used),
            used_limits=_read_amounts(used, "limits."),
            is_scoped=bool(wire.spec.scopes or bytes(wire.spec.scope_selector)),
        )

    return Projection(wire_type=_QuotaWire, project=project)


def _read_limit_range_item(wire: _LimitWire) -> LimitRangeItem:
    ratio = wire.max_limit_request_ratio
    return LimitRangeItem(
        type=wire.type,
        min=_read_amounts(wire.min),
        max=_read_amounts(wire.max),
        default_request=_read_amounts(wire.default_request),
        default_limit=_read_amounts(wire.default),
        max_limit_request_ratio=ResourceRatios(
            *(_parse_ratio(ratio.get(resource)) for resource in ("cpu", "memory"))
        ),
    )


def _read_requests(amounts: Mapping[str, str]) -> ResourceList:
    """Read the requests of a quota; `requests.cpu` takes precedence over its alias `cpu`."""
    plain, named = _read_amounts(amounts), _read_amounts(amounts, "requests.")
    return ResourceList(
        plain.cpu if named.cpu is None else named.cpu,
        plain.memory if named.memory is None else named.memory,
    )


def _read_amounts(amounts: Mapping[str, str], prefix: str = "") -> ResourceList:
    cpu, memory = amounts.get(prefix + "cpu"), amounts.get(prefix + "memory")
    return ResourceList(
        None if cpu is None else parse_millicores(cpu), None if memory is None else parse_memory_bytes(memory)
    )


def _parse_ratio(text: str | None) -> float | None:
    return None if text is None else Quantity.parse(text).cores
