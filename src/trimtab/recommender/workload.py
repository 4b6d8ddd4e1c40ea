"""What one workload should have, and on which terms: its policy, what was learned of it, and what stands around it.

Pure. The answer for each container is that of `sizing.around`; here its inputs are brought together for a workload as
it runs now, and the outcome is put as a wish to `actuation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from trimtab.actuation.change_annotations import read_change_annotations
from trimtab.actuation.decide.context import DesiredChange
from trimtab.actuation.effective_size import DEFAULT_POD_SYNC, PodSync, effective_containers
from trimtab.actuation.resources import Sizes, container_sizes
from trimtab.actuation.started_limits import StartLimits, memory_limits_at_start
from trimtab.api.optimizationpolicy import OptimizationPolicySpec, UpdateStrategy
from trimtab.kube.kinds.heap_flags import HeapFlags
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.plural import pluralize
from trimtab.recommender.cohort import ContainerEstimate, StrategySpec
from trimtab.sizing.constraints import Constraints
from trimtab.sizing.evidence import Evidence, Heap
from trimtab.sizing.guards.heap import detect_heap
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.proposal import percentile_settings
from trimtab.sizing.recommend import recommend_pod
from trimtab.sizing.recommendation import Factor, Recommendation
from trimtab.sizing.safe_minimum import needed_memory
from trimtab.sizing.strategy import has_setting

POD_LEVEL_RESOURCES = (
    "its pods have resources as a whole (spec.resources), which are not sized; give them to its containers"
)
RECENT_OOM_WINDOW = 900.0
"""Seconds after a kill in which more memory waits for nothing."""


@dataclass(frozen=True, slots=True)
class WorkloadRecommendation:
    """The recommendation for each container, and what was seen of it."""

    recommendations: tuple[Recommendation, ...]
    evidence: Mapping[str, Evidence]
    is_urgent: bool
    """Whether a container that was just killed for memory is to get more."""
    effective: Sizes = field(default_factory=dict)
    """The sizes in effect that the recommendations were computed from."""
    excluded_containers: frozenset[str] = frozenset()
    """The containers of which the policy has nothing sized."""
    stabilization: float = 0.0
    """Seconds that the policy keeps sizes before they are made smaller."""
    needed_memory: Mapping[str, int] = field(default_factory=dict)
    """The bytes of memory that each container is known to need (`safe_minimum`); those never measured are left out."""

    @property
    def sizes(self) -> dict[str, Resources]:
        """What is wanted, of the containers of which anything is."""
        return {
            each.container: each.resources for each in self.recommendations if each.no_change_reason is None
        }

    @property
    def targets(self) -> dict[str, Resources]:
        """Where the changes of these containers lead, which may take several steps."""
        return {each.container: each.target for each in self.recommendations if each.no_change_reason is None}

    @property
    def no_change_reason(self) -> str:
        """Why nothing at all is recommended; empty where something is."""
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
    ) -> DesiredChange:
        """What is asked of `actuation`; how its pods fare is not looked at yet."""
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
        )


def strategy_spec_from_policy(spec: OptimizationPolicySpec) -> StrategySpec:
    """The strategy of a policy; what metricsConfig says of percentiles is for the strategy of that name."""
    name = spec.strategy.name
    said = percentile_settings(spec.metrics_config) if name == "percentile" else {}
    if has_setting(name, "stabilization"):
        said["stabilization"] = spec.changes.stabilization.seconds
    return StrategySpec.from_settings(name, {**said, **spec.strategy.settings})


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
) -> WorkloadRecommendation:
    """What each container of a workload should have; `learned` knows a container by its name.

    It starts from the size in effect, whichever of its pods exist at this moment; `sync` tells how new pods come to it.
    """
    containers = effective_containers(workload, pods, sync)
    effective = container_sizes(containers)
    if workload.has_pod_level_resources:
        alone = tuple(_unsized_recommendation(each) for each in containers if each.role != "init")
        return WorkloadRecommendation(alone, {}, is_urgent=False, effective=effective)
    known = {each.name: found for each in containers if (found := estimate(each.name)) is not None}
    proposals = {
        name: msgspec.structs.replace(found.proposal, facts=_build_factors(found, source))
        for name, found in known.items()
    }
    evidence = _add_heaps({name: found.evidence for name, found in known.items()}, workload, pods)
    recommendations = recommend_pod(
        containers, proposals=proposals, evidence=evidence, rules=rules, constraints=constraints, now=now
    )
    return WorkloadRecommendation(
        recommendations=tuple(each for each in recommendations if _is_sized(each.container, containers)),
        evidence=evidence,
        needed_memory=_find_needed_memory(containers, evidence, rules, now),
        is_urgent=any(
            _is_oom_relief(each, container, evidence.get(each.container), now)
            for each, container in zip(recommendations, containers, strict=True)
        ),
        effective=effective,
        stabilization=rules.stabilization,
        excluded_containers=rules.excluded_containers(containers),
    )


def _unsized_recommendation(container: Container) -> Recommendation:
    return Recommendation(container.name, container.resources, (), POD_LEVEL_RESOURCES)


def _add_heaps(
    evidence: Mapping[str, Evidence], workload: Workload, pods: Sequence[Pod]
) -> Mapping[str, Evidence]:
    """Add what the template says of each container's heap; most templates say nothing."""
    if not workload.heap_flags:
        return evidence
    limits = memory_limits_at_start(workload, pods, read_change_annotations(workload))
    heaps = {hint.container: _resolve_heap(hint, limits) for hint in workload.heap_flags}
    return {name: msgspec.structs.replace(seen, heap=heaps.get(name)) for name, seen in evidence.items()}


def _resolve_heap(hint: HeapFlags, limits: StartLimits) -> Heap | None:
    """Read the bound of a container's heap; one that is a share of an unknown limit may be as large as what it has."""
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


def _is_sized(name: str, containers: Sequence[Container]) -> bool:
    return any(each.name == name and each.role != "init" for each in containers)


def _find_needed_memory(
    containers: Sequence[Container], evidence: Mapping[str, Evidence], rules: PolicyRules, now: float
) -> dict[str, int]:
    """Ask what each container is known to need."""
    found = {
        each.name: needed_memory(each, evidence=evidence[each.name], rules=rules, now=now)
        for each in containers
        if each.name in evidence
    }
    return {name: need for name, need in found.items() if need is not None}


def was_just_killed(evidence: Evidence, now: float) -> bool:
    """Whether a container was killed so recently that more memory waits for nothing."""
    return evidence.last_kill_at is not None and now - evidence.last_kill_at <= RECENT_OOM_WINDOW


def _is_oom_relief(
    recommendation: Recommendation, container: Container, evidence: Evidence | None, now: float
) -> bool:
    if evidence is None or not was_just_killed(evidence, now):
        return False
    had, gets = container.resources, recommendation.resources
    return (gets.memory_request or 0) > (had.memory_request or 0) or (gets.memory_limit or 0) > (
        had.memory_limit or 0
    )


def _build_factors(estimate: ContainerEstimate, source: str) -> tuple[Factor, ...]:
    """What the numbers rest on."""
    evidence = estimate.evidence
    if not evidence.samples:
        return estimate.proposal.facts
    since = datetime.fromtimestamp(evidence.first_sample_at, UTC).strftime("%Y-%m-%d %H:%M")
    return (
        Factor("usage", f"{pluralize(evidence.samples, 'sample')} since {since} UTC", source),
        *estimate.proposal.facts,
    )
