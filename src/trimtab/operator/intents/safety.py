"""Safe sizes for Intents: the same evidence, floors and OOM relief that sizing has, whoever controls a workload.

An Intent sees an hour of memory; what a container must not go below takes weeks of peaks, its OOM kills, its heap and
whether samples are missing. Those are learned for targets of Intents too, also where no policy selects them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from trimtab.actuation.effective import effective_containers
from trimtab.actuation.sizes import Sizes, sizes_of
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.pods import Container, Pod, Resources
from trimtab.kube.workloads import Workload
from trimtab.operator.assessment import Assessment, assess
from trimtab.operator.catalog import Catalog
from trimtab.operator.census import containers_of
from trimtab.operator.cohort import Learned
from trimtab.operator.learning import Learning
from trimtab.operator.neighbourhood import Neighbourhood
from trimtab.operator.orders import Orders
from trimtab.sizing.rules import Rules
from trimtab.sizing.safe_minimum import AS_IT_IS, safe_minimum, sized_resource
from trimtab.usage.owners import WorkloadContainer


@dataclass(frozen=True, slots=True)
class SafeSize:
    """What an Intent must respect of its target's main container."""

    least_memory: float = inf
    """Bytes that it may not go below; infinite: memory is not lowered at all."""
    why: str = "its use of memory is not known yet"
    relief: Sizes = field(default_factory=dict)
    """Sizes that containers get at once, after an OOM kill; empty where nothing was killed, or more would feed a leak."""


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
    relief = _more_memory(assessment, sizes_of(containers)) if assessment.urgent else {}
    if evidence is None or container is None:
        return SafeSize(relief=relief)
    least = safe_minimum(sized_resource(container, "memory", evidence=evidence, rules=rules, now=now))
    if least is None:
        return SafeSize(0.0, "", relief)
    return SafeSize(inf if least.amount == AS_IT_IS else float(least.amount), least.why, relief)


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
