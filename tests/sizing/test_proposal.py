"""A proposal history keeps the targets of a day by the hour, across restarts and changes of containers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.sizing.proposal import (
    HOUR,
    HOURS_KEPT,
    ProposalHistory,
    ProposalHistorySettings,
)
from trimtab.sizing.state import NEW_ROW, Floats, reindex
from trimtab.sizing.strategy import TargetRange, Targets

START = 1.7e9 // HOUR * HOUR


def proposed(containers: int = 2) -> ProposalHistory:
    return ProposalHistory(containers, ProposalHistorySettings())


def sizes(*cores: float) -> Targets:
    """So many cores, and as many GB."""
    cpu: Floats = np.array(cores)
    return Targets(TargetRange(cpu, cpu, cpu), TargetRange(cpu * 1e9, cpu * 1e9, cpu * 1e9))


def test_proposal_history_lists_hourly_maxima_newest_first() -> None:
    record = proposed()
    for minute, cores in ((0, 0.5), (30, 0.9), (59, 0.2), (60, 0.3), (185, 0.1)):
        record.record(START + 60 * minute, sizes(cores, np.nan))
    known = record.recent_targets(START + 3.5 * HOUR, 0)
    assert known.cpu[:5] == (0.1, 0.0, 0.3, 0.9, 0.0)
    assert known.memory[:4] == (1e8, 0.0, 3e8, 9e8)
    assert max(record.recent_targets(START + 3.5 * HOUR, 1).cpu) == 0.0


def test_proposal_history_is_due_hourly_and_ignores_implausible_targets() -> None:
    record = proposed()
    assert record.is_due(START, until=START)
    record.record(START, sizes(np.inf, -1.0))
    assert not record.is_due(START + HOUR - 1, until=START + HOUR)
    assert record.is_due(START + HOUR, until=START + HOUR)
    assert [max(record.recent_targets(START, row).cpu) for row in (0, 1)] == [0.0, 0.0]


def test_proposal_history_is_not_due_for_hours_outside_its_window() -> None:
    last = START + (HOURS_KEPT - 1) * HOUR
    assert proposed().is_due(START, until=last)
    assert not proposed().is_due(START, until=last + HOUR)


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 5 * HOURS_KEPT * 60), st.floats(0.001, 64)), min_size=1, max_size=40)
)
def test_proposal_history_matches_a_full_list(noted: list[tuple[int, float]]) -> None:
    record = proposed(1)
    noted.sort()
    for minute, cores in noted:
        record.record(START + 60 * minute, sizes(cores))
    now = START + 60 * noted[-1][0]
    again = proposed(1)
    again.restore(record.state())
    moved = reindex(again, np.array([NEW_ROW, 0]))
    for hour, highest in enumerate(moved.recent_targets(now, 1).cpu):
        number = now // HOUR - hour
        of_it = [cores for minute, cores in noted if (START + 60 * minute) // HOUR == number]
        assert highest == max(of_it, default=0.0)
