"""A workload in a line, and a node in a card, from what a leader has on its desk."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from trimtab.actuation.hold import read_hold
from trimtab.kube.kinds.custom import NodeReport
from trimtab.kube.kinds.nodes import Node, Room
from trimtab.kube.kinds.pod_requests import pod_requests
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.state import Desk
from trimtab.recommender.cohort import Learned
from trimtab.scan.pricing import Prices
from trimtab.scan.risk import risks
from trimtab.scan.usage_totals import Consumed
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.policy_rules import Rules
from trimtab.usage.pod_ownership import WorkloadContainer
from trimtab.web.backends.current_usage import PodName, PodUsage
from trimtab.web.model import HistoryEntry, Knob, NodeView, Tier, WorkloadRow
from trimtab.web.views.history import kills_of
from trimtab.web.views.resources import together

UNMANAGED = "Unmanaged"
HOUR = 3600.0
SILENT = 300.0
"""Seconds after which what an agent told is not believed any more."""
_TIERS = ("Guaranteed", "Burstable", "BestEffort")


class Seen(NamedTuple):
    """A row, and the kills behind it."""

    row: WorkloadRow
    kills: tuple[HistoryEntry, ...]


def seen(
    desk: Desk, workload: Workload, used: Mapping[PodName, PodUsage], *, prices: Prices, now: float
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
    used: Mapping[PodName, PodUsage],
    report: NodeReport | None,
    *,
    last_sample: float | None,
    now: float,
) -> NodeView:
    """A node with the pods that are on it, and what its agent tells of it; of one that fell silent, only since when.

    `used` is what pods of the cluster use now, `last_sample` when one of this node's was last sampled.
    """
    told = report if report and report.at is not None and now - report.at < SILENT else None
    own = list(pods)
    asked = {pod.uid: pod_requests(pod) for pod in own}
    requested = _total(asked.values())
    tiers: dict[str, list[Pod]] = defaultdict(list)
    for pod in own:
        tiers[pod.qos or "BestEffort"].append(pod)
    known = {pod.uid: used[pod.namespace, pod.name] for pod in own if (pod.namespace, pod.name) in used}
    covered = _total(asked[uid] for uid in known)
    # On a node without pods nothing is used, wherever usage is known at all.
    is_known = bool(known) or (bool(used) and not own)
    return NodeView(
        name=node.name,
        ready=node.ready,
        schedulable=not node.unschedulable,
        cpu=node.allocatable.cpu / 1000,
        memory=float(node.allocatable.memory),
        cpu_requested=requested.cpu / 1000,
        memory_requested=float(requested.memory),
        cpu_used=sum(each.cpu for each in known.values()) if is_known else None,
        memory_used=sum(each.memory for each in known.values()) if is_known else None,
        cpu_covered=covered.cpu / 1000,
        memory_covered=float(covered.memory),
        last_sample=None if is_known else last_sample,
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
                cpu_requested=_total(asked[pod.uid] for pod in tiers[tier]).cpu / 1000,
                memory_requested=float(_total(asked[pod.uid] for pod in tiers[tier]).memory),
            )
            for tier in _TIERS
            if tiers[tier]
        ),
    )


def _total(rooms: Iterable[Room]) -> Room:
    found = list(rooms)
    return Room(cpu=sum(each.cpu for each in found), memory=sum(each.memory for each in found))


def states(rows: Iterable[WorkloadRow]) -> dict[str, int]:
    return dict(Counter(row.state for row in rows).most_common())
