"""The table of transitions: its rows have names, an end, and are all reached."""

from collections import Counter
from dataclasses import fields

import pytest

from trimtab.actuation.deadlines import Deadlines
from trimtab.actuation.decide.observation import State
from trimtab.actuation.decide.transitions import TRANSITIONS
from trimtab.api.optimizationpolicy import UpdateStrategy

WORLDS = 60
STEPS = 60


def test_transitions_have_unique_ids() -> None:
    assert [name for name, count in Counter(row.id for row in TRANSITIONS).items() if count > 1] == []


@pytest.mark.parametrize("state", [state for state in State if state is not State.IDLE])
def test_transitions_end_each_state_by_a_deadline(state: State) -> None:
    ends = [row.id for row in TRANSITIONS if state in row.states and row.targets - {state} and row.deadlines]
    assert ends, f"nothing ends the state {state} when pods, nodes and servers stay silent"


def test_transitions_name_deadlines_that_exist() -> None:
    known = {each.name for each in fields(Deadlines)}
    canary = UpdateStrategy.model_fields["canary"].annotation
    assert canary is not None
    known |= {f"canary.{each.alias or name}" for name, each in canary.model_fields.items()}
    assert {name for row in TRANSITIONS for name in row.deadlines} - known == set()


@pytest.mark.parametrize("state", State)
def test_transitions_leave_no_observation_without_a_row(state: State) -> None:
    last = [row for row in TRANSITIONS if state in row.states][-1]
    assert last.condition(None) is True  # type: ignore[arg-type]
