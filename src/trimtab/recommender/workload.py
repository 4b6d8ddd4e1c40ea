"""Recommend resources for one workload from its policy, its estimates and its constraints.

Pure. `sizing.recommend` decides for each container; this module collects its inputs for a workload as it runs now, and
turns the result into a desired change for `actuation`. Many workloads share a namespace and the nodes, so
`ClusterConstraints` computes their limits once per cycle and looks them up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from trimtab.actuation.change_annotations import read_change_annotations
from trimtab.actuation.decide.observation import DesiredChange
from trimtab.actuation.effective_size import DEFAULT_POD_SYNC, PodSync, effective_containers
from trimtab.actuation.resources import NO_LIMITS, SizeLimits, Sizes, container_sizes
from trimtab.actuation.started_limits import StartLimits, memory_limits_at_start
from trimtab.api.optimizationpolicy import (
    DEFAULT_STRATEGY,
    PERCENTILE_STRATEGY,
    OptimizationPolicySpec,
    UpdateStrategy,
)
from trimtab.kube.kinds.heap_flags import HeapFlags
from trimtab.kube.kinds.hpas import HorizontalPodAutoscaler
from trimtab.kube.kinds.nodes import Node, NodeResources
from trimtab.kube.kinds.pod_requests import template_requests
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.quotas import LimitRange, ResourceQuota
from trimtab.kube.kinds.workloads import Workload
from trimtab.plural import pluralize
from trimtab.recommender.cohort import ContainerEstimate, StrategySpec
from trimtab.sizing.constraints import (
    AllowedRanges,
    Constraints,
    largest_node_capacities,
    list_autoscaler_constraints,
    merge_limit_ranges,
    remaining_quota,
)
from trimtab.sizing.evidence import Evidence, Heap
from trimtab.sizing.guards.heap import detect_heap
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.proposal import goal_settings, percentile_settings
from trimtab.sizing.recommend import Needs, recommend_pod
from trimtab.sizing.recommendation import Factor, Recommendation
from trimtab.sizing.strategy import has_setting
from trimtab.usage.pod_ownership import WorkloadContainer

T = TypeVar("T", LimitRange, ResourceQuota)

_NO_LIMITS = AllowedRanges()
_NO_QUOTA = Resources()


class ClusterConstraints:
    """A snapshot of the limits of all namespaces and nodes."""

    def __init__(
        self,
        *,
        nodes: Iterable[Node] = (),
        daemon_sets: Iterable[Workload] = (),
        limit_ranges: Iterable[LimitRange] = (),
        quotas: Iterable[ResourceQuota] = (),
    ) -> None:
        self._all_nodes = list(nodes)
        self._daemonset_requests = {
            daemons.uid: template_requests(daemons)
            for daemons in daemon_sets
            if daemons.replicas >= len(self._all_nodes)
        }
        """The requests, on each node, of every DaemonSet that runs on all nodes, keyed by uid."""
        self._largest_nodes = self._largest_nodes_without("")
        self._ranges = {
            space: merge_limit_ranges(theirs) for space, theirs in _group_by_namespace(limit_ranges).items()
        }
        self._quotas = {
            space: remaining_quota(theirs) for space, theirs in _group_by_namespace(quotas).items()
        }

    def constraints_for(
        self, workload: Workload, *, replicas: int, hpas: Iterable[HorizontalPodAutoscaler]
    ) -> Constraints:
        """Return the constraints on a workload that runs this many replicas."""
        return Constraints(
            replicas=max(replicas, 1),
            ranges=self._ranges.get(workload.namespace, _NO_LIMITS),
            quota=self._quotas.get(workload.namespace, _NO_QUOTA),
            # A DaemonSet competes for a node's capacity with the other DaemonSets only, not with its own current requests.
            nodes=self._largest_nodes_without(workload.uid)
            if workload.uid in self._daemonset_requests
            else self._largest_nodes,
            autoscalers=tuple(target for hpa in hpas for target in list_autoscaler_constraints(hpa)),
        )

    def _largest_nodes_without(self, uid: str) -> tuple[NodeResources, ...]:
        """Return the capacity of the largest nodes that remains after all DaemonSets except the one with this uid."""
        others = [taken for owner, taken in self._daemonset_requests.items() if owner != uid]
        cpu, memory = sum(each.cpu for each in others), sum(each.memory for each in others)
        return largest_node_capacities(self._all_nodes, NodeResources(cpu=cpu, memory=memory))


def largest_node(nodes: Iterable[Node]) -> NodeResources | None:
    """Return the largest CPU and the largest memory capacity of any node; None if no node is known."""
    capacities = [node.capacity for node in nodes]
    if not capacities:
        return None
    return NodeResources(
        cpu=max(capacity.cpu for capacity in capacities),
        memory=max(capacity.memory for capacity in capacities),
    )


def _group_by_namespace(objects: Iterable[T]) -> dict[str, list[T]]:
    by_namespace: dict[str, list[T]] = {}
    for each in objects:
        by_namespace.setdefault(each.namespace, []).append(each)
    return by_namespace


POD_LEVEL_RESOURCES = (
    "The pods have pod-level resources (spec.resources), which Trimtab does not size; set resources on the containers"
    " instead"
)
MAX_CONTAINERS = 200
"""The most containers of a pod that is sized: each is compared with all others, and an object may have thousands."""
_TOO_MANY_CONTAINERS = (
    f"The pods have more than {MAX_CONTAINERS} containers, which Trimtab does not size; use several pods"
)
RECENT_OOM_WINDOW = 900.0
"""The seconds after an OOM kill during which a memory increase skips all waits."""


@dataclass(frozen=True, slots=True)
class WorkloadRecommendation:
    """The recommendation for each container of a workload, with the evidence behind it."""

    recommendations: tuple[Recommendation, ...]
    evidence: Mapping[str, Evidence]
    is_urgent: bool
    """True if a container that was just OOM-killed gets more memory."""
    effective: Sizes = field(default_factory=dict)
    """The sizes in effect that the recommendations were computed from."""
    excluded_containers: frozenset[str] = frozenset()
    """The containers that the policy excludes from sizing."""
    stabilization: float = 0.0
    """The seconds for which the policy keeps sizes before it reduces them."""
    needed_memory: Mapping[str, int] = field(default_factory=dict)
    """The bytes of memory that each container is known to need (`safe_minimum`), for those ever measured."""

    @property
    def sizes(self) -> dict[str, Resources]:
        """The recommended sizes of the containers that have any."""
        return {
            each.container: each.resources for each in self.recommendations if each.no_change_reason is None
        }

    @property
    def targets(self) -> dict[str, Resources]:
        """The final sizes of these containers, which may take several steps to reach."""
        return {each.container: each.target for each in self.recommendations if each.no_change_reason is None}

    @property
    def no_change_reason(self) -> str:
        """The reason why no container has a recommendation; empty if one has."""
        if self.sizes or not self.recommendations:
            return ""
        reasons = {each.no_change_reason for each in self.recommendations}
        if len(reasons) == 1:
            return f"{', '.join(each.container for each in self.recommendations)}: {reasons.pop()}"
        return "; ".join(f"{each.container}: {each.no_change_reason}" for each in self.recommendations)

    def to_desired_change(
        self,
        strategy: UpdateStrategy,
        *,
        can_resize_in_place: bool,
        blocked_reason: str,
        usage_error: str = "",
        hold_reason: str = "",
        memory_limits_fixed: bool = False,
        size_limits: SizeLimits = NO_LIMITS,
    ) -> DesiredChange:
        """Return the change to ask of `actuation`. The health of the pods is not considered here."""
        return DesiredChange(
            sizes=self.sizes,
            strategy=strategy,
            can_resize_in_place=can_resize_in_place,
            needed_memory=self.needed_memory,
            is_urgent=self.is_urgent,
            usage_error=usage_error,
            blocked_reason=blocked_reason,
            no_sizes_reason=self.no_change_reason,
            hold_reason=hold_reason,
            stabilization=int(self.stabilization),
            computed_from=self.effective,
            excluded_containers=self.excluded_containers,
            memory_limits_fixed=memory_limits_fixed,
            size_limits=size_limits,
        )


def strategy_spec_from_policy(spec: OptimizationPolicySpec) -> StrategySpec:
    """Return the strategy spec of a policy. metricsConfig applies to the strategy `percentile` only, goals to the default."""
    name, goals, settings = spec.strategy_name, spec.resource_goals, dict[str, float]()
    if name == PERCENTILE_STRATEGY:
        settings = percentile_settings(spec.metrics_config)
    elif name == DEFAULT_STRATEGY:
        settings = goal_settings(goals.cpu or spec.goal, goals.memory or spec.goal)
    # A strategy that forecasts must look as far ahead as requests are kept, not only at the next hour.
    if has_setting(name, "stabilization"):
        settings["stabilization"] = spec.changes.stabilization.seconds
    return StrategySpec.from_settings(name, {**settings, **spec.strategy.settings})


def list_sized_containers(workload: Workload, pods: Sequence[Pod]) -> list[WorkloadContainer]:
    """List the containers of a workload that are learned and sized, those of the template first.

    Containers that admission injects are only in the pods; they are resized in place. A CronJob is sized in its template
    only, so what is injected into its pods is not sized. Init containers end before anything can be learned about them.
    """
    sources = [workload.containers]
    if workload.kind != "CronJob":
        # Pods differ during a rollout, and the order of a set is another in every process.
        variants = {pod.containers for pod in pods}
        sources += sorted(variants, key=lambda containers: [each.name for each in containers])
    names = dict.fromkeys(each.name for containers in sources for each in containers if each.role != "init")
    key = workload.key
    return [WorkloadContainer.from_workload(key, name) for name in names]


def count_containers_per_pod(workload: Workload, pods: Sequence[Pod]) -> int:
    """Count the containers of a pod that keep running; a service mesh injects containers into pods only."""
    found = (workload.containers, *{pod.containers for pod in pods})  # whichever pod comes first
    return max(1, *(sum(each.role != "init" for each in containers) for containers in found))


def recommend_workload(
    workload: Workload,
    pods: Sequence[Pod],
    *,
    rules: PolicyRules,
    estimate: Callable[[str], ContainerEstimate | None],
    constraints: Constraints,
    source: str,
    now: float,
    sync: PodSync = DEFAULT_POD_SYNC,
    find_containers: Callable[
        [Workload, Sequence[Pod], PodSync], tuple[Container, ...]
    ] = effective_containers,
    explained: bool = True,
) -> WorkloadRecommendation:
    """Recommend resources for each container of a workload; `estimate` looks up a container by name.

    Recommendations start from the size in effect, independent of which pods exist at the moment. `sync` says how new
    pods get that size, and `find_containers` may keep what it computes. Unless `explained`, explanations begin with the first guard (see `explain_estimates`).
    """
    containers = find_containers(workload, pods, sync)
    effective = container_sizes(containers)
    if workload.has_pod_level_resources or len(containers) > MAX_CONTAINERS:
        why = POD_LEVEL_RESOURCES if workload.has_pod_level_resources else _TOO_MANY_CONTAINERS
        unsized = tuple(
            Recommendation(each.name, each.resources, (), why)
            for each in containers[:MAX_CONTAINERS]
            if each.role != "init"
        )
        return WorkloadRecommendation(unsized, {}, is_urgent=False, effective=effective)
    # Sizes in effect, not those of the template: in place, a template keeps its old sizes, and right after a pod was
    # replaced most pods have them.
    known = {each.name: found for each in containers if (found := estimate(each.name)) is not None}
    proposals = {
        name: msgspec.structs.replace(
            found.proposal, facts=_build_factors(found.evidence, found.proposal.facts, source)
        )
        if explained
        else found.proposal
        for name, found in known.items()
    }
    evidence = _add_heaps({name: found.evidence for name, found in known.items()}, workload, pods)
    needs: Needs = {}
    recommendations = recommend_pod(
        containers,
        proposals=proposals,
        evidence=evidence,
        rules=rules,
        constraints=constraints,
        now=now,
        needs=needs,
    )
    return WorkloadRecommendation(
        # Init containers have no size in effect.
        recommendations=tuple(each for each in recommendations if each.container in effective),
        evidence=evidence,
        needed_memory={
            name: needs[name, "memory"].safe_amount
            for name, each in evidence.items()
            if each.has_measured_memory
        },
        is_urgent=any(
            _is_oom_relief(each, container, evidence.get(each.container), now)
            for each, container in zip(recommendations, containers, strict=True)
        ),
        effective=effective,
        stabilization=rules.stabilization,
        excluded_containers=rules.excluded_containers(containers),
    )


def explain_estimates(
    found: WorkloadRecommendation, facts: Callable[[str], tuple[Factor, ...]], *, source: str
) -> WorkloadRecommendation:
    """Return a recommendation whose explanations begin with its evidence and the facts of the strategy, by container."""

    def explain(each: Recommendation) -> Recommendation:
        # A container without evidence has no estimate, or is one that Trimtab does not size.
        known = found.evidence.get(each.container)
        if known is None:
            return each
        factors = _build_factors(known, facts(each.container), source)
        return msgspec.structs.replace(each, explanation=(*factors, *each.explanation))

    return replace(found, recommendations=tuple(map(explain, found.recommendations)))


def _add_heaps(
    evidence: Mapping[str, Evidence], workload: Workload, pods: Sequence[Pod]
) -> Mapping[str, Evidence]:
    """Add the heap size that each container's template sets; most templates set none."""
    if not workload.heap_flags:
        return evidence
    # A JVM takes its share of the limit at its start. With the present limit, each decrease took the share of the last
    # decrease, and the third ended below the running heap.
    limits = memory_limits_at_start(workload, pods, read_change_annotations(workload))
    heaps = {hint.container: _resolve_heap(hint, limits) for hint in workload.heap_flags}
    return {name: msgspec.structs.replace(each, heap=heaps.get(name)) for name, each in evidence.items()}


