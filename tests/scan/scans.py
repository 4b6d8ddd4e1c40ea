"""A constant scan result for the tests of renderers."""

from collections.abc import Sequence
from typing import Any

from harness.builders.records import workload
from trimtab.api.quantity import MIB
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import DEPLOYMENTS, STATEFUL_SETS, Resource
from trimtab.scan.model import ContainerFinding, ScanResult, SkippedWorkload, WorkloadFinding
from trimtab.scan.pricing import ResourcePrices
from trimtab.scan.risk import Risk, assess_risks, rate_severity
from trimtab.scan.usage_model import UsageTotals
from trimtab.sizing.evidence import Evidence, OomKills
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.recommendation import Factor, Recommendation

NOW = 1_790_000_000.0
DAY = 86400.0
GIB = 1024 * MIB


def container(
    name: str = "app",
    *,
    current: Resources,
    recommended: Resources,
    pods: int = 1,
    cpu: float = 100.0,
    memory: float = 100 * MIB,
    kills: Sequence[OomKills] = (),
    throttled: float | None = None,
    prices: ResourcePrices | None = None,
) -> ContainerFinding:
    """Return a finding for one container, derived from its sizes."""
    cost = (prices or ResourcePrices()).price_requests
    evidence = Evidence(
        samples=4032,
        run_seconds=14 * DAY,
        first_sample_at=NOW - 14 * DAY,
        last_sample_at=NOW,
        throttled_share=throttled,
        kills=tuple(kills),
        cpu_peak=int(cpu),
    )
    usage = UsageTotals(cpu * pods, memory * pods, float(pods), cpu * 2, memory)
    risks: tuple[Risk, ...] = assess_risks(
        Container(name, "main", current), evidence, usage, rules=PolicyRules(), now=NOW
    )
    saving = pods * (cost(current) - cost(recommended))
    return ContainerFinding(
        name=name,
        role="main",
        current=current,
        recommendation=Recommendation(
            name, recommended, (Factor("cpu strategy", "500m -> 120m: target", "strategy trimtab"),)
        ),
        evidence=evidence,
        usage=usage,
        risks=risks,
        severity=rate_severity(
            risks,
            current,
            recommended,
            instances=pods,
            is_missing_requests=current.cpu_request is None or current.memory_request is None,
        ),
        saving=saving,
        compared={"vpa": Resources(200, None, 400 * MIB, None), "krr": Resources()},
    )


def workload_finding(
    name: str,
    *containers: ContainerFinding,
    pods: int = 1,
    kind: Resource = DEPLOYMENTS,
    operator_obstacle: str = "",
) -> WorkloadFinding:
    manifest = tuple({"name": each.name} for each in containers)
    return WorkloadFinding(
        workload=workload(name, resource=kind, containers=manifest),
        pods=(),
        containers=containers,
        instances=float(pods),
        confidence="high",
        cost=pods * sum(ResourcePrices().price_requests(each.current) for each in containers),
        operator_obstacle=operator_obstacle,
    )


def scan_result(*workloads: WorkloadFinding, context: str = "prod", **more: Any) -> ScanResult:
    """Return a scan result; without arguments, of the example findings."""
    return ScanResult(
        context=context,
        server="https://127.0.0.1:6443",
        source="Prometheus at http://127.0.0.1:9090: 7 containers in 1 namespace, a sample every 30 s",
        scanned_at=NOW,
        window=14 * DAY,
        step=300.0,
        strategy="trimtab",
        settings={"cpu_risk": 0.02},
        prices=ResourcePrices(),
        workloads=workloads or example_findings(),
        skipped=(SkippedWorkload(WorkloadKey("Deployment", "shop", "asleep"), "is scaled to zero"),),
        forbidden_namespaces={"secret": "pods is forbidden"},
        errors_by_resource={},
        compared=("vpa", "krr"),
        **more,
    )


def example_findings() -> tuple[WorkloadFinding, ...]:
    killed = container(
        current=Resources(250, None, 256 * MIB, 256 * MIB),
        recommended=Resources(250, None, 360 * MIB, 360 * MIB),
        memory=256 * MIB,
        kills=[OomKills(256 * MIB, 1, NOW - 3600, NOW - 3600)],
    )
    wasteful = container(
        current=Resources(4000, None, 8 * GIB, None),
        recommended=Resources(350, None, GIB, None),
        pods=3,
        cpu=300,
    )
    sidecar = container(
        "mesh|proxy",
        current=Resources(None, 100, None, None),
        recommended=Resources(50, 100, 64 * MIB, None),
        pods=3,
        throttled=0.0,
    )
    throttled_app = container(
        current=Resources(200, 200, 128 * MIB, None),
        recommended=Resources(300, 300, 128 * MIB, None),
        throttled=0.4,
    )
    right = container(
        current=Resources(120, None, 128 * MIB, None), recommended=Resources(120, None, 128 * MIB, None)
    )
    return (
        workload_finding("killed", killed),
        workload_finding("web", wasteful, sidecar, pods=3),
        workload_finding(
            "held-back",
            throttled_app,
            kind=STATEFUL_SETS,
            operator_obstacle="the pod is Guaranteed and its limits are kept",
        ),
        workload_finding("right", right),
    )
