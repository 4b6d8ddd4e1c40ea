"""The node agent among faults: fixed seeds hold all invariants, and defects put in on purpose are found."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import pytest

from trimtab.lab.faults.node_runner import NodeCaseResult, draw_node_case, run_node_case
from trimtab.node.executor import Executor
from trimtab.node.model import NodeView
from trimtab.node.restore_journal import RestoreJournal

SEEDS = range(24)
FAST_SEEDS = range(12)
"""The seeds in `make test-fast`."""


async def run_seeds(invariant: str, *, first: int, most: int) -> NodeCaseResult | None:
    """Return the first run that violates an invariant; `first` is known to, and saves the time of those before it."""
    for seed in (first, *range(most)):
        result = await run_node_case(draw_node_case(seed, "heavy"))
        if any(each.invariant == invariant for each in result.violations):
            return result
    return None


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[] if seed in FAST_SEEDS else pytest.mark.long) for seed in SEEDS]
)
async def test_node_fault_simulation_holds_all_invariants(seed: int) -> None:
    result = await run_node_case(draw_node_case(seed, "heavy"))
    command = f"python -m trimtab.lab.faults replay {seed} --subject node --trace"
    assert not result.violations, f"replay with: {command}"


async def test_node_fault_simulation_repeats_a_seed_to_the_byte() -> None:
    first, second = [await run_node_case(draw_node_case(3, "heavy")) for _ in range(2)]
    assert first.trace == second.trace
    assert first.digest == second.digest


def _forget_originals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RestoreJournal, "record_originals", lambda *_: None)


def _drop_before_restoring(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Executor.apply

    def apply(self: Executor, decided: dict, **settings: object) -> object:  # type: ignore[type-arg]
        result = known(self, decided, **settings)  # type: ignore[arg-type]
        for ref in list(result.rejected):
            self._journal.drop([ref])
        return result

    monkeypatch.setattr(Executor, "apply", apply)


def _squeeze_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = cached_property(lambda self: (self.best_effort_cgroup,))
    shared.__set_name__(NodeView, "best_effort_cgroups")
    monkeypatch.setattr(NodeView, "best_effort_cgroups", shared)


@pytest.mark.parametrize(
    ("break_agent", "invariant", "first"),
    [
        (_forget_originals, "node-journal-first", 0),
        (_forget_originals, "node-originals-restored", 1),
        (_drop_before_restoring, "node-originals-restored", 12),
        (_squeeze_all_together, "node-critical-not-squeezed", 0),
    ],
)
async def test_node_fault_simulation_finds_defects(
    break_agent: Callable[[pytest.MonkeyPatch], None],
    invariant: str,
    first: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    break_agent(monkeypatch)
    assert await run_seeds(invariant, first=first, most=30) is not None
