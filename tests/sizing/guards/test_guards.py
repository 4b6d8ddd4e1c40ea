"""Each guard does the one thing that it is there for."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizing.containers import (
    DAY,
    FREE,
    GIB,
    HAS,
    HOUR,
    NOW,
    WELL_KNOWN,
    cases,
    killed,
    names,
    proposing,
    rules,
    sized,
)
from trimtab.api.optimizationpolicy import HpaMode, LimitMode
from trimtab.api.quantity import MIB
from trimtab.kube.kinds.nodes import NodeResources
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.sizing import evidence as evidence_module
from trimtab.sizing.constraints import (
    AllowedRange,
    AllowedRanges,
    AutoscalerConstraint,
    Constraints,
    sum_other_containers,
)
from trimtab.sizing.evidence import Evidence, Heap, OomKills
from trimtab.sizing.guards import limits, requests
from trimtab.sizing.guards.context import GuardStep, NoChange
from trimtab.sizing.guards.data_quality import check_data_quality
from trimtab.sizing.guards.limits import RequestLimitPair
from trimtab.sizing.guards.oom import raise_after_kills
from trimtab.sizing.guards.requests import round_up
from trimtab.sizing.policy_rules import PolicyRules, ResourceRules
from trimtab.sizing.proposal import Proposal, ResourceTarget
from trimtab.sizing.recommend import (
    DEADBAND_GUARDS,
    LIMIT_GUARDS,
    MINIMUM_CHANGE_GUARDS,
    REQUEST_GUARDS,
    recommend_container,
    recommend_pod,
)
from trimtab.sizing.recommendation import Factor, Recommendation

with_ = msgspec.structs.replace


def limit_rules(mode: LimitMode, **more: float) -> PolicyRules:
    """Rules by which both limits follow in this way."""
    return with_(
        FREE,
        cpu=with_(FREE.cpu, limit=mode, **more),
        memory=with_(FREE.memory, limit=mode, **more),
    )


# Rules of some containers only


def test_container_rules_prefer_exact_name_then_longest_pattern() -> None:
    found = rules(
        resourceBounds={"cpu": {"max": "1"}},
        containers=[
            {"name": "*", "resourceBounds": {"cpu": {"max": "2"}}},
            {"name": "istio-*", "controlledResources": []},
            {"name": "istio-agent", "controlledResources": ["memory"]},
            {"name": "cache", "resourceBounds": {"memory": {"min": "1Gi"}}},
        ],
    )
    most = {name: found.for_container(name).cpu.max_request for name in ("app", "istio-proxy", "cache")}
    assert most == {"app": 2000, "istio-proxy": 1000, "cache": 1000}
    assert found.for_container("cache").memory.min_request == GIB
    alone = found.for_container("istio-proxy")
    assert not alone.cpu.is_controlled
    assert not alone.memory.is_controlled
    assert found.for_container("istio-agent").memory.is_controlled
    assert not found.for_container("istio-agent").cpu.is_controlled


def test_excluded_container_is_explained() -> None:
    alone = sized(100, 100 * MIB, asked=rules(containers=[{"name": "app", "controlledResources": []}]))
    assert alone.resources == HAS
    assert alone.no_change_reason == "cpu and memory: the policy excludes it"
    half = sized(800, 100 * MIB, asked=rules(containers=[{"name": "a*", "controlledResources": ["cpu"]}]))
    assert half.resources == with_(HAS, cpu_request=800)
    assert "memory held: stays at 1024Mi: the policy excludes it [policy containers]" in half.text


def test_container_bounds_replace_policy_bounds_and_are_named_in_the_explanation() -> None:
    own = {"name": "app", "resourceBounds": {"cpu": {"min": "700m"}}}
    found = sized(600, asked=rules(resourceBounds={"cpu": {"max": "650m"}}, containers=[own]))
    assert found.resources.cpu_request == 700
    assert "at least 700m [policy containers[app].resourceBounds.cpu]" in found.text


# The gate


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (with_(WELL_KNOWN, samples=9), "9 samples, 10 are needed"),
        (
            with_(WELL_KNOWN, last_sample_at=NOW - 3600),
            "the last sample is 60 min old; check that its node is scraped",
        ),
        (with_(WELL_KNOWN, memory_peak=0), "memory is 0 bytes"),
        (with_(WELL_KNOWN, cpu_peak=10**6), "more than any node has"),
    ],
    ids=["too few", "stale", "nothing", "impossible"],
)
def test_data_quality_rejects_insufficient_evidence(evidence: Evidence, why: str) -> None:
    around = Constraints(qos_class="Burstable", nodes=(NodeResources(cpu=64_000, memory=256 * GIB, pods=1),))
    hold = check_data_quality(
        cases(
            proposal=Proposal(cpu=ResourceTarget(500.0), strategy="test"), evidence=evidence, around=around
        )[0]
    )
    assert hold is not None
    assert why in hold.why


@pytest.mark.parametrize("target", [math.nan, math.inf, -math.inf, -1.0, 1e12])
def test_data_quality_rejects_implausible_target(target: float) -> None:
    assert (
        check_data_quality(cases(proposal=Proposal(cpu=ResourceTarget(target), strategy="test"))[0])
        is not None
    )


def test_data_quality_accepts_job_that_ran_yesterday() -> None:
    evidence = with_(WELL_KNOWN, last_sample_at=NOW - DAY, is_long_running=False)
    assert sized(500, 500 * MIB, evidence=evidence).no_change_reason is None


def test_data_quality_is_checked_for_each_resource() -> None:
    found = sized(cpu=500)
    assert found.resources == Resources(500, 2000, GIB, 2 * GIB)
    assert found.no_change_reason is None
    assert "memory held" in names(found)


# Floors


def test_short_history_allows_increase_only() -> None:
    young = with_(WELL_KNOWN, first_sample_at=NOW - 3600)
    assert sized(500, evidence=young).resources.cpu_request == 1000
    assert sized(1800, evidence=young).resources.cpu_request == 1800


def recommend_stabilized(
    target: float, *recent: float, hours: float = 24.0, has: Resources = HAS
) -> Recommendation:
    """Return the recommendation for this target after these maxima of the hours before."""
    return recommend_container(
        Container("app", "main", has),
        proposal=Proposal(cpu=ResourceTarget(target, recent=(target, *recent)), strategy="test"),
        evidence=WELL_KNOWN,
        rules=with_(FREE, stabilization=hours * HOUR),
        constraints=Constraints(qos_class="Burstable"),
        now=NOW,
    )


def test_stabilization_keeps_highest_recent_target_and_explains_it() -> None:
    found = recommend_stabilized(300, 350, 800, 400)
    assert found.resources.cpu_request == 800
    (line,) = (each for each in found.explanation if each.name == "cpu stabilization")
    assert line.detail == "300m -> 800m: the highest proposal of the last 24 h"
    assert line.source == "policy changes.stabilization"
    assert recommend_stabilized(300, 1800).resources.cpu_request == 1000, (
        "it is never made larger by what is past"
    )


@pytest.mark.parametrize(("hours", "gets"), [(0, 300), (0.5, 400), (1, 400), (1.5, 600), (24, 800)])
def test_stabilization_window_is_in_whole_clock_hours(hours: float, gets: int) -> None:
    assert recommend_stabilized(300, 400, 600, 800, hours=hours).resources.cpu_request == gets


def test_stabilization_is_left_to_a_strategy_that_covers_it() -> None:
    lasting = Proposal(cpu=ResourceTarget(300, recent=(300, 800), covers_stabilization=True), strategy="test")
    case = cases(proposal=lasting, asked=with_(FREE, stabilization=DAY))[0]
    assert requests.check_stabilization(case) is None
    restarting = with_(case, restarts_container=True)
    assert requests.check_stabilization(restarting) is not None, (
        "a forecast moves with its window, and pods restart for it"
    )
    assert lasting.cpu.raise_to_recent().target == 800, (
        "a consumer that applies every target gets the highest of the day"
    )


def test_stabilization_does_not_limit_growth() -> None:
    assert recommend_stabilized(1800, 300, 2500).resources.cpu_request == 1800


def test_stabilization_without_earlier_proposals_allows_decrease() -> None:
    assert recommend_stabilized(300, 0, 0).resources.cpu_request == 300


def test_low_coverage_forbids_decrease() -> None:
    assert sized(500, evidence=with_(WELL_KNOWN, coverage=0.4)).resources.cpu_request == 1000


def test_throttled_container_keeps_cpu_request_and_limit() -> None:
    throttled = with_(WELL_KNOWN, throttled_share=0.3)
    found = sized(500, evidence=throttled, asked=limit_rules(LimitMode.MULTIPLIER, multiplier=1.0))
    assert (found.resources.cpu_request, found.resources.cpu_limit) == (1000, 2000)
    assert "cpu throttling" in names(found)


def test_memory_request_stays_above_recent_peak_with_headroom() -> None:
    found = sized(memory=100 * MIB, evidence=with_(WELL_KNOWN, memory_peak=500 * MIB))
    assert found.resources.memory_request == 550 * MIB
    assert (
        sized(memory=100 * MIB, evidence=with_(WELL_KNOWN, memory_peak=None)).resources.memory_request == GIB
    )


def test_memory_limit_stays_above_recent_peak() -> None:
    evidence = with_(WELL_KNOWN, memory_peak=1536 * MIB)
    found = sized(memory=GIB, evidence=evidence, asked=limit_rules(LimitMode.MULTIPLIER, multiplier=1.0))
    assert found.resources.memory_limit == 1690 * MIB, "the peak and a tenth, in whole MiB"


@pytest.mark.parametrize(
    ("mode", "more"),
    [
        (LimitMode.KEEP_RATIO, {}),
        (LimitMode.MULTIPLIER, {"multiplier": 2.0}),
        (LimitMode.HEADROOM, {"headroom": 10}),
    ],
)
def test_cpu_limit_stays_above_the_peak_of_a_week(mode: LimitMode, more: dict[str, float]) -> None:
    """Cassandra: 500m became 135m, although it had used 314m for five minutes that week."""
    has, asked = Resources(500, 500, GIB, 2 * GIB), limit_rules(mode, **more)
    evidence = with_(WELL_KNOWN, cpu_peak=200, cpu_peak_week=314)
    found = sized(60, has=has, evidence=evidence, asked=asked)
    assert found.resources.cpu_request == 60, "a peak bounds the limit, not the request"
    assert found.resources.cpu_limit == 380
    assert "recent peak of 314m plus 20%" in found.text


def test_cpu_limit_may_be_below_peak_if_the_policy_allows_it() -> None:
    spec: dict[str, Any] = {"updateStrategy": {"updateRequestsOnly": False}}
    evidence = with_(WELL_KNOWN, cpu_peak=314)
    has = Resources(500, 500, GIB, 2 * GIB)
    usual = sized(250, has=has, evidence=evidence, asked=rules(**spec))
    below = rules(**spec, limitPolicy={"cpu": {"allowBelowPeak": True}})
    assert usual.resources.cpu_limit == 380
    assert sized(250, has=has, evidence=evidence, asked=below).resources.cpu_limit == 250


def test_cpu_of_a_guaranteed_pod_stays_above_its_peak() -> None:
    has = Resources(500, 500, GIB, GIB)
    evidence = with_(WELL_KNOWN, cpu_peak=314)
    found = sized(100, has=has, evidence=evidence, asked=limit_rules(LimitMode.KEEP_RATIO))
    assert (found.resources.cpu_request, found.resources.cpu_limit) == (380, 380)


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(
            samples=12, first_sample_at=NOW - 720, last_sample_at=NOW, memory_peak=60 * MIB, cpu_peak=50
        ),
        with_(WELL_KNOWN, coverage=0.4, memory_peak=500 * MIB),
    ],
    ids=["short history", "half of the samples missing"],
)
@pytest.mark.parametrize(
    ("mode", "more"),
    [(LimitMode.MULTIPLIER, {"multiplier": 1.5}), (LimitMode.HEADROOM, {"headroom": 10 * MIB})],
)
def test_first_limit_waits_for_sufficient_evidence(
    evidence: Evidence, mode: LimitMode, more: dict[str, float]
) -> None:
    """A limit for a container without one is a decrease: it was set after ten samples, and killed in the morning."""
    has = Resources(100, None, 64 * MIB, None)
    found = sized(100, 72.0 * MIB, has=has, evidence=evidence, asked=limit_rules(mode, **more))
    assert (found.resources.cpu_limit, found.resources.memory_limit) == (None, None)
    assert found.resources.memory_request == 72 * MIB, "more is given at once"
    assert "memory limit policy: stays at none: " in found.text
    known = sized(100, 72.0 * MIB, has=has, evidence=WELL_KNOWN, asked=limit_rules(mode, **more))
    assert known.resources.memory_limit is not None
    assert known.resources.memory_limit >= 220 * MIB


def test_first_limit_that_waits_keeps_the_namespace_default() -> None:
    """Until then new pods are given the LimitRange's default, and a request above it would not be admitted."""
    short = with_(WELL_KNOWN, first_sample_at=NOW - HOUR)
    around = Constraints(
        qos_class="Burstable", ranges=AllowedRanges(container_memory=AllowedRange(default=100 * MIB))
    )
    found = sized(
        memory=200 * MIB,
        has=Resources(100, None, 64 * MIB, None),
        evidence=short,
        asked=limit_rules(LimitMode.MULTIPLIER, multiplier=2.0),
        around=around,
    )
    assert (found.resources.memory_request, found.resources.memory_limit) == (100 * MIB, None)


