"""Test that each step is ingested once, when complete, despite late samples and restarts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.examples import limit_examples
from trimtab.usage.lateness import SampleTracker, count_complete_steps
from trimtab.usage.usage import PodContainer, Usage

STEP, BOUND = 60.0, 600.0
STEPS, PODS = 30, 3
NAMES = tuple(PodContainer("shop", f"web-{number}", "app") for number in range(PODS))
ALWAYS = dict.fromkeys(NAMES, -math.inf)


def usage(rows: Sequence[Sequence[float]], *, start: float = STEP, step: float = STEP) -> Usage:
    grid = np.array(rows, dtype=float).reshape(len(rows), -1)
    return Usage(NAMES[: grid.shape[1]], start, step, grid, grid * 1e9)


def count_steps(
    found: Usage,
    *,
    running: Mapping[PodContainer, float] = ALWAYS,
    before: Usage | None = None,
    read_before: Usage | None = None,
    final_until: float = -math.inf,
    whole_steps: bool = True,
) -> int:
    seen = SampleTracker()
    if before is not None:
        seen.record(before, expire_before=-math.inf)
    if read_before is not None:
        seen.record_incomplete(read_before)
    return count_complete_steps(
        found, running=running, tracker=seen, final_until=final_until, atomic_steps=whole_steps
    )


MISSING = math.nan


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([[1, 1], [1, 1]], 2, id="all there"),
        pytest.param([[1, 1], [1, MISSING]], 1, id="one is late"),
        pytest.param([[1, 1], [MISSING, MISSING]], 1, id="all are late"),
        pytest.param([[1, 1], [1, MISSING], [1, 1]], 1, id="a gap that may still be filled"),
        pytest.param([[1, MISSING], [1, MISSING], [1, 1]], 3, id="one that has its first sample"),
        pytest.param([[MISSING, MISSING]], 0, id="nothing at all"),
    ],
)
def test_complete_steps_end_before_first_outstanding_sample(rows: list[list[float]], expected: int) -> None:
    assert count_steps(usage(rows)) == expected


def test_complete_steps_wait_for_container_that_had_samples_before() -> None:
    before, found = usage([[1, 1]] * 3, start=STEP), usage([[1]], start=4 * STEP)
    assert count_steps(found, before=before) == 0
    assert count_steps(found, before=before, running={NAMES[0]: -math.inf}) == 1, (
        "the pod does not run any more"
    )
    restarted = {NAMES[0]: -math.inf, NAMES[1]: 3.5 * STEP}
    assert count_steps(found, before=before, running=restarted) == 1, "the pod was restarted"


def test_complete_steps_wait_no_longer_than_the_bound() -> None:
    found = usage([[1, 1], [1, MISSING], [1, 1], [1, MISSING]])
    assert count_steps(found, final_until=2 * STEP) == 3
    assert count_steps(found, final_until=4 * STEP) == 4


def test_complete_steps_exclude_last_step_with_samples() -> None:
    """A server that is twenty seconds behind has only a part of the last step's samples."""
    now, before = usage([[1, 1], [1, 1]]), usage([[1, 1]])
    assert count_steps(now, read_before=before, whole_steps=False) == 1
    assert count_steps(usage([[1, 1], [1, 1], [MISSING, 1]]), read_before=now, whole_steps=False) == 1


def test_complete_steps_exclude_step_that_was_empty_at_last_read() -> None:
    """A gap is being filled: the step may have a part of its samples, though later ones have them all."""
    before, now = usage([[1, 1], [1, MISSING], [1, 1], [1, 1]]), usage([[1, 1]] * 4)
    assert count_steps(now, read_before=before, whole_steps=False) == 1
    assert count_steps(now, read_before=now, whole_steps=False) == 3
    assert count_steps(now, whole_steps=False) == 0, "nothing is known of an earlier read"


def test_complete_steps_do_not_wait_for_cpu_that_never_exists() -> None:
    found = usage([[1, 1], [1, 1]])
    found.cpu[:] = math.nan
    assert count_steps(found) == 2


def test_complete_steps_wait_for_cpu_that_follows_memory() -> None:
    found = usage([[1, 1], [1, 1], [1, 1]])
    found.cpu[2, 1] = math.nan
    assert count_steps(found) == 2


def test_complete_steps_do_not_wait_for_containers_scraped_less_often() -> None:
    slow = [[1, 1 if row % 5 == 0 else MISSING] for row in range(16)]
    before, found = usage(slow), usage(slow[1:5], start=17 * STEP)
    assert count_steps(found, before=before, read_before=found, whole_steps=False) == 3
    late = usage([[1, MISSING]] * 8, start=17 * STEP)
    assert count_steps(late, before=before) == 0, "later than usual"


