"""The survey itself: look at the cluster, read its past, judge each workload.

Whatever the cluster or the source refuses as a whole is a `TrimtabError`; what only some of it refuses is told in the
answer beside what was found.
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
from trimtab.usage.prometheus import Prometheus
from trimtab.usage.source import Source
from trimtab.usage.usage import Usage

WINDOW = 14 * DAY

OnUsage = Callable[[Usage, PodOwnerIndex], None]
"""Told of each part of the past that was read."""


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
    """Look at a cluster; `described` is what people are told of the source, `planned` hears what its read will cost.

    With `names`, a workload that another owns stands for its owner. `on_chosen` is called with the chosen workloads
    before their usage is read.

    Whatever the source or the cluster refuses as a whole is a `TrimtabError`; what only some of it refuses is in the
    answer.
    """
    others = [name for name in dict.fromkeys(compare) if name != strategy]
    sizings = {
        strategy: _build_strategy_spec(strategy, settings or {}),
        **{name: _build_strategy_spec(name, {}) for name in others},
    }
    # What is wrong with a strategy or its settings is refused before anything long is begun.
    known = [STRATEGIES.parse_settings(each.strategy, each.decode_settings()) for each in sizings.values()]
    progress("looking at workloads", 0.0)
    picture = await take_snapshot(client, namespaces=namespaces)
    chosen = await _select_workloads(client, picture, labels=labels, kinds=kinds, names=names)
    on_selected(chosen)
    sized, skipped = _split_skipped(picture, chosen)
    if not (labels or kinds or names):
        skipped += _skip_unowned_pods(picture)
    spaces = {workload.namespace for workload in sized}
    # A strategy may learn of one from all, so that one that is asked for alone gets the size that it has among them.
    everyone, _ = _split_skipped(
        picture, (each for each in picture.list_workloads() if each.namespace in spaces)
    )
    lessons = UsageModel(picture, everyone, sizings.values(), now=now)
    width = step or 0.0
    if sized:
        reading = await plan_read(source, window=window, step=step, now=now, namespaces=sorted(spaces))
        on_planned(reading)
        width = reading.query.step
        rests = not all(workload.is_long_running for workload in sized)
        if rests and isinstance(source, Prometheus) and await source.has_usage(at=reading.query.start):
            lessons.totals.mark_known_from_start()

        def take_in(usage: Usage) -> None:
            lessons.observe_usage(usage, until=reading.query.end)
            on_usage(usage, lessons.owners)

        await read_usage(source, reading, take_in, progress=progress)
    judge = Assessor(picture, lessons, sizings, prices or ResourcePrices(), source.name, now)
    found = []
    for workload in sized:
        surveyed = judge.assess(workload)
        if isinstance(surveyed, SkippedWorkload):
            skipped.append(surveyed)
        else:
            found.append(surveyed)
    return ScanResult(
        context=client.connection.context,
        server=client.connection.server,
        source=source_description or source.name,
        scanned_at=now,
        window=window,
        step=width,
        strategy=strategy,
        settings=known[0].model_dump(),
        prices=prices or ResourcePrices(),
        workloads=tuple(sorted(found, key=_impact_key)),
        skipped=tuple(skipped),
        forbidden_namespaces=picture.forbidden_namespaces,
        errors_by_resource=picture.errors_by_resource,
        compared=tuple(others),
    )


def _build_strategy_spec(strategy: str, settings: Mapping[str, Any]) -> StrategySpec:
    """As under a policy that says nothing else; whether there is such a strategy is for its registry to say."""
    choice = StrategyChoice.model_construct(name=strategy, settings=dict(settings))
    return strategy_spec_from_policy(OptimizationPolicySpec(strategy=choice))


def _impact_key(found: WorkloadFinding) -> tuple[float, ...]:
    """The worst first; of equals what moves most money, then what has most replicas."""
    return (-found.severity, -abs(found.saving), -found.replicas)


async def _select_workloads(
    client: Client, snapshot: ClusterSnapshot, *, labels: str, kinds: Sequence[str], names: Sequence[str]
) -> list[Workload]:
    wanted = {_resolve_kind(kind, snapshot.workload_kinds()) for kind in kinds}

    def is_meant(workload: Workload) -> bool:
        return (not wanted or workload.key.kind in wanted) and (not names or workload.name in names)

    found = list(filter(is_meant, snapshot.list_workloads()))
    if (
        names
    ):  # a StatefulSet of an operator's own kind is sized as that, and users may know it by its own name
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
    """As users write it: deployment, Deployment, deploy, rollout.argoproj.io or rollout alone."""
    spelled = {kind.lower().partition(".")[0]: kind for kind in known}
    spelled |= {short: kind for kind, short in SHORT_KINDS.items()} | {kind.lower(): kind for kind in known}
    found = spelled.get(given.lower())
    if found is None:
        raise TrimtabError(f"kind {given}: the cluster has no such workloads; there are: {', '.join(known)}")
    return found


def _split_skipped(
    snapshot: ClusterSnapshot, chosen: Iterable[Workload]
) -> tuple[list[Workload], list[SkippedWorkload]]:
    sized, skipped = [], []
    for workload in chosen:
        reason = _skip_reason(workload, snapshot)
        if reason:
            skipped.append(SkippedWorkload(workload.key, reason, snapshot.list_owned_by(workload)))
        else:
            sized.append(workload)
    return sized, skipped


def _skip_unowned_pods(snapshot: ClusterSnapshot) -> list[SkippedWorkload]:
    """Pods that there is no template of, and who made them."""
    found = {}
    for pod in snapshot.list_unowned_pods():
        if pod.owner is None:
            key, reason = (
                WorkloadKey("Pod", pod.namespace, pod.name),
                "is a pod by itself, without a template",
            )
        elif pod.owner.kind == "Node":
            key, reason = WorkloadKey("Pod", pod.namespace, pod.name), "is made by its node, from a file"
        else:
            key = WorkloadKey(pod.owner.kind, pod.namespace, pod.owner.name)
            reason = "makes pods, and is of a kind that we do not size or may not read"
        found[key] = SkippedWorkload(key, reason)
    return list(found.values())


def _skip_reason(workload: Workload, snapshot: ClusterSnapshot) -> str:
    if workload.deleting:
        return "is being deleted"
    if workload.finished:
        return "has run to its end"
    if not workload.containers and not snapshot.list_pods(workload):
        return "has no pod template that we can read"
    if workload.has_pod_level_resources:
        return POD_LEVEL_RESOURCES
    if workload.is_long_running and not workload.replicas:
        return "runs on no node" if workload.kind == "DaemonSet" else "is scaled to zero"
    return ""
