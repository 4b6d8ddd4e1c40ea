"""What a scan of a cluster would meet, for `trimtab doctor`: usage and how far back it goes, the cost of reading it,
workloads without requests, and autoscalers that would pull in other directions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from trimtab.errors import TrimtabError
from trimtab.kube.cache.projection import R, Shape
from trimtab.kube.errors import Forbidden, NotFound
from trimtab.kube.kinds.hpas import Hpa, hpas
from trimtab.kube.kinds.vpas import Vpa, vpas
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.list_pages import records
from trimtab.kube.rest.resources import HPAS, VPAS, Resource
from trimtab.operator.cluster_state import running_since
from trimtab.plural import counted, lasting
from trimtab.scan.cluster_snapshot import look
from trimtab.scan.model import lacks_requests
from trimtab.scan.source_selection import open_source
from trimtab.scan.usage_reader import plan
from trimtab.usage.prometheus.source import Prometheus
from trimtab.usage.source import Ask, Source
from trimtab.usage.usage import PodContainer

State = Literal["ok", "warning", "problem"]

SHOWN_AT_MOST = 6


@dataclass(frozen=True)
class Finding:
    """What one check found, and what to do about it when that is not well."""

    check: str
    state: State
    found: str
    advice: str = ""


def some(names: list[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - SHOWN_AT_MOST} more" if len(names) > SHOWN_AT_MOST else ""
    return ", ".join(names[:SHOWN_AT_MOST]) + more


DAY = 86400.0
EDGE = 3600.0
"""By how much usage may fall short of a window and still fill it."""
SAMPLED_WITHIN = 1800.0
"""Seconds: a container that runs for longer should have a sample, also where samples come late."""
NARROWED = 6
"""How often the time is halved in which usage begins."""


async def readiness(
    client: Client, *, source: Mapping[str, Any], days: float, namespace: str | None, now: float
) -> list[Finding]:
    """All that a scan of the last days would meet; `source` has the settings of its usage source, if any."""
    scope = None if namespace is None else [namespace]
    try:
        picture = await look(client, namespaces=scope)
    except TrimtabError as error:
        return [Finding("workloads", "problem", str(error))]
    workloads: Sequence[Workload] = picture.workloads()
    spaces = sorted({workload.namespace for workload in workloads})
    running = running_since(picture.pods)
    return [
        *await _usage(client, settings=source, days=days, namespaces=spaces, running=running, now=now),
        without_requests(workloads),
        conflicts(
            await _listed(client, HPAS, hpas(), namespace), await _listed(client, VPAS, vpas(), namespace)
        ),
    ]


async def _usage(
    client: Client,
    *,
    settings: Mapping[str, Any],
    days: float,
    namespaces: list[str],
    running: Mapping[PodContainer, float],
    now: float,
) -> list[Finding]:
    try:
        async with open_source(client, settings=settings) as found:
            health = await found.source.check()
            findings = [Finding("usage", "ok", f"{found.source.name}: {health.detail}")]
            if isinstance(found.source, Prometheus):
                findings.append(await _reach(found.source, days, now))
            if found.has_past and namespaces:
                findings.append(await samples(found.source, running, namespaces, now))
                findings.append(await _cost(found.source, days, namespaces, now))
            return findings
    except TrimtabError as error:
        said, _, advice = str(error).partition("; ")
        return [Finding("usage", "problem" if settings else "warning", said, advice)]


async def _reach(source: Prometheus, days: float, now: float) -> Finding:
    """How far back there is usage: at the far end of the window, or else narrowed down between two moments."""
    wanted = days * DAY
    edge = min(EDGE, wanted / 2)
    if await source.has_usage(at=now - wanted + edge):
        return Finding("retention", "ok", f"usage goes back the {counted(days, 'day')} that a scan looks at")
    known, unknown = 0.0, wanted - edge
    for _ in range(NARROWED):
        middle = (known + unknown) / 2
        known, unknown = (middle, unknown) if await source.has_usage(at=now - middle) else (known, middle)
    return Finding(
        "retention",
        "warning",
        f"usage goes back about {known / DAY:.1f} days, and a scan looks at {days:g}",
        "keep it longer (--storage.tsdb.retention.time), or look at less with --days; what runs weekly is not seen",
    )


async def samples(
    source: Source[Any], running: Mapping[PodContainer, float], namespaces: list[str], now: float
) -> Finding:
    """Whether containers that run have samples: those that have none are not sized."""
    usage = await source.read(Ask.last(SAMPLED_WITHIN, now=now, step=300.0, namespaces=namespaces))
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
        return Finding("samples", "ok", f"{counted(len(expected), 'running container')} with recent samples")
    found = f"{len(silent)} of {counted(len(expected), 'running container')} without samples of the last {lasting(SAMPLED_WITHIN)}"
    return Finding(
        "samples",
        "warning",
        f"{found}: {some(silent)}",
        "let their nodes be scraped; samples that come late are waited for up to learning.lateness",
    )


async def _cost(source: Any, days: float, namespaces: list[str], now: float) -> Finding:
    reading = await plan(source, window=days * DAY, step=None, now=now, namespaces=namespaces)
    found = f"about {reading.cost}, a sample every {reading.ask.step:g} s"
    if not reading.is_big:
        return Finding("cost of a scan", "ok", found)
    return Finding("cost of a scan", "warning", found, "look at fewer --days or one --namespace at a time")


def without_requests(workloads: Iterable[Workload]) -> Finding:
    """Which workloads leave the scheduler to guess."""
    found = sorted(
        f"{workload.namespace}/{workload.kind.lower()}/{workload.name}"
        for workload in workloads
        if not workload.as_a_whole
        and any(lacks_requests(each.resources) for each in workload.containers if each.role != "init")
    )
    if not found:
        return Finding("requests", "ok", "every workload asks for CPU and memory")
    return Finding(
        "requests",
        "warning",
        f"{len(found)} ask for no CPU or no memory: {some(found)}",
        "trimtab diff shows what to give them",
    )


def conflicts(scalers: Iterable[Hpa], autoscalers: Iterable[Vpa]) -> Finding:
    """Where a VPA changes the very request by whose share an HPA scales, so that each undoes the other."""
    shares = {(hpa.namespace, hpa.target): {each.resource for each in hpa.utilisations} for hpa in scalers}
    active = [vpa for vpa in autoscalers if vpa.applies]
    clashes = [
        f"{vpa.namespace}/{vpa.target.kind.lower()}/{vpa.target.name}"
        for vpa in active
        if shares.get((vpa.namespace, vpa.target), set())
        & {
            resource
            for policy in vpa.policies or (vpa.policy(""),)
            for resource in policy.resources
            if not policy.off
        }
    ]
    if clashes:
        return Finding(
            "autoscalers",
            "warning",
            f"an HPA and a VPA both act on {some(sorted(clashes))}",
            "set updateMode Off in the VPA, or let the HPA scale by something else than utilisation",
        )
    if active:
        return Finding(
            "autoscalers",
            "warning",
            f"VPAs change pods: {some([f'{vpa.namespace}/{vpa.name}' for vpa in active])}",
            "Trimtab only recommends for these; trimtab import vpa takes them over",
        )
    return Finding("autoscalers", "ok", "no HPA and VPA act on the same workload")


async def _listed(client: Client, resource: Resource, shape: Shape[R], namespace: str | None) -> list[R]:
    """None where there are none of the kind, or none may be read: the check of rights tells of that."""
    try:
        return [record async for record in records(client, resource, shape, namespace=namespace)]
    except (NotFound, Forbidden):
        return []
