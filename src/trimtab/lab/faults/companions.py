"""Objects beside the workloads of a drawn world: Intents with their KPIProfiles, and autoscalers.

They are plain data, as the rest of a world is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from trimtab.api.intent import IntentSpec
from trimtab.api.kpiprofile import KPIProfileSpec
from trimtab.api.quantity import MIB
from trimtab.kube.kinds.custom import IntentRecord, KPIProfileRecord
from trimtab.kube.kinds.hpas import AutoscalerTarget, HorizontalPodAutoscaler, UtilizationTarget
from trimtab.kube.kinds.quotas import ResourceList
from trimtab.kube.kinds.vpas import ContainerPolicy, VerticalPodAutoscaler
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import HPAS, INTENTS, KPI_PROFILES, VPAS, Resource
from trimtab.lab.simulator.objects import derive_uid
from trimtab.operator.vpa.status import RECOMMENDER

LATENCY_PROFILE, AVAILABILITY_PROFILE = "p99", "availability"
_PROFILES: dict[str, dict[str, Any]] = {
    LATENCY_PROFILE: {
        "type": "latency",
        "query": 'simulated_seconds_p99{namespace="$namespace",container="$name"}',
        "props": {"load": 'simulated_requests{namespace="$namespace",container="$name"}'},
    },
    AVAILABILITY_PROFILE: {"type": "availability"},
}


class IntentDraw(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An Intent of a drawn world."""

    name: str
    target: WorkloadKey
    objectives: dict[str, float]
    """The value of each objective, by the KPIProfile that measures it."""
    priority: float = 0.5
    active: bool = True

    def build(self, *, version: int = 1, created: int = 0) -> IntentRecord:
        """Build the Intent as the operator reads it."""
        spec = IntentSpec.model_validate(
            {
                "targetRef": {"kind": self.target.kind, "name": self.target.name},
                "priority": self.priority,
                "active": self.active,
                "objectives": [
                    {"name": profile, "value": value, "measuredBy": profile, "tolerance": 0.1}
                    for profile, value in self.objectives.items()
                ],
            }
        )
        return IntentRecord(
            namespace=self.target.namespace,
            name=self.name,
            uid=derive_uid("intent", self.name, created),
            version=version,
            generation=version,
            created=created,
            spec=spec,
            problem="",
            status=b"{}",
        )


