"""Safe sizes for Intents: the same evidence, floors and OOM relief that sizing has, whoever controls a workload.

An Intent sees an hour of memory; what a container must not go below takes weeks of peaks, its OOM kills, its heap and
whether samples are missing. Those are learned for targets of Intents too, also where no policy selects them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Protocol

from trimtab.actuation.effective_size import effective_containers
from trimtab.actuation.resources import Sizes, sizes_of
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.cluster_state import Catalog, containers_of
from trimtab.operator.policy.resolver import Orders
from trimtab.recommender.cluster_constraints import Neighbourhood
from trimtab.recommender.cohort import Learned
from trimtab.recommender.recommender import Learning
from trimtab.recommender.workload import Assessment, assess, was_just_killed
from trimtab.sizing.policy_rules import Rules
from trimtab.sizing.recommendation import amount_text
from trimtab.sizing.safe_minimum import AS_IT_IS, safe_minimum, sized_resource
from trimtab.usage.pod_ownership import WorkloadContainer


@dataclass(frozen=True, slots=True)
class SafeSize:
    """What an Intent must respect of its target's main container."""

    least_memory: float = inf
    """Bytes that it may not go below; infinite: memory is not lowered at all."""
    why: str = "its use of memory is not known yet"
    relief: Sizes = field(default_factory=dict)
    """Sizes that containers get at once, after an OOM kill; empty where nothing was killed, or more would feed a leak."""
    killed: str = ""
    """Which containers were just OOM-killed, and what becomes of their memory, for people; empty where none was."""


class SafeSizes(Protocol):
    """Answers what is safe for a workload."""

    async def of(self, workload: Workload, pods: Sequence[Pod], main: str, *, now: float) -> SafeSize: ...


class LearnedSafeSizes:
    """Answers by what the recommender has learned."""

    def __init__(
        self,
        catalog: Catalog,
        orders: Orders,
        learning: Learning,
        neighbourhood: Callable[[], Neighbourhood],
    ) -> None:
        self._catalog = catalog
        self._orders = orders
        self._learning = learning
        self._neighbourhood = neighbourhood

    async def of(self, workload: Workload, pods: Sequence[Pod], main: str, *, now: float) -> SafeSize:
        mandate = self._orders.of(workload)
        sizing = self._orders.sizing(mandate, asked=True)
        if sizing is None:
            return SafeSize()
        rules = _rules(mandate.spec if mandate and not mandate.problem else OptimizationPolicySpec())

        def learned(container: str) -> Learned | None:
            name = WorkloadContainer.of(workload.key, container)
            return self._learning.learned(name, sizing, now=now, runs_on=workload.runs_on)

        async with self._learning.lock:
            names, ended = containers_of(self._catalog, workload), self._catalog.failed_of(workload)
            self._learning.note_memory(workload, pods, names, ended=ended, now=now)
            assessment = assess(
                workload,
                pods,
                rules=rules,
                learned=learned,
                around=self._neighbourhood().around(
                    workload, replicas=workload.replicas, hpas=self._catalog.hpas_of(workload)
                ),
                source=self._learning.of(sizing).name,
                now=now,
            )
        return safe_size(assessment, effective_containers(workload, pods), main, rules=rules, now=now)


def safe_size(
    assessment: Assessment, containers: Sequence[Container], main: str, *, rules: Rules, now: float
) -> SafeSize:
    """Derive what an Intent must respect from what sizing says of the workload, whose containers have their effective sizes."""
    evidence = assessment.evidence.get(main)
    container = next((each for each in containers if each.name == main), None)
    has = sizes_of(containers)
    relief = _more_memory(assessment, has) if assessment.urgent else {}
    killed = "; ".join(_kills_told(assessment, has, relief, now))
    if evidence is None or container is None:
        return SafeSize(relief=relief, killed=killed)
    least = safe_minimum(sized_resource(container, "memory", evidence=evidence, rules=rules, now=now))
    if least is None:
        return SafeSize(0.0, "", relief, killed)
    return SafeSize(inf if least.amount == AS_IT_IS else float(least.amount), least.why, relief, killed)


def _kills_told(assessment: Assessment, has: Sizes, relief: Sizes, now: float) -> Iterator[str]:
    """Say of each container that was just killed when that was, with which memory, and what it gets."""
    held = {each.container: each.held for each in assessment.recommendations}
    for name, evidence in assessment.evidence.items():
        if name not in has or not was_just_killed(evidence, now):
            continue
        last = max(evidence.kills, key=lambda kills: kills.last)
        at = datetime.fromtimestamp(last.last, UTC).strftime("%H:%M")
        told = f"container {name} was OOM-killed with {amount_text('memory', last.memory)} at {at} UTC"
        memory = max(_memory_of(has[name]), _memory_of(relief.get(name, has[name])))
        if memory > last.memory:
            yield f"{told}, and its memory is raised to {amount_text('memory', memory)}"
        else:
            yield f"{told}, and is given no more: {held.get(name) or 'none was found to help'}"


def _memory_of(resources: Resources) -> int:
    """Return what a container is killed at: its limit, or without one what it asks for."""
    return resources.memory_limit or resources.memory_request or 0


def _more_memory(assessment: Assessment, has: Sizes) -> Sizes:
    """Return the recommended memory of each container with all else as it is: CPU is the planner's."""
    return {
        name: Resources(
            has[name].cpu_request, has[name].cpu_limit, wanted.memory_request, wanted.memory_limit
        )
        for name, wanted in assessment.sizes.items()
        if name in has
    }


def _rules(spec: OptimizationPolicySpec) -> Rules:
    """Return a policy's rules, but that limits follow: an Intent resizes requests and limits together."""
    strategy = spec.update_strategy.model_copy(update={"update_requests_only": False})
    return Rules.of(spec.model_copy(update={"update_strategy": strategy}))
