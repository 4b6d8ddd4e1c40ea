"""What one workload should have, and on which terms: its policy, what was learned of it, and what stands around it.

Pure. The answer for each container is that of `sizing.around`; here its inputs are brought together for a workload as
it runs now, and the outcome is put as a wish to `actuation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from trimtab.actuation.change_annotations import own_marks
from trimtab.actuation.decide.context import Wish
from trimtab.actuation.effective_size import SYNCED, PodSync, effective_containers
from trimtab.actuation.resources import Sizes, sizes_of
from trimtab.actuation.started_limits import StartLimits, memory_limits_at_start
from trimtab.api.optimizationpolicy import OptimizationPolicySpec, UpdateStrategy
from trimtab.kube.kinds.heap_flags import HeapHint
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.plural import counted
from trimtab.recommender.cohort import Learned, Sizing
from trimtab.sizing.constraints import Surroundings
from trimtab.sizing.evidence import Evidence, Heap
from trimtab.sizing.guards.heap import heap
from trimtab.sizing.policy_rules import Rules
from trimtab.sizing.proposal import percentile_settings
from trimtab.sizing.recommend import recommend_pod
from trimtab.sizing.recommendation import Factor, Recommendation
from trimtab.sizing.safe_minimum import needed_memory
from trimtab.sizing.strategy import takes

AS_A_WHOLE = (
    "its pods have resources as a whole (spec.resources), which are not sized; give them to its containers"
)
JUST_KILLED = 900.0
"""Seconds after a kill in which more memory waits for nothing."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """The recommendation for each container, and what was seen of it."""

    recommendations: tuple[Recommendation, ...]
    evidence: Mapping[str, Evidence]
    urgent: bool
    """Whether a container that was just killed for memory is to get more."""
    effective: Sizes = field(default_factory=dict)
    """The sizes in effect that the recommendations were computed from."""
    alone: frozenset[str] = frozenset()
    """The containers of which the policy has nothing sized."""
    stabilization: float = 0.0
    """Seconds that the policy keeps sizes before they are made smaller."""
    need: Mapping[str, int] = field(default_factory=dict)
    """The bytes of memory that each container is known to need (`safe_minimum`); those never measured are left out."""

    @property
    def sizes(self) -> dict[str, Resources]:
        """What is wanted, of the containers of which anything is."""
        return {each.container: each.resources for each in self.recommendations if each.held is None}

    @property
    def targets(self) -> dict[str, Resources]:
        """Where the changes of these containers lead, which may take several steps."""
        return {each.container: each.target for each in self.recommendations if each.held is None}

    @property
    def held(self) -> str:
        """Why nothing at all is recommended; empty where something is."""
        if self.sizes or not self.recommendations:
            return ""
        reasons = {each.held for each in self.recommendations}
        if len(reasons) == 1:
            return f"{', '.join(each.container for each in self.recommendations)}: {reasons.pop()}"
        return "; ".join(f"{each.container}: {each.held}" for each in self.recommendations)

    def wish(
        self,
        strategy: UpdateStrategy,
        *,
        resizes_in_place: bool,
        withheld: str,
        unread: str = "",
        on_hold: str = "",
    ) -> Wish:
        """What is asked of `actuation`; how its pods fare is not looked at yet."""
        return Wish(
            sizes=self.sizes,
            strategy=strategy,
            resizes_in_place=resizes_in_place,
            need=self.need,
            urgent=self.urgent,
            unread=unread,
            withheld=withheld,
            held=self.held,
            on_hold=on_hold,
            stabilization=int(self.stabilization),
            effective=self.effective,
            alone=self.alone,
        )


def sizing_of(spec: OptimizationPolicySpec) -> Sizing:
    """The strategy of a policy; what metricsConfig says of percentiles is for the strategy of that name."""
    name = spec.strategy.name
    said = percentile_settings(spec.metrics_config) if name == "percentile" else {}
    if takes(name, "stabilization"):
        said["stabilization"] = spec.changes.stabilization.seconds
    return Sizing.of(name, {**said, **spec.strategy.settings})


def assess(
    workload: Workload,
    pods: Sequence[Pod],
    *,
    rules: Rules,
    learned: Callable[[str], Learned | None],
    around: Surroundings,
    source: str,
    now: float,
    sync: PodSync = SYNCED,
) -> Assessment:
    """What each container of a workload should have; `learned` knows a container by its name.

    It starts from the size in effect, whichever of its pods exist at this moment; `sync` tells how new pods come to it.
    """
    containers = effective_containers(workload, pods, sync)
    effective = sizes_of(containers)
    if workload.as_a_whole:
        alone = tuple(_left_alone(each) for each in containers if each.role != "init")
        return Assessment(alone, {}, urgent=False, effective=effective)
    known = {each.name: found for each in containers if (found := learned(each.name)) is not None}
    proposals = {
        name: msgspec.structs.replace(found.proposal, facts=_facts(found, source))
        for name, found in known.items()
    }
    evidence = _with_heaps({name: found.evidence for name, found in known.items()}, workload, pods)
    recommendations = recommend_pod(
        containers, proposals=proposals, evidence=evidence, rules=rules, around=around, now=now
    )
    return Assessment(
        recommendations=tuple(each for each in recommendations if _is_sized(each.container, containers)),
        evidence=evidence,
        need=_need(containers, evidence, rules, now),
        urgent=any(
            _gets_more_after_a_kill(each, container, evidence.get(each.container), now)
            for each, container in zip(recommendations, containers, strict=True)
        ),
        effective=effective,
        stabilization=rules.stabilization,
        alone=rules.alone(containers),
    )


def _left_alone(container: Container) -> Recommendation:
    return Recommendation(container.name, container.resources, (), AS_A_WHOLE)


def _with_heaps(
    evidence: Mapping[str, Evidence], workload: Workload, pods: Sequence[Pod]
) -> Mapping[str, Evidence]:
    """Add what the template says of each container's heap; most templates say nothing."""
    if not workload.heaps:
        return evidence
    limits = memory_limits_at_start(workload, pods, own_marks(workload))
    heaps = {hint.container: _heap(hint, limits) for hint in workload.heaps}
    return {name: msgspec.structs.replace(seen, heap=heaps.get(name)) for name, seen in evidence.items()}