def test_limit_ignores_small_changes_of_the_peak_and_rises_with_it() -> None:
    """It followed every decrease of the peak by bytes and never increased."""
    asked = with_(limit_rules(LimitMode.MULTIPLIER, multiplier=1.0), minimum_change=0.11)
    has, limits_seen = Resources(100, None, 300 * MIB, 350 * MIB), []
    for peak in (305.0, 304.2, 304.9, 303.1, 305.5, 302.9, 290.0, 305.0, 289.0, 312.0, 370.0, 365.0, 250.0):
        evidence = with_(WELL_KNOWN, memory_peak=int(peak * MIB))
        has = sized(memory=300 * MIB, has=has, evidence=evidence, asked=asked).resources
        limits_seen.append((has.memory_limit or 0) / MIB)
    assert limits_seen == [350.0] * 10 + [407.0] * 2 + [300.0]


def test_heap_floor_is_the_maximum_heap_with_overhead() -> None:
    java = with_(WELL_KNOWN, heap=Heap(600 * MIB, "-Xmx in args"))
    found = sized(memory=100 * MIB, evidence=java)
    assert found.resources.memory_request == 750 * MIB
    assert found.explanation[-1].source == "-Xmx in args"
    small = evidence_module.check_heap(
        cases(evidence=with_(WELL_KNOWN, heap=Heap(64 * MIB, "GOMEMLIMIT")))[1]
    )
    assert small is not None
    assert small.amount == 128 * MIB


