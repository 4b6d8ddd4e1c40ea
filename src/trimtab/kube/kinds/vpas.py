"""VerticalPodAutoscalers (autoscaling.k8s.io/v1), folded to what they ask of a recommender.

The status is kept as the JSON that the server sent, so that whoever writes one can see whether it differs. Left out:
how VPA's own parts put a recommendation into effect, save whether they do.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from trimtab.api.quantity import memory_bytes, millicores
from trimtab.kube.cache.interning import Memo
from trimtab.kube.cache.projection import Folding, MetadataWire, Shape, holds, seconds, version_number
from trimtab.kube.kinds.hpas import Target, TargetWire
from trimtab.kube.kinds.quotas import Amounts
from trimtab.kube.kinds.workloads import BUILT_IN

EVERY_CONTAINER = "*"
_BY_KIND = {resource.kind: resource.group for resource in BUILT_IN}
"""VPA finds the built-in kinds by these alone: with an apiVersion that is long gone, or with none, it acts all the same."""


class ContainerPolicy(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What a VPA wants for one container, or with the name `*` for each that has no policy of its own."""

    container: str = EVERY_CONTAINER
    off: bool = False
    """Whether the container gets no recommendation at all."""
    least: Amounts = Amounts()
    most: Amounts = Amounts()
    resources: tuple[str, ...] = ("cpu", "memory")
    """What is recommended."""
    limits_follow: bool = True
    """Whether limits change with requests; if not, a request has to stay below its limit."""


class Vpa(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One VerticalPodAutoscaler."""

    namespace: str
    name: str
    uid: str
    version: int
    generation: int
    created: int
    target: Target
    recommenders: tuple[str, ...]
    policies: tuple[ContainerPolicy, ...]
    status: bytes
    """As the server sent it."""
    applies: bool = True
    """Whether VPA's own parts change pods by it, when they are made or while they run."""

    def policy(self, container: str) -> ContainerPolicy:
        """What holds for a container: its own policy before that for every container."""
        named = {policy.container: policy for policy in self.policies}
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
    target_ref: TargetWire = TargetWire()
    update_policy: _UpdatePolicyWire | None = None
    recommenders: tuple[_RecommenderWire, ...] = ()
    resource_policy: Annotated[msgspec.Raw, holds(_ResourcePolicyWire)] = msgspec.Raw(b"{}")


class _VpaWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _SpecWire = _SpecWire()
    status: msgspec.Raw = msgspec.Raw(b"{}")


def vpas(folding: Folding | None = None) -> Shape[Vpa]:
    """Read VerticalPodAutoscalers as compact records."""
    shared = folding or Folding()
    policies = Memo(_policies)

    def fold(wire: _VpaWire) -> Vpa:
        found, spec = wire.metadata, wire.spec
        return Vpa(
            namespace=shared.intern[found.namespace],
            name=found.name,
            uid=found.uid,
            version=version_number(found.resource_version),
            generation=found.generation,
            created=seconds(found.creation_timestamp),
            target=_target(spec.target_ref),
            recommenders=shared.intern[tuple(recommender.name for recommender in spec.recommenders)],
            policies=shared.intern[policies[bytes(spec.resource_policy)]],
            status=bytes(wire.status),
            applies=spec.update_policy is None or spec.update_policy.update_mode != "Off",
        )

    return Shape(wire=_VpaWire, fold=fold)


def _target(wire: TargetWire) -> Target:
    found = wire.target()
    return Target(found.kind, _BY_KIND.get(found.kind, found.group), found.name)


def _policies(raw: bytes) -> tuple[ContainerPolicy, ...]:
    wire = msgspec.json.decode(raw, type=_ResourcePolicyWire)
    return tuple(_policy(policy) for policy in wire.container_policies)


def _policy(wire: _ContainerPolicyWire) -> ContainerPolicy:
    wanted = wire.controlled_resources
    return ContainerPolicy(
        container=wire.container_name,
        off=wire.mode == "Off",
        least=_amounts(wire.min_allowed),
        most=_amounts(wire.max_allowed),
        resources=ContainerPolicy().resources if wanted is None else wanted,
        limits_follow=wire.controlled_values != "RequestsOnly",
    )


def _amounts(allowed: dict[str, str | int]) -> Amounts:
    """A bound of 0 is none; the CRD lets quantities be whole numbers, too."""
    cpu, memory = (str(allowed.get(resource, "0")) for resource in ("cpu", "memory"))
    return Amounts(millicores(cpu) or None, memory_bytes(memory) or None)
