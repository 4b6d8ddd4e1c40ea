"""The one answer to what a container may safely have at the least."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_

from sizing.containers import (
    FREE,
    HAS,
    NOW,
    WELL_KNOWN,
    any_evidence,
    any_resources,
    any_role,
    any_rules,
)
from trimtab.api.quantity import MIB, ResourceName
from trimtab.kube.kinds.pods import Container, Resources, Role
from trimtab.sizing.evidence import (
    NO_DECREASE,
    Evidence,
    Heap,
    SafeMinimum,
    check_history,
    describe_learning,
    needed_memory,
    safe_minimum,
    safe_minimums,
    sized_resource,
)
from trimtab.sizing.policy_rules import PolicyRules

WEB = Container("web", "main", HAS)


def least(evidence: Evidence, rules: PolicyRules = FREE) -> SafeMinimum | None:
    return safe_minimum(sized_resource(WEB, "memory", evidence=evidence, rules=rules, now=NOW))


def test_safe_minimum_is_the_highest_minimum_and_names_its_source() -> None:
    peaked = with_(WELL_KNOWN, memory_peak=400 * MIB)
    found = least(peaked)
    assert found is not None
    assert (found.name, found.amount, found.source) == ("peak", 440 * MIB, "usage")
    heaped = least(with_(peaked, heap=Heap(800 * MIB, "-Xmx in args")))
    assert heaped is not None
    assert (heaped.name, heaped.amount, heaped.source) == ("heap", 1000 * MIB, "-Xmx in args")


def test_safe_minimum_forbids_decrease_without_measurements() -> None:
    found = least(with_(WELL_KNOWN, memory_peak=None))
    assert found is not None
    assert found.amount == NO_DECREASE


def test_safe_minimum_uses_the_rules_of_the_container() -> None:
    bounded = with_(FREE, memory=with_(FREE.memory, min_request=700 * MIB))
    found = least(WELL_KNOWN, bounded)
    assert found is not None
    assert (found.name, found.amount, found.binds_limit) == ("bounds", 700 * MIB, False)


def test_needed_memory_is_unknown_without_peak_and_ignores_short_history() -> None:
    strict = with_(FREE, minimum_history=30 * 86400.0)
    assert needed_memory(WEB, evidence=Evidence(), rules=FREE, now=NOW) is None
    peaked = with_(WELL_KNOWN, memory_peak=400 * MIB)
    assert needed_memory(WEB, evidence=peaked, rules=strict, now=NOW) == 440 * MIB


@given(has=any_resources, evidence=any_evidence, rules=any_rules, role=any_role)
def test_needed_memory_never_exceeds_safe_minimum(
    has: Resources, evidence: Evidence, rules: PolicyRules, role: Role
) -> None:
    container = Container("app", role, has)
    need = needed_memory(container, evidence=evidence, rules=rules, now=NOW)
    found = safe_minimums(sized_resource(container, "memory", evidence=evidence, rules=rules, now=NOW))
    assert need is None or need <= max(each.amount for each in found)
    assert all(each.amount >= 0 and each.why and each.source for each in found)


def test_learning_is_described_until_the_history_is_complete() -> None:
    young = Evidence(run_seconds=4.9 * 3600, first_sample_at=0.0, last_sample_at=5 * 3600)
    old = Evidence(run_seconds=90_000, first_sample_at=0.0, last_sample_at=90_000)
    strict = with_(FREE, minimum_history=86_400.0)
    assert (
        describe_learning([old, young], strict) == "learning: 4 of 24 h observed; nothing is lowered before"
    )
    assert describe_learning([young], FREE).startswith("learning: 4 of 24 h observed; decreases leave more")
    first = with_(young, run_seconds=3 * 3600.0)
    assert describe_learning([first], FREE).endswith(
        "3 of 24 h observed; nothing is lowered in the first 4 h"
    )
    where = "; where a change of memory restarts its container, it is not lowered before"
    for each in (young, first):
        slow = describe_learning([each], FREE)
        assert describe_learning([each], FREE, partly=["memory"]) == f"{slow}{where}"
        assert describe_learning([each], strict, partly=["memory"]) == describe_learning([each], strict)
    assert describe_learning([old], FREE, partly=["cpu", "memory"]) == ""
    assert describe_learning([old], FREE) == ""
    assert describe_learning([old], strict) == ""
    assert describe_learning([], strict) == ""


def observed(hours: float, *, peak: int = 300 * MIB) -> Evidence:
    seconds = hours * 3600
    return with_(
        WELL_KNOWN,
        run_seconds=seconds,
        first_sample_at=NOW - seconds,
        last_sample_at=NOW,
        cpu_peak=100,
        cpu_peak_week=100,
        memory_peak=peak,
    )


@given(hours=st.floats(0, 3.99), resource=st.sampled_from(["cpu", "memory"]), rules=any_rules)
def test_workload_without_history_is_not_lowered(
    hours: float, resource: ResourceName, rules: PolicyRules
) -> None:
    waiting = with_(rules, minimum_history=None)
    asked = sized_resource(WEB, resource, evidence=observed(hours), rules=waiting, now=NOW)
    found = safe_minimum(asked)
    assert found is not None
    assert found.amount == NO_DECREASE


@given(first=st.floats(4, 48), second=st.floats(4, 48), resource=st.sampled_from(["cpu", "memory"]))
def test_longer_history_never_demands_more(first: float, second: float, resource: ResourceName) -> None:
    def demanded(hours: float) -> int:
        asked = sized_resource(WEB, resource, evidence=observed(hours), rules=FREE, now=NOW)
        return max((each.amount for each in safe_minimums(asked)), default=0)

    shorter, longer = sorted((first, second))
    peak = 100 if resource == "cpu" else 300 * MIB
    assert NO_DECREASE > demanded(shorter) >= demanded(longer) >= peak


def test_decrease_starts_after_hours_and_leaves_more_above_a_young_peak() -> None:
    found = least(observed(6), FREE)
    assert found is not None
    assert (found.name, found.why) == ("history", "peak of 300Mi plus 49%, because 6.0 of 24 h were observed")
    settled = least(observed(25), FREE)
    assert settled is not None
    assert (settled.name, settled.amount) == ("peak", 330 * MIB)


def history_minimum(evidence: Evidence, rules: PolicyRules = FREE) -> SafeMinimum | None:
    asked = sized_resource(WEB, "memory", evidence=evidence, rules=rules, now=NOW)
    return next((each for each in safe_minimums(asked) if each.name == "history"), None)


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_constant_usage_changes_the_minimum_once_for_each_step_of_the_first_day(
    resource: ResourceName,
) -> None:
    found = [
        max(
            each.amount
            for each in safe_minimums(
                sized_resource(WEB, resource, evidence=observed(minutes / 60), rules=FREE, now=NOW)
            )
        )
        for minutes in range(26 * 60)
    ]
    changes = [minute for minute in range(1, len(found)) if found[minute] != found[minute - 1]]
    assert changes == [hours * 60 for hours in (4, 6, 8, 12, 16, 24)]


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_history_of_a_day_is_needed_where_the_resize_policy_restarts_the_container(
    resource: ResourceName,
) -> None:
    """Early steps restarted such a container six times in its first day."""
    restarted = with_(WEB, **{f"restart_on_{resource}_resize": True})
    both: tuple[ResourceName, ...] = ("cpu", "memory")
    for each in both:
        asked = sized_resource(restarted, each, evidence=observed(23), rules=FREE, now=NOW)
        found = check_history(asked)
        assert found is not None
        assert (found.amount == NO_DECREASE) == (each == resource)
        old = sized_resource(restarted, each, evidence=observed(24), rules=FREE, now=NOW)
        assert check_history(old) is None
    learning = describe_learning([observed(23)], FREE, restarts=True)
    assert learning == "learning: 23 of 24 h observed; nothing is lowered before"


@pytest.mark.parametrize(
    ("is_long_running", "rules"),
    [(True, with_(FREE, restarts_pods=True)), (False, FREE)],
    ids=["a policy that restarts pods", "a batch workload"],
)
def test_history_of_a_day_is_needed_before_the_first_decrease(
    is_long_running: bool,  # noqa: FBT001 - a case
    rules: PolicyRules,
) -> None:
    young, old = (with_(observed(hours), is_long_running=is_long_running) for hours in (23, 24))
    found = history_minimum(young, rules)
    assert found is not None
    assert (found.amount, found.why) == (NO_DECREASE, "observed for 23.0 h; decreases start after 24.0 h")
    assert describe_learning([young], rules) == "learning: 23 of 24 h observed; nothing is lowered before"
    assert history_minimum(old, rules) is None


def test_unknown_peak_is_named_as_the_reason_against_an_early_decrease() -> None:
    found = history_minimum(with_(observed(5), memory_peak=None))
    assert found is not None
    assert (found.amount, found.why) == (
        NO_DECREASE,
        "observed for 5.0 of 24 h, and the peak of the last week is unknown",
    )


def test_minimum_history_of_a_policy_forbids_each_decrease_before() -> None:
    found = least(observed(23), with_(FREE, minimum_history=86400.0))
    assert found is not None
    assert found.amount == NO_DECREASE
