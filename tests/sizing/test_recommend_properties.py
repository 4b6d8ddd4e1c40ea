"""Properties of every recommendation, for any container, policy, evidence and constraints.

The first part are the correctness properties of the OptiPod design that are decided here, under their names there.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise

import msgspec
import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sizing.containers import (
    DAY,
    FREE,
    GIB,
    NOW,
    RESOURCES,
    WELL_KNOWN,
    Made,
    any_evidence,
    any_pod,
    any_proposal,
    any_resources,
    any_rules,
    any_surroundings,
    killed,
    recommendations,
    rules,
)
from trimtab.api.optimizationpolicy import HpaMode, LimitMode, MetricsConfig
from trimtab.api.quantity import MIB, format_step
from trimtab.kube.kinds.nodes import NodeResources
from trimtab.kube.kinds.pod_requests import qos_class
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.sizing import strategy
from trimtab.sizing.constraints import (
    AutoscalerConstraint,
    Constraints,
    sum_other_containers,
)
from trimtab.sizing.evidence import Evidence, safe_limit, sized_resource
from trimtab.sizing.guards.oom import MAX_OOM_RAISES
from trimtab.sizing.guards.requests import round_up
from trimtab.sizing.policy_rules import PolicyRules, ResourceRules
from trimtab.sizing.proposal import (
    Proposal,
    ResourceTarget,
    build_proposal,
    describe_settings,
    percentile_settings,
)
from trimtab.sizing.recommend import recommend_container, recommend_pod
from trimtab.sizing.recommendation import MAX_TEXT, Factor, Recommendation
from trimtab.sizing.tracking.evidence_tracker import EvidenceTracker, EvidenceTrackerSettings

examples = settings(max_examples=100)
NO_IMAGE = np.zeros(1, np.uint32)


def request(of: Resources, resource: str) -> int | None:
    """Return the effective request: the limit if only that is set."""
    found = getattr(of, f"{resource}_request")
    return (getattr(of, f"{resource}_limit") if found is None else found) or None


def limit(of: Resources, resource: str) -> int | None:
    found: int | None = getattr(of, f"{resource}_limit")
    return found


def is_held(recommendation: Recommendation, resource: str) -> bool:
    return any(factor.name == f"{resource} held" for factor in recommendation.explanation)


@examples
@given(made=recommendations())
def test_property_3_updates_preserve_limits(made: Made) -> None:
    found, has, asked = made.found, made.has, made.rules
    for resource in RESOURCES:
        rule, had, now = getattr(asked, resource), limit(has, resource), limit(found.resources, resource)
        if rule.limit is not LimitMode.KEEP or now == had:
            continue
        # The policy does not ask for kept limits: after an OOM kill it gives memory, and never takes it.
        assert rule.raises_kept_limit
        assert made.evidence.kills
        assert had is not None
        assert now is not None
        assert now > had


@examples
@given(made=recommendations())
def test_property_4_bounds_enforcement(made: Made) -> None:
    found, asked = made.found, made.rules
    for resource in RESOURCES:
        if is_held(found, resource):
            continue
        rule, amount = getattr(asked, resource), request(found.resources, resource)
        assert amount is not None
        assert rule.min_request <= amount
        assert rule.max_request is None or amount <= rule.max_request


@examples
@given(made=recommendations())
def test_property_5_memory_decrease_safety(made: Made) -> None:
    """No limit is below the recent usage; a request only where the policy or the namespace requires it."""
    found, has, asked, around, evidence = made.found, made.has, made.rules, made.around, made.evidence
    had, has_now = limit(has, "memory"), limit(found.resources, "memory")
    needed = max(
        evidence.memory_peak or 0,
        evidence.heap.max_bytes if evidence.heap else 0,
    )
    if had is not None and has_now is not None:
        assert has_now >= min(had, needed)
    asked_for, asks_for = request(has, "memory"), request(found.resources, "memory")
    if asked_for is not None and asks_for is not None and asks_for < min(asked_for, needed) - MIB:
        top = [asked.memory.max_request, around.ranges.container_memory.max]
        assert any(most is not None and asked_for > most for most in top) or around.ranges.pod_memory.max


@examples
@given(has=any_resources, made=any_proposal, asked=any_rules, around=any_surroundings)
def test_property_7_missing_metrics_prevent_changes(
    has: Resources, made: Proposal, asked: PolicyRules, around: Constraints
) -> None:
    found = recommend_container(
        Container("app", "main", has),
        proposal=made,
        evidence=Evidence(),
        rules=asked,
        constraints=around,
        now=NOW,
    )
    assert found.resources == has
    assert found.no_change_reason is not None
    assert "cpu" in found.no_change_reason
    assert "memory" in found.no_change_reason


@examples
@given(made=recommendations())
def test_property_10_recommendation_format_completeness(made: Made) -> None:
    found = made.found
    assert msgspec.json.decode(msgspec.json.encode(found), type=Recommendation) == found
    assert 0 < len(found.text) <= MAX_TEXT
    assert all(factor.name and factor.detail and factor.source for factor in found.explanation)


some_usage = st.lists(st.floats(0.05, 4), min_size=10, max_size=30)


def propose(percentile: str, factor: float, *spans: tuple[float, list[float]]) -> Proposal:
    """Return the proposal of a policy with this metricsConfig for usage sampled each minute from these times on."""
    config = MetricsConfig.model_validate(
        {"percentile": percentile, "safetyFactor": factor, "rollingWindow": "24h"}
    )
    sizer = strategy("percentile", containers=1, **percentile_settings(config))
    t = 0.0
    for start, usage in spans:
        for place, cores in enumerate(usage):
            t = start + place * 60.0
            sizer.observe(t, np.array([cores]), np.array([cores * GIB]))
    strategy_factor = describe_settings("percentile", percentile_settings(config))
    return build_proposal(sizer.recommend(t), 0, strategy="percentile", facts=(strategy_factor,))


@settings(max_examples=100)
@given(usage=some_usage, before=some_usage)
def test_property_12_rolling_window_aggregation(usage: list[float], before: list[float]) -> None:
    """Samples older than the window and its last slice do not count."""
    assert propose("P90", 1.2, (0.0, before), (2 * DAY, usage)) == propose("P90", 1.2, (2 * DAY, usage))


def exact_percentile(usage: list[float], share: float) -> float:
    return sorted(usage)[math.ceil(share * len(usage)) - 1]


@settings(max_examples=100)
@given(usage=some_usage)
def test_property_13_percentile_computation(usage: list[float]) -> None:
    p50, p90, p99 = (propose(percentile, 1.0, (0.0, usage)) for percentile in ("P50", "P90", "P99"))
    for found, share in ((p50, 0.5), (p90, 0.9), (p99, 0.99)):
        exact = exact_percentile(usage, share)
        assert exact * 1000 * 0.985 <= found.cpu.target <= exact * 1000 * 1.07  # the strategy's buckets
        assert exact * GIB * 0.985 <= found.memory.target <= exact * GIB * 1.02
    assert p50.cpu.target <= p90.cpu.target <= p99.cpu.target
    assert p50.memory.target <= p90.memory.target <= p99.memory.target


@settings(max_examples=100)
@given(
    usage=some_usage,
    percentile=st.sampled_from(["P50", "P90", "P95", "P99"]),
    factor=st.floats(1, 3),
    had=st.none() | st.floats(0.05, 8),
)
def test_property_14_strategy_application(
    usage: list[float], percentile: str, factor: float, had: float | None
) -> None:
    """Requests follow the percentile and the factor, whatever they were, unless they are plausible already."""
    asked, share = propose(percentile, factor, (0.0, usage)), int(percentile[1:]) / 100
    exact = exact_percentile(usage, share) * factor
    has = Resources() if had is None else Resources(round(exact * 1000 * had), None, int(exact * GIB * had))
    found = recommend_container(
        Container("app", "main", has),
        proposal=asked,
        evidence=msgspec.structs.replace(WELL_KNOWN, memory_peak=MIB),
        rules=FREE,
        constraints=Constraints(qos_class="Burstable"),
        now=NOW,
    )
    cpu, memory = found.resources.cpu_request, found.resources.memory_request
    assert cpu is not None
    assert memory is not None
    # Too little to be worth a change: the median and P99 with the factor are the range of the strategy.
    if has.cpu_request is None or not asked.cpu.lower <= has.cpu_request <= asked.cpu.upper:
        assert (
            exact * 1000 * 0.985 <= cpu <= exact * 1000 * 1.07 + 1
        )  # the strategy's buckets, and our rounding
    else:
        assert cpu == has.cpu_request
    if has.memory_request is None or not asked.memory.lower <= has.memory_request <= asked.memory.upper:
        assert exact * GIB * 0.985 <= memory <= exact * GIB * 1.02 + MIB
    else:
        assert memory == has.memory_request
    settings = f"quantile {share}, safety_factor {factor:.15g}, window 86400"
    assert found.explanation[0] == Factor("settings", settings, "strategy percentile")


@examples
@given(made=recommendations())
def test_property_24_skip_reason_recording(made: Made) -> None:
    found, has = made.found, made.has
    if found.no_change_reason is not None:
        assert found.no_change_reason
        assert found.resources == has
    elif found.resources == has:
        assert not any(is_held(found, resource) for resource in RESOURCES)


@examples
@given(made=recommendations())
def test_recommended_limit_is_never_below_the_needed_amount(made: Made) -> None:
    """Neither below a peak and its margin nor below a heap; and where too little is known, no limit comes down."""
    found, has = made.found.resources, made.has
    for resource in RESOURCES:
        had, has_now = limit(has, resource), limit(found, resource)
        if has_now is None or has_now == had:
            continue
        case = sized_resource(
            Container("app", made.role, has), resource, evidence=made.evidence, rules=made.rules, now=NOW
        )
        least = safe_limit(case)
        if least is not None and has_now < least.amount:
            assert had is not None
            assert has_now >= had


@examples
@given(made=recommendations())
def test_recommended_amounts_are_readable(made: Made) -> None:
    """Whole MiB and round millicores, unless somebody chose the amount: the policy, the namespace or the container."""
    for resource in RESOURCES:
        rule, around = getattr(made.rules, resource), made.around
        ranges = [getattr(around.ranges, f"{of}_{resource}") for of in ("container", "pod")]
        chosen = {rule.min_request, rule.max_request, request(made.has, resource), limit(made.has, resource)}
        chosen |= {amount for each in ranges for amount in (each.min, each.max, each.default)}
        chosen |= {
            each.min - (getattr(around.other_containers, f"{resource}_request") or 0) for each in ranges
        }
        for amount in (request(made.found.resources, resource), limit(made.found.resources, resource)):
            if amount is None or amount in chosen:
                continue
            unit = 1 if resource == "cpu" else MIB
            apart = {amount + unit, amount - unit}  # to keep the QoS class
            assert any(round_up(resource, each) == each for each in {amount, *apart}) or apart & chosen


@examples
@given(made=recommendations())
def test_recommended_request_is_never_above_its_limit(made: Made) -> None:
    found = made.found.resources
    for resource in RESOURCES:
        asked, most = request(found, resource), limit(found, resource)
        assert asked is None or most is None or asked <= most


@examples
@given(made=recommendations())
def test_explanation_steps_lead_to_the_recommended_amounts(made: Made) -> None:
    found, has = made.found, made.has
    for resource in RESOURCES:
        if is_held(found, resource):
            continue
        for value, limits in ((request, False), (limit, True)):
            lines = [
                moved
                for factor in found.explanation
                if factor.name.startswith(f"{resource} ")
                and factor.name.startswith(f"{resource} limit ") is limits
                and (moved := re.match(r"(\S+) -> (\S+):", factor.detail))
            ]
            assert all(before[2] == after[1] for before, after in pairwise(lines))
            ends = format_step(resource, value(found.resources, resource))
            assert ends == (lines[-1][2] if lines else format_step(resource, value(has, resource)))


@examples
@given(data=st.data(), pod=any_pod(), asked=any_rules, around=any_surroundings)
def test_recommendation_keeps_the_qos_class_of_a_pod(
    data: st.DataObject, pod: tuple[Container, ...], asked: PolicyRules, around: Constraints
) -> None:
    found = recommend_pod(
        pod,
        proposals={one.name: data.draw(any_proposal) for one in pod},
        evidence={one.name: data.draw(any_evidence) for one in pod},
        rules=asked,
        constraints=around,
        now=NOW,
    )
    before = qos_class(one.resources for one in pod)
    assert qos_class(one.resources for one in found) == before


@examples
@given(data=st.data(), pod=any_pod(), asked=any_rules, around=any_surroundings)
def test_recommendation_stays_within_the_remaining_quota(
    data: st.DataObject, pod: tuple[Container, ...], asked: PolicyRules, around: Constraints
) -> None:
    found = recommend_pod(
        pod,
        proposals={one.name: data.draw(any_proposal) for one in pod},
        evidence={one.name: data.draw(any_evidence) for one in pod},
        rules=asked,
        constraints=around,
        now=NOW,
    )
    for field in ("cpu_request", "memory_request", "cpu_limit", "memory_limit"):
        left = getattr(around.quota, field)
        grown = sum(
            max(
                (getattr(after.resources, field) or 0) - (_effective_request(before.resources, field) or 0), 0
            )
            for before, after in zip(pod, found, strict=True)
        )
        assert left is None or grown * around.replicas <= max(left, 0)
    after = [Container(one.name, one.role, new.resources) for one, new in zip(pod, found, strict=True)]
    for resource in RESOURCES:
        most = getattr(around.ranges, f"pod_{resource}").max
        together = getattr(sum_other_containers(after, ""), f"{resource}_request")
        assert most is None or together <= max(
            most, getattr(sum_other_containers(pod, ""), f"{resource}_request") or 0
        )


def _effective_request(has: Resources, field: str) -> int | None:
    """Return the request, which defaults to the limit."""
    resource, part = field.split("_")
    return request(has, resource) if part == "request" else getattr(has, field)


@examples
@given(made=recommendations())
def test_recommendation_is_admitted_by_the_limit_range(made: Made) -> None:
    found, has, around = made.found, made.has, made.around
    for resource in RESOURCES:
        if is_held(found, resource) or getattr(found.resources, f"{resource}_request") == getattr(
            has, f"{resource}_request"
        ):
            continue
        demands = getattr(around.ranges, f"container_{resource}")
        asked, most = request(found.resources, resource), limit(found.resources, resource)
        assert asked is not None
        assert asked >= demands.min
        assert demands.max is None or max(asked, most or 0) <= demands.max
        assert most is None or most <= asked * demands.ratio or most == limit(has, resource)


@examples
@given(
    requests=st.lists(st.integers(1, 8000), min_size=1, max_size=4),
    wanted=st.lists(st.integers(1, 8000), min_size=4, max_size=4),
    usage=st.lists(st.integers(1, 8000), min_size=4, max_size=4),
    target=st.floats(0.2, 1.0),
)
def test_recommendation_keeps_utilization_below_the_hpa_target(
    requests: list[int], wanted: list[int], usage: list[int], target: float
) -> None:
    used = [min(use, 2 * asked) for use, asked in zip(usage, requests, strict=False)]
    before = sum(used) / sum(requests)
    pod = [Container(f"c{place}", "main", Resources(asked)) for place, asked in enumerate(requests)]
    found = recommend_pod(
        pod,
        proposals={
            one.name: Proposal(cpu=ResourceTarget(float(asked)), strategy="test")
            for one, asked in zip(pod, wanted, strict=False)
        },
        evidence={one.name: WELL_KNOWN for one in pod},
        rules=FREE,
        constraints=Constraints(
            autoscalers=(
                AutoscalerConstraint(name="web", resource="cpu", target=target, highest_seen=before),
            )
        ),
        now=NOW,
    )
    after = sum(used) / sum(one.resources.cpu_request or 0 for one in found)
    assert after <= max(target, before) * (1 + 1e-9)


@examples
@given(has=any_resources, made=any_proposal, around=any_surroundings)
def test_hold_mode_keeps_the_resource_of_the_hpa(has: Resources, made: Proposal, around: Constraints) -> None:
    found = recommend_container(
        Container("app", "main", has),
        proposal=made,
        evidence=WELL_KNOWN,
        rules=msgspec.structs.replace(FREE, hpa_mode=HpaMode.HOLD),
        constraints=around,
        now=NOW,
    )
    for scaler in around.autoscalers:
        assert request(found.resources, scaler.resource) == request(has, scaler.resource)


@examples
@given(
    start=st.integers(16, 2048),
    most=st.none() | st.integers(64, 65536),
    kills_at_each=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    pause=st.floats(60, 7 * DAY),
    cut=st.none() | st.integers(1, 4),
)
def test_memory_leak_is_raised_a_few_times_and_then_kept(
    start: int, most: int | None, kills_at_each: list[int], pause: float, cut: int | None
) -> None:
    """A container that fills whatever it gets, in any number of replicas, killed any number of times at each size.

    Perhaps it had some times as much before it was made smaller: it gets that back once.
    """
    bounds = {} if most is None else {"max": f"{most}Mi"}
    assume(most is None or start <= most)
    asked = rules(
        updateStrategy={"updateRequestsOnly": False}, resourceBounds={"memory": {"min": "16Mi", **bounds}}
    )
    around = Constraints(qos_class="Burstable", nodes=(NodeResources(cpu=64_000, memory=512 * GIB, pods=1),))
    has, now, held, changes = Resources(100, None, start * MIB, start * MIB), NOW, None, 0
    seen, row = EvidenceTracker(1, EvidenceTrackerSettings()), np.array([0])
    for step in range(24):
        for _ in range(kills_at_each[step % len(kills_at_each)]):
            now += pause
            seen.observe_oom(np.array([now]), row, np.array([float(has.memory_limit or 0)]))
        memory = np.array([float(has.memory_limit or 0)])
        seen.observe_sizes(now, row, memory, before=memory * 0 + start * MIB * (cut or 0), images=NO_IMAGE)
        (evidence,) = seen.collect_evidence(now, row, is_long_running=[True])
        found = recommend_container(
            Container("leak", "main", has),
            proposal=Proposal(strategy="test"),
            evidence=msgspec.structs.replace(
                evidence,
                samples=2000,
                run_seconds=now,
                first_sample_at=0,
                last_sample_at=now,
                memory_peak=has.memory_limit,
            ),
            rules=asked,
            constraints=around,
            now=now,
        )
        changes += found.resources != has
        has, held = found.resources, found.no_change_reason
    assert changes <= MAX_OOM_RAISES + 1
    assert held is not None
    assert "killed" in held
    assert most is None or (has.memory_limit or 0) <= most * MIB


@examples
@given(
    has=any_resources,
    made=any_proposal,
    evidence=any_evidence,
    asked=any_rules,
    killed_at=st.integers(1, 8 * GIB),
    ago=st.floats(0, 7.9 * DAY),
)
def test_memory_rises_above_every_killed_size(
    has: Resources, made: Proposal, evidence: Evidence, asked: PolicyRules, killed_at: int, ago: float
) -> None:
    """Whatever the strategy, the samples and the policy say, for the learning history after a kill."""
    asked = msgspec.structs.replace(asked, memory=msgspec.structs.replace(asked.memory, max_request=None))
    evidence = msgspec.structs.replace(evidence, kills=(killed(NOW - ago, killed_at),))
    found = recommend_container(
        Container("app", "main", has),
        proposal=made,
        evidence=evidence,
        rules=asked,
        constraints=Constraints(qos_class=qos_class([has])),
        now=NOW,
    )
    before, after = has.with_implied_requests(), found.resources.with_implied_requests()
    assert (after.memory_request or 0) >= (before.memory_request or 0)
    limits = has.memory_limit, found.resources.memory_limit
    if limits[0] and limits[1]:
        assert limits[1] >= min(limits[0], killed_at * 1.2)
    if found.resources != has and asked.memory.is_controlled and asked.memory.limit is not LimitMode.KEEP:
        # CPU may change while memory is held: for BestEffort pods, or what a policy leaves alone.
        size = found.resources.memory_limit or after.memory_request or 0
        assert size > killed_at or is_held(found, "memory") or asked.memory.limit is LimitMode.REMOVE


def test_request_below_its_limit_does_not_creep_down() -> None:
    follows = ResourceRules(min_request=1, limit=LimitMode.MULTIPLIER, multiplier=1.0, max_decrease=0.0)
    asked = PolicyRules(cpu=follows, memory=ResourceRules(limit=LimitMode.KEEP), minimum_change=0.0)
    has = Resources(cpu_request=2499, cpu_limit=2500, memory_request=2**30, memory_limit=2**30)
    found = recommend_container(
        Container("app", "main", has),
        proposal=Proposal(
            cpu=ResourceTarget(2475.0), memory=ResourceTarget(float(2**30)), strategy="test", facts=()
        ),
        evidence=WELL_KNOWN,
        rules=asked,
        constraints=Constraints(qos_class="Burstable"),
        now=NOW,
    )
    assert found.resources == has


@examples
@given(has=any_resources, made=any_proposal, asked=any_rules, around=any_surroundings)
def test_applied_recommendation_is_stable(
    has: Resources, made: Proposal, asked: PolicyRules, around: Constraints
) -> None:
    """With the same evidence sizes come to rest: what is applied does not set off another change for ever."""
    around = msgspec.structs.replace(around, qos_class=qos_class([has]), autoscalers=())
    seen = [has]
    for _ in range(60):
        found = recommend_container(
            Container("app", "main", seen[-1]),
            proposal=made,
            evidence=WELL_KNOWN,
            rules=asked,
            constraints=around,
            now=NOW,
        )
        if found.resources == seen[-1]:
            return
        assert found.resources not in seen
        seen.append(found.resources)


@given(recommendations())
@examples
def test_uncontrolled_resource_is_not_changed(made: Made) -> None:
    found = made.found.resources
    for resource, rule in (("cpu", made.rules.cpu), ("memory", made.rules.memory)):
        if not rule.is_controlled:
            assert is_held(made.found, resource)
            assert getattr(found, f"{resource}_request") == getattr(made.has, f"{resource}_request")
            assert limit(found, resource) == limit(made.has, resource)