def recommend_autoscaled(highest: float | None, container: str | None = None) -> Constraints:
    scaler = AutoscalerConstraint(
        name="web", resource="cpu", target=0.8, highest_seen=highest, container=container
    )
    return Constraints(qos_class="Burstable", autoscalers=(scaler,))


def test_hpa_floor_stops_decrease_at_the_utilization_target() -> None:
    assert sized(cpu=100, around=recommend_autoscaled(0.4)).resources.cpu_request == 500
    assert sized(cpu=100, around=recommend_autoscaled(0.8)).resources.cpu_request == 1000
    assert sized(cpu=100, around=recommend_autoscaled(None)).resources.cpu_request == 1000
    assert sized(cpu=100, around=recommend_autoscaled(0.4, container="sidecar")).resources.cpu_request == 100
    busy_by_day = with_(WELL_KNOWN, cpu_peak=600)
    assert sized(cpu=100, evidence=busy_by_day, around=recommend_autoscaled(0.1)).resources.cpu_request == 750


def test_hpa_floor_ignores_other_resources() -> None:
    assert sized(memory=500 * MIB, around=recommend_autoscaled(0.9)).resources.memory_request == 500 * MIB


def test_hpa_hold_mode_keeps_the_scaled_resource() -> None:
    found = sized(100, 500 * MIB, asked=with_(FREE, hpa_mode=HpaMode.HOLD), around=recommend_autoscaled(0.1))
    assert found.resources == Resources(1000, 2000, 500 * MIB, 2 * GIB)
    assert "cpu held" in names(found)


def test_bounds_do_not_lower_a_request_below_the_hpa_floor() -> None:
    asked = with_(FREE, cpu=with_(FREE.cpu, max_request=300))
    found = sized(cpu=100, asked=asked, around=recommend_autoscaled(0.4))
    assert found.resources.cpu_request == 1000
    assert found.no_change_reason is not None


# Changes


def test_deadband_keeps_request_within_the_plausible_range() -> None:
    case, _ = cases(proposal=Proposal(cpu=ResourceTarget(700.0, 500.0, 1200.0), strategy="test"))
    assert requests.apply_deadband(700, case) == GuardStep(
        1000, "the current request is within the range of the strategy, 500m to 1200m", "strategy"
    )


def test_minimum_change_skips_small_changes_by_share_and_amount() -> None:
    case, _ = cases(asked=with_(FREE, minimum_change=0.25))
    assert requests.apply_minimum_change(801, case) is not None
    assert requests.apply_minimum_change(800, case) is None
    restarting = with_(case, restarts_container=True)
    assert requests.apply_minimum_change(763, restarting) is not None, "a restart must be worth more"
    assert requests.apply_minimum_change(761, restarting) is None
    tiny, _ = cases(asked=with_(FREE, cpu=with_(FREE.cpu, min_change=5)), has=Resources(10))
    assert requests.apply_minimum_change(6, tiny) is not None
    assert requests.apply_minimum_change(5, tiny) is None


