"""The status of a policy, for any outcome of its workloads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.builders.records import policy
from trimtab.api.fields import MAX_CONTAINERS, format_time
from trimtab.api.meta import Document
from trimtab.api.optimizationpolicy import MAX_LISTED_WORKLOADS, OptimizationPolicyStatus, WorkloadState
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.operator.policy.status import (
    MAX_EXPLAINED_CONTAINERS,
    MAX_LIST_BYTES,
    SkipReason,
    StatusContext,
    WorkloadOutcome,
    build_policy_status,
    find_new_problems,
)
from trimtab.operator.policy_matching import OverlapStats
from trimtab.sizing.recommendation import Factor, Recommendation, have_same_targets

MIB = 1 << 20
NOW = 1_800_000_000.0
LATER = NOW + 3600


def recommendation(
    cpu: int = 100, memory: int = 64, *, why: str = "seen", held: str | None = None
) -> Recommendation:
    resources = Resources(cpu, None, memory * MIB, None)
    return Recommendation("web", resources, (Factor("usage", why, "scripted"),), held)


def key(name: str = "web") -> WorkloadKey:
    return WorkloadKey("Deployment", "shop", name)


def status(
    outcomes: dict[WorkloadKey, WorkloadOutcome],
    *,
    before: Document | None = None,
    overlap: OverlapStats | None = None,
    problem: str = "",
    context: StatusContext | None = None,
    **spec: Any,
) -> Document:
    return build_policy_status(
        policy("p", **spec),
        outcomes,
        overlap=overlap or OverlapStats(),
        problem=problem,
        context=context or StatusContext(now=NOW, source="scripted"),
        before=before or {},
    )


def condition(found: Document, kind: str) -> Document:
    (one,) = [each for each in found["conditions"] if each["type"] == kind]
    return dict(one)


outcomes = st.builds(
    WorkloadOutcome,
    state=st.sampled_from(WorkloadState),
    reason=st.text(max_size=20),
    recommendations=st.lists(
        st.builds(recommendation, st.integers(1, 9999), st.integers(1, 9999)), max_size=1
    ).map(tuple),
    recommended_at=st.none() | st.floats(NOW, LATER),
    applied_at=st.none() | st.floats(NOW, LATER),
)
many = st.dictionaries(st.integers(0, 2000).map(lambda number: key(f"w{number}")), outcomes, max_size=9)


@settings(max_examples=100)
@given(many, st.sampled_from([0, 5, MAX_LISTED_WORKLOADS + 1]))
def test_policy_status_counts_all_and_lists_the_urgent_first(
    some: dict[WorkloadKey, WorkloadOutcome], more: int
) -> None:
    fine = WorkloadOutcome(WorkloadState.APPLIED, recommendations=(recommendation(),))
    found = {key(f"x{number}"): fine for number in range(more)} | some
    said = status(found)
    OptimizationPolicyStatus.model_validate(said)
    states = Counter(outcome.state for outcome in found.values())
    assert said["counts"] == {
        "monitored": len(found),
        "updated": states[WorkloadState.APPLIED],
        "skipped": states[WorkloadState.SKIPPED],
    }
    assert len(said["workloads"]) == min(len(found), MAX_LISTED_WORKLOADS)
    listed = Counter(entry["status"] for entry in said["workloads"])
    for state in (WorkloadState.FAILED, WorkloadState.REVERTED):
        assert listed[state.value] == states[state], "none of those is left out for one that is fine"


@settings(max_examples=100)
@given(many)
def test_policy_status_of_the_same_input_is_the_same(
    some: dict[WorkloadKey, WorkloadOutcome],
) -> None:
    first = status(some)
    assert status(some, before=first, context=StatusContext(now=LATER, source="scripted")) == first


def test_policy_status_stays_small_with_many_workloads() -> None:
    long = WorkloadOutcome(
        WorkloadState.SKIPPED, reason="because " * 2000, recommendations=(recommendation(why="why " * 500),)
    )
    said = status({key(f"w{number}"): long for number in range(10_000)})
    assert said["counts"]["monitored"] == 10_000
    assert said["workloads"]
    assert len(msgspec.json.encode(said["workloads"])) <= MAX_LIST_BYTES + MAX_LISTED_WORKLOADS, (
        "long reasons, so fewer than else"
    )
    assert all("explanation" not in each for entry in said["workloads"] for each in entry["recommendations"])
    few = status({key(f"w{number}"): long for number in range(MAX_EXPLAINED_CONTAINERS)})
    assert all("explanation" in each for entry in few["workloads"] for each in entry["recommendations"])
    OptimizationPolicyStatus.model_validate(few)


def test_policy_status_lists_as_many_containers_as_the_kind_allows() -> None:
    each = [Recommendation(f"c{number}", Resources(1, None, MIB, None), ()) for number in range(200)]
    said = status({key(): WorkloadOutcome(WorkloadState.RECOMMENDED, recommendations=tuple(each))})
    OptimizationPolicyStatus.model_validate(said)
    (entry,) = said["workloads"]
    assert [one["container"] for one in entry["recommendations"]] == [f"c{n}" for n in range(MAX_CONTAINERS)]


@pytest.mark.parametrize(
    ("spec", "problem", "expected"),
    [
        ({}, "", ("True", "PolicyValid")),
        ({"mode": "Disabled"}, "", ("False", "Disabled")),
        ({}, "spec.strategy: strategy 'luck' is not known", ("False", "PolicyInvalid")),
    ],
)
def test_policy_status_is_ready_when_acted_on(
    spec: dict[str, Any], problem: str, expected: tuple[str, str]
) -> None:
    ready = condition(status({}, problem=problem, **spec), "Ready")
    assert (ready["status"], ready["reason"]) == expected
    assert problem in ready["message"]


def test_policy_status_names_the_strategy_and_the_fields_that_it_ignores() -> None:
    said = status({}, metricsConfig={"percentile": "P95"}, strategy={"name": "vpa"})
    assert said["strategy"] == "vpa"
    ignored = condition(said, "FieldsIgnored")
    assert ignored["message"].startswith("spec.metricsConfig.percentile: the strategy vpa ignores it")
    fine = status({}, metricsConfig={"percentile": "P95"})
    assert fine["strategy"] == "percentile"
    assert "FieldsIgnored" not in {each["type"] for each in fine["conditions"]}


def test_status_reports_unreadable_usage_and_keeps_the_time_of_its_start() -> None:
    fine = status({})
    away = StatusContext(now=LATER, usage_error="no answer; is it running?", source="scripted")
    said = status({}, before=fine, context=away)
    trouble = condition(said, "MetricsAvailable")
    assert (trouble["status"], trouble["message"]) == ("False", "no answer; is it running?")
    assert trouble["lastTransitionTime"] == format_time(LATER)
    assert condition(said, "Ready")["lastTransitionTime"] == format_time(NOW)
    still = StatusContext(now=LATER + 60, usage_error="no answer yet", source="scripted")
    assert condition(status({}, before=said, context=still), "MetricsAvailable")[
        "lastTransitionTime"
    ] == format_time(LATER)


def test_status_says_since_when_usage_is_known() -> None:
    """A young Prometheus has less than the history that is asked for."""
    context = StatusContext(now=NOW, source="prometheus", first_sample_at=NOW - 7200)
    found_condition = condition(status({}, context=context), "MetricsAvailable")
    assert (found_condition["status"], found_condition["reason"]) == ("True", "UsageRead")
    assert (
        found_condition["message"] == f"Usage is read from prometheus, known since {format_time(NOW - 7200)}."
    )


def test_status_names_running_containers_without_samples_and_makes_an_event_of_it() -> None:
    names = tuple(f"shop/web-{number} app" for number in range(7))
    before = status({}, context=StatusContext(now=NOW, source="prometheus"))
    lacking = StatusContext(now=LATER, source="prometheus", unsampled=names)
    after = status({}, before=before, context=lacking)
    found_condition = condition(after, "MetricsAvailable")
    assert (found_condition["status"], found_condition["reason"]) == ("True", "SamplesMissing")
    assert "7 containers without samples in the last 15 minutes, not sized: " in found_condition["message"]
    assert "shop/web-4 app and 2 more. Check that their nodes are scraped." in found_condition["message"]
    assert [each["reason"] for each in find_new_problems(before, after)] == ["SamplesMissing"]


def test_status_names_what_the_operator_may_not_read_and_makes_an_event_of_it() -> None:
    before = status({})
    why = "daemonsets.apps: the server forbids it; grant list and watch on it"
    after = status({}, before=before, context=StatusContext(now=LATER, source="scripted", forbidden=(why,)))
    found_condition = condition(after, "PermissionsMissing")
    assert (found_condition["status"], found_condition["reason"]) == ("True", "ReadForbidden")
    assert why in found_condition["message"]
    assert [each["reason"] for each in find_new_problems(before, after)] == ["ReadForbidden"]


def test_policy_status_names_an_overlap_in_both_policies() -> None:
    heavy, light = policy("heavy", weight=500), policy("light")
    won, lost = OverlapStats(), OverlapStats()
    won.won_against[light] = lost.lost_to[heavy] = 3
    assert (
        "3 of its workloads are selected by trimtab-system/light too"
        in (condition(status({}, overlap=won), "Overlaps")["message"])
    )
    assert (
        "3 workloads selected by this policy: sized by trimtab-system/heavy"
        in (condition(status({}, overlap=lost), "Overlaps")["message"])
    )
    crowd = OverlapStats()
    for number in range(100):
        crowd.lost_to[policy(f"p{number}")] = number
    assert len(condition(status({}, overlap=crowd), "Overlaps")["message"]) < 1000


def test_policy_status_names_a_dry_run() -> None:
    dry = status({}, context=StatusContext(now=NOW, source="scripted", dry_run=True))
    assert condition(dry, "DryRun")["status"] == "True"
    assert all(each["type"] != "DryRun" for each in status({})["conditions"])


def test_status_keeps_the_time_of_a_recommendation_across_a_restart() -> None:
    said = status(
        {key(): WorkloadOutcome(WorkloadState.RECOMMENDED, "", (recommendation(),), recommended_at=NOW)}
    )
    again = WorkloadOutcome(
        WorkloadState.RECOMMENDED, "", (recommendation(why="more seen"),), recommended_at=LATER
    )
    (entry,) = status({key(): again}, before=said)["workloads"]
    assert entry["lastRecommendation"] == format_time(NOW)
    other = WorkloadOutcome(WorkloadState.RECOMMENDED, "", (recommendation(200),), recommended_at=LATER)
    (entry,) = status({key(): other}, before=said)["workloads"]
    assert entry["lastRecommendation"] == format_time(LATER)


def test_status_names_the_generation_that_it_is_about() -> None:
    first = status({})
    changed = msgspec.structs.replace(policy("p"), generation=7)
    said = build_policy_status(
        changed,
        {},
        overlap=OverlapStats(),
        problem="",
        context=StatusContext(now=LATER, source="scripted"),
        before=first,
    )
    assert (first["observedGeneration"], said["observedGeneration"]) == (policy("p").generation, 7)
    assert [each["observedGeneration"] for each in said["conditions"]] == [7] * len(said["conditions"])
    assert [each["lastTransitionTime"] for each in said["conditions"]] == [
        each["lastTransitionTime"] for each in first["conditions"]
    ]


def test_status_brings_the_time_of_a_recommendation_up_to_date_once_per_interval() -> None:
    def status_at(at: float, before: Document | None = None) -> Document:
        found = {
            key(name): WorkloadOutcome(
                WorkloadState.RECOMMENDED, "", (recommendation(),), recommended_at=at - late
            )
            for name, late in (("a", 0), ("b", 60))
        }
        return status(
            found, before=before, context=StatusContext(now=at, source="scripted", refresh_interval=300)
        )

    first = status_at(NOW)
    assert status_at(NOW + 299, first) == first
    again = status_at(NOW + 300, first)
    times = [entry["lastRecommendation"] for entry in again["workloads"]]
    assert times == [format_time(NOW + 300), format_time(NOW + 240)], "all with the same write"
    assert again["conditions"] == first["conditions"]


def test_policy_status_keeps_history_of_a_disabled_policy_over_a_restart() -> None:
    done = WorkloadOutcome(WorkloadState.APPLIED, "", (recommendation(),), recommended_at=NOW, applied_at=NOW)
    said = status({key(): done})
    stopped = WorkloadOutcome(WorkloadState.SKIPPED, "the mode is Disabled", skip_reason=SkipReason.DISABLED)
    (entry,) = status({key(): stopped}, before=said, mode="Disabled")["workloads"]
    assert entry["recommendations"] == said["workloads"][0]["recommendations"]
    assert entry["lastApplied"] == format_time(NOW)
    assert (entry["status"], entry["reason"]) == ("Skipped", "the mode is Disabled")


def test_status_has_the_target_and_the_next_step_where_it_takes_several() -> None:
    first = Resources(60, None, 64 * MIB, None)
    stepped = msgspec.structs.replace(
        recommendation(60), final_resources=Resources(180, None, 64 * MIB, None)
    )
    said = status({key(): WorkloadOutcome(WorkloadState.RECOMMENDED, recommendations=(stepped,))})
    OptimizationPolicyStatus.model_validate(said)
    (found,) = said["workloads"][0]["recommendations"]
    assert (found["cpu"], found["memory"]) == ("180m", "64Mi")
    assert found["nextStep"] == {"cpu": "60m", "memory": "64Mi"}
    assert stepped.resources == first
    assert not have_same_targets([stepped], [recommendation(60)]), "another target is another recommendation"
    (found,) = status(
        {key(): WorkloadOutcome(WorkloadState.RECOMMENDED, recommendations=(recommendation(180),))}
    )["workloads"][0]["recommendations"]
    assert (found["cpu"], "nextStep" in found) == ("180m", False)


def test_policy_status_ignores_changed_reasons() -> None:
    assert have_same_targets([recommendation(why="10 samples")], [recommendation(why="11 samples")])
    assert not have_same_targets([recommendation(100)], [recommendation(101)])
    assert not have_same_targets([recommendation()], [recommendation(held="no data")])