def _heap(hint: HeapHint, limits: StartLimits) -> Heap | None:
    """Read the bound of a container's heap; one that is a share of an unknown limit may be as large as what it has."""
    name, env = hint.container, dict(hint.env)
    limit = limits.largest.get(name)
    found = heap([hint.args], env, limit)
    if found is None or limit is None or name not in limits.unknown or found == heap([hint.args], env, None):
        return found
    return Heap(max(found.most, limit), f"{found.source}, with an unknown limit at its start")


def _is_sized(name: str, containers: Sequence[Container]) -> bool:
    return any(each.name == name and each.role != "init" for each in containers)


def _need(
    containers: Sequence[Container], evidence: Mapping[str, Evidence], rules: Rules, now: float
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
    return evidence.last_kill is not None and now - evidence.last_kill <= JUST_KILLED


def _gets_more_after_a_kill(
    recommendation: Recommendation, container: Container, evidence: Evidence | None, now: float
) -> bool:
    if evidence is None or not was_just_killed(evidence, now):
        return False
    had, gets = container.resources, recommendation.resources
    return (gets.memory_request or 0) > (had.memory_request or 0) or (gets.memory_limit or 0) > (
        had.memory_limit or 0
    )


def _facts(learned: Learned, source: str) -> tuple[Factor, ...]:
    """What the numbers rest on."""
    evidence = learned.evidence
    if not evidence.samples:
        return learned.proposal.facts
    since = datetime.fromtimestamp(evidence.first, UTC).strftime("%Y-%m-%d %H:%M")
    return (
        Factor("usage", f"{counted(evidence.samples, 'sample')} since {since} UTC", source),
        *learned.proposal.facts,
    )
