"""The committed survey covers all kinds of faults and all invariants, and every contract test exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.lab.faults.campaign import load_survey
from trimtab.lab.faults.catalog import FAULT_KINDS, INVARIANTS
from trimtab.lab.faults.corpus import Subject
from trimtab.lab.faults.invariant import BaseInvariant
from trimtab.lab.faults.node_faults import NODE_FAULT_KINDS
from trimtab.lab.faults.node_invariants import NODE_INVARIANTS
from trimtab.lab.faults.plan import FaultKind

LEAST = 10
"""The number of times that each kind of fault must have taken effect."""
RARE_FAULTS: dict[Subject, set[str]] = {
    "operator": {"admission-refuses", "gitops-resets-template", "guardrail-broken", "template-owned"},
    "node": set(),
}
"""The kinds of faults that the committed survey does not have so often: more seeds close these gaps."""
SILENT_INVARIANTS: dict[Subject, set[str]] = {
    "operator": set(),
    "node": set(),
}
"""The invariants that the committed survey never evaluates."""
ROOT = Path(__file__).parents[3]
RENEW = "renew it with: python -m trimtab.lab.faults run 0 100 --intensity extreme --survey"
KINDS: dict[Subject, tuple[FaultKind, ...]] = {"operator": FAULT_KINDS, "node": NODE_FAULT_KINDS}
RULES: dict[Subject, tuple[type[BaseInvariant], ...]] = {"operator": INVARIANTS, "node": NODE_INVARIANTS}


@pytest.mark.parametrize("subject", KINDS)
def test_survey_names_only_what_exists(subject: Subject) -> None:
    survey = load_survey(subject)
    assert set(survey.fault_counts) <= {kind.name for kind in KINDS[subject]}, RENEW
    assert set(survey.evaluations) <= {each.name for each in RULES[subject]}, RENEW
    assert survey.fixed_seeds
    assert set(survey.fixed_seeds) <= set(range(survey.first, survey.first + survey.count))


@pytest.mark.parametrize("subject", KINDS)
def test_survey_has_each_fault_ten_times_and_each_invariant(subject: Subject) -> None:
    survey = load_survey(subject)
    rare = {kind.name for kind in KINDS[subject] if survey.fault_counts.get(kind.name, 0) < LEAST}
    silent = {each.name for each in RULES[subject] if not survey.evaluations.get(each.name)}
    # Equal, not included: a gap that is closed has to leave the list.
    assert rare == RARE_FAULTS[subject], RENEW
    assert silent == SILENT_INVARIANTS[subject], RENEW


@pytest.mark.parametrize("kind", [*FAULT_KINDS, *NODE_FAULT_KINDS], ids=lambda kind: kind.name)
def test_contract_of_a_fault_is_a_test_or_about_our_own_process(kind: FaultKind) -> None:
    assert kind.contract == "process" or (ROOT / kind.contract.partition("::")[0]).is_file()
