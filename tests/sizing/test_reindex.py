"""Reindexing keeps the state of remaining containers; new containers start without state."""

import numpy as np
import pytest

from sizing.conformance import START, STEP, fleet, numbers, play, train
from trimtab.sizing import strategy
from trimtab.sizing.state import NEW_ROW, reindex


@pytest.mark.parametrize("name", ["vpa", "krr", "percentile", "autopilot-ml"])
def test_reindex_preserves_the_state_of_each_container(name: str) -> None:
    usage = fleet(days=6.0)
    half = usage.steps // 2
    rows = np.array([5, NEW_ROW, 1])
    moved = strategy(name, containers=usage.containers)
    for _ in play(moved, usage, stop=half):
        pass
    moved = reindex(moved, rows)

    columns = np.array([5, 3, 1])
    cpu, memory = usage.cpu[:, columns].copy(), usage.memory[:, columns].copy()
    cpu[:half, 1] = memory[:half, 1] = np.nan
    steady = strategy(name, containers=3)
    theirs = type(usage)(cpu, memory, usage.ooms[:, columns])
    for _ in play(steady, theirs):
        pass
    for _ in play(moved, theirs, start=half):
        pass
    end = START + usage.steps * STEP
    np.testing.assert_array_equal(numbers(moved.recommend(end)), numbers(steady.recommend(end)))


def test_reindex_rejects_duplicate_rows() -> None:
    with pytest.raises(ValueError, match="continue from the same row"):
        reindex(train("vpa", fleet(days=0.5)), np.array([0, 0]))
