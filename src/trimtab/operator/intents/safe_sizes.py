"""Safe sizes for Intents: the same evidence, floors and OOM relief as in sizing.

An Intent observes an hour of memory, but a safe minimum needs weeks of peaks, OOM kills, heap sizes and the
coverage of samples. The recommender learns those for targets of Intents too, even if no policy selects them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Protocol

from trimtab.actuation.effective_size import effective_containers
from trimtab.actuation.resources import Sizes, container_sizes
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.api.quantity import format_step
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.policy.resolver import PolicyResolver
from trimtab.recommender.cohort import ContainerEstimate
from trimtab.recommender.recommender import Recommender
from trimtab.recommender.workload import (
    ClusterConstraints,
    WorkloadRecommendation,
    list_sized_containers,
    recommend_workload,
    was_just_killed,
)
from trimtab.sizing.evidence import NO_DECREASE, safe_minimum, sized_resource
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.usage.pod_ownership import WorkloadContainer


@dataclass(frozen=True, slots=True)
class SafeSize:
    """The safe size of a target's main container."""

    min_memory: float = inf
    """The fewest bytes; infinity if memory must not be reduced."""
    reason: str = "the memory usage is not known yet"
    oom_relief: Sizes = field(default_factory=dict)
    """The sizes that containers get immediately after an OOM kill; empty if nothing was killed, or if more would
    feed a leak."""
    oom_message: str = ""
    """A message about recent OOM kills and the resulting memory; empty if there were none."""


class SafeSizeProvider(Protocol):
    """A provider of safe sizes."""

    async def get_safe_size(
        self, workload: Workload, pods: Sequence[Pod], main: str, *, now: float
    ) -> SafeSize: ...


class RecommenderSafeSizes:
    """The provider that uses the recommender's evidence."""

    def __init__(
        self,
        cluster_state: ClusterState,
        policy_resolver: PolicyResolver,
        recommender: Recommender,
        cluster_constraints: Callable[[], ClusterConstraints],
    ) -> None:
        self._cluster_state = cluster_state
        self._policy_resolver = policy_resolver
        self._recommender = recommender
        self._cluster_constraints = cluster_constraints

    async def get_safe_size(
        self, workload: Workload, pods: Sequence[Pod], main: str, *, now: float
    ) -> SafeSize:
        policy = self._policy_resolver.resolve(workload)
        sizing = self._policy_resolver.resolve_strategy(policy, is_required=True)
        if sizing is None:
            return SafeSize()
        # An invalid policy must not leave the Intent without safe sizes: the defaults apply.
        rules = _rules_with_limits(policy.spec if policy and not policy.problem else OptimizationPolicySpec())

        def find_estimate(container: str) -> ContainerEstimate | None:
            name = WorkloadContainer.from_workload(workload.key, container)
            return self._recommender.estimate(name, sizing, now=now, is_long_running=workload.is_long_running)

        async with self._recommender.lock:
            names = list_sized_containers(workload, pods)
            ended = self._cluster_state.list_failed_pods(workload)
            self._recommender.observe_pod_status(workload, pods, names, ended=ended, now=now)
            recommendation = recommend_workload(
                workload,
                pods,
                rules=rules,
                estimate=find_estimate,
                constraints=self._cluster_constraints().constraints_for(
                    workload, replicas=workload.replicas, hpas=self._cluster_state.list_hpas(workload)
                ),
                source=self._recommender.ingester_for(sizing).name,
                now=now,
            )
        return derive_safe_size(
            recommendation, effective_containers(workload, pods), main, rules=rules, now=now
        )


def derive_safe_size(
    recommendation: WorkloadRecommendation,
    containers: Sequence[Container],
    main: str,
    *,
    rules: PolicyRules,
    now: float,
) -> SafeSize:
    """Derive the safe size from the recommendation for a workload, whose containers have their effective sizes."""
    evidence = recommendation.evidence.get(main)
    container = next((each for each in containers if each.name == main), None)
    has = container_sizes(containers)
    relief = _raised_memory(recommendation, has) if recommendation.is_urgent else {}
    killed = "; ".join(_describe_oom_kills(recommendation, has, relief, now))
    if evidence is None or container is None:
        return SafeSize(oom_relief=relief, oom_message=killed)
    # Memory only: too little CPU shows in the objectives, which raise it within a cycle, and kills nothing.
    least = safe_minimum(sized_resource(container, "memory", evidence=evidence, rules=rules, now=now))
    if least is None:
        return SafeSize(0.0, "", relief, killed)
    return SafeSize(inf if least.amount == NO_DECREASE else float(least.amount), least.why, relief, killed)


def _describe_oom_kills(
    recommendation: WorkloadRecommendation, has: Sizes, relief: Sizes, now: float
) -> Iterator[str]:
    """Describe each recent OOM kill: the container, its memory, the time, and its new memory."""
    held = {each.container: each.no_change_reason for each in recommendation.recommendations}
    for name, evidence in recommendation.evidence.items():
        if name not in has or not was_just_killed(evidence, now):
            continue
        last = max(evidence.kills, key=lambda kills: kills.last)
        at = datetime.fromtimestamp(last.last, UTC).strftime("%H:%M")
        kill = f"container {name} was OOM-killed with {format_step('memory', last.memory)} at {at} UTC"
        memory = max(_effective_memory(has[name]), _effective_memory(relief.get(name, has[name])))
        if memory > last.memory:
            yield f"{kill}, and its memory is raised to {format_step('memory', memory)}"
        else:
            yield f"{kill}, and gets no more: {held.get(name) or 'more memory was not found to help'}"


def _effective_memory(resources: Resources) -> int:
    """Return the memory at which a container is OOM-killed: its limit, otherwise its request."""
    return resources.memory_limit or resources.memory_request or 0


def _raised_memory(recommendation: WorkloadRecommendation, has: Sizes) -> Sizes:
    """Return the recommended memory of each container with its current CPU, which the planner controls."""
    return {
        name: Resources.from_pairs(has[name].cpu, wanted.memory)
        for name, wanted in recommendation.sizes.items()
        if name in has
    }


def _rules_with_limits(spec: OptimizationPolicySpec) -> PolicyRules:
    """Return a policy's rules with limits included, because an Intent resizes requests and limits together."""
    strategy = spec.update_strategy.model_copy(update={"update_requests_only": False})
    return PolicyRules.from_spec(spec.model_copy(update={"update_strategy": strategy}))
