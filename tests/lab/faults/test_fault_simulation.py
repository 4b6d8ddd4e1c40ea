"""The whole operator among faults: a fixed set of seeds, shrunk failures of the past, and equal runs of one seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.lab.faults.campaign import load_survey
from trimtab.lab.faults.catalog import FAULT_KINDS, INVARIANTS
from trimtab.lab.faults.corpus import load_case, run_any_case
from trimtab.lab.faults.runner import draw_case, run_case

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))
SURVEY = load_survey("operator")
SEEDS = SURVEY.fixed_seeds
FAST_SEEDS = [seed for seed in SEEDS if draw_case(seed, "heavy").world.days <= 2][-2:]
"""The seeds in `make test-fast`, of short worlds; each takes 2 to 5 s of CPU."""


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=[] if seed in FAST_SEEDS else pytest.mark.long) for seed in SEEDS],
)
async def test_fault_simulation_holds_all_invariants(seed: int) -> None:
    result = await run_case(draw_case(seed, SURVEY.intensity))
    command = f"python -m trimtab.lab.faults replay {seed} --intensity {SURVEY.intensity} --trace"
    assert not result.violations, f"replay with: {command}"


@pytest.mark.parametrize("path", CORPUS, ids=[path.stem for path in CORPUS])
async def test_fault_simulation_passes_shrunk_failures_of_the_past(path: Path) -> None:
    result = await run_any_case(load_case(path).case)
    assert not result.violations, f"replay with: python -m trimtab.lab.faults replay --case {path} --trace"


@pytest.mark.long
async def test_fault_simulation_repeats_a_seed_to_the_byte() -> None:
    first, second = [await run_case(draw_case(34, "heavy")) for _ in range(2)]
    assert first.trace == second.trace
    assert first.digest == second.digest


def test_fault_kinds_and_invariants_have_unique_names_and_sentences() -> None:
    for known in (FAULT_KINDS, INVARIANTS):
        names = [each.name for each in known]
        assert len(set(names)) == len(names)
        assert all(each.sentence.endswith(".") for each in known)
