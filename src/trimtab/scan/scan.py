"""Run a scan: list the cluster, read its usage history, and assess each workload.

A failure of the whole cluster or usage source raises `TrimtabError`. Partial failures, such as a forbidden namespace,
are reported in the result beside the findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trimtab.api.optimizationpolicy import OptimizationPolicySpec, StrategyChoice
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.client import Client
from trimtab.recommender.cohort import StrategySpec
from trimtab.recommender.workload import POD_LEVEL_RESOURCES, strategy_spec_from_policy
from trimtab.scan.assessor import DAY, Assessor
from trimtab.scan.cluster_snapshot import ClusterSnapshot, take_snapshot
from trimtab.scan.lister import list_selected_uids
from trimtab.scan.model import ScanResult, SkippedWorkload, WorkloadFinding
from trimtab.scan.pricing import ResourcePrices
from trimtab.scan.render.summary import SHORT_KINDS
from trimtab.scan.usage_model import UsageModel
from trimtab.scan.usage_reader import ReadPlan, ReportProgress, plan_read, read_usage
from trimtab.sizing.strategy import STRATEGIES
from trimtab.usage.pod_ownership import PodOwnerIndex
from trimtab.usage.source import Source
from trimtab.usage.usage import Usage

WINDOW = 14 * DAY

OnUsage = Callable[[Usage, PodOwnerIndex], None]
"""Callback that receives each part of the usage history that was read."""


async def scan_cluster(
    client: Client,
    source: Source[Any],
    *,
    namespaces: Sequence[str] | None = None,
    labels: str = "",
    kinds: Sequence[str] = (),
    names: Sequence[str] = (),
    strategy: str = "trimtab",
    settings: Mapping[str, Any] | None = None,
    compare: Sequence[str] = (),
    window: float = WINDOW,
    step: float | None = None,
    now: float,
    prices: ResourcePrices | None = None,
    source_description: str = "",
    progress: ReportProgress = lambda _text, _share: None,
    on_planned: Callable[[ReadPlan], None] = lambda _reading: None,
    on_usage: OnUsage = lambda _usage, _owners: None,
    on_selected: Callable[[Sequence[Workload]], None] = lambda _workloads: None,
) -> ScanResult:
    """Scan a cluster and return the findings for each selected workload.

    `source_description` is shown to users in place of the source's name. `on_planned` receives the cost of the read
    before it starts, and `on_selected` the selected workloads. With `names`, an owned workload selects its owner.

    Raises `TrimtabError` if the whole cluster or source fails; partial failures are in the result.
    """
    others = [name for name in dict.fromkeys(compare) if name != strategy]
    specs = {
        strategy: _build_strategy_spec(strategy, settings or {}),
        **{name: _build_strategy_spec(name, {}) for name in others},
    }
    # Reject an invalid strategy or setting before the long read starts.
    known = [STRATEGIES.parse_settings(each.strategy, each.decode_settings()) for each in specs.values()]
    progress("listing workloads", 0.0)
    snapshot = await take_snapshot(client, namespaces=namespaces)
    selected = await _select_workloads(client, snapshot, labels=labels, kinds=kinds, names=names)
    on_selected(selected)
    sized, skipped = _split_skipped(snapshot, selected)
    if not (labels or kinds or names):
        skipped += _skip_unowned_pods(snapshot)
    used_namespaces = {workload.namespace for workload in sized}
    # A strategy may pool all containers. Train on every workload of these namespaces, so that a workload gets the same
    # size whether it is scanned alone or among the others.
    peers, _ = _split_skipped(
        snapshot, (each for each in snapshot.list_workloads() if each.namespace in used_namespaces)
    )
    usage_model = UsageModel(snapshot, peers, specs.values(), now=now)
    actual_step = step or 0.0
    if sized:
        plan = await plan_read(source, window=window, step=step, now=now, namespaces=sorted(used_namespaces))
        on_planned(plan)
        actual_step = plan.query.step
        has_batch = not all(workload.is_long_running for workload in sized)
        if has_batch and await source.has_usage(at=plan.query.start):
            usage_model.totals.mark_known_from_start()

        def observe(usage: Usage) -> None:
            usage_model.observe_usage(usage, until=plan.query.end)
            on_usage(usage, usage_model.owners)

        await read_usage(source, plan, observe, progress=progress)
    assessor = Assessor(snapshot, usage_model, specs, prices or ResourcePrices(), source.name, now)
    found = []
    for workload in sized:
        finding = assessor.assess(workload)
        if isinstance(finding, SkippedWorkload):
            skipped.append(finding)
        else:
            found.append(finding)
    return ScanResult(
        context=client.connection.context,
        server=client.connection.server,
        source=source_description or source.name,
        scanned_at=now,
        window=window,
        step=actual_step,
        strategy=strategy,
        settings=known[0].model_dump(),
        prices=prices or ResourcePrices(),
        workloads=tuple(sorted(found, key=_impact_key)),
        skipped=tuple(skipped),
        forbidden_namespaces=snapshot.forbidden_namespaces,
        errors_by_resource=snapshot.errors_by_resource,
        compared=tuple(others),
    )


def _build_strategy_spec(strategy: str, settings: Mapping[str, Any]) -> StrategySpec:
    """Build the spec of a default policy with this strategy; the registry validates the name later."""
    choice = StrategyChoice.model_construct(name=strategy, settings=dict(settings))
    return strategy_spec_from_policy(OptimizationPolicySpec(strategy=choice))


def _impact_key(found: WorkloadFinding) -> tuple[float, ...]:
    """Sort by severity, then by the amount of money, then by replicas, highest first."""
    return (-found.severity, -abs(found.saving), -found.replicas)


async def _select_workloads(
    client: Client, snapshot: ClusterSnapshot, *, labels: str, kinds: Sequence[str], names: Sequence[str]
) -> list[Workload]:
    wanted = {_resolve_kind(kind, snapshot.workload_kinds()) for kind in kinds}

    def is_meant(workload: Workload) -> bool:
        return (not wanted or workload.key.kind in wanted) and (not names or workload.name in names)

    found = list(filter(is_meant, snapshot.list_workloads()))
    if names:
        # A StatefulSet that a custom resource owns is sized as that custom resource, but users may give its own name.
        above = {
            each.uid: each for each in map(snapshot.find_top_owner, filter(is_meant, snapshot.list_owned()))
        }
        found += [each for uid, each in above.items() if uid not in {known.uid for known in found}]
    if labels:
        kinds_found = {workload.resource for workload in found}
        uids = await list_selected_uids(client, kinds_found, snapshot.scopes, labels=labels)
        found = [workload for workload in found if workload.uid in uids]
    return found


def _resolve_kind(given: str, known: Sequence[str]) -> str:
    """Resolve a kind as users write it: deployment, Deployment, deploy, rollout.argoproj.io or rollout."""
    spelled = {kind.lower().partition(".")[0]: kind for kind in known}
    spelled |= {short: kind for kind, short in SHORT_KINDS.items()} | {kind.lower(): kind for kind in known}
    found = spelled.get(given.lower())
    if found is None:
        raise TrimtabError(
            f"kind {given}: the cluster has no such workload kind; choose one of: {', '.join(known)}"
        )
    return found


def _split_skipped(
    snapshot: ClusterSnapshot, selected: Iterable[Workload]
) -> tuple[list[Workload], list[SkippedWorkload]]:
    sized, skipped = [], []
    for workload in selected:
        reason = _skip_reason(workload, snapshot)
        if reason:
            skipped.append(SkippedWorkload(workload.key, reason, snapshot.list_owned_by(workload)))
        else:
            sized.append(workload)
    return sized, skipped


def _skip_unowned_pods(snapshot: ClusterSnapshot) -> list[SkippedWorkload]:
    """Report pods without a workload template, each under its creator."""
    found = {}
    for pod in snapshot.list_unowned_pods():
        if pod.owner is None:
            key, reason = (
                WorkloadKey("Pod", pod.namespace, pod.name),
                "is a standalone pod without a template",
            )
        elif pod.owner.kind == "Node":
            key, reason = (
                WorkloadKey("Pod", pod.namespace, pod.name),
                "is a static pod, created by its node from a file",
            )
        else:
            key = WorkloadKey(pod.owner.kind, pod.namespace, pod.owner.name)
            reason = "creates pods, but Trimtab does not support its kind or may not read it"
        found[key] = SkippedWorkload(key, reason)
    return list(found.values())


def _skip_reason(workload: Workload, snapshot: ClusterSnapshot) -> str:
    if workload.deleting:
        return "is being deleted"
    if workload.finished:
        return "has completed"
    if not workload.containers and not snapshot.list_pods(workload):
        return "has no readable pod template"
    if workload.has_pod_level_resources:
        return POD_LEVEL_RESOURCES
    if workload.is_long_running and not workload.replicas:
        return "runs on no node" if workload.kind == "DaemonSet" else "is scaled to zero"
    return ""
