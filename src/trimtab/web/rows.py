"""A workload in a line, and a node in a card, from what a leader has on its desk."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from trimtab.actuation.hold import read_hold
from trimtab.kube.nodemetrics import NodeReport
from trimtab.kube.nodes import Node
from trimtab.kube.pods import Pod
from trimtab.kube.workloads import Workload
from trimtab.operator.cohort import Learned
from trimtab.operator.desk import Desk
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.rules import Rules
from trimtab.survey.consumption import Consumed
from trimtab.survey.prices import Prices
from trimtab.survey.risk import risks
from trimtab.usage.owners import WorkloadContainer
from trimtab.usage.usage import PodContainer, Usage
from trimtab.web.model import HistoryEntry, Knob, NodeView, Tier, WorkloadRow
from trimtab.web.sizes import together
from trimtab.web.told import kills_of

UNMANAGED = "Unmanaged"
HOUR = 3600.0
SILENT = 300.0
"""Seconds after which what an agent told is not believed any more."""
_TIERS = ("Guaranteed", "Burstable", "BestEffort")


class Used(NamedTuple):
    """Cores and bytes."""

    cpu: float = 0.0
    memory: float = 0.0

    def __add__(self, other: Used) -> Used:  # type: ignore[override]
        return Used(self.cpu + other.cpu, self.memory + other.memory)


class Seen(NamedTuple):
    """A row, and the kills behind it."""

    row: WorkloadRow
    kills: tuple[HistoryEntry, ...]


def by_pod(reads: Iterable[Usage]) -> dict[tuple[str, str], Used]:
    """What each pod used at the last step, by its namespace and name; those that were not seen are left out.

    Of two sources that know a pod, the first is believed.
    """
    found: dict[tuple[str, str], Used] = {}
    for usage in reads:
        found = _read(usage) | found
    return found


def _read(usage: Usage) -> dict[tuple[str, str], Used]:
    found: dict[tuple[str, str], Used] = defaultdict(Used)
    if not usage.steps:
        return found
    for name, cpu, memory in zip(
        usage.containers, usage.cpu[-1].tolist(), usage.memory[-1].tolist(), strict=True
    ):
        if not (math.isnan(cpu) and math.isnan(memory)):
            found[_pod(name)] += Used(0.0 if math.isnan(cpu) else cpu, 0.0 if math.isnan(memory) else memory)
    return found


def _pod(name: PodContainer) -> tuple[str, str]:
    return name.namespace, name.pod


def seen(
    desk: Desk, workload: Workload, used: Mapping[tuple[str, str], Used], *, prices: Prices, now: float
) -> Seen:
    """One workload; whoever asks holds the lock of `desk.learning`."""
    key = workload.key
    mandate, outcome = desk.orders.of(workload), desk.statuses.outcome(key)
    pods = [pod for pod in desk.catalog.pods_of(workload) if not pod.deleting]
    containers = [each for each in desk.effective_containers(workload) if each.role != "init"]
    should = {each.container: each.target for each in outcome.recommendations} if outcome else {}
    next_step = {each.container: each.resources for each in outcome.recommendations} if outcome else {}
    dangers: dict[str, None] = {}
    kills: list[HistoryEntry] = []
    shares: list[float] = []
    for each in containers:
        name = WorkloadContainer.of(key, each.name)
        known: Learned | None = None
        if mandate:
            known = desk.learning.learned(name, mandate.sizing, now=now, runs_on=workload.runs_on)
        if known is None:
            continue
        evidence = known.evidence
        shares.append(_share_of_time(evidence, now=now))
        peak = Consumed(memory_peak=evidence.memory_peak or 0.0)
        kills += kills_of(key, each.name, evidence.kills)
        rules = mandate.rules if mandate else Rules()
        dangers |= dict.fromkeys(risks(each, evidence, peak, rules=rules, now=now))
    instances: float = len(pods)
    if shares and not workload.runs_on:
        instances = max(shares) * max(1, workload.replicas)
    cost = sum(prices.of(each.resources) for each in containers) * instances
    wanted = [should.get(each.name, each.resources) for each in containers]
    hold = read_hold(workload.annotations)
    seen_pods = [used[pod.namespace, pod.name] for pod in pods if (pod.namespace, pod.name) in used]
    row = WorkloadRow(
        kind=key.kind,
        namespace=key.namespace,
        name=key.name,
        policy=mandate.name if mandate else "",
        mode=mandate.spec.mode.value if mandate else "",
        state=outcome.state.value if outcome else "Pending" if mandate else UNMANAGED,
        reason=outcome.reason if outcome else "",
        pods=len(pods),
        has=together(each.resources for each in containers),
        should=together(wanted) if should else None,
        step=together(next_step.get(each.name, each.resources) for each in containers)
        if next_step != should
        else None,
        used_cpu=max((each.cpu for each in seen_pods), default=None),
        used_memory=max((each.memory for each in seen_pods), default=None),
        cost=cost,
        saving=cost - sum(map(prices.of, wanted)) * instances if should else 0.0,
        risks=tuple(dangers),
        changed=outcome.applied_at if outcome else None,
        pinned=str(hold) if hold else "",
    )
    return Seen(row, tuple(kills))


def _share_of_time(evidence: Evidence, *, now: float) -> float:
    """How much of the time, since it was first seen, one ran that runs now and then.

    Its rest is counted in whole hours: by the second, every look would find another price, and be news to every page.
    """
    until = max(evidence.last, now // HOUR * HOUR)
    return evidence.ran / max(evidence.ran, until - evidence.first) if evidence.ran else 0.0


def node_view(
    node: Node,
    pods: Iterable[Pod],
    used: Mapping[tuple[str, str], Used],
    report: NodeReport | None,
    *,
    now: float,
) -> NodeView:
    """A node with the pods that are on it, and what its agent tells of it; of one that fell silent, only since when."""
    told = report if report and report.at is not None and now - report.at < SILENT else None
    own = list(pods)
    asked = {
        pod.uid: together(each.resources for each in pod.containers if each.role != "init") for pod in own
    }
    tiers: dict[str, list[Pod]] = defaultdict(list)
    for pod in own:
        tiers[pod.qos or "BestEffort"].append(pod)
    known = [used[pod.namespace, pod.name] for pod in own if (pod.namespace, pod.name) in used]
    all_used = sum(known, Used())
    return NodeView(
        name=node.name,
        ready=node.ready,
        schedulable=not node.unschedulable,
        cpu=node.allocatable.cpu / 1000,
        memory=float(node.allocatable.memory),
        cpu_requested=sum(size.cpu or 0.0 for size in asked.values()),
        memory_requested=sum(size.memory or 0.0 for size in asked.values()),
        cpu_used=all_used.cpu if used else None,
        memory_used=all_used.memory if used else None,
        pods=len(own),
        reported=report.at if report else None,
        pressure=dict(told.pressure) if told else {},
        policy=told.policy if told else "",
        knobs=tuple(
            Knob(name=f"{each.where} {each.knob}", value=each.value, why=each.why) for each in told.knobs
        )
        if told
        else (),
        tiers=tuple(
            Tier(
                name=tier,
                pods=len(tiers[tier]),
                cpu_requested=sum(asked[pod.uid].cpu or 0.0 for pod in tiers[tier]),
                memory_requested=sum(asked[pod.uid].memory or 0.0 for pod in tiers[tier]),
            )
            for tier in _TIERS
            if tiers[tier]
        ),
    )


def states(rows: Iterable[WorkloadRow]) -> dict[str, int]:
    return dict(Counter(row.state for row in rows).most_common())
