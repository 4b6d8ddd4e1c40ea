"""Build workload rows and node cards from the views of the leader."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from trimtab.actuation.change_annotations import ChangeAnnotations, read_change_annotations
from trimtab.actuation.hold import read_hold
from trimtab.api.optimizationpolicy import WorkloadState
from trimtab.kube.kinds.custom import NodeReport
from trimtab.kube.kinds.nodes import Node, NodeResources
from trimtab.kube.kinds.pod_requests import pod_requests
from trimtab.kube.kinds.pods import Pod
from trimtab.operator.paid_pods import count_paid_pods_of_view
from trimtab.operator.views import WorkloadView
from trimtab.scan.pricing import ResourcePrices
from trimtab.scan.risk import assess_risks
from trimtab.scan.usage_model import UsageTotals
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.web.model import KnobSummary, NodeSummary, PodName, PodUsageSample, TierSummary, WorkloadRow
from trimtab.web.views.resources import sum_sizes

UNMANAGED = "Unmanaged"
REPORT_TTL = 300.0
"""The seconds after which an agent's report counts as outdated."""
OWN_PREFIX = "trimtab.io/"
"""The prefix of our own annotations, whose values are no names of groups."""
_TIERS = ("Guaranteed", "Burstable", "BestEffort")


def build_row(
    view: WorkloadView,
    used: Mapping[PodName, PodUsageSample],
    *,
    prices: ResourcePrices,
    now: float,
) -> WorkloadRow:
    workload, policy, outcome, key = view.workload, view.policy, view.outcome, view.workload.key
    containers = [each for each in view.containers if each.role != "init"]
    should = {each.container: each.target for each in outcome.recommendations} if outcome else {}
    next_step = {each.container: each.resources for each in outcome.recommendations} if outcome else {}
    risks: dict[str, None] = {}
    for each in containers:
        evidence = view.evidence.get(each.name)
        if evidence is None:
            continue
        peak = UsageTotals(cpu_peak=evidence.cpu_peak or 0.0, memory_peak=evidence.memory_peak or 0.0)
        rules = policy.rules if policy else PolicyRules()
        risks |= dict.fromkeys(assess_risks(each, evidence, peak, rules=rules, now=now))
    instances = count_paid_pods_of_view(view, now=now)
    requested = view.paid_containers
    cost = sum(prices.price_requests(each.resources) for each in requested) * instances
    paid = [should.get(each.name, each.resources) for each in requested]
    wanted = [should.get(each.name, each.resources) for each in containers]
    hold = read_hold(workload.annotations)
    # An Intent publishes no outcome: the annotations of the workload show what it changed.
    annotations = read_change_annotations(workload) if view.intent and not outcome else None
    sampled_pods = [used[key.namespace, pod] for pod in view.pods if (key.namespace, pod) in used]
    return WorkloadRow(
        kind=key.kind,
        namespace=key.namespace,
        name=key.name,
        policy=policy.name if policy else "",
        mode=policy.spec.mode.value if policy else "",
        intent=view.intent,
        state=outcome.state.value if outcome else _state_without_outcome(view, annotations),
        reason=outcome.reason if outcome else "",
        pods=len(view.pods),
        has=sum_sizes(each.resources for each in containers),
        should=sum_sizes(wanted) if should else None,
        step=sum_sizes(next_step.get(each.name, each.resources) for each in containers)
        if next_step != should
        else None,
        used_cpu=max((each.cpu for each in sampled_pods), default=None),
        used_memory=max((each.memory for each in sampled_pods), default=None),
        cost=cost,
        saving=cost - sum(map(prices.price_requests, paid)) * instances if should else 0.0,
        risks=tuple(risks),
        changed=outcome.applied_at
        if outcome
        else annotations.applied.at
        if annotations and annotations.applied
        else None,
        labels=(
            *(each for each in workload.annotations if not each[0].startswith(OWN_PREFIX)),
            *workload.labels,
        ),
        pinned=str(hold) if hold else "",
    )


def _state_without_outcome(view: WorkloadView, annotations: ChangeAnnotations | None) -> str:
    if annotations and annotations.change:
        return WorkloadState.APPLYING
    if annotations and annotations.applied:
        return WorkloadState.APPLIED
    return WorkloadState.PENDING if view.policy or view.intent else UNMANAGED


def build_node_summary(
    node: Node,
    pods: Iterable[Pod],
    used: Mapping[PodName, PodUsageSample],
    report: NodeReport | None,
    *,
    cost: float | None = None,
    last_sample: float | None,
    now: float,
) -> NodeSummary:
    """Build the summary of a node with its pods and its agent's report; an outdated report only gives its time.

    `used` is the current usage of all pods, and `last_sample` the time of the last sample of this node's pods.
    """
    current_report = (
        report
        if report and report.reported_at is not None and now - report.reported_at < REPORT_TTL
        else None
    )
    own = list(pods)
    requests_by_uid = {pod.uid: pod_requests(pod) for pod in own}
    requested = _sum_requests(requests_by_uid.values())
    tiers: dict[str, list[Pod]] = defaultdict(list)
    for pod in own:
        tiers[pod.qos_class or "BestEffort"].append(pod)
    known = {pod.uid: used[pod.namespace, pod.name] for pod in own if (pod.namespace, pod.name) in used}
    covered = _sum_requests(requests_by_uid[uid] for uid in known)
    # A node without pods uses nothing, provided that usage is known at all.
    is_known = bool(known) or (bool(used) and not own)
    return NodeSummary(
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
        cost=cost,
        pods=len(own),
        reported=report.reported_at if report else None,
        pressure=dict(current_report.pressure) if current_report else {},
        policy=current_report.policy if current_report else "",
        knobs=tuple(
            KnobSummary(name=f"{each.where} {each.knob}", value=each.value, why=each.why)
            for each in current_report.knobs
        )
        if current_report
        else (),
        tiers=tuple(
            TierSummary(
                name=tier,
                pods=len(tiers[tier]),
                cpu_requested=_sum_requests(requests_by_uid[pod.uid] for pod in tiers[tier]).cpu / 1000,
                memory_requested=float(_sum_requests(requests_by_uid[pod.uid] for pod in tiers[tier]).memory),
            )
            for tier in _TIERS
            if tiers[tier]
        ),
    )


def _sum_requests(resources: Iterable[NodeResources]) -> NodeResources:
    found = list(resources)
    return NodeResources(cpu=sum(each.cpu for each in found), memory=sum(each.memory for each in found))


def count_states(rows: Iterable[WorkloadRow]) -> dict[str, int]:
    return dict(Counter(row.state for row in rows).most_common())