def test_largest_step_limits_increase_and_decrease() -> None:
    asked = rules()
    assert asked.memory.max_decrease < asked.memory.max_increase
    cpu, memory = cases(asked=asked)
    assert requests.apply_largest_step(1, cpu) == GuardStep(
        500, "one change removes at most 50%", "policy changes.cpu"
    )
    assert requests.apply_largest_step(9000, cpu) == GuardStep(
        3000, "one change adds at most 200%", "policy changes.cpu"
    )
    shrunk = requests.apply_largest_step(1, memory)
    assert shrunk is not None
    assert shrunk.amount == math.ceil(GIB * 0.7)


@pytest.mark.parametrize(
    ("has", "changes"),
    [
        (Resources(10), {"cpu": {"increase": 0.25}}),  # a step of 2m, where 5m are worth a change
        (Resources(1000), {"cpu": {"increase": 0.05}}),  # one of a twentieth, where a tenth is
        (Resources(1), {"cpu": {"increase": 0.5}}),  # half of 1m
        (Resources(None, None, 32 * MIB), {"memory": {"increase": 0.1}}),
    ],
)
def test_largest_step_allows_small_increases_to_reach_the_target(
    has: Resources, changes: dict[str, Any]
) -> None:
    asked = rules(
        changes={"minimum": 0.1, **changes},
        resourceBounds={"cpu": {"min": "1m"}, "memory": {"min": "1Mi"}},
    )
    for _ in range(200):
        found = sized(5000, GIB, has=has, asked=asked, around=Constraints(qos_class="Burstable")).resources
        if found == has:
            break
        has = found
    assert (has.cpu_request or 0) >= 5000 * 0.9
    assert (has.memory_request or 0) >= GIB * 0.9


@pytest.mark.parametrize(
    ("has", "changes"),
    [
        (Resources(5000), {"cpu": {"decrease": 0.02}}),  # less than what is rounded by
        (Resources(40), {"cpu": {"decrease": 0.01}}),  # less than 1m
        (Resources(None, None, 400 * MIB), {"memory": {"decrease": 0.002}}),  # less than 1 MiB
    ],
)
def test_largest_step_allows_small_decreases_to_reach_the_target(
    has: Resources, changes: dict[str, Any]
) -> None:
    asked = rules(
        changes={"minimum": 0.1, **changes},
        resourceBounds={"cpu": {"min": "1m"}, "memory": {"min": "1Mi"}},
    )
    for _ in range(400):
        found = sized(
            20, 300 * MIB, has=has, asked=asked, around=Constraints(qos_class="Burstable")
        ).resources
        if found == has:
            break
        has = found
    assert (has.cpu_request or 0) <= 26
    assert (has.memory_request or 0) <= 335 * MIB


@given(amount=st.integers(1, 10**6))
def test_rounding_stays_at_or_slightly_above_the_amount(amount: int) -> None:
    rounded = round_up("cpu", amount)
    assert amount <= rounded <= amount * 1.05
    assert rounded == amount or amount >= 100
    assert round_up("cpu", rounded) == rounded
    assert amount <= round_up("memory", amount) < amount + MIB


def test_rounding_returns_readable_numbers() -> None:
    assert [round_up("cpu", amount) for amount in (7, 99, 101, 201, 999, 1001, 2345, 12345)] == [
        7, 99, 105, 210, 1000, 1050, 2400, 12500,
    ]  # fmt: skip
    assert round_up("memory", 100 * MIB + 1) == 101 * MIB


# OOM kills


def kills(*with_memory: int) -> tuple[OomKills, ...]:
    """A kill at each of these sizes, a minute apart, the last a minute ago."""
    return tuple(
        killed(NOW - 60 * (len(with_memory) - place), memory) for place, memory in enumerate(with_memory)
    )


UNLIMITED = Resources(1000, None, GIB, None)


def test_oom_kill_raises_memory_above_the_killed_size() -> None:
    case = cases(has=UNLIMITED, evidence=with_(WELL_KNOWN, kills=kills(GIB)))[1]
    assert raise_after_kills(GIB, case) == GuardStep(
        math.ceil(GIB * 1.2), "OOM killed with 1024Mi", "OOM kills"
    )
    tiny = with_(UNLIMITED, memory_request=64 * MIB)
    small = cases(has=tiny, evidence=with_(WELL_KNOWN, kills=kills(64 * MIB)))[1]
    assert raise_after_kills(MIB, small) == GuardStep(164 * MIB, "OOM killed with 64Mi", "OOM kills")


@pytest.mark.parametrize(
    ("mode", "more", "asks"),
    [
        (LimitMode.KEEP_RATIO, {}, 121),
        (LimitMode.MULTIPLIER, {"multiplier": 10.0}, 123),
        (LimitMode.HEADROOM, {"headroom": 900 * MIB}, 329),
        (LimitMode.REMOVE, {}, 100),
    ],
)
def test_oom_kill_raises_the_limit_and_the_request_along_with_it(
    mode: LimitMode, more: dict[str, float], asks: int
) -> None:
    has = with_(HAS, memory_request=100 * MIB, memory_limit=GIB)
    asked = with_(FREE, memory=with_(FREE.memory, limit=mode, **more))
    dead = with_(WELL_KNOWN, kills=kills(GIB))
    after = sized(memory=100 * MIB, has=has, evidence=dead, asked=asked).resources
    assert after.memory_request == asks * MIB
    assert GIB * 1.2 <= (after.memory_limit or 0) <= GIB * 1.22


@pytest.mark.parametrize("days", [0, 1, 7.9])
def test_oom_kill_forbids_decrease_during_the_learning_history(days: float) -> None:
    answered = with_(HAS, memory_request=121 * MIB, memory_limit=1240 * MIB)
    asked = limit_rules(LimitMode.KEEP_RATIO)
    seen = with_(WELL_KNOWN, kills=(killed(NOW - days * DAY, GIB),), memory_peak=MIB)
    found = sized(memory=20 * MIB, has=answered, evidence=seen, asked=asked)
    assert found.resources == answered
    assert "memory recovery" in names(found)


def test_oom_kill_older_than_the_learning_history_allows_decrease() -> None:
    answered = with_(HAS, memory_request=121 * MIB, memory_limit=1240 * MIB)
    asked = limit_rules(LimitMode.KEEP_RATIO)
    over = with_(WELL_KNOWN, kills=(killed(NOW - 8.1 * DAY, GIB),), memory_peak=MIB)
    lower = sized(memory=20 * MIB, has=answered, evidence=over, asked=asked).resources.memory_request
    assert lower == 20 * MIB


