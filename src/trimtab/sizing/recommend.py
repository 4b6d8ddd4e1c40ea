"""Turn the proposal of a strategy for one container into a recommendation with an explanation.

Each resource goes through its guards, in an order that is part of the contract:

1. **data quality**: enough data, fresh and plausible; else nothing changes
2. **strategy**, and its **deadband**
3. **floors**: what a decrease must not go below
4. **minimum change** and **largest step**: whether at all, and how far
5. **OOM kills**: a raise that waits for none of this
6. **rounding**
7. **caps**: bounds, LimitRange, a kept limit, node capacity, quota
8. **limits**: as the policy says, within what is needed and admitted

Guards that ask for more come before those that forbid. A guard that changed something adds a line under its own name.

Then both resources and all containers of a pod come together, and the QoS class is kept. Applying a recommendation is not
part of sizing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import ceil

import msgspec

from trimtab.api.quantity import MIB, ResourceName
from trimtab.kube.kinds.pod_requests import is_guaranteed, qos_class
from trimtab.kube.kinds.pods import Container, RequestLimit, Resources
from trimtab.sizing.constraints import Constraints, sum_other_containers
from trimtab.sizing.evidence import Evidence, SafeMinimum, is_oom_prone, largest_known
from trimtab.sizing.guards import limits, requests
from trimtab.sizing.guards.context import (
    ExplanationBuilder,
    Guard,
    GuardContext,
    NoChange,
    NullExplanation,
)
from trimtab.sizing.guards.data_quality import check_data_quality, exclusion_reason
from trimtab.sizing.guards.limits import RequestLimitPair, check_conflict
from trimtab.sizing.guards.oom import check_unhandled_oom, explain_excluded_oom, raise_after_kills
from trimtab.sizing.guards.requests import UTILIZATION, list_floors
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.proposal import ROUNDING_TOLERANCE, Proposal
from trimtab.sizing.recommendation import Factor, Recommendation

LARGEST_STEP = "largest step"
"""The name of the guard that limits the size of one change, as explanations show it."""

# An explanation names each step by the guard that made it, so that these names are part of what users read.
DEADBAND_GUARDS: tuple[tuple[str, Guard], ...] = (("deadband", requests.apply_deadband),)
MINIMUM_CHANGE_GUARDS: tuple[tuple[str, Guard], ...] = (("minimum change", requests.apply_minimum_change),)
STEP_GUARDS: tuple[tuple[str, Guard], ...] = ((LARGEST_STEP, requests.apply_largest_step),)
OOM_GUARDS: tuple[tuple[str, Guard], ...] = (("OOM kills", raise_after_kills),)
ROUNDING_GUARDS: tuple[tuple[str, Guard], ...] = (("rounding", requests.apply_rounding),)
CAP_GUARDS: tuple[tuple[str, Guard], ...] = (
    # The caps come after rounding, which may lift an amount above them.
    ("bounds", requests.apply_bounds),
    ("LimitRange", requests.apply_limit_range),
    ("kept limit", requests.apply_kept_limit),
    ("node capacity", requests.apply_node_capacity),
    ("quota", requests.apply_quota),
)
REQUEST_GUARDS: dict[ResourceName, tuple[tuple[str, Guard], ...]] = {
    "cpu": (*STEP_GUARDS, *ROUNDING_GUARDS, *CAP_GUARDS),
    "memory": (*STEP_GUARDS, *OOM_GUARDS, *ROUNDING_GUARDS, *CAP_GUARDS),
}
LIMIT_CAP_GUARDS: tuple[tuple[str, limits.LimitGuard], ...] = (
    ("minimum", limits.keep_needed_limit),
    ("LimitRange", limits.apply_limit_range),
    ("quota", limits.apply_quota),
    ("ratio", limits.apply_ratio),
    ("alignment", limits.align_request),
)
LIMIT_GUARDS: tuple[tuple[str, limits.LimitGuard], ...] = (
    ("policy", limits.follow_policy),
    ("QoS", limits.keep_guaranteed),
    *LIMIT_CAP_GUARDS,
)
_CAPS = frozenset(name for name, _ in (*CAP_GUARDS, *LIMIT_CAP_GUARDS))


class RequestNeed(msgspec.Struct, frozen=True, gc=False):
    """The request that a container needs, before anything that depends on step limits or on the containers beside it."""

    request: int | NoChange
    limit_floor: int
    """The least amount of the limit."""
    utilization_floor: int
    """The least request with which an autoscaler keeps its replicas; 0 without one."""
    safe_amount: int
    """The amount that the container is known to need; a short history or a gap in the samples is no amount."""


Needs = dict[tuple[str, ResourceName], RequestNeed]
"""The needs of the containers of a pod, which are the same whatever step limits apply."""


def apply_guards(
    context: GuardContext, strategy: str, explanation: ExplanationBuilder, needs: Needs
) -> RequestLimitPair | None:
    """Return the new request and limit; None if they stay as they are."""
    key = context.container, context.resource
    need = needs.get(key)
    if need is None:
        need = needs[key] = _compute_need(context, strategy, explanation)
    pair = _compute_pair(context, need, explanation)
    if isinstance(pair, NoChange):
        explanation.add_no_change(context, pair)
        return None
    if pair.request != context.request or pair.limit != context.limit:
        return pair
    # Otherwise a container that is killed again and again would look as if it had the right size.
    if hold := check_unhandled_oom(context):
        explanation.add_no_change(context, hold)
    return None


def _compute_pair(
    context: GuardContext, need: RequestNeed, trail: ExplanationBuilder
) -> RequestLimitPair | NoChange:
    amount, last = _run_guards(REQUEST_GUARDS[context.resource], need.request, context, trail)
    if isinstance(amount, NoChange):
        return amount
    pair = RequestLimitPair(amount, context.limit, need.limit_floor)
    found, last_for_limit = _run_limit_guards(LIMIT_GUARDS, pair, context, trail)
    if isinstance(found, NoChange):
        return found
    # A pair that no cap changed has just passed each of them.
    if (last in _CAPS or last_for_limit in _CAPS) and (conflict := check_conflict(found, context)):
        return conflict
    # An autoscaler measures usage as a share of the request: below this amount it would add replicas for the
    # same load.
    if found.request < min(context.request or 0, need.utilization_floor):
        return NoChange(
            "the LimitRange, quota or node admits less than the HPA needs to keep its replicas", "HPA"
        )
    return found


def _compute_need(context: GuardContext, strategy: str, trail: ExplanationBuilder) -> RequestNeed:
    floors = list_floors(context)
    return RequestNeed(
        _compute_request(context, floors, strategy, trail),
        limit_floor=max((floor.amount for floor in floors if floor.binds_limit), default=0),
        utilization_floor=max((floor.amount for floor in floors if floor.name == UTILIZATION), default=0),
        safe_amount=largest_known(floors),
    )


def _compute_request(
    context: GuardContext, found: tuple[SafeMinimum, ...], strategy: str, trail: ExplanationBuilder
) -> int | NoChange:
    """Return the request before any step limit or cap applies."""
    hold = exclusion_reason(context)
    if hold is not None:
        return explain_excluded_oom(context, hold) if is_oom_prone(context) else hold
    hold = check_data_quality(context)
    if hold is None:
        # Without the tolerance a target of 100m that arithmetic made 100.0000001m would become 101m.
        target = max(ceil(context.proposed.target - ROUNDING_TOLERANCE), 1)
        trail.add_step(
            context,
            "strategy",
            context.request,
            target,
            why=_describe_target(context.request, target),
            source=f"strategy {strategy}",
        )
        amount, _ = _run_guards(DEADBAND_GUARDS, target, context, trail)
        return amount if isinstance(amount, NoChange) else _apply_floors(amount, context, found, trail)
    # A container that is killed early seldom lives for enough samples: waiting for them would let it crash
    # for ever.
    amount = context.request or 1
    if not is_oom_prone(context):
        return hold
    trail.factors.append(
        Factor(
            "memory data quality",
            f"{hold.why}; the container was OOM killed, so it gets more memory nevertheless",
            hold.source,
        )
    )
    return amount


def _apply_floors(
    amount: int, context: GuardContext, found: tuple[SafeMinimum, ...], trail: ExplanationBuilder
) -> int | NoChange:
    request = context.request
    if request is None:
        return amount
    for floor in found:
        # Floors only limit decreases: increases are left to the strategy, or old peaks would raise containers
        # that do well.
        if amount >= request:
            break
        if not floor.binds_request:
            continue
        least = min(request, floor.amount)
        if amount < least:
            trail.add_step(context, floor.name, amount, least, why=floor.why, source=floor.source)
            amount = least
    return _run_guards(MINIMUM_CHANGE_GUARDS, amount, context, trail)[0]


def _describe_target(request: int | None, target: int) -> str:
    if not request:
        return "the strategy asks for this amount, and nothing is requested now"
    change = target / request - 1
    if abs(change) < 0.005:
        return "the strategy asks for what is requested now"
    if change > 1:
        return f"the strategy asks for {change + 1:.1f} times what is requested now"
    return f"the strategy asks for {abs(change):.0%} {'less' if change < 0 else 'more'} than is requested now"


def _run_guards(
    guards: tuple[tuple[str, Guard], ...],
    amount: int | NoChange,
    context: GuardContext,
    trail: ExplanationBuilder,
) -> tuple[int | NoChange, str]:
    """Return the amount after all guards, and the name of the last one that changed it."""
    last = ""
    if isinstance(amount, NoChange):
        return amount, last
    for name, guard in guards:
        answer = guard(amount, context)
        if answer is None:
            continue
        if isinstance(answer, NoChange):
            return answer, name
        trail.add_step(context, name, amount, answer.amount, why=answer.why, source=answer.source)
        amount, last = answer.amount, name
    return amount, last


def _run_limit_guards(
    guards: tuple[tuple[str, limits.LimitGuard], ...],
    pair: RequestLimitPair,
    context: GuardContext,
    trail: ExplanationBuilder,
) -> tuple[RequestLimitPair | NoChange, str]:
    """Return the pair after all guards, and the name of the last one that answered."""
    last = ""
    for name, guard in guards:
        answer = guard(pair, context)
        if answer is None:
            continue
        if isinstance(answer, NoChange):
            return answer, name
        why, source, last = answer.why, answer.source, name
        if answer.limit != pair.limit:
            trail.add_step(context, f"limit {name}", pair.limit, answer.limit, why=why, source=source)
        if answer.request != pair.request:
            trail.add_step(context, name, pair.request, answer.request, why=why, source=source)
        if (answer.request, answer.limit) == (pair.request, pair.limit):
            trail.add_unchanged(context, f"limit {name}", pair.limit, why=why, source=source)
        pair = RequestLimitPair(answer.request, answer.limit, pair.floor)
    return pair, last


_NO_PROPOSAL = Proposal(strategy="none")
_NO_EVIDENCE = Evidence()
_NO_QUOTA = Resources()


def recommend_container(
    container: Container,
    *,
    proposal: Proposal,
    evidence: Evidence,
    rules: PolicyRules,
    constraints: Constraints,
    now: float,
    needs: Needs | None = None,
    trail: ExplanationBuilder | None = None,
) -> Recommendation:
    """Return the recommendation for one container.

    `needs` keeps what is the same under other step limits, and `trail` collects the explanation.
    """
    has, rules = container.resources, rules.for_container(container.name)
    trail = ExplanationBuilder(proposal.facts) if trail is None else trail
    needs = {} if needs is None else needs
    cases = build_guard_contexts(
        container, proposal=proposal, evidence=evidence, rules=rules, constraints=constraints, now=now
    )
    cpu = apply_guards(cases[0], proposal.strategy, trail, needs)
    if cpu is not None:  # A node must have capacity for both resources as they will be.
        cases = (
            cases[0],
            msgspec.structs.replace(cases[1], other_resource_request=cases[0].others_request + cpu.request),
        )
    memory = apply_guards(cases[1], proposal.strategy, trail, needs)
    if rules.keep_qos and is_guaranteed(_build_resources(has, cpu, memory)) and not is_guaranteed(has):
        cpu, memory = _keep_burstable(cases, (cpu, memory), trail)
    resources = _build_resources(has, cpu, memory)
    held = (trail.no_change_reason or None) if resources == has else None
    return Recommendation(container.name, resources, tuple(trail.factors), held)


def recommend_pod(
    containers: Iterable[Container],
    *,
    proposals: Mapping[str, Proposal],
    evidence: Mapping[str, Evidence],
    rules: PolicyRules,
    constraints: Constraints,
    now: float,
    needs: Needs | None = None,
) -> tuple[Recommendation, ...]:
    """Return the recommendations for all containers of a pod, each beside the results for those before it.

    `needs` is filled with the needs behind them.
    """
    pod = tuple(containers)
    known: Needs = {} if needs is None else needs
    constraints = msgspec.structs.replace(
        constraints, qos_class=constraints.qos_class or qos_class([one.resources for one in pod])
    )

    def recommend_by(
        by: PolicyRules, new_trail: Callable[[tuple[Factor, ...]], ExplanationBuilder]
    ) -> tuple[Recommendation, ...]:
        return _recommend_each(
            pod,
            proposals=proposals,
            evidence=evidence,
            rules=by,
            constraints=constraints,
            now=now,
            needs=known,
            new_trail=new_trail,
        )

    found = recommend_by(rules, ExplanationBuilder)
    if not any(map(_is_step_limited, found)):
        return found
    # The end of the steps is the answer of the same guards without a step limit, from the same needs.
    ends = recommend_by(rules.without_step_limits(), NullExplanation)
    return tuple(_with_final_target(*each) for each in zip(pod, found, ends, strict=True))


def _is_step_limited(found: Recommendation) -> bool:
    return found.no_change_reason is None and any(
        factor.name.endswith(LARGEST_STEP) for factor in found.explanation
    )


def _with_final_target(container: Container, found: Recommendation, end: Recommendation) -> Recommendation:
    """Record the size to which the steps of a container lead."""
    has = container.resources

    def moves(resources: Resources) -> tuple[bool, bool]:
        return (
            resources.cpu_request != has.cpu_request or resources.cpu_limit != has.cpu_limit,
            resources.memory_request != has.memory_request or resources.memory_limit != has.memory_limit,
        )

    # A step may be admitted whose end is not, for example by a quota: then nobody knows how far the steps go.
    is_held = any(
        step and not whole for step, whole in zip(moves(found.resources), moves(end.resources), strict=True)
    )
    if not _is_step_limited(found) or is_held or end.resources == found.resources:
        return found
    return msgspec.structs.replace(found, final_resources=end.resources)


def _recommend_each(
    containers: Iterable[Container],
    *,
    proposals: Mapping[str, Proposal],
    evidence: Mapping[str, Evidence],
    rules: PolicyRules,
    constraints: Constraints,
    now: float,
    needs: Needs,
    new_trail: Callable[[tuple[Factor, ...]], ExplanationBuilder],
) -> tuple[Recommendation, ...]:
    pod = list(containers)
    quota = constraints.quota
    found = []
    for index, container in enumerate(pod):
        proposal = proposals.get(container.name, _NO_PROPOSAL)
        recommendation = recommend_container(
            container,
            proposal=proposal,
            evidence=evidence.get(container.name, _NO_EVIDENCE),
            rules=rules,
            constraints=msgspec.structs.replace(
                constraints,
                other_containers=sum_other_containers(pod, container.name),
                quota=quota,
            ),
            now=now,
            needs=needs,
            trail=new_trail(proposal.facts),
        )
        found.append(recommendation)
        quota = subtract_from_quota(
            quota, container.resources, recommendation.resources, constraints.replicas
        )
        pod[index] = msgspec.structs.replace(container, resources=recommendation.resources)
    return tuple(found)


def build_guard_contexts(
    container: Container,
    *,
    proposal: Proposal,
    evidence: Evidence,
    rules: PolicyRules,
    constraints: Constraints,
    now: float,
) -> tuple[GuardContext, GuardContext]:
    """Return the guard contexts of CPU and memory."""
    counted, others = container.resources.with_implied_requests(), constraints.other_containers
    cpu, memory, other_cpu, other_memory = counted.cpu, counted.memory, others.cpu, others.memory
    ranges, quota = constraints.ranges, constraints.quota
    return (
        GuardContext(
            resource="cpu",
            container=container.name,
            request=cpu.request or None,
            limit=cpu.limit,
            proposed=proposal.cpu,
            rule=rules.cpu,
            rules=rules,
            evidence=evidence,
            constraints=constraints,
            container_range=ranges.container_cpu,
            pod_range=ranges.pod_cpu,
            quota=quota.cpu,
            others_request=other_cpu.request or 0,
            others_limit=other_cpu.limit or 0,
            other_resource_request=(other_memory.request or 0) + (memory.request or 0),
            restarts_container=rules.restarts_pods or container.restarts_on_resize("cpu"),
            now=now,
        ),
        GuardContext(
            resource="memory",
            container=container.name,
            request=memory.request or None,
            limit=memory.limit,
            proposed=proposal.memory,
            rule=rules.memory,
            rules=rules,
            evidence=evidence,
            constraints=constraints,
            container_range=ranges.container_memory,
            pod_range=ranges.pod_memory,
            quota=quota.memory,
            others_request=other_memory.request or 0,
            others_limit=other_memory.limit or 0,
            other_resource_request=(other_cpu.request or 0) + (cpu.request or 0),
            restarts_container=rules.restarts_pods or container.restarts_on_resize("memory"),
            now=now,
        ),
    )


def subtract_from_quota(quota: Resources, before: Resources, after: Resources, replicas: int) -> Resources:
    """Return the remaining quota after a change; a decrease counts only once it is applied."""
    if quota == _NO_QUOTA:
        return quota

    def rest(left: int | None, had: int | None, has: int | None) -> int | None:
        return None if left is None else left - max((has or 0) - (had or 0), 0) * replicas

    before, after = before.with_implied_requests(), after.with_implied_requests()
    return Resources(*map(rest, quota.amounts, before.amounts, after.amounts))


def _build_resources(
    has: Resources, cpu: RequestLimitPair | None, memory: RequestLimitPair | None
) -> Resources:
    return Resources.from_pairs(
        has.cpu if cpu is None else RequestLimit(cpu.request, cpu.limit),
        has.memory if memory is None else RequestLimit(memory.request, memory.limit),
    )


def _keep_burstable(
    cases: tuple[GuardContext, GuardContext],
    pairs: tuple[RequestLimitPair | None, RequestLimitPair | None],
    trail: ExplanationBuilder,
) -> tuple[RequestLimitPair | None, RequestLimitPair | None]:
    """Keep a request below its limit by a millicore or a MiB, so that the pod stays Burstable."""
    why = "kept below the limit, so that the pod does not become Guaranteed"
    for index, unit in enumerate((1, MIB)):
        pair, context = pairs[index], cases[index]
        if pair is None:
            continue
        for apart in _iter_burstable_pairs(pair, context, unit):
            if check_conflict(apart, context) is not None:
                continue
            if apart.limit == pair.limit:
                trail.add_step(context, "QoS", pair.request, apart.request, why=why, source="QoS class")
            else:
                trail.add_step(context, "limit QoS", pair.limit, apart.limit, why=why, source="QoS class")
            return (apart, pairs[1]) if index == 0 else (pairs[0], apart)
    for context in cases:
        trail.add_no_change(
            context, NoChange("the change would make the pod Guaranteed (QoS class)", "QoS class")
        )
    return None, None


def _iter_burstable_pairs(
    pair: RequestLimitPair, context: GuardContext, unit: int
) -> Iterator[RequestLimitPair]:
    """Yield a limit that is lowered less, then a lower request: a lowered request would be lowered again each
    time.
    """
    if pair.limit is not None and pair.limit + unit <= (context.limit or 0):
        yield msgspec.structs.replace(pair, limit=pair.limit + unit)
    if pair.request > unit:
        yield msgspec.structs.replace(pair, request=pair.request - unit)