def _resolve_heap(hint: HeapFlags, limits: StartLimits) -> Heap | None:
    """Return a container's maximum heap. One that is a share of an unknown limit may be as large as the present limit."""
    name, env = hint.container, dict(hint.env)
    limit = limits.largest.get(name)
    found = detect_heap([hint.args], env, limit)
    if (
        found is None
        or limit is None
        or name not in limits.unknown
        or found == detect_heap([hint.args], env, None)
    ):
        return found
    return Heap(max(found.max_bytes, limit), f"{found.source}, with an unknown limit at its start")


def was_just_killed(evidence: Evidence, now: float) -> bool:
    """Return True if a container was OOM-killed so recently that a memory increase skips all waits."""
    return evidence.last_kill_at is not None and now - evidence.last_kill_at <= RECENT_OOM_WINDOW


def _is_oom_relief(
    recommendation: Recommendation, container: Container, evidence: Evidence | None, now: float
) -> bool:
    if evidence is None or not was_just_killed(evidence, now):
        return False
    had, gets = container.resources.memory, recommendation.resources.memory
    return any((new or 0) > (old or 0) for new, old in zip(gets, had, strict=True))


def _build_factors(evidence: Evidence, facts: tuple[Factor, ...], source: str) -> tuple[Factor, ...]:
    """Return the factors behind an estimate, starting with the samples that it rests on."""
    if not evidence.samples:
        return facts
    since = datetime.fromtimestamp(evidence.first_sample_at, UTC).strftime("%Y-%m-%d %H:%M")
    return (
        Factor("usage", f"{pluralize(evidence.samples, 'sample')} since {since} UTC", source),
        *((Factor("usage shift", str(shift), source),) if (shift := evidence.usage_shift) else ()),
        *facts,
    )