@pytest.mark.parametrize("mode", [mode for mode in LimitMode if mode is not LimitMode.KEEP])
def test_oom_kill_raises_the_request_to_the_limit_range_ratio(mode: LimitMode) -> None:
    has = with_(HAS, memory_request=512 * MIB, memory_limit=GIB)
    around = Constraints(
        qos_class="Burstable", ranges=AllowedRanges(container_memory=AllowedRange(ratio=2.0))
    )
    asked, dead = limit_rules(mode, multiplier=3.0, headroom=GIB), with_(WELL_KNOWN, kills=kills(GIB))
    after = sized(memory=512 * MIB, has=has, evidence=dead, asked=asked, around=around).resources
    assert after.memory_request == 615 * MIB
    assert GIB * 1.2 <= (after.memory_limit or 0) <= GIB * 1.21


@pytest.mark.parametrize(
    ("mode", "more"), [(LimitMode.MULTIPLIER, {"multiplier": 2.0}), (LimitMode.HEADROOM, {"headroom": MIB})]
)
def test_oom_kill_keeps_a_manually_raised_limit_above_the_killed_size(
    mode: LimitMode, more: dict[str, float]
) -> None:
    raised = with_(HAS, memory_request=100 * MIB, memory_limit=4 * GIB)
    quick = with_(WELL_KNOWN, kills=kills(GIB), memory_peak=100 * MIB)
    found = sized(memory=100 * MIB, has=raised, evidence=quick, asked=limit_rules(mode, **more)).resources
    assert found.memory_request == 100 * MIB
    assert GIB * 1.2 <= (found.memory_limit or 0) < GIB * 1.21


def test_oom_kill_raises_a_limit_before_it_is_removed() -> None:
    asked, dead = limit_rules(LimitMode.REMOVE), with_(WELL_KNOWN, kills=kills(2 * GIB))
    raised = sized(memory=GIB, evidence=dead, asked=asked).resources
    assert raised == with_(HAS, memory_limit=2458 * MIB)
    assert sized(memory=GIB, has=raised, evidence=dead, asked=asked).resources.memory_limit is None
    coarse = with_(asked, minimum_change=0.5)
    assert sized(memory=GIB, evidence=dead, asked=coarse).resources == raised, "no raise is too small"
    gone = with_(raised, memory_limit=None)
    assert sized(memory=GIB, has=gone, evidence=dead, asked=asked).resources.memory_request == GIB


@pytest.mark.parametrize("mode", list(LimitMode))
def test_oom_kill_without_limit_raises_the_request_in_every_limit_mode(mode: LimitMode) -> None:
    """The node ran short, and who uses more than it requested goes first."""
    asked = limit_rules(mode, multiplier=2.0)
    for evidence in (with_(WELL_KNOWN, kills=kills(GIB)), Evidence(kills=kills(GIB))):
        found = sized(memory=GIB, has=UNLIMITED, evidence=evidence, asked=asked)
        assert found.resources.memory_request == 1229 * MIB


@pytest.mark.parametrize("mode", list(LimitMode))
def test_oom_kill_with_zero_limit_is_handled(mode: LimitMode) -> None:
    """Kubernetes admits it, and kubelets set none."""
    nothing = with_(HAS, memory_request=0, memory_limit=0)
    asked = limit_rules(mode, multiplier=2.0)
    found = sized(memory=GIB, has=nothing, evidence=with_(WELL_KNOWN, kills=kills(GIB)), asked=asked)
    assert found.no_change_reason or found.resources != nothing


def test_oom_kill_raises_a_limit_without_a_request() -> None:
    bare = with_(HAS, memory_request=0, memory_limit=GIB)
    found = sized(
        memory=100 * MIB,
        has=bare,
        evidence=with_(WELL_KNOWN, kills=kills(GIB)),
        asked=limit_rules(LimitMode.KEEP_RATIO),
    )
    assert GIB * 1.2 <= (found.resources.memory_limit or 0) <= GIB * 1.22


def test_oom_kill_passes_the_data_quality_check() -> None:
    for mode in (LimitMode.KEEP_RATIO, LimitMode.REMOVE):
        found = sized(evidence=Evidence(kills=kills(2 * GIB)), asked=limit_rules(mode), memory=math.nan)
        assert 2.4 * GIB <= (found.resources.memory_limit or 0) < 2.5 * GIB
        assert found.resources.cpu_request == 1000


def test_oom_kill_in_guaranteed_pod_raises_request_and_limit_equally() -> None:
    has = Resources(1000, 1000, GIB, GIB)
    for mode, more in ((LimitMode.KEEP_RATIO, {}), (LimitMode.MULTIPLIER, {"multiplier": 2.0})):
        asked = limit_rules(mode, **more)
        after = sized(
            memory=GIB, has=has, evidence=with_(WELL_KNOWN, kills=kills(GIB)), asked=asked
        ).resources
        assert after.memory_request == after.memory_limit == 1229 * MIB


def test_oom_kill_of_excluded_container_names_the_remedy() -> None:
    alone = rules(containers=[{"name": "app", "controlledResources": ["cpu"]}])
    found = sized(1000, GIB, has=UNLIMITED, asked=alone, evidence=with_(WELL_KNOWN, kills=kills(GIB)))
    assert found.resources == UNLIMITED
    assert (
        found.no_change_reason
        == "memory: OOM killed with 1024Mi, and the policy excludes it: raise it by hand"
    )


def test_oom_kill_raises_the_limit_that_a_policy_does_not_mention() -> None:
    for evidence in (with_(WELL_KNOWN, kills=kills(2 * GIB)), Evidence(kills=kills(2 * GIB))):
        found = sized(memory=GIB, evidence=evidence, asked=rules())
        assert 2.4 * GIB <= (found.resources.memory_limit or 0) < 2.5 * GIB
        assert found.resources.cpu_limit == HAS.cpu_limit
        assert "the container was OOM killed at its limit" in found.text
        again = sized(memory=GIB, evidence=evidence, asked=rules(), has=found.resources)
        assert again.resources == found.resources, "what it got is kept"


