"""The cluster of a small company: web services, nightly batch, a memory leak, JVMs, a flash crowd, best-effort pods.

Requests are typical of manual settings: round, mostly far too high, some too low. Everything follows from a seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from trimtab.api.duration import Duration
from trimtab.api.meta import LabelSelector
from trimtab.api.optimizationpolicy import (
    Canary,
    CPUBounds,
    MetricsConfig,
    NamespaceFilter,
    OptimizationPolicySpec,
    PolicyMode,
    PolicySelector,
    ResourceBounds,
    UpdateStrategy,
)
from trimtab.api.quantity import GIB, MIB, Quantity
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lab.simulator.scenario import ContainerSpec, NodePool, Scenario, ServiceSpec, WorkloadSpec
from trimtab.lab.workloads import generate
from trimtab.usage.trace import Trace

STEP = 600.0
DAY = 86400.0
NODES = 8
INTENT_TARGET = WorkloadKey("Deployment", "booking", "reservations")
"""The service of the Intent, which sets a latency objective instead of resources."""
CRITICAL_LABELS = {"tier": "critical"}
"""The labels of critical workloads, which keep a minimum of CPU."""
LATENCY_OBJECTIVE = 0.25
"""The objective for the 99th percentile of its latency, in seconds."""


@dataclass(frozen=True, slots=True)
class _DemoWorkload:
    """A workload with its configured requests and its real demand."""

    namespace: str
    name: str
    replicas: int
    generator: str
    """The generator of its demand."""
    cpu: int
    """The CPU request in millicores; 0 for a best-effort pod."""
    memory: int
    """The memory request in MiB."""
    memory_limit: int = 0
    cpu_limit: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    service: ServiceSpec | None = None
    kind: Literal["Deployment", "StatefulSet"] = "Deployment"
    is_critical: bool = False


_WEB_SERVICE = ServiceSpec(cpu_seconds=0.01, latency_objective=0.25)

_WORKLOADS = (
    _DemoWorkload("shop", "storefront", 8, "diurnal_web", 2000, 2048, 3072, settings={"rate": 70}, service=_WEB_SERVICE),
    _DemoWorkload("shop", "checkout", 4, "diurnal_web", 1000, 1024, 2048, 1000, {"rate": 45}, _WEB_SERVICE, is_critical=True),
    _DemoWorkload("shop", "cart", 4, "diurnal_web", 1000, 1024, 1536, settings={"rate": 30}, service=_WEB_SERVICE),
    _DemoWorkload("shop", "catalogue", 6, "diurnal_web", 1500, 4096, 4096, settings={"rate": 50, "mib": 900}),
    _DemoWorkload("shop", "sale-page", 3, "flash_crowd", 500, 512, 1024, settings={"crowds": 3}, service=_WEB_SERVICE),
    _DemoWorkload("shop", "recommender", 3, "jvm", 2000, 4096, 4096, settings={}),
    _DemoWorkload("payments", "api", 4, "diurnal_web", 1000, 1024, 1024, settings={"rate": 25}, service=_WEB_SERVICE),
    _DemoWorkload("payments", "ledger", 3, "diurnal_web", 2000, 4096, 4096, settings={"rate": 20}, kind="StatefulSet"),
    _DemoWorkload("payments", "fraud", 2, "jvm", 1000, 3072, 3072, settings={"cores": 0.3}),
    _DemoWorkload("search", "index", 4, "diurnal_web", 2000, 8192, 8192, settings={"rate": 60, "mib": 2500}, kind="StatefulSet"),
    _DemoWorkload("search", "suggest", 3, "diurnal_web", 500, 512, 1024, settings={"rate": 40}, service=_WEB_SERVICE),
    _DemoWorkload("data", "nightly-etl", 2, "batch", 3000, 2048, 4096, settings={"cores": 2.2, "mib": 1500}),
    _DemoWorkload("data", "reports", 2, "batch", 1000, 2048, 2048, settings={"at": 14400, "cores": 0.7, "mib": 700}),
    _DemoWorkload("data", "stream", 3, "step", 1000, 1024, 1536, settings={"cores_high": 0.6, "mib_high": 480}),
    _DemoWorkload("data", "cache", 3, "sinusoidal", 500, 6144, 6144, kind="StatefulSet"),
    _DemoWorkload("platform", "mailer", 2, "low_high", 500, 256, 384, settings={"cores_high": 0.2, "mib_high": 520, "spread": 0}),
    _DemoWorkload("platform", "gateway", 3, "diurnal_web", 1000, 512, 1024, settings={"rate": 90}, service=_WEB_SERVICE),
    _DemoWorkload("platform", "session-store", 2, "memory_leak", 250, 256, 384, settings={"mib_an_hour": 12, "most_mib": 900}),
    _DemoWorkload("platform", "metrics-agent", 4, "step", 250, 256, 512, settings={"cores_high": 0.15, "mib_high": 140}),
    _DemoWorkload("booking", "reservations", 3, "diurnal_web", 300, 512, 1024, 300, {"rate": 55, "spread": 0}, _WEB_SERVICE),
    _DemoWorkload("media", "transcode", 6, "low_high", 0, 0, settings={"cores_high": 0.9, "mib_high": 300, "high_share": 0.4}),
)  # fmt: skip


def build_scenario(*, days: float, seed: int) -> Scenario:
    """Build the cluster and its demand for this number of days."""
    made = [
        generate(part.generator, seed=seed * 1000 + number, step=STEP, duration=days * DAY, **part.settings)
        for number, part in enumerate(_WORKLOADS)
    ]
    demand = Trace(
        names=tuple(f"{part.namespace}/{part.name}" for part in _WORKLOADS),
        start=made[0].start,
        step=STEP,
        cpu=np.concatenate([each.cpu for each in made]).T.copy(),
        memory=np.concatenate([each.memory for each in made]).T.copy(),
    )
    return Scenario(
        pools=(NodePool(count=NODES, cpu=16.0, memory=64.0 * GIB),),
        workloads=tuple(_build_workload(part, number) for number, part in enumerate(_WORKLOADS)),
        demand=demand,
    )


def build_policies() -> dict[str, OptimizationPolicySpec]:
    """Build the policies: Auto for everything, a CPU minimum for critical workloads, Recommend for payments.

    The namespace of the Intent has no policy.
    """
    update = UpdateStrategy(
        update_requests_only=False,
        min_interval=Duration.parse("12h"),
        canary=Canary(percent=25, observation=Duration.parse("20m"), evidence_timeout=Duration.parse("40m")),
    )
    known = MetricsConfig(minimum_history=Duration.parse("12h"))
    now_and_then = Duration.parse("2h")
    return {
        "everything": OptimizationPolicySpec(
            mode=PolicyMode.AUTO,
            selector=PolicySelector(namespaces=NamespaceFilter(deny=(INTENT_TARGET.namespace,))),
            metrics_config=known,
            update_strategy=update,
            reconciliation_interval=now_and_then,
        ),
        "critical": OptimizationPolicySpec(
            mode=PolicyMode.AUTO,
            weight=300,
            selector=PolicySelector(workload_selector=LabelSelector(match_labels=CRITICAL_LABELS)),
            metrics_config=known,
            resource_bounds=ResourceBounds(cpu=CPUBounds(min=Quantity.parse("500m"))),
            update_strategy=update,
            reconciliation_interval=now_and_then,
        ),
        "payments": OptimizationPolicySpec(
            mode=PolicyMode.RECOMMEND,
            weight=200,
            selector=PolicySelector(namespaces=NamespaceFilter(allow=("payments",))),
            metrics_config=known,
            update_strategy=update,
            reconciliation_interval=now_and_then,
        ),
    }


def _build_workload(part: _DemoWorkload, number: int) -> WorkloadSpec:
    return WorkloadSpec(
        name=part.name,
        namespace=part.namespace,
        kind=part.kind,
        replicas=part.replicas,
        service=part.service,
        labels=CRITICAL_LABELS if part.is_critical else {},
        containers=(
            ContainerSpec(
                name=part.name,
                demand_series=number,
                resources=Resources(
                    part.cpu or None,
                    part.cpu_limit or None,
                    part.memory * MIB or None,
                    part.memory_limit * MIB or None,
                ),
            ),
        ),
    )