def test_complete_steps_wait_again_after_outage() -> None:
    """A single gap does not change the expected interval."""
    before = usage([[1], [1], [MISSING], [MISSING], [MISSING], [1], [1]])
    assert count_steps(usage([[MISSING]], start=8 * STEP), before=before) == 0


class DelayedServer:
    """A server that returns each sample after a delay, given in steps."""

    def __init__(self, delays: Sequence[Sequence[float]]) -> None:
        self._arrives = np.arange(len(delays))[:, None] * STEP + np.array(delays) * STEP

    def read(self, begin: float, end: float, *, now: float) -> Usage:
        """Return the steps between two times as the server knows them now."""
        rows = range(round(begin / STEP), round(end / STEP) + 1)
        known = [
            [row + 1.0 if 0 <= row < len(self._arrives) and at <= now else MISSING for at in self._of(row)]
            for row in rows
        ]
        return usage(known, start=begin)

    def _of(self, row: int) -> Sequence[float]:
        found: Sequence[float] = (
            self._arrives[row].tolist() if 0 <= row < len(self._arrives) else [0.0] * PODS
        )
        return found


def ingest(server: DelayedServer, *, restarts: frozenset[int], whole_steps: bool) -> list[list[float]]:
    """Return the values ingested for each container over all cycles."""
    ingested: list[list[float]] = [[] for _ in NAMES]
    until, seen = -STEP, SampleTracker()
    for cycle in range(STEPS + round(BOUND / STEP) + 2):
        now = cycle * STEP + 6
        final_until = (now - BOUND) // STEP * STEP
        if cycle in restarts:
            seen = SampleTracker()
        if not len(seen) and until >= 0:
            seen.record(server.read(until - BOUND, until, now=now), expire_before=-math.inf)
        end = min(cycle, STEPS - 1) * STEP
        if until >= end:
            continue
        found = server.read(until + STEP, end, now=now)
        count = count_complete_steps(
            found, running=ALWAYS, tracker=seen, final_until=final_until, atomic_steps=whole_steps
        )
        for row in found.slice_steps(0, count).cpu:
            for number, value in enumerate(row.tolist()):
                if not math.isnan(value):
                    ingested[number].append(value)
        if count:
            seen.record(found.slice_steps(0, count), expire_before=now - BOUND)
            until += count * STEP
        seen.record_incomplete(found.slice_steps(count, found.steps))
    return ingested


ALL_VALUES = [[row + 1.0 for row in range(STEPS)] for _ in NAMES]

delay = st.one_of(st.just(0.0), st.floats(0.0, BOUND / STEP - 1))
patterns = st.lists(st.tuples(*[delay] * PODS), min_size=STEPS, max_size=STEPS).map(
    lambda delays: [(0.0,) * PODS, *delays[1:]]
)


@settings(max_examples=limit_examples(200))
@given(patterns, st.frozensets(st.integers(1, STEPS), max_size=3), st.booleans())
def test_complete_steps_ingest_every_sample_within_the_bound_once(
    delays: list[tuple[float, ...]],
    restarts: frozenset[int],
    whole_steps: bool,  # noqa: FBT001
) -> None:
    assert ingest(DelayedServer(delays), restarts=restarts, whole_steps=whole_steps) == ALL_VALUES


class PartialServer(DelayedServer):
    """A server with two delayed samples a step; the value of a step is the number that has arrived."""

    def __init__(self, delays: Sequence[Sequence[float]], *, in_order: bool) -> None:
        taken = (np.arange(len(delays))[:, None] - 1 + 0.5 * (1 + np.arange(2))) * STEP
        late = taken[:, None, :] + np.array(delays)[:, :, None] * STEP
        arrives = late.transpose(0, 2, 1).reshape(-1, PODS)
        if in_order:
            arrives = np.maximum.accumulate(arrives, axis=0)
        self._arrives = arrives.reshape(len(delays), 2, PODS)

    def read(self, begin: float, end: float, *, now: float) -> Usage:
        rows = range(round(begin / STEP), round(end / STEP) + 1)
        there = [
            (self._arrives[row] <= now).sum(axis=0) if 0 <= row < STEPS else np.zeros(PODS) for row in rows
        ]
        return usage([[count or MISSING for count in each] for each in there], start=begin)


@settings(max_examples=100)
@given(patterns, st.frozensets(st.integers(1, STEPS), max_size=3), st.booleans())
def test_complete_steps_never_ingest_partial_step(
    delays: list[tuple[float, ...]],
    restarts: frozenset[int],
    in_order: bool,  # noqa: FBT001
) -> None:
    found = ingest(PartialServer(delays, in_order=in_order), restarts=restarts, whole_steps=False)
    assert found == [[2.0] * STEPS for _ in NAMES]
