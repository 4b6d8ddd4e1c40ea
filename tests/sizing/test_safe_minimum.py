"""The one answer to what a container may safely have at the least."""

from __future__ import annotations

from hypothesis import given
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
from trimtab.api.quantity import MIB
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
    assert describe_learning([old], 86_400) == ""
    assert describe_learning([], 86_400) == ""