def test_oom_kill_raises_a_kept_limit_and_the_request_of_a_guaranteed_pod() -> None:
    has = Resources(1000, 1000, GIB, GIB)
    after = sized(memory=GIB, has=has, evidence=with_(WELL_KNOWN, kills=kills(GIB)), asked=rules()).resources
    assert after == with_(has, memory_request=1229 * MIB, memory_limit=1229 * MIB)


@pytest.mark.parametrize(
    ("spec", "around", "most"),
    [
        ({"memory": {"max": "2200Mi"}}, {}, 2200 * MIB),
        ({"memory": {"max": "1Gi"}}, {}, 2 * GIB),
        ({}, {"nodes": (NodeResources(cpu=64_000, memory=2200 * MIB, pods=9),)}, 2200 * MIB),
        ({}, {"nodes": (NodeResources(cpu=64_000, memory=GIB, pods=9),)}, 2 * GIB),
        ({}, {"ranges": AllowedRanges(container_memory=AllowedRange(max=2200 * MIB))}, 2200 * MIB),
        ({}, {"ranges": AllowedRanges(container_memory=AllowedRange(ratio=2.0))}, 2458 * MIB),
        ({}, {"quota": Resources(None, None, None, 400 * MIB), "replicas": 2}, 2248 * MIB),
        ({}, {"quota": Resources(None, None, None, 0)}, 2 * GIB),
    ],
)
def test_oom_kill_raises_a_kept_limit_within_bounds(
    spec: dict[str, Any], around: dict[str, Any], most: int
) -> None:
    found = sized(
        memory=GIB,
        evidence=with_(WELL_KNOWN, kills=kills(2 * GIB)),
        asked=rules(resourceBounds=spec),
        around=Constraints(qos_class="Burstable", **around),
    )
    assert found.resources.memory_limit == most
    assert (found.resources.memory_request or 0) <= most
    if most == 2 * GIB:
        assert "bounds, quota or nodes allow no more" in (found.no_change_reason or "")


