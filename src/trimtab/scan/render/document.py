"""Render a scan as data for programs: nested for JSON and YAML, one row per container for CSV.

Requests, limits and recommendations are quantities as in manifests; measurements are in cores and bytes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from trimtab.actuation.resources import to_manifest
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.printable import escape_cells
from trimtab.scan.model import ContainerFinding, ResourceTotals, ScanResult, WorkloadFinding
from trimtab.scan.showback import group_costs

Document = dict[str, Any]

CSV_HEADER = (
    "context",
    "namespace",
    "kind",
    "name",
    "container",
    "replicas",
    "severity",
    "confidence",
    "risks",
    "cpu_request",
    "cpu_limit",
    "memory_request",
    "memory_limit",
    "recommended_cpu_request",
    "recommended_cpu_limit",
    "recommended_memory_request",
    "recommended_memory_limit",
    "used_cores",
    "used_bytes",
    "saving_month",
    "no_change_reason",
    "policy",
)


def build_document(scan: ScanResult, *, group_by: str = "") -> Document:
    """Build the document of a scan, with costs by this label of the workloads if one is given."""
    groups = [
        {
            "name": each.name,
            "workloads": each.workloads,
            "costMonth": _round_cents(each.cost),
            "savingMonth": _round_cents(each.saving),
        }
        for each in (group_costs(scan.workloads, group_by) if group_by else ())
    ]
    return {
        "context": scan.context,
        "server": scan.server,
        "source": scan.source,
        "at": datetime.fromtimestamp(scan.scanned_at, UTC).isoformat(timespec="seconds"),
        "windowSeconds": scan.window,
        "observedSeconds": round(scan.observed_seconds),
        "strategy": scan.strategy,
        "prices": scan.prices.model_dump(),
        "totals": {
            "cpuCores": _totals_record(scan.cpu, 1e-3),
            "memoryBytes": _totals_record(scan.memory, 1.0),
            "moneyMonth": {
                "requested": _round_cents(scan.cost),
                "wasted": _round_cents(scan.wasted),
                "missing": _round_cents(scan.missing),
            },
            "atRisk": {"oom": scan.count_at_risk("OOM"), "throttling": scan.count_at_risk("throttling")},
            "withoutRequests": scan.without_requests,
        },
        "nodes": {
            "count": scan.nodes.count,
            "needed": scan.nodes.needed,
            "costMonth": _round_cents(scan.nodes.cost),
        }
        if scan.nodes
        else None,
        **({"groupBy": group_by, "groups": groups} if group_by else {}),
        "workloads": [_workload_record(found, strategy=scan.strategy) for found in scan.workloads],
        "skipped": [{**_key_record(each.key), "reason": each.reason} for each in scan.skipped],
        "forbiddenNamespaces": dict(scan.forbidden_namespaces),
        "errors": dict(scan.errors_by_resource),
    }


def render_csv(scans: Iterable[ScanResult]) -> str:
    """Render one row per container."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for scan in scans:
        for found in scan.workloads:
            writer.writerows(escape_cells(_csv_row(scan, found, each)) for each in found.containers)
    return text.getvalue()


def _workload_record(found: WorkloadFinding, *, strategy: str) -> Document:
    return {
        **_key_record(found.key),
        "replicas": found.replicas,
        "severity": str(found.severity),
        "confidence": found.confidence,
        "costMonth": _round_cents(found.cost),
        "savingMonth": _round_cents(found.saving),
        "policy": found.policy.name if found.policy else None,
        "strategy": found.policy.strategy if found.policy else strategy,
        "operatorObstacle": found.operator_obstacle,
        "containers": [_container_record(each) for each in found.containers],
    }


def _container_record(found: ContainerFinding) -> Document:
    return {
        "name": found.name,
        "severity": str(found.severity),
        "risks": list(found.risks),
        "savingMonth": _round_cents(found.saving),
        "resources": to_manifest(found.current),
        "recommended": to_manifest(found.recommended),
        "nextStep": to_manifest(found.next_step) if found.next_step else None,
        "noChangeReason": found.recommendation.no_change_reason,
        "used": {"cores": round(found.usage.cpu / 1000, 4), "bytes": round(found.usage.memory)},
        "peak": {
            "cores": round(found.usage.cpu_peak / 1000, 4),
            "bytes": round(found.usage.memory_peak),
        },
        "throttled": found.evidence.throttled_share,
        "oomKills": sum(kills.count for kills in found.evidence.kills),
        "compared": {name: to_manifest(sizes) for name, sizes in found.compared.items()},
        "explanation": [
            {"name": factor.name, "detail": factor.detail, "source": factor.source}
            for factor in found.recommendation.explanation
        ],
    }


def _csv_row(scan: ScanResult, found: WorkloadFinding, each: ContainerFinding) -> list[str | int | float]:
    namespace, kind, name = found.key.namespace, found.key.kind, found.key.name
    sizes = [
        to_manifest(size).get(kind, {}).get(resource, "")
        for size in (each.current, each.recommended)
        for resource in ("cpu", "memory")
        for kind in ("requests", "limits")
    ]
    return [
        scan.context,
        namespace,
        kind,
        name,
        each.name,
        found.replicas,
        str(each.severity),
        found.confidence,
        " ".join(each.risks),
        *sizes,
        round(each.usage.cpu / 1000, 4),
        round(each.usage.memory),
        _round_cents(each.saving),
        each.recommendation.no_change_reason or "",
        found.policy.name if found.policy else "",
    ]


def _key_record(key: WorkloadKey) -> Document:
    return {"namespace": key.namespace, "kind": key.kind, "name": key.name}


def _totals_record(found: ResourceTotals, units: float) -> Document:
    return {
        name: round(getattr(found, name) * units, 3) for name in ("requested", "used", "wasted", "missing")
    }


def _round_cents(money: float) -> float:
    return round(money, 2)
