"""What a scan of a cluster would meet, for `trimtab doctor`: usage and how far back it goes, the cost of reading it,
workloads without requests, and autoscalers that would pull in other directions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from trimtab.errors import TrimtabError
from trimtab.kube.cache.projection import Projection, R
from trimtab.kube.errors import Forbidden, NotFound
from trimtab.kube.kinds.hpas import HorizontalPodAutoscaler, hpa_projection
from trimtab.kube.kinds.vpas import VerticalPodAutoscaler, vpa_projection
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.list_pages import list_records
from trimtab.kube.rest.resources import HPAS, VPAS, Resource
from trimtab.operator.cluster_state import container_start_times
from trimtab.plural import format_time_span, pluralize
from trimtab.scan.cluster_snapshot import take_snapshot
from trimtab.scan.model import lacks_requests
from trimtab.scan.source_selection import open_source
from trimtab.scan.usage_reader import plan_read
from trimtab.usage.prometheus.source import Prometheus
from trimtab.usage.source import Source, UsageQuery
from trimtab.usage.usage import PodContainer

CheckState = Literal["ok", "warning", "problem"]

MAX_SHOWN = 6


@dataclass(frozen=True)
class CheckResult:
    """What one check found, and what to do about it when that is not well."""

    check: str
    state: CheckState
    found: str
    advice: str = ""


def format_some(names: list[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + more


DAY = 86400.0
WINDOW_TOLERANCE = 3600.0
"""By how much usage may fall short of a window and still fill it."""
SAMPLED_WITHIN = 1800.0
"""Seconds: a container that runs for longer should have a sample, also where samples come late."""
BISECTIONS = 6
"""How often the time is halved in which usage begins."""


async def check_readiness(
    client: Client, *, source: Mapping[str, Any], days: float, namespace: str | None, now: float
) -> list[CheckResult]:
    """All that a scan of the last days would meet; `source` has the settings of its usage source, if any."""
    scope = None if namespace is None else [namespace]
    try:
        picture = await take_snapshot(client, namespaces=scope)
    except TrimtabError as error:
        return [CheckResult("workloads", "problem", str(error))]
    workloads: Sequence[Workload] = picture.list_workloads()
    spaces = sorted({workload.namespace for workload in workloads})
    running = container_start_times(picture.pods)
    return [
        *await _check_usage(client, settings=source, days=days, namespaces=spaces, running=running, now=now),
        check_requests(workloads),
        check_autoscalers(
            await _list_records(client, HPAS, hpa_projection(), namespace),
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
            findings = [CheckResult("usage", "ok", f"{found.source.name}: {health.detail}")]
            if isinstance(found.source, Prometheus):
                findings.append(await _check_retention(found.source, days, now))
            if found.has_history and namespaces:
                findings.append(await check_samples(found.source, running, namespaces, now))
                findings.append(await _check_cost(found.source, days, namespaces, now))
            return findings
    except TrimtabError as error:
        said, _, advice = str(error).partition("; ")
        return [CheckResult("usage", "problem" if settings else "warning", said, advice)]


async def _check_retention(source: Prometheus, days: float, now: float) -> CheckResult:
    """How far back there is usage: at the far end of the window, or else narrowed down between two moments."""
    wanted = days * DAY
    edge = min(WINDOW_TOLERANCE, wanted / 2)
    if await source.has_usage(at=now - wanted + edge):
        return CheckResult(
            "retention", "ok", f"usage goes back the {pluralize(days, 'day')} that a scan looks at"
        )
    known, unknown = 0.0, wanted - edge
    for _ in range(BISECTIONS):
        middle = (known + unknown) / 2
        known, unknown = (middle, unknown) if await source.has_usage(at=now - middle) else (known, middle)
    return CheckResult(
        "retention",
        "warning",
        f"usage goes back about {known / DAY:.1f} days, and a scan looks at {days:g}",
        "keep it longer (--storage.tsdb.retention.time), or look at less with --days; what runs weekly is not seen",
    )


async def check_samples(
    source: Source[Any], running: Mapping[PodContainer, float], namespaces: list[str], now: float
) -> CheckResult:
    """Whether containers that run have samples: those that have none are not sized."""
    usage = await source.read(UsageQuery.last(SAMPLED_WITHIN, now=now, step=300.0, namespaces=namespaces))
    missing = np.flatnonzero((np.isnan(usage.cpu) & np.isnan(usage.memory)).all(axis=0))
    sampled = {*usage.containers} - {usage.containers[column] for column in missing}
    expected = [
        name
        for name, since in running.items()
        if now - since > SAMPLED_WITHIN and name.namespace in namespaces
    ]
    silent = sorted(
        f"{name.namespace}/{name.pod} {name.container}" for name in expected if name not in sampled
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
        "let their nodes be scraped; samples that come late are waited for up to learning.lateness",
    )


async def _check_cost(source: Any, days: float, namespaces: list[str], now: float) -> CheckResult:
    reading = await plan_read(source, window=days * DAY, step=None, now=now, namespaces=namespaces)
    found = f"about {reading.cost}, a sample every {reading.query.step:g} s"
    if not reading.is_large:
        return CheckResult("cost of a scan", "ok", found)
    return CheckResult(
        "cost of a scan", "warning", found, "look at fewer --days or one --namespace at a time"
    )


def check_requests(workloads: Iterable[Workload]) -> CheckResult:
    """Which workloads leave the scheduler to guess."""
    found = sorted(
        f"{workload.namespace}/{workload.kind.lower()}/{workload.name}"
        for workload in workloads
        if not workload.has_pod_level_resources
        and any(lacks_requests(each.resources) for each in workload.containers if each.role != "init")
    )
    if not found:
        return CheckResult("requests", "ok", "every workload asks for CPU and memory")
    return CheckResult(
        "requests",
        "warning",
        f"{len(found)} ask for no CPU or no memory: {format_some(found)}",
        "trimtab diff shows what to give them",
    )


def check_autoscalers(
    scalers: Iterable[HorizontalPodAutoscaler], autoscalers: Iterable[VerticalPodAutoscaler]
) -> CheckResult:
    """Where a VPA changes the very request by whose share an HPA scales, so that each undoes the other."""
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
            "set updateMode Off in the VPA, or let the HPA scale by something else than utilisation",
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
    client: Client, resource: Resource, shape: Projection[R], namespace: str | None
) -> list[R]:
    """None where there are none of the kind, or none may be read: the check of rights tells of that."""
    try:
        return [record async for record in list_records(client, resource, shape, namespace=namespace)]
    except (NotFound, Forbidden):
        return []