def test_leak_does_not_raise_a_kept_limit() -> None:
    asked = rules(resourceBounds={"memory": {"max": "64Gi"}})
    evidence = with_(WELL_KNOWN, kills=kills(GIB // 2, GIB, GIB * 3 // 2, 2 * GIB))
    found = sized(memory=GIB, evidence=evidence, asked=asked)
    assert found.resources.memory_limit == HAS.memory_limit
    assert "leak" in found.text


def test_oom_kill_at_kept_limit_is_explained() -> None:
    keep = {"mode": "Keep"}
    kept = rules(limitPolicy={"cpu": keep, "memory": keep})
    for evidence in (with_(WELL_KNOWN, kills=kills(2 * GIB)), Evidence(kills=kills(2 * GIB))):
        found = sized(memory=GIB, evidence=evidence, asked=kept)
        assert found.resources == HAS
        assert "let limits follow by updateStrategy.updateRequestsOnly: false" in (
            found.no_change_reason or ""
        )
    more = sized(memory=3 * GIB, evidence=with_(WELL_KNOWN, kills=kills(2 * GIB)))
    assert more.resources.memory_request == 2 * GIB, "what its usage asks for it gets"


def test_repeated_oom_kills_after_raises_are_a_leak() -> None:
    ceiling = with_(FREE, memory=with_(FREE.memory, max_request=64 * GIB))
    four = with_(WELL_KNOWN, kills=kills(GIB, 2 * GIB, 3 * GIB, 4 * GIB))
    leak = cases(has=UNLIMITED, evidence=four, asked=ceiling)[1]
    held = raise_after_kills(GIB, leak)
    assert isinstance(held, NoChange)
    assert "leak" in held.why
    same = with_(WELL_KNOWN, kills=kills(GIB, GIB, GIB, GIB, GIB))
    loop = cases(has=UNLIMITED, evidence=same, asked=ceiling)[1]
    assert isinstance(raise_after_kills(GIB, loop), GuardStep)


def test_oom_kill_without_ceiling_raises_memory_once() -> None:
    twice = with_(WELL_KNOWN, kills=kills(GIB, 2 * GIB))
    held = raise_after_kills(GIB, cases(has=UNLIMITED, evidence=twice)[1])
    assert isinstance(held, NoChange)
    assert "resourceBounds.memory.max" in held.why
    node = Constraints(nodes=(NodeResources(cpu=64_000, memory=256 * GIB, pods=1),))
    assert isinstance(raise_after_kills(GIB, cases(has=UNLIMITED, evidence=twice, around=node)[1]), GuardStep)


def test_leak_is_kept_whatever_the_strategy_proposes() -> None:
    ceiling = with_(FREE, memory=with_(FREE.memory, max_request=64 * GIB))
    leak = with_(WELL_KNOWN, kills=kills(GIB, 2 * GIB, 3 * GIB, 4 * GIB))
    plenty = with_(UNLIMITED, memory_request=8 * GIB)
    assert "leak" in (sized(memory=9 * GIB, has=plenty, evidence=leak, asked=ceiling).no_change_reason or "")
    assert sized(memory=4 * GIB, has=plenty, evidence=leak, asked=ceiling).resources == plenty


def test_oom_kill_after_decrease_restores_the_earlier_memory() -> None:
    cut = with_(HAS, memory_request=250 * MIB, memory_limit=250 * MIB)
    seen = with_(WELL_KNOWN, kills=kills(250 * MIB), recent_memory=GIB, earlier_memory=GIB)
    found = sized(memory=200 * MIB, has=cut, evidence=seen, asked=limit_rules(LimitMode.KEEP_RATIO))
    assert (found.resources.memory_request, found.resources.memory_limit) == (GIB, GIB)
    assert "had 1024Mi before" in found.text


def test_second_oom_kill_restores_memory_of_the_last_month() -> None:
    """It was cut weeks ago; its month's end needs what it had then."""
    cut = with_(HAS, memory_request=720 * MIB, memory_limit=720 * MIB)
    asked = limit_rules(LimitMode.KEEP_RATIO)
    climbed = kills(420 * MIB, 500 * MIB, 600 * MIB, 720 * MIB)
    seen = with_(WELL_KNOWN, kills=climbed, recent_memory=720 * MIB, earlier_memory=GIB)
    assert sized(memory=200 * MIB, has=cut, evidence=seen, asked=asked).resources.memory_limit == GIB
    once = with_(seen, kills=kills(720 * MIB))
    least = sized(memory=200 * MIB, has=cut, evidence=once, asked=asked).resources.memory_limit
    assert least == 864 * MIB, "a month ago may have been far too much"


def test_oom_kill_at_the_largest_earlier_size_raises_memory_above_it() -> None:
    has = with_(HAS, memory_request=GIB, memory_limit=GIB)
    seen = with_(WELL_KNOWN, kills=kills(GIB), recent_memory=GIB, earlier_memory=GIB)
    found = sized(memory=200 * MIB, has=has, evidence=seen, asked=limit_rules(LimitMode.KEEP_RATIO))
    assert found.resources.memory_limit == 1229 * MIB


# Caps


def test_node_capacity_caps_the_pod_with_its_other_containers() -> None:
    around = Constraints(
        qos_class="Burstable",
        nodes=(NodeResources(cpu=4000, memory=8 * GIB, pods=1),),
        other_containers=Resources(1500, 0, 0, 0),
    )
    assert sized(cpu=9000, has=Resources(1000), around=around).resources.cpu_request == 2500
    assert sized(cpu=9000, has=Resources(3000), around=around).resources.cpu_request == 3000


def test_node_capacity_uses_cpu_and_memory_of_the_same_node() -> None:
    node_resources = (
        NodeResources(cpu=64_000, memory=128 * GIB, pods=1),
        NodeResources(cpu=16_000, memory=512 * GIB, pods=1),
    )
    around = Constraints(qos_class="Burstable", nodes=node_resources)
    much = Resources(10_000, None, 100 * GIB)
    found = sized(cpu=60_000, memory=500 * GIB, has=much, around=around).resources
    assert (found.cpu_request, found.memory_request) == (60_000, 128 * GIB)
    large = with_(much, memory_request=200 * GIB)
    found = sized(cpu=60_000, memory=500 * GIB, has=large, around=around).resources
    assert (found.cpu_request, found.memory_request) == (16_000, 500 * GIB)


def test_quota_caps_growth() -> None:
    around = Constraints(qos_class="Burstable", quota=Resources(500, None, None, None), replicas=5)
    found = sized(cpu=1500, around=around)
    assert found.resources.cpu_request == 1100
    assert found.explanation[-2].source == "ResourceQuota"
    assert sized(cpu=500, around=around).resources.cpu_request == 500


def test_limit_range_bounds_containers_and_pods() -> None:
    mine = Constraints(
        qos_class="Burstable", ranges=AllowedRanges(container_cpu=AllowedRange(min=200, max=2000))
    )
    assert sized(cpu=50, around=mine).resources.cpu_request == 200
    assert sized(cpu=9000, around=mine, has=Resources(1000)).resources.cpu_request == 2000
    pod = Constraints(
        qos_class="Burstable",
        ranges=AllowedRanges(pod_cpu=AllowedRange(max=3000)),
        other_containers=Resources(1200, 0, 0, 0),
    )
    assert sized(cpu=9000, around=pod, has=Resources(1000)).resources.cpu_request == 1800


def test_conflicting_constraints_prevent_changes() -> None:
    asked = with_(FREE, cpu=ResourceRules(min_request=500))
    around = Constraints(qos_class="Burstable", ranges=AllowedRanges(container_cpu=AllowedRange(max=300)))
    found = sized(cpu=100, has=Resources(200), asked=asked, around=around)
    assert found.resources.cpu_request == 200
    assert found.no_change_reason is not None
    assert "at least 500m" in found.no_change_reason


# Limits


@pytest.mark.parametrize(
    ("mode", "more", "has", "expected"),
    [
        (LimitMode.KEEP, {}, Resources(1000, 2000), Resources(500, 2000)),
        (LimitMode.KEEP_RATIO, {}, Resources(1000, 2000), Resources(500, 1000)),
        (LimitMode.KEEP_RATIO, {}, Resources(1000, None), Resources(500, None)),
        (LimitMode.KEEP_RATIO, {}, Resources(None, 1000), Resources(500, 500)),
        (LimitMode.MULTIPLIER, {"multiplier": 1.5}, Resources(1000, None), Resources(500, 750)),
        (LimitMode.HEADROOM, {"headroom": 100}, Resources(1000, 2000), Resources(500, 600)),
        (LimitMode.REMOVE, {}, Resources(1000, 2000), Resources(500, None)),
    ],
)
def test_limits_follow_as_the_policy_says(
    mode: LimitMode, more: dict[str, float], has: Resources, expected: Resources
) -> None:
    assert sized(cpu=500, has=has, asked=limit_rules(mode, **more)).resources == expected


def test_kept_limit_caps_the_request() -> None:
    assert sized(cpu=5000).resources == Resources(2000, 2000, GIB, 2 * GIB)


def test_limit_with_a_namespace_default_is_not_removed() -> None:
    asked = limit_rules(LimitMode.REMOVE)
    for around in (
        Constraints(qos_class="Burstable", ranges=AllowedRanges(container_cpu=AllowedRange(default=3000))),
        Constraints(qos_class="Burstable", quota=Resources(None, 10_000, None, None)),
    ):
        assert sized(cpu=500, asked=asked, around=around).resources.cpu_limit == 2000


def test_limit_stays_within_the_limit_range_ratio() -> None:
    around = Constraints(qos_class="Burstable", ranges=AllowedRanges(container_cpu=AllowedRange(ratio=3.0)))
    assert sized(cpu=500, around=around).resources.cpu_request == 670
    follows = sized(cpu=500, asked=limit_rules(LimitMode.MULTIPLIER, multiplier=5.0), around=around)
    assert (follows.resources.cpu_request, follows.resources.cpu_limit) == (500, 1500)


def test_limit_with_a_small_difference_is_kept() -> None:
    asked = with_(limit_rules(LimitMode.MULTIPLIER, multiplier=2.1), minimum_change=0.1)
    assert limits.follow_policy(RequestLimitPair(1000, 2000), cases(asked=asked)[0]) is None


# QoS classes

GUARANTEED = Resources(1000, 1000, GIB, GIB)


def test_guaranteed_pod_with_kept_limits_keeps_its_requests() -> None:
    found = sized(500, 500 * MIB, has=GUARANTEED)
    assert found.resources == GUARANTEED
    assert found.no_change_reason is not None
    assert "Guaranteed" in found.no_change_reason


@pytest.mark.parametrize("mode", [LimitMode.KEEP_RATIO, LimitMode.REMOVE, LimitMode.MULTIPLIER])
def test_guaranteed_pod_stays_guaranteed_in_every_limit_mode(mode: LimitMode) -> None:
    found = sized(500, 500 * MIB, has=GUARANTEED, asked=limit_rules(mode, multiplier=2.0))
    assert found.resources == Resources(500, 500, 500 * MIB, 500 * MIB)


def test_best_effort_pod_gets_requests_only_without_keep_qos() -> None:
    found = sized(500, 500 * MIB, has=Resources())
    assert found.resources == Resources()
    assert "BestEffort" in str(found.no_change_reason)
    asked = with_(FREE, keep_qos=False)
    assert sized(500, 500 * MIB, has=Resources(), asked=asked).resources == Resources(
        500, None, 500 * MIB, None
    )


def test_container_without_requests_in_burstable_pod_gets_them() -> None:
    found = sized(500, 500 * MIB, has=Resources(), around=Constraints(qos_class="Burstable"))
    assert found.resources == Resources(500, None, 500 * MIB, None)


def test_burstable_pod_does_not_become_guaranteed() -> None:
    found = sized(5000, 5 * GIB)
    assert found.resources == Resources(1999, 2000, 2 * GIB, 2 * GIB)
    assert names(found)[-1] == "cpu QoS"


# The pod


def test_containers_of_a_pod_share_the_remaining_quota() -> None:
    pod = [Container("a", "main", Resources(1000)), Container("b", "sidecar", Resources(1000))]
    asks = {one.name: Proposal(cpu=ResourceTarget(2000.0), strategy="test") for one in pod}
    found = recommend_pod(
        pod,
        proposals=asks,
        evidence=dict.fromkeys(asks, WELL_KNOWN),
        rules=FREE,
        constraints=Constraints(quota=Resources(1500, None, None, None)),
        now=NOW,
    )
    assert [one.resources.cpu_request for one in found] == [2000, 1500]


def test_quota_already_counts_a_limit_without_request() -> None:
    first, second = recommend_pod(
        [Container("a", "main", Resources(None, 1000)), Container("b", "main", Resources(200))],
        proposals={"a": proposing(500), "b": proposing(400)},
        evidence={"a": WELL_KNOWN, "b": WELL_KNOWN},
        rules=FREE,
        constraints=Constraints(quota=Resources(cpu_request=300)),
        now=NOW,
    )
    assert (first.resources.cpu_request, second.resources.cpu_request) == (500, 400)


def test_limit_without_request_counts_as_request_of_other_containers() -> None:
    pod = [Container("a", "main", Resources(None, 1000)), Container("b", "main", Resources(200))]
    assert sum_other_containers(pod, "b") == Resources(1000, 1000, 0, 0)


def test_container_without_evidence_is_not_changed() -> None:
    (found,) = recommend_pod(
        [Container("a", "main", Resources(1000))],
        proposals={},
        evidence={},
        rules=FREE,
        constraints=Constraints(),
        now=NOW,
    )
    assert found.no_change_reason == "cpu and memory: 0 samples, 10 are needed"


# The text


def test_explanation_lists_steps_from_strategy_to_result() -> None:
    found = sized(
        237.3,
        evidence=with_(WELL_KNOWN, throttled_share=0.0),
        asked=rules(),
        around=recommend_autoscaled(0.3),
    )
    assert found.text.splitlines()[:3] == [
        "cpu strategy: 1000m -> 238m: the strategy asks for 76% less than is requested now [strategy test]",
        "cpu utilization: 238m -> 375m: keeps the HPA's utilization at or below 80% [HPA web]",
        "cpu largest step: 375m -> 500m: one change removes at most 50% [policy changes.cpu]",
    ]


@given(details=st.lists(st.text(max_size=900), max_size=60), held=st.none() | st.text(max_size=5000))
def test_explanation_text_is_shortened_in_the_middle(details: list[str], held: str | None) -> None:
    factors = tuple(Factor(f"f{place}", detail, "test") for place, detail in enumerate(details))
    text = Recommendation("app", Resources(), factors, held).text
    assert len(text) <= 4096
    if factors:
        assert text.startswith("f0: ")
    if held is not None:
        assert "held: " in text


def test_documented_explanation_example_is_current() -> None:
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "sizing.md").read_text()
    found = recommend_container(
        Container("web", "main", HAS),
        proposal=Proposal(cpu=ResourceTarget(237.3), memory=ResourceTarget(300.0 * MIB), strategy="trimtab"),
        evidence=with_(WELL_KNOWN, memory_peak=int(560.3 * MIB), heap=Heap(600 * MIB, "-Xmx in args")),
        rules=rules(updateStrategy={"updateRequestsOnly": False}),
        constraints=recommend_autoscaled(0.3),
        now=NOW,
    )
    assert f"```text\n{found.text}\n```" in page


def test_documentation_lists_every_guard() -> None:
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "sizing.md").read_text()
    sources = "".join(Path(str(module.__file__)).read_text() for module in (evidence_module, requests))
    floor_names = {
        *re.findall(r'(?:SafeMinimum|_build_request_floor)\(\s*"([\w ]+)"', sources),
        requests.UTILIZATION,
    }
    assert len(floor_names) == 11
    assert [name for name in sorted(floor_names) if f"| {name} |" not in page] == []
    tables: list[tuple[tuple[str, object], ...]] = [
        DEADBAND_GUARDS,
        MINIMUM_CHANGE_GUARDS,
        *REQUEST_GUARDS.values(),
        LIMIT_GUARDS,
    ]
    assert [name for table in tables for name, _ in table if name not in page] == []
