"""Render a scan as data for programs: nested for JSON and YAML, one row per container for CSV.

Requests, limits and recommendations are quantities as in manifests; measurements are in cores and bytes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from trimtab.api.quantity import Quantity
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.scan.model import ContainerFinding, ResourceTotals, ScanResult, WorkloadFinding

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
)


def build_document(scan: ScanResult) -> Document:
    """Build the document of a scan."""
    return {
        "context": scan.context,
        "server": scan.server,
        "source": scan.source,
        "at": datetime.fromtimestamp(scan.scanned_at, UTC).isoformat(timespec="seconds"),
        "windowSeconds": scan.window,
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
        "workloads": [_workload_record(found) for found in scan.workloads],
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
            writer.writerows(_csv_row(scan, found, each) for each in found.containers)
    return text.getvalue()


def format_resources(found: Resources) -> Document:
    """Format requests and limits as in a manifest; unset amounts are omitted."""
    amounts = {
        "requests": {
            "cpu": _format_cpu_quantity(found.cpu_request),
            "memory": _format_memory_quantity(found.memory_request),
        },
        "limits": {
            "cpu": _format_cpu_quantity(found.cpu_limit),
            "memory": _format_memory_quantity(found.memory_limit),
        },
    }
    present = {part: {name: each for name, each in both.items() if each} for part, both in amounts.items()}
    return {part: both for part, both in present.items() if both}


def _workload_record(found: WorkloadFinding) -> Document:
    return {
        **_key_record(found.key),
        "replicas": found.replicas,
        "severity": str(found.severity),
        "confidence": found.confidence,
        "costMonth": _round_cents(found.cost),
        "savingMonth": _round_cents(found.saving),
        "containers": [_container_record(each) for each in found.containers],
    }


def _container_record(found: ContainerFinding) -> Document:
    return {
        "name": found.name,
        "severity": str(found.severity),
        "risks": list(found.risks),
        "savingMonth": _round_cents(found.saving),
        "resources": format_resources(found.current),
        "recommended": format_resources(found.recommended),
        "noChangeReason": found.recommendation.no_change_reason,
        "used": {"cores": round(found.usage.cpu / 1000, 4), "bytes": round(found.usage.memory)},
        "peak": {
            "cores": round(found.usage.cpu_peak / 1000, 4),
            "bytes": round(found.usage.memory_peak),
        },
        "throttled": found.evidence.throttled_share,
        "oomKills": sum(kills.count for kills in found.evidence.kills),
        "compared": {name: format_resources(sizes) for name, sizes in found.compared.items()},
        "explanation": [
            {"name": factor.name, "detail": factor.detail, "source": factor.source}
            for factor in found.recommendation.explanation
        ],
    }


def _csv_row(scan: ScanResult, found: WorkloadFinding, each: ContainerFinding) -> list[str | int | float]:
    namespace, kind, name = found.key.namespace, found.key.kind, found.key.name
    sizes = [
        text(amount)
        for have in (each.current, each.recommended)
        for text, amount in (
            (_format_cpu_quantity, have.cpu_request),
            (_format_cpu_quantity, have.cpu_limit),
            (_format_memory_quantity, have.memory_request),
            (_format_memory_quantity, have.memory_limit),
        )
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
    ]


def _key_record(key: WorkloadKey) -> Document:
    return {"namespace": key.namespace, "kind": key.kind, "name": key.name}


def _totals_record(found: ResourceTotals, units: float) -> Document:
    return {
        name: round(getattr(found, name) * units, 3) for name in ("requested", "used", "wasted", "missing")
    }


def _round_cents(money: float) -> float:
    return round(money, 2)


def _format_cpu_quantity(millicores: int | None) -> str:
    return "" if millicores is None else str(Quantity.from_millicores(millicores))


def _format_memory_quantity(count: int | None) -> str:
    return "" if count is None else str(Quantity.from_bytes(count))
