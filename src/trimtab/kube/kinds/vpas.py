"""VerticalPodAutoscalers (autoscaling.k8s.io/v1), projected to what they request of a recommender.

The status is kept as the JSON that the server sent, so that a writer can compare it with the new one. Of the way
VPA's own components apply recommendations, only `updates_pods` is kept.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from trimtab.api.quantity import parse_memory_bytes, parse_millicores
from trimtab.kube.cache.interning import Memo
from trimtab.kube.cache.projection import (
    MetadataWire,
    Projection,
    ProjectionCache,
    decoded_as,
    parse_resource_version,
    to_unix_seconds,
)
from trimtab.kube.kinds.hpas import AutoscalerTarget, AutoscalerTargetWire
from trimtab.kube.kinds.quotas import ResourceList
from trimtab.kube.kinds.workloads import BUILT_IN

EVERY_CONTAINER = "*"
_GROUP_BY_KIND = {resource.kind: resource.group for resource in BUILT_IN}
"""The API group of each built-in kind: VPA resolves these kinds by name alone, even with an obsolete apiVersion or
none."""


class ContainerPolicy(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The settings for one container, or with the name `*` for each that has no policy of its own."""

    container: str = EVERY_CONTAINER
    is_off: bool = False
    """The container gets no recommendation at all."""
    min_allowed: ResourceList = ResourceList()
    max_allowed: ResourceList = ResourceList()
    controlled_resources: tuple[str, ...] = ("cpu", "memory")
    """The resources that are recommended."""
    controls_limits: bool = True
    """Limits change with requests; if false, a request must stay below its limit."""


class VerticalPodAutoscaler(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One VerticalPodAutoscaler."""

    namespace: str
    name: str
    uid: str
    version: int
    generation: int
    created: int
    target: AutoscalerTarget
    recommenders: tuple[str, ...]
    container_policies: tuple[ContainerPolicy, ...]
    status: bytes
    """The status as the server sent it."""
    updates_pods: bool = True
    """VPA's own components change pods according to it, on creation or while they run."""

    def container_policy(self, container: str) -> ContainerPolicy:
        """Return the policy for a container: its own, or the one for every container."""
        named = {policy.container: policy for policy in self.container_policies}
        return named.get(container) or named.get(EVERY_CONTAINER) or ContainerPolicy()


class _RecommenderWire(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _ContainerPolicyWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    container_name: str = ""
    mode: str | None = None
    min_allowed: dict[str, str | int] = {}
    max_allowed: dict[str, str | int] = {}
    controlled_resources: tuple[str, ...] | None = None
    controlled_values: str | None = None


class _ResourcePolicyWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    container_policies: tuple[_ContainerPolicyWire, ...] = ()


class _UpdatePolicyWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    update_mode: str | None = None


class _SpecWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    target_ref: AutoscalerTargetWire = AutoscalerTargetWire()
    update_policy: _UpdatePolicyWire | None = None
    recommenders: tuple[_RecommenderWire, ...] = ()
    resource_policy: Annotated[msgspec.Raw, decoded_as(_ResourcePolicyWire)] = msgspec.Raw(b"{}")


class _VpaWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _SpecWire = _SpecWire()
    status: msgspec.Raw = msgspec.Raw(b"{}")


def vpa_projection(cache: ProjectionCache | None = None) -> Projection[VerticalPodAutoscaler]:
    """Read VerticalPodAutoscalers as compact records."""
    shared = cache or ProjectionCache()
    policies = Memo(_read_policies)

    def project(wire: _VpaWire) -> VerticalPodAutoscaler:
        found, spec = wire.metadata, wire.spec
        return VerticalPodAutoscaler(
            namespace=shared.intern[found.namespace],
            name=found.name,
            uid=found.uid,
            version=parse_resource_version(found.resource_version),
            generation=found.generation,
            created=to_unix_seconds(found.creation_timestamp),
            target=_resolve_target(spec.target_ref),
            recommenders=shared.intern[tuple(recommender.name for recommender in spec.recommenders)],
            container_policies=shared.intern[policies[bytes(spec.resource_policy)]],
            status=bytes(wire.status),
            updates_pods=spec.update_policy is None or spec.update_policy.update_mode != "Off",
        )

    return Projection(wire_type=_VpaWire, project=project)


def _resolve_target(wire: AutoscalerTargetWire) -> AutoscalerTarget:
    found = wire.to_target()
    return AutoscalerTarget(found.kind, _GROUP_BY_KIND.get(found.kind, found.group), found.name)


def _read_policies(raw: bytes) -> tuple[ContainerPolicy, ...]:
    wire = msgspec.json.decode(raw, type=_ResourcePolicyWire)
    return tuple(_read_policy(policy) for policy in wire.container_policies)


def _read_policy(wire: _ContainerPolicyWire) -> ContainerPolicy:
    controlled = wire.controlled_resources
    return ContainerPolicy(
        container=wire.container_name,
        is_off=wire.mode == "Off",
        min_allowed=_read_amounts(wire.min_allowed),
        max_allowed=_read_amounts(wire.max_allowed),
        controlled_resources=ContainerPolicy().controlled_resources if controlled is None else controlled,
        controls_limits=wire.controlled_values != "RequestsOnly",
    )


def _read_amounts(allowed: dict[str, str | int]) -> ResourceList:
    """Read a bound; 0 means none, and the CRD also allows whole numbers as quantities."""
    cpu, memory = (str(allowed.get(resource, "0")) for resource in ("cpu", "memory"))
    return ResourceList(parse_millicores(cpu) or None, parse_memory_bytes(memory) or None)
