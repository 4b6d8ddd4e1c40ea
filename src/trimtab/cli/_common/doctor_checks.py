"""Readiness checks of `trimtab doctor`: usage and its history, read cost, missing requests, competing autoscalers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from trimtab.errors import TrimtabError
from trimtab.kube.cache.list_pages import list_records
from trimtab.kube.cache.projection import Projection, R
from trimtab.kube.errors import Forbidden, NotFound
from trimtab.kube.kinds.hpas import HorizontalPodAutoscaler
from trimtab.kube.kinds.vpas import VerticalPodAutoscaler, vpa_projection
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import VPAS, Resource
from trimtab.operator.cluster_state import container_start_times
from trimtab.plural import format_time_span, pluralize
from trimtab.scan.cluster_snapshot import take_snapshot
from trimtab.scan.model import is_missing_requests
from trimtab.scan.source_selection import open_source
from trimtab.scan.usage_reader import plan_read
from trimtab.usage.source import Source, UsageQuery
from trimtab.usage.usage import PodContainer

CheckState = Literal["ok", "warning", "problem"]

MAX_SHOWN = 6


@dataclass(frozen=True)
class CheckResult:
    """The result of one check, with a remedy if there is a problem."""

    check: str
    state: CheckState
    found: str
    advice: str = ""


def format_some(names: list[str]) -> str:
    """Format the first few names and the number of others."""
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + more


DAY = 86400.0
WINDOW_TOLERANCE = 3600.0
"""The seconds by which usage may be shorter than the window."""
SAMPLED_WITHIN = 1800.0
"""The seconds after which a running container should have a sample, even if samples arrive late."""
BISECTIONS = 6
"""The number of bisections to find the start of usage."""


async def check_readiness(
    client: Client, *, source: Mapping[str, Any], days: float, namespace: str | None, now: float
) -> list[CheckResult]:
    """Run the readiness checks for a scan of the last days; `source` has the settings of the usage source."""
    scope = None if namespace is None else [namespace]
    try:
        state = (await take_snapshot(client, namespaces=scope)).state
    except TrimtabError as error:
        return [CheckResult("workloads", "problem", str(error))]
    workloads = list(state.list_workloads())
    used_namespaces = sorted({workload.namespace for workload in workloads})
    running = container_start_times(state.pods)
    return [
        *await _check_usage(
            client, settings=source, days=days, namespaces=used_namespaces, running=running, now=now
        ),
        check_requests(workloads),
        check_autoscalers(
            state.hpas,
            await _list_records(client, VPAS, vpa_projection(), namespace),
        ),
    ]


async def _check_usage(
    client: Client,
    *,
    settings: Mapping[str, Any],
    days: float,
    namespaces: list[str],
    running: Mapping[PodContainer, float],
    now: float,
) -> list[CheckResult]:
    try:
        async with open_source(client, settings=settings) as found:
            health = await found.source.check()
            state: CheckState = "warning" if health.advice else "ok"
            findings = [CheckResult("usage", state, f"{found.source.name}: {health.detail}", health.advice)]
            if (retention := await _check_retention(found.source, days, now)) is not None:
                findings.append(retention)
            # A source that answers is not enough: its labels, or those of another cluster, may match no pod.
            if namespaces:
                findings.append(await check_samples(found.source, running, namespaces, now))
            if found.has_history and namespaces:
                findings.append(await _check_cost(found.source, days, namespaces, now))
            return findings
    except TrimtabError as error:
        message, _, advice = str(error).partition("; ")
        return [CheckResult("usage", "problem" if settings else "warning", message, advice)]


async def _check_retention(source: Source[Any], days: float, now: float) -> CheckResult | None:
    """Check whether usage covers the window; otherwise find its start by bisection. None if the source cannot tell."""
    wanted = days * DAY
    edge = min(WINDOW_TOLERANCE, wanted / 2)
    reaches_back = await source.has_usage(at=now - wanted + edge)
    if reaches_back is None:
        return None
    if reaches_back:
        return CheckResult(
            "retention", "ok", f"usage data covers the {pluralize(days, 'day')} that a scan reads"
        )
    known, unknown = 0.0, wanted - edge
    for _ in range(BISECTIONS):
        middle = (known + unknown) / 2
        known, unknown = (middle, unknown) if await source.has_usage(at=now - middle) else (known, middle)
    return CheckResult(
        "retention",
        "warning",
        f"usage data covers about {known / DAY:.1f} days, but a scan reads {days:g}",
        "increase the retention (--storage.tsdb.retention.time), or scan fewer --days; weekly peaks are missed",
    )


async def check_samples(
    source: Source[Any], running: Mapping[PodContainer, float], namespaces: list[str], now: float
) -> CheckResult:
    """Check that running containers have samples; those without are not sized."""
    usage = await source.read(UsageQuery.last(SAMPLED_WITHIN, now=now, step=300.0, namespaces=namespaces))
    missing = np.flatnonzero((np.isnan(usage.cpu) & np.isnan(usage.memory)).all(axis=0))
    sampled = {*usage.containers} - {usage.containers[column] for column in missing}
    running = {name: since for name, since in running.items() if name.namespace in namespaces}
    expected = [name for name, since in running.items() if now - since > SAMPLED_WITHIN]
    silent = sorted(
        f"{name.namespace}/{name.pod} {name.container}" for name in expected if name not in sampled
    )
    if running and not sampled:
        return CheckResult(
            "samples",
            "problem" if silent else "warning",
            f"no sample of the last {format_time_span(SAMPLED_WITHIN)} for any of {pluralize(len(running), 'running container')}",
            "check that the source measures this cluster, and that its labels name the cluster's pods",
        )
    if not silent:
        return CheckResult(
            "samples", "ok", f"{pluralize(len(expected), 'running container')} with recent samples"
        )
    found = f"{len(silent)} of {pluralize(len(expected), 'running container')} without samples of the last {format_time_span(SAMPLED_WITHIN)}"
    return CheckResult(
        "samples",
        "warning",
        f"{found}: {format_some(silent)}",
        "check that their nodes are scraped; for late samples see learning.lateness",
    )


async def _check_cost(source: Any, days: float, namespaces: list[str], now: float) -> CheckResult:
    plan = await plan_read(source, window=days * DAY, step=None, now=now, namespaces=namespaces)
    found = f"about {plan.cost}, a sample every {plan.query.step:g} s"
    if not plan.is_large:
        return CheckResult("cost of a scan", "ok", found)
    return CheckResult("cost of a scan", "warning", found, "scan fewer --days, or one --namespace at a time")


def check_requests(workloads: Iterable[Workload]) -> CheckResult:
    """Find the workloads without CPU or memory requests."""
    found = sorted(
        f"{workload.namespace}/{workload.kind.lower()}/{workload.name}"
        for workload in workloads
        if not workload.has_pod_level_resources
        and any(is_missing_requests(each.resources) for each in workload.containers if each.role != "init")
    )
    if not found:
        return CheckResult("requests", "ok", "every workload requests CPU and memory")
    return CheckResult(
        "requests",
        "warning",
        f"{pluralize(len(found), 'workload')} without CPU or memory requests: {format_some(found)}",
        "run `trimtab diff` for recommended requests",
    )


def check_autoscalers(
    scalers: Iterable[HorizontalPodAutoscaler], autoscalers: Iterable[VerticalPodAutoscaler]
) -> CheckResult:
    """Find workloads whose requests a VPA changes while an HPA scales on their utilization."""
    shares = {
        (hpa.namespace, hpa.target): {each.resource for each in hpa.utilization_targets} for hpa in scalers
    }
    active = [vpa for vpa in autoscalers if vpa.updates_pods]
    clashes = [
        f"{vpa.namespace}/{vpa.target.kind.lower()}/{vpa.target.name}"
        for vpa in active
        if shares.get((vpa.namespace, vpa.target), set())
        & {
            resource
            for policy in vpa.container_policies or (vpa.container_policy(""),)
            for resource in policy.controlled_resources
            if not policy.is_off
        }
    ]
    if clashes:
        return CheckResult(
            "autoscalers",
            "warning",
            f"an HPA and a VPA both act on {format_some(sorted(clashes))}",
            "set updateMode Off in the VPA, or let the HPA scale on another metric than utilization",
        )
    if active:
        return CheckResult(
            "autoscalers",
            "warning",
            f"VPAs change pods: {format_some([f'{vpa.namespace}/{vpa.name}' for vpa in active])}",
            "Trimtab only recommends for these; trimtab import vpa takes them over",
        )
    return CheckResult("autoscalers", "ok", "no HPA and VPA act on the same workload")


async def _list_records(
    client: Client, resource: Resource, projection: Projection[R], namespace: str | None
) -> list[R]:
    """List the records of a kind; nothing if it is missing or forbidden, which the check of rights reports."""
    try:
        return [record async for record in list_records(client, resource, projection, namespace=namespace)]
    except (NotFound, Forbidden):
        return []
