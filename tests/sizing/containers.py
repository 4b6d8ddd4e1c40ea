"""Containers to size: usual ones in one word, and any that there could be."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st

from trimtab.api.optimizationpolicy import HpaMode, LimitMode, OptimizationPolicySpec
from trimtab.api.quantity import MIB, ResourceName
from trimtab.kube.kinds.nodes import NodeResources
from trimtab.kube.kinds.pod_requests import BURSTABLE, GUARANTEED, qos_class
from trimtab.kube.kinds.pods import Container, Resources, Role
from trimtab.sizing.constraints import AllowedRange, AllowedRanges, AutoscalerConstraint, Constraints
from trimtab.sizing.evidence import Evidence, Heap, OomKills
from trimtab.sizing.guards.context import GuardContext
from trimtab.sizing.policy_rules import PolicyRules, ResourceRules
from trimtab.sizing.proposal import Proposal, ResourceTarget
from trimtab.sizing.recommend import build_guard_contexts, recommend_container
from trimtab.sizing.recommendation import Recommendation

GIB = 1024 * MIB
HOUR, DAY = 3600.0, 86400.0
NOW = 30 * DAY

RESOURCES: tuple[ResourceName, ResourceName] = ("cpu", "memory")

HAS = Resources(1000, 2000, GIB, 2 * GIB)
WELL_KNOWN = Evidence(
    samples=2000,
    run_seconds=14 * DAY,
    first_sample_at=NOW - 14 * DAY,
    last_sample_at=NOW,
    memory_peak=200 * MIB,
)
FREE = PolicyRules(
    cpu=ResourceRules(max_increase=100, max_decrease=0.9),
    memory=ResourceRules(max_increase=100, max_decrease=0.9),
    minimum_change=0.0,
)
"""Rules that ask for nothing, so that a test adds the one that it is about."""


def rules(**spec: Any) -> PolicyRules:
    return PolicyRules.from_spec(OptimizationPolicySpec.model_validate(spec))


def proposing(cpu: float = math.nan, memory: float = math.nan) -> Proposal:
    return Proposal(cpu=ResourceTarget(cpu), memory=ResourceTarget(memory), strategy="test")


def sized(
    cpu: float = math.nan,
    memory: float = math.nan,
    *,
    has: Resources = HAS,
    evidence: Evidence = WELL_KNOWN,
    asked: PolicyRules = FREE,
    around: Constraints | None = None,
    role: Any = "main",
) -> Recommendation:
    """Return the recommendation for a container whose strategy proposes so many millicores and bytes."""
    return recommend_container(
        Container("app", role, has),
        proposal=proposing(cpu, memory),
        evidence=evidence,
        rules=asked,
        constraints=around or Constraints(qos_class=qos_class([has])),
        now=NOW,
    )


def killed(at: float, memory: int) -> OomKills:
    """One kill."""
    return OomKills(memory, 1, at, at)


def cases(
    *,
    has: Resources = HAS,
    proposal: Proposal | None = None,
    evidence: Evidence = WELL_KNOWN,
    asked: PolicyRules = FREE,
    around: Constraints | None = None,
    role: Any = "main",
) -> tuple[GuardContext, GuardContext]:
    """CPU and memory of a container as guards see them."""
    return build_guard_contexts(
        Container("app", role, has),
        proposal=proposal or proposing(),
        evidence=evidence,
        rules=asked,
        constraints=around or Constraints(qos_class=qos_class([has])),
        now=NOW,
    )


def names(recommendation: Recommendation) -> list[str]:
    return [factor.name for factor in recommendation.explanation]


# Anything that there could be: pools of parts, the plain ones first so that a failure comes down to them. Amounts are
# drawn around sizes that meet each other, so that guards do.

_POOL = 300
_chance = random.Random(15)
P = TypeVar("P")


def _pool(plain: P, wild: Callable[[], P]) -> st.SearchStrategy[P]:
    return st.sampled_from([plain, *(wild() for _ in range(_POOL))])


def _amount(resource: ResourceName) -> int:
    if resource == "cpu":
        return _chance.randint(1, 8000)
    return _chance.randint(1, 4096) * MIB if _chance.random() < 0.7 else _chance.randint(1, 4 * GIB)


def _perhaps(value: P) -> P | None:
    return _chance.choice([value, None])


def _pair(resource: ResourceName) -> tuple[int | None, int | None]:
    """A request that is not above its limit; either may be missing, and now and then they are one."""
    limit = _perhaps(_amount(resource))
    request = _chance.choice([_amount(resource), _amount(resource), limit, None, 0])
    return (request if limit is None or request is None else min(request, limit)), limit


def _resources() -> Resources:
    return Resources(*_pair("cpu"), *_pair("memory"))


def _ask(resource: ResourceName) -> ResourceTarget:
    target = float(_amount(resource))
    if _chance.random() < 0.15:
        return ResourceTarget(_chance.choice([math.nan, math.inf, -1.0, 0.0]))
    recent = tuple(float(_amount(resource)) for _ in range(_chance.choice([0, 1, 25])))
    lower, upper = target * _chance.uniform(0.3, 1), target * _chance.uniform(1, 3)
    return _chance.choice(
        [ResourceTarget(target, recent=recent), ResourceTarget(target, lower, upper, recent)]
    )


def _evidence() -> Evidence:
    return Evidence(
        samples=_chance.choice([5, 2000, 2000, 2000]),
        run_seconds=_chance.choice([14 * DAY, 14 * DAY, 1200.0]),
        first_sample_at=_chance.choice([NOW - 14 * DAY, NOW - 14 * DAY, NOW - 3600]),
        last_sample_at=_chance.choice([NOW, NOW, NOW, NOW - 7200]),
        coverage=_chance.choice([1.0, 1.0, 0.2]),
        cpu_peak=_perhaps(_amount("cpu")),
        memory_peak=_chance.choice([_amount("memory"), _amount("memory"), None, 0]),
        throttled_share=_chance.choice([None, 0.0, 0.3]),
        kills=tuple(
            killed(NOW - _chance.uniform(0, 12 * DAY), _amount("memory"))
            for _ in range(_chance.choice([0, 0, 0, 1, 2, 5]))
        ),
        recent_memory=_chance.choice([0, 0, _amount("memory")]),
        earlier_memory=_chance.choice([0, 0, _amount("memory")]),
        heap=_chance.choice([None, None, Heap(_amount("memory"), "-Xmx in args")]),
    )


def _resource_rules(resource: ResourceName) -> ResourceRules:
    least = _amount(resource) // 8 + 1
    return ResourceRules(
        min_request=least,
        max_request=_perhaps(least + _amount(resource)),
        limit=_chance.choice(list(LimitMode)),
        multiplier=_chance.choice([1.0, 1.1, 3.0]),
        headroom=_amount(resource),
        max_increase=_chance.choice([0.01, 2.0, 10.0]),
        max_decrease=_chance.choice([0.0, 0.3, 0.9]),
        min_change=_chance.choice([0, 5]),
        is_controlled=_chance.random() < 0.9,
        raises_kept_limit=resource == "memory" and _chance.random() < 0.5,
    )


def _rules() -> PolicyRules:
    return PolicyRules(
        cpu=_resource_rules("cpu"),
        memory=_resource_rules("memory"),
        minimum_change=_chance.choice([0.0, 0.1, 0.5]),
        stabilization=_chance.choice([0.0, HOUR, DAY]),
        hpa_mode=_chance.choice(list(HpaMode)),
    )


def _range(resource: ResourceName) -> AllowedRange:
    least = _chance.choice([0, _amount(resource)])
    most = _perhaps(least + _amount(resource))
    default = None if most is None else _perhaps(_chance.randint(least, most))
    return AllowedRange(min=least, max=most, default=default, ratio=_chance.choice([math.inf, 1.0, 2.0, 4.5]))


def _surroundings() -> Constraints:
    return Constraints(
        replicas=_chance.randint(1, 20),
        other_containers=_resources(),
        ranges=_chance.choice(
            [
                AllowedRanges(),
                AllowedRanges(container_cpu=_range("cpu"), container_memory=_range("memory")),
                AllowedRanges(
                    container_cpu=_range("cpu"), pod_cpu=_range("cpu"), pod_memory=_range("memory")
                ),
            ]
        ),
        quota=_chance.choice([Resources(), _resources()]),
        nodes=tuple(
            NodeResources(cpu=_amount("cpu"), memory=_amount("memory"), pods=1)
            for _ in range(_chance.randrange(3))
        ),
        autoscalers=tuple(
            AutoscalerConstraint(
                name="web",
                resource=_chance.choice(RESOURCES),
                target=_chance.uniform(0.1, 1.5),
                highest_seen=_perhaps(_chance.uniform(0, 2)),
            )
            for _ in range(_chance.choice([0, 0, 1, 2]))
        ),
    )


any_resources = _pool(HAS, _resources)
any_proposal = _pool(
    proposing(500, 500 * MIB),
    lambda: Proposal(cpu=_ask("cpu"), memory=_ask("memory"), strategy="test"),
)
any_evidence = _pool(WELL_KNOWN, _evidence)
any_rules = _pool(FREE, _rules)
any_surroundings = _pool(Constraints(), _surroundings)
any_role: st.SearchStrategy[Role] = st.sampled_from(["main", "init", "sidecar"])


@st.composite
def any_pod(draw: st.DrawFn) -> tuple[Container, ...]:
    """A pod of any containers, the first of which stays; a third of them Guaranteed."""
    count, guaranteed = draw(st.integers(1, 3)), draw(st.integers(0, 2)) == 2
    pod = []
    for place in range(count):
        has, role = draw(any_resources), draw(any_role) if place else "main"
        if guaranteed:
            cpu, memory = has.cpu_limit or 100, has.memory_limit or MIB
            has = Resources(cpu, cpu, memory, memory)
        pod.append(Container(f"c{place}", role, has))
    return tuple(pod)


class Made(msgspec.Struct, frozen=True):
    """A recommendation with all that went into it."""

    found: Recommendation
    has: Resources
    rules: PolicyRules
    around: Constraints
    evidence: Evidence
    role: Role = "main"


@st.composite
def recommendations(draw: st.DrawFn) -> Made:
    """Any container, recommended under any policy, evidence and surroundings."""
    has, asked, evidence = draw(any_resources), draw(any_rules), draw(any_evidence)
    qos = qos_class([has])
    if qos == GUARANTEED and draw(st.booleans()):
        qos = BURSTABLE  # for another container of its pod is
    around = msgspec.structs.replace(draw(any_surroundings), qos_class=qos)
    role = draw(any_role)
    container = Container("app", role, has)
    found = recommend_container(
        container, proposal=draw(any_proposal), evidence=evidence, rules=asked, constraints=around, now=NOW
    )
    return Made(found, has, asked, around, evidence, role)
