"""The one answer to what a container may safely have at the least."""

from __future__ import annotations

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
    assert (
        describe_learning([old, young], 86_400) == "learning: 4 of 24 h observed; nothing is lowered before"
    )
    assert describe_learning([young], None).startswith("learning: 4 of 24 h observed; decreases leave more")
    first = with_(young, run_seconds=3 * 3600.0)
    assert describe_learning([first], None).endswith(
        "3 of 24 h observed; nothing is lowered in the first 4 h"
    )
    assert describe_learning([old], None) == ""
    assert describe_learning([old], 86_400) == ""
    assert describe_learning([], 86_400) == ""


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


def test_minimum_history_of_a_policy_forbids_each_decrease_before() -> None:
    found = least(observed(23), with_(FREE, minimum_history=86400.0))
    assert found is not None
    assert found.amount == NO_DECREASE