class VpaDraw(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A VerticalPodAutoscaler of a drawn world, which has Trimtab as its recommender."""

    target: WorkloadKey
    updates_pods: bool = False
    """Its own components change pods, so that no policy may."""
    min_allowed: tuple[int, int] = (1, 1)
    """The least millicores and bytes that it recommends."""
    max_allowed: tuple[int, int] = (100_000, 1 << 40)

    def build(self, *, version: int = 1) -> VerticalPodAutoscaler:
        """Build the VerticalPodAutoscaler as the operator reads it."""
        bounds = ContainerPolicy(
            min_allowed=ResourceList(*self.min_allowed), max_allowed=ResourceList(*self.max_allowed)
        )
        return VerticalPodAutoscaler(
            namespace=self.target.namespace,
            name=f"{self.target.name}-vpa",
            uid=derive_uid("vpa", self.target.name, version),
            version=version,
            generation=1,
            created=0,
            target=_find_target(self.target),
            recommenders=(RECOMMENDER,),
            container_policies=(bounds,),
            status=b"{}",
            updates_pods=self.updates_pods,
        )


class HpaDraw(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A HorizontalPodAutoscaler of a drawn world; who scales by it is a fault."""

    target: WorkloadKey
    cpu: int | None = None
    """The CPU utilization that it keeps, in percent; None if it scales by something else."""

    def build(self, *, version: int = 1) -> HorizontalPodAutoscaler:
        """Build the HorizontalPodAutoscaler as the operator reads it."""
        return HorizontalPodAutoscaler(
            namespace=self.target.namespace,
            name=f"{self.target.name}-hpa",
            uid=derive_uid("hpa", self.target.name, version),
            version=version,
            target=_find_target(self.target),
            min_replicas=1,
            max_replicas=10,
            utilization_targets=() if self.cpu is None else (UtilizationTarget("cpu", self.cpu),),
        )


class Companions(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All objects beside the workloads of a world."""

    intents: tuple[IntentDraw, ...] = ()
    vpas: tuple[VpaDraw, ...] = ()
    hpas: tuple[HpaDraw, ...] = ()

    def build(self, namespaces: Sequence[str]) -> Iterator[tuple[Resource, Any]]:
        """Build all objects, each with its resource, and the KPIProfiles of each namespace."""
        for namespace in namespaces:
            for name, document in _PROFILES.items():
                yield (
                    KPI_PROFILES,
                    KPIProfileRecord(
                        namespace=namespace,
                        name=name,
                        uid=derive_uid("kpi-profile", namespace, name),
                        version=1,
                        generation=1,
                        spec=KPIProfileSpec.model_validate(document),
                    ),
                )
        yield from ((INTENTS, each.build()) for each in self.intents)
        yield from ((VPAS, each.build()) for each in self.vpas)
        yield from ((HPAS, each.build()) for each in self.hpas)


def draw_companions(
    rng: random.Random, targets: Sequence[WorkloadKey], services: Sequence[WorkloadKey]
) -> Companions:
    """Draw the objects beside these workloads, of which some are services with a latency."""
    intents = []
    if targets and rng.random() < 0.6:
        for number in range(rng.choice([1, 1, 2])):
            target = rng.choice([*services, *services, *targets])
            intents.append(draw_intent(rng, target, name=f"intent-{number}", is_service=target in services))
    vpas = [_draw_vpa(rng, target) for target in targets if rng.random() < 0.1]
    hpas = [
        HpaDraw(target=target, cpu=rng.choice([None, 60, 80])) for target in targets if rng.random() < 0.1
    ]
    return Companions(intents=tuple(intents), vpas=tuple(vpas), hpas=tuple(hpas))


def draw_intent(rng: random.Random, target: WorkloadKey, *, name: str, is_service: bool) -> IntentDraw:
    """Draw an Intent for a workload: latency for services, availability for all."""
    objectives = {}
    if is_service:
        objectives[LATENCY_PROFILE] = rng.choice([0.03, 0.08, 0.2, 1.0])
    if not objectives or rng.random() < 0.3:
        objectives[AVAILABILITY_PROFILE] = rng.choice([0.9, 0.99, 0.9999])
    return IntentDraw(
        name=name,
        target=target,
        objectives=objectives,
        priority=rng.choice([0.1, 0.5, 0.9]),
        active=rng.random() < 0.85,
    )


def draw_intent_settings(rng: random.Random) -> dict[str, Any]:
    """Draw the operator's settings for Intents; planning ends by the number of states, not by the machine's time."""
    guardrail: dict[str, Any] = {"maxReplicas": rng.choice([4, 8]), "explore": rng.random() < 0.8}
    if rng.random() < 0.3:
        guardrail |= {"minReplicas": 2, "maxCpu": "1", "maxMemory": "1Gi"}
    return {
        "coolDown": rng.choice(["5m", "20m"]),
        "releaseAfter": rng.choice(["5m", "2h"]),
        "maxSampleAge": "15m",
        "planningTimeout": "1m",
        "maxStates": 300,
        "guardrails": [guardrail],
    }


def _draw_vpa(rng: random.Random, target: WorkloadKey) -> VpaDraw:
    bounds: dict[str, Any] = {}
    if rng.random() < 0.5:
        bounds = {"min_allowed": (20, 64 * MIB), "max_allowed": (500, 512 * MIB)}
    return VpaDraw(target=target, updates_pods=rng.random() < 0.4, **bounds)


def _find_target(key: WorkloadKey) -> AutoscalerTarget:
    return AutoscalerTarget(key.kind, "apps", key.name)
