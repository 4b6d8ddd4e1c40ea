"""A survey that is always the same, for the forms in which it is told."""

from collections.abc import Sequence

from harness.records import workload
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import DEPLOYMENTS, STATEFUL_SETS, Resource
from trimtab.scan.model import ContainerFinding, ScanResult, SkippedWorkload, WorkloadFinding
from trimtab.scan.pricing import ResourcePrices
from trimtab.scan.risk import Risk, assess_risks, rate_severity
from trimtab.scan.usage_totals import UsageTotals
from trimtab.sizing.evidence import Evidence, OomKills
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.recommendation import MIB, Factor, Recommendation

NOW = 1_790_000_000.0
DAY = 86400.0
GIB = 1024 * MIB


def container(
    name: str = "app",
    *,
    has: Resources,
    should: Resources,
    pods: int = 1,
    cpu: float = 100.0,
    memory: float = 100 * MIB,
    kills: Sequence[OomKills] = (),
    throttled: float | None = None,
    prices: ResourcePrices | None = None,
) -> ContainerFinding:
    """One container, with all that follows from its sizes."""
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
    consumed = UsageTotals(cpu * pods, memory * pods, float(pods), cpu * 2, memory)
    found: tuple[Risk, ...] = assess_risks(
        Container(name, "main", has), evidence, consumed, rules=PolicyRules(), now=NOW
    )
    saving = pods * (cost(has) - cost(should))
    return ContainerFinding(
        name=name,
        role="main",
        current=has,
        recommendation=Recommendation(
            name, should, (Factor("cpu strategy", "500m -> 120m: target", "strategy trimtab"),)
        ),
        evidence=evidence,
        usage=consumed,
        risks=found,
        severity=rate_severity(
            found,
            has,
            should,
            instances=pods,
            is_missing_requests=has.cpu_request is None or has.memory_request is None,
        ),
        saving=saving,
        compared={"vpa": Resources(200, None, 400 * MIB, None), "krr": Resources()},
    )


def surveyed(
    name: str, *containers: ContainerFinding, pods: int = 1, kind: Resource = DEPLOYMENTS
) -> WorkloadFinding:
    manifest = tuple({"name": each.name} for each in containers)
    return WorkloadFinding(
        workload=workload(name, resource=kind, containers=manifest),
        pods=(),
        containers=containers,
        instances=float(pods),
        confidence="high",
        cost=pods * sum(ResourcePrices().price_requests(each.current) for each in containers),
    )


def survey(*workloads: WorkloadFinding, context: str = "prod", **more: object) -> ScanResult:
    """All of it; without workloads, those of a small shop."""
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
        workloads=workloads or shop(),
        skipped=(SkippedWorkload(WorkloadKey("Deployment", "shop", "asleep"), "is scaled to zero"),),
        forbidden_namespaces={"secret": "pods is forbidden"},
        errors_by_resource={},
        compared=("vpa", "krr"),
        **more,
    )


def shop() -> tuple[WorkloadFinding, ...]:
    killed = container(
        has=Resources(250, None, 256 * MIB, 256 * MIB),
        should=Resources(250, None, 360 * MIB, 360 * MIB),
        memory=256 * MIB,
        kills=[OomKills(256 * MIB, 1, NOW - 3600, NOW - 3600)],
    )
    wasteful = container(
        has=Resources(4000, None, 8 * GIB, None), should=Resources(350, None, GIB, None), pods=3, cpu=300
    )
    sidecar = container(
        "mesh|proxy", has=Resources(None, 100, None, None), should=Resources(50, 100, 64 * MIB, None), pods=3
    )
    held_back = container(
        has=Resources(200, 200, 128 * MIB, None), should=Resources(300, 300, 128 * MIB, None), throttled=0.4
    )
    right = container(has=Resources(120, None, 128 * MIB, None), should=Resources(120, None, 128 * MIB, None))
    return (
        surveyed("killed", killed),
        surveyed("web", wasteful, sidecar, pods=3),
        surveyed("held-back", held_back, kind=STATEFUL_SETS),
        surveyed("right", right),
    )
