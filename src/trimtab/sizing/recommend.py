"""Turn the proposal of a strategy for one container into a recommendation with an explanation.

`guards.pipeline` takes each resource through its guards. Here both resources and all containers of a pod come
together, and the QoS class is kept. Applying a recommendation is not part of sizing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from trimtab.api.quantity import MIB, ResourceName
from trimtab.kube.kinds.pod_requests import is_guaranteed, qos_class
from trimtab.kube.kinds.pods import Container, RequestLimit, Resources
from trimtab.sizing.constraints import Constraints, sum_other_containers
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.guards.context import ExplanationBuilder, GuardContext, NoChange
from trimtab.sizing.guards.limits import RequestLimitPair, check_conflict
from trimtab.sizing.guards.pipeline import LARGEST_STEP, apply_guards
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.proposal import Proposal
from trimtab.sizing.recommendation import Recommendation

_NO_PROPOSAL = Proposal(strategy="none")
_NO_EVIDENCE = Evidence()


def recommend_container(
    container: Container,
    *,
    proposal: Proposal,
    evidence: Evidence,
    rules: PolicyRules,
    constraints: Constraints,
    now: float,
) -> Recommendation:
    """Return the recommendation for one container."""
    has, rules = container.resources, rules.for_container(container.name)
    trail = ExplanationBuilder(proposal.facts)
    cases = build_guard_contexts(
        container, proposal=proposal, evidence=evidence, rules=rules, constraints=constraints, now=now
    )
    cpu = apply_guards(cases[0], proposal.strategy, trail)
    if cpu is not None:  # A node must have capacity for both resources as they will be.
        cases = (
            cases[0],
            msgspec.structs.replace(cases[1], other_resource_request=cases[0].others_request + cpu.request),
        )
    memory = apply_guards(cases[1], proposal.strategy, trail)
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
) -> tuple[Recommendation, ...]:
    """Return the recommendations for all containers of a pod, each beside the results for those before it."""
    pod = tuple(containers)

    def recommend_by(by: PolicyRules) -> tuple[Recommendation, ...]:
        return _recommend_each(
            pod, proposals=proposals, evidence=evidence, rules=by, constraints=constraints, now=now
        )

    found = recommend_by(rules)
    if not any(map(_is_step_limited, found)):
        return found
    # The end of the steps is the answer of the same guards without a step limit.
    ends = recommend_by(rules.without_step_limits())
    return tuple(_with_final_target(*each) for each in zip(pod, found, ends, strict=True))


def _is_step_limited(found: Recommendation) -> bool:
    return found.no_change_reason is None and any(
        factor.name.endswith(LARGEST_STEP) for factor in found.explanation
    )


def _with_final_target(container: Container, found: Recommendation, end: Recommendation) -> Recommendation:
    """Record the size to which the steps of a container lead."""
    has = container.resources

    def moves(resources: Resources) -> tuple[bool, bool]:
        return resources.cpu != has.cpu, resources.memory != has.memory

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
) -> tuple[Recommendation, ...]:
    pod = list(containers)
    qos = constraints.qos_class or qos_class(one.resources for one in pod)
    quota = constraints.quota
    found = []
    for place, container in enumerate(pod):
        recommendation = recommend_container(
            container,
            proposal=proposals.get(container.name, _NO_PROPOSAL),
            evidence=evidence.get(container.name, _NO_EVIDENCE),
            rules=rules,
            constraints=msgspec.structs.replace(
                constraints,
                qos_class=qos,
                other_containers=sum_other_containers(pod, container.name),
                quota=quota,
            ),
            now=now,
        )
        found.append(recommendation)
        quota = subtract_from_quota(
            quota, container.resources, recommendation.resources, constraints.replicas
        )
        pod[place] = msgspec.structs.replace(container, resources=recommendation.resources)
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
    return (
        _build_guard_context("cpu", container, proposal, evidence, rules, constraints, now),
        _build_guard_context("memory", container, proposal, evidence, rules, constraints, now),
    )


def _build_guard_context(
    resource: ResourceName,
    container: Container,
    proposal: Proposal,
    evidence: Evidence,
    rules: PolicyRules,
    constraints: Constraints,
    now: float,
) -> GuardContext:
    is_cpu = resource == "cpu"
    other: ResourceName = "memory" if is_cpu else "cpu"
    counted, others = container.resources.with_implied_requests(), constraints.other_containers
    container_range, pod_range = constraints.ranges.select(resource)
    restarts = container.restart_on_cpu_resize if is_cpu else container.restart_on_memory_resize
    return GuardContext(
        resource=resource,
        container=container.name,
        request=counted.select(resource).request or None,
        limit=counted.select(resource).limit,
        proposed=proposal.cpu if is_cpu else proposal.memory,
        rule=rules.cpu if is_cpu else rules.memory,
        rules=rules,
        evidence=evidence,
        constraints=constraints,
        container_range=container_range,
        pod_range=pod_range,
        others_request=others.select(resource).request or 0,
        others_limit=others.select(resource).limit or 0,
        other_resource_request=(others.select(other).request or 0) + (counted.select(other).request or 0),
        restarts_container=rules.restarts_pods or restarts,
        now=now,
    )


def subtract_from_quota(quota: Resources, before: Resources, after: Resources, replicas: int) -> Resources:
    """Return the remaining quota after a change; a decrease counts only once it is applied."""

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
    why = "below its limit: the pod does not become Guaranteed"
    for place, unit in enumerate((1, MIB)):
        pair, case = pairs[place], cases[place]
        if pair is None:
            continue
        for apart in _iter_burstable_pairs(pair, case, unit):
            if check_conflict(apart, case) is not None:
                continue
            if apart.limit == pair.limit:
                trail.add_step(case, "QoS", pair.request, apart.request, why=why, source="QoS class")
            else:
                trail.add_step(case, "limit QoS", pair.limit, apart.limit, why=why, source="QoS class")
            return (apart, pairs[1]) if place == 0 else (pairs[0], apart)
    for case in cases:
        trail.add_no_change(case, NoChange("the pod would become Guaranteed", "QoS class"))
    return None, None


def _iter_burstable_pairs(
    pair: RequestLimitPair, case: GuardContext, unit: int
) -> Iterator[RequestLimitPair]:
    """Yield a limit that is lowered less, then a lower request: a lowered request would be lowered again each
    time.
    """
    if pair.limit is not None and pair.limit + unit <= (case.limit or 0):
        yield msgspec.structs.replace(pair, limit=pair.limit + unit)
    if pair.request > unit:
        yield msgspec.structs.replace(pair, request=pair.request - unit)
