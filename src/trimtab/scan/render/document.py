"""A survey as plain data, for programs: nested for JSON and YAML, flat with a row a container for CSV.

Requests, limits and recommendations are quantities as manifests have them; what was measured is in cores and bytes.
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
from trimtab.scan.model import Amounts, Survey, Surveyed, SurveyedContainer

Document = dict[str, Any]

CSV_HEAD = (
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
    "held",
)


def document(survey: Survey) -> Document:
    """All that is known."""
    return {
        "context": survey.context,
        "server": survey.server,
        "source": survey.source,
        "at": datetime.fromtimestamp(survey.at, UTC).isoformat(timespec="seconds"),
        "windowSeconds": survey.window,
        "strategy": survey.strategy,
        "prices": survey.prices.model_dump(),
        "totals": {
            "cpuCores": _amounts(survey.cpu, 1e-3),
            "memoryBytes": _amounts(survey.memory, 1.0),
            "moneyMonth": {
                "requested": _cents(survey.cost),
                "wasted": _cents(survey.wasted),
                "missing": _cents(survey.missing),
            },
            "atRisk": {"oom": survey.at_risk("OOM"), "throttling": survey.at_risk("throttling")},
            "withoutRequests": survey.without_requests,
        },
        "workloads": [_workload(found) for found in survey.workloads],
        "skipped": [{**_key(each.key), "reason": each.reason} for each in survey.skipped],
        "refusedNamespaces": dict(survey.refused),
        "troubles": dict(survey.troubles),
    }


def csv_text(surveys: Iterable[Survey]) -> str:
    """A row a container."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    for survey in surveys:
        for found in survey.workloads:
            writer.writerows(_row(survey, found, each) for each in found.containers)
    return text.getvalue()


def resources(found: Resources) -> Document:
    """Requests and limits as a manifest has them; what is not set is left out."""
    amounts = {
        "requests": {"cpu": _cpu(found.cpu_request), "memory": _memory(found.memory_request)},
        "limits": {"cpu": _cpu(found.cpu_limit), "memory": _memory(found.memory_limit)},
    }
    said = {part: {name: each for name, each in both.items() if each} for part, both in amounts.items()}
    return {part: both for part, both in said.items() if both}


def _workload(found: Surveyed) -> Document:
    return {
        **_key(found.key),
        "replicas": found.replicas,
        "severity": str(found.severity),
        "confidence": found.confidence,
        "costMonth": _cents(found.cost),
        "savingMonth": _cents(found.saving),
        "containers": [_container(each) for each in found.containers],
    }


def _container(found: SurveyedContainer) -> Document:
    return {
        "name": found.name,
        "severity": str(found.severity),
        "risks": list(found.risks),
        "savingMonth": _cents(found.saving),
        "resources": resources(found.has),
        "recommended": resources(found.should),
        "held": found.recommendation.held,
        "used": {"cores": round(found.consumed.cpu / 1000, 4), "bytes": round(found.consumed.memory)},
        "peak": {
            "cores": round(found.consumed.cpu_peak / 1000, 4),
            "bytes": round(found.consumed.memory_peak),
        },
        "throttled": found.evidence.throttled,
        "oomKills": sum(kills.count for kills in found.evidence.kills),
        "compared": {name: resources(sizes) for name, sizes in found.compared.items()},
        "explanation": [
            {"name": factor.name, "detail": factor.detail, "source": factor.source}
            for factor in found.recommendation.explanation
        ],
    }


def _row(survey: Survey, found: Surveyed, each: SurveyedContainer) -> list[str | int | float]:
    namespace, kind, name = found.key.namespace, found.key.kind, found.key.name
    sizes = [
        text(amount)
        for have in (each.has, each.should)
        for text, amount in (
            (_cpu, have.cpu_request),
            (_cpu, have.cpu_limit),
            (_memory, have.memory_request),
            (_memory, have.memory_limit),
        )
    ]
    return [
        survey.context,
        namespace,
        kind,
        name,
        each.name,
        found.replicas,
        str(each.severity),
        found.confidence,
        " ".join(each.risks),
        *sizes,
        round(each.consumed.cpu / 1000, 4),
        round(each.consumed.memory),
        _cents(each.saving),
        each.recommendation.held or "",
    ]


def _key(key: WorkloadKey) -> Document:
    return {"namespace": key.namespace, "kind": key.kind, "name": key.name}


def _amounts(found: Amounts, units: float) -> Document:
    return {
        name: round(getattr(found, name) * units, 3) for name in ("requested", "used", "wasted", "missing")
    }


def _cents(money: float) -> float:
    return round(money, 2)


def _cpu(millicores: int | None) -> str:
    return "" if millicores is None else str(Quantity.of_millicores(millicores))


def _memory(count: int | None) -> str:
    return "" if count is None else str(Quantity.of_bytes(count))
