"""Run a scan: list the cluster, read its usage history, and assess each workload.

A failure of the whole cluster or usage source raises `TrimtabError`. Partial failures, such as a forbidden namespace,
are reported in the result beside the findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from trimtab.api.optimizationpolicy import DEFAULT_STRATEGY, OptimizationPolicySpec, StrategyChoice
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.workloads import Workload, WorkloadKey, qualify_kind
from trimtab.kube.rest.client import Client
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.kernels import SHIPPED_STRATEGIES, load_kernels
from trimtab.operator.policy.resolver import PolicyResolver
from trimtab.recommender.cohort import StrategySpec
from trimtab.recommender.workload import POD_LEVEL_RESOURCES, strategy_spec_from_policy
from trimtab.scan.assessor import DAY, Assessor, ScanPolicies
from trimtab.scan.cluster_snapshot import ClusterSnapshot, list_selected_uids, take_snapshot
from trimtab.scan.model import SHORT_KINDS, ScanResult, SkippedWorkload, WorkloadFinding
from trimtab.scan.pricing import ResourcePrices, build_node_bill, build_prices, replace_prices
from trimtab.scan.source_selection import SelectedSource
from trimtab.scan.usage_model import UsageModel
from trimtab.scan.usage_reader import ReadPlan, ReportProgress, plan_read, read_usage
from trimtab.sizing.strategy import STRATEGIES
from trimtab.usage.pod_ownership import PodOwnerIndex
from trimtab.usage.usage import Usage

WINDOW = 14 * DAY
UNSUPPORTED_OWNERS = {
    "ReplicationController": "is obsolete and not sized; replace it by a Deployment",
}
"""The reason for each known kind that is left out on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFilter:
    """The workloads to scan; without a condition, all that may be read."""

    namespaces: Sequence[str] | None = None
    labels: str = ""
    """A label selector, as kubectl takes it."""
    kinds: Sequence[str] = ()
    names: Sequence[str] = ()
    """The names of workloads; the name of an owned workload selects its owner."""

    @property
    def is_partial(self) -> bool:
        """True if some workloads of the namespaces may be left out."""
        return bool(self.labels or self.kinds or self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """The workloads to scan, over which time and with which strategy."""

    now: float
    workloads: WorkloadFilter = WorkloadFilter()
    strategy: str = ""
    """The strategy of all workloads; empty for that of each workload's policy, or `trimtab`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the strategy that differ from its defaults."""
    operator_namespace: str = ""
    """The namespace of the operator, whose policies and configuration are followed; empty to ignore policies."""
    compare: Sequence[str] = ()
    """Other strategies to report beside it, with their default settings."""
    window: float = WINDOW
    step: float | None = None
    """The seconds between two samples; None to choose by the size of the cluster."""
    prices: ResourcePrices | None = None
    """The prices; what is not set in them is that of the operator's configuration."""
    group_by: str = ""
    """The label or annotation by which costs are grouped; empty for none."""

    @property
    def compared(self) -> list[str]:
        """The other strategies, each once."""
        return [name for name in dict.fromkeys(self.compare) if name != self.default_strategy]

    @property
    def default_strategy(self) -> str:
        """The strategy of workloads without a policy."""
        return self.strategy or DEFAULT_STRATEGY

    @property
    def replaces_strategies(self) -> bool:
        """True if the strategy of the request replaces those of policies."""
        return bool(self.strategy or self.settings)


@dataclass(frozen=True, slots=True)
class ScanSelection:
    """The workloads of a scan."""

    workloads: Sequence[Workload]
    """The workloads to assess."""
    peers: Sequence[Workload]
    """All workloads that the strategy learns from, these included."""
    skipped: Sequence[SkippedWorkload]

    @property
    def namespaces(self) -> list[str]:
        """The namespaces of the workloads to assess."""
        return sorted({workload.namespace for workload in self.workloads})


class UsageObserver(Protocol):
    """Receives the usage history that a scan reads."""

    def select_workload(self, workloads: Sequence[Workload]) -> None:
        """Receive the selected workloads, before the read."""
        ...

    def observe_usage(self, usage: Usage, owners: PodOwnerIndex) -> None:
        """Receive one part of the history; parts arrive in time order."""
        ...


class Scan:
    """One scan of a cluster: `snapshot`, `select`, `plan`, `read` and `assess`, in this order."""

    def __init__(
        self,
        client: Client,
        source: SelectedSource,
        request: ScanRequest,
        *,
        progress: ReportProgress = lambda _text, _share: None,
        observer: UsageObserver | None = None,
    ) -> None:
        """Create the scan; raise `TrimtabError` at once for an invalid strategy or setting."""
        self._client = client
        self._source = source
        self._request = request
        self._progress = progress
        self._observer = observer
        self._specs = {
            request.default_strategy: _build_strategy_spec(request.default_strategy, request.settings),
            **{name: _build_strategy_spec(name, {}) for name in request.compared},
        }
        # Reject an invalid strategy or setting before the long read starts.
        self._settings = [
            STRATEGIES.parse_settings(spec.strategy, spec.decode_settings()) for spec in self._specs.values()
        ]
        chosen = STRATEGIES.load_type(request.default_strategy)(1, self._settings[0])
        self._sample_seconds = chosen.traits.sample_seconds

    async def snapshot(self) -> ClusterSnapshot:
        """List the cluster."""
        self._progress("listing workloads", 0.0)
        request = self._request
        return await take_snapshot(
            self._client,
            namespaces=request.workloads.namespaces,
            operator_namespace=request.operator_namespace,
            annotations=filter(None, [request.group_by]),
        )

    async def select(self, snapshot: ClusterSnapshot) -> ScanSelection:
        """Select the workloads to assess."""
        state = snapshot.state
        selected = await self._find_selected(snapshot)
        sized, skipped = _split_skipped(state, selected)
        if self._observer:
            self._observer.select_workload(selected)
        if not self._request.workloads.is_partial:
            skipped += _skip_unowned_pods(state)
        # A strategy may pool all containers. Learn from every workload of these namespaces, so that a workload gets the
        # same size whether it is scanned alone or among the others.
        used_namespaces = {workload.namespace for workload in sized}
        peers, _ = _split_skipped(
            state, (each for each in state.list_workloads() if each.namespace in used_namespaces)
        )
        return ScanSelection(sized, peers, skipped)

    async def plan(self, selection: ScanSelection) -> ReadPlan | None:
        """Plan the read of usage; None if there is no workload to assess."""
        request = self._request
        if not selection.workloads:
            return None
        return await plan_read(
            self._source.source,
            window=request.window,
            step=request.step,
            now=request.now,
            namespaces=selection.namespaces,
            sample_seconds=self._sample_seconds,
        )

    async def read(
        self, snapshot: ClusterSnapshot, selection: ScanSelection, plan: ReadPlan | None
    ) -> UsageModel:
        """Read the usage history and learn from it."""
        model = UsageModel(
            snapshot.state, self._group_by_spec(snapshot, selection.peers), now=self._request.now
        )
        if plan is None:
            return model
        load_kernels({spec.strategy for spec in self._specs.values()} & {*SHIPPED_STRATEGIES})
        until = plan.query.end
        has_batch = not all(workload.is_long_running for workload in selection.workloads)
        if has_batch and await self._source.source.has_usage(at=plan.query.start):
            model.totals.mark_known_from_start()

        def observe(usage: Usage) -> None:
            model.observe_usage(usage, until=until)
            if self._observer:
                self._observer.observe_usage(usage, model.owners)

        await read_usage(self._source.source, plan, observe, progress=self._progress)
        return model

    def assess(
        self, snapshot: ClusterSnapshot, selection: ScanSelection, plan: ReadPlan | None, model: UsageModel
    ) -> ScanResult:
        """Assess each selected workload."""
        request = self._request
        settings = replace_prices(snapshot.config.prices, request.prices)
        prices = build_prices(settings)
        assessor = Assessor(
            snapshot.state,
            model,
            self._specs,
            prices,
            self._source.source.name,
            request.now,
            policies=self._build_policies(snapshot),
        )
        found: list[WorkloadFinding] = []
        skipped = list(selection.skipped)
        for workload in selection.workloads:
            finding = assessor.assess(workload)
            if isinstance(finding, SkippedWorkload):
                skipped.append(finding)
            else:
                found.append(finding)
        return ScanResult(
            context=self._client.connection.context,
            server=self._client.connection.server,
            source=self._source.description,
            scanned_at=request.now,
            window=request.window,
            step=plan.query.step if plan else request.step or 0.0,
            strategy=request.default_strategy,
            settings=self._settings[0].model_dump(),
            prices=prices,
            nodes=None if self._is_partial(snapshot) else build_node_bill(snapshot.state, settings),
            workloads=tuple(sorted(found, key=_impact_key)),
            skipped=tuple(skipped),
            forbidden_namespaces=snapshot.forbidden_namespaces,
            errors_by_resource=snapshot.errors_by_resource,
            compared=tuple(request.compared),
        )

    def _is_partial(self, snapshot: ClusterSnapshot) -> bool:
        """Return True if the scan covers only a part of what runs on the nodes."""
        wanted = self._request.workloads
        return bool(wanted.is_partial or wanted.namespaces or snapshot.forbidden_namespaces)

    def _build_policies(self, snapshot: ClusterSnapshot) -> ScanPolicies:
        """Return the policies to follow; without the operator's namespace none was read."""
        request = self._request
        (spec, *_) = self._specs.values()
        return ScanPolicies(
            PolicyResolver(snapshot.state, lambda: snapshot.config, adapt=self._adapt_spec)
            if request.operator_namespace
            else None,
            snapshot.can_resize_in_place,
            spec if request.replaces_strategies else None,
            snapshot.intents,
        )

    def _adapt_spec(self, spec: OptimizationPolicySpec) -> OptimizationPolicySpec:
        """Return a policy's spec without what only the operator's image may have and the scan does not use.

        A scan has one source, and a strategy of the request replaces that of the policy.
        """
        source = spec.metrics_config.model_copy(update={"provider": None})
        is_replaced = self._request.replaces_strategies and spec.strategy_name not in STRATEGIES.names()
        strategy = StrategyChoice() if is_replaced else spec.strategy
        return spec.model_copy(update={"metrics_config": source, "strategy": strategy})

    def _group_by_spec(
        self, snapshot: ClusterSnapshot, workloads: Iterable[Workload]
    ) -> dict[StrategySpec, list[Workload]]:
        """Return the workloads that each strategy spec sizes or is compared on."""
        default, *compared = self._specs.values()
        policies = self._build_policies(snapshot)
        groups: dict[StrategySpec, list[Workload]] = {}
        for workload in workloads:
            policy = policies.resolve(workload)
            if policy and policy.problem:
                continue  # its strategy may not even exist
            spec = policies.strategy_spec(policy) if policy else default
            for each in dict.fromkeys((spec, *compared)):
                groups.setdefault(each, []).append(workload)
        return groups

    async def _find_selected(self, snapshot: ClusterSnapshot) -> list[Workload]:
        wanted, state = self._request.workloads, snapshot.state
        known = [qualify_kind(resource.kind, resource.group) for resource in state.workload_kinds()]
        kinds = {_resolve_kind(kind, known) for kind in wanted.kinds}

        def is_meant(workload: Workload) -> bool:
            return (not kinds or workload.key.kind in kinds) and (
                not wanted.names or workload.name in wanted.names
            )

        found = {each.uid: each for each in state.list_workloads() if is_meant(each)}
        if wanted.names:
            # A StatefulSet that a custom resource owns is sized as that custom resource, but users may give its own name.
            for each in state.ownership:
                if is_meant(each) and (top := state.ownership.find_top_workload(each)):
                    found.setdefault(top.uid, top)
        selected = list(found.values())
        if wanted.labels:
            resources = {workload.resource for workload in selected}
            uids = await list_selected_uids(
                self._client, resources, snapshot.namespaces, labels=wanted.labels
            )
            selected = [workload for workload in selected if workload.uid in uids]
        return selected


def _build_strategy_spec(strategy: str, settings: Mapping[str, Any]) -> StrategySpec:
    """Build the spec of a default policy with this strategy; the registry validates the name later."""
    choice = StrategyChoice.model_construct(name=strategy, settings=dict(settings))
    return strategy_spec_from_policy(OptimizationPolicySpec(strategy=choice))


def _impact_key(found: WorkloadFinding) -> tuple[float, ...]:
    """Sort by severity, then by the amount of money, then by replicas, highest first."""
    return (-found.severity, -abs(found.saving), -found.replicas)


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
    state: ClusterState, selected: Iterable[Workload]
) -> tuple[list[Workload], list[SkippedWorkload]]:
    sized, skipped = [], []
    for workload in selected:
        reason = _skip_reason(workload, state)
        if reason:
            skipped.append(SkippedWorkload(workload.key, reason, state.list_owned(workload)))
        else:
            sized.append(workload)
    return sized, skipped


def _skip_unowned_pods(state: ClusterState) -> list[SkippedWorkload]:
    """Report pods without a workload template, each under its creator."""
    found = {}
    for pod in state.pods:
        if state.find_workload(pod) is not None:
            continue
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
            reason = UNSUPPORTED_OWNERS.get(
                pod.owner.kind, "creates pods, but Trimtab does not support its kind or may not read it"
            )
        found[key] = SkippedWorkload(key, reason)
    return list(found.values())


def _skip_reason(workload: Workload, state: ClusterState) -> str:
    if workload.deleting:
        return "is being deleted"
    if workload.finished:
        return "has completed"
    if not workload.containers and not state.list_pods(workload):
        return "has no readable pod template"
    if workload.has_pod_level_resources:
        return POD_LEVEL_RESOURCES
    if workload.is_long_running and not workload.replicas:
        return "runs on no node" if workload.kind == "DaemonSet" else "is scaled to zero"
    return ""
