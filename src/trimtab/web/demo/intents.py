"""The Intent of the demo: a latency objective for one service instead of resources.

The simulation runs the production Intent controller, and measures the KPI in the simulated world.
"""

from __future__ import annotations

from trimtab.api.intent import IntentSpec, ObjectiveSpec, TargetRef
from trimtab.api.kpiprofile import KPIProfileSpec, KPIType
from trimtab.kube.kinds.custom import IntentRecord, KPIProfileRecord
from trimtab.kube.kinds.workloads import WorkloadKey

LATENCY = 'simulated_seconds_p99{namespace="$namespace",container="$name"}'
LOAD = 'simulated_requests{namespace="$namespace",container="$name"}'
SETTINGS = {
    "interval": "10m",
    "coolDown": "20m",
    "releaseAfter": "24h",
    "learningInterval": "1h",
    "stale": "15m",
    "guardrails": [{"maxReplicas": 8, "explore": True}],
}
"""The operator's settings for Intents, so that a demo of a few days shows an Intent that is met."""


def build_profile(namespace: str) -> KPIProfileRecord:
    """Build the profile that measures the latency of a service."""
    return KPIProfileRecord(
        namespace=namespace,
        name="p99",
        uid="kpi-p99",
        version=1,
        generation=1,
        spec=KPIProfileSpec(type=KPIType.LATENCY, query=LATENCY, unit="seconds", props={"load": LOAD}),
        problem="",
        status=b"{}",
    )


def build_intent(service: WorkloadKey, seconds: float) -> IntentRecord:
    """Build the Intent that keeps the latency of a service below these seconds."""
    return IntentRecord(
        namespace=service.namespace,
        name=f"{service.name}-fast",
        uid=f"intent-{service.name}",
        version=1,
        generation=1,
        created=0,
        spec=IntentSpec(
            target_ref=TargetRef(name=service.name),
            priority=0.9,
            objectives=(ObjectiveSpec(name="p99", value=seconds, measured_by="p99", tolerance=0.1),),
        ),
        problem="",
        status=b"{}",
    )
