"""Releases become rarer for a target that soon needs again what was released, and only for that one."""

from __future__ import annotations

import pytest

from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.operator.intents.release_backoff import MAX_WAIT, REVERSED_WITHIN, ReleaseBackoff

WEB, QUEUE = (WorkloadKey("Deployment", "shop", name) for name in ("web", "queue"))
FIVE_MINUTES, HALF_AN_HOUR = 300.0, 1800.0


def flap(backoff: ReleaseBackoff, *, times: int, gap: float = HALF_AN_HOUR) -> list[float]:
    """Release and raise in turn, and return the waits after each raise."""
    waits = []
    for number in range(times):
        begin = number * 10 * REVERSED_WITHIN
        backoff.record(WEB, is_release=True, now=begin, release_after=FIVE_MINUTES)
        backoff.record(WEB, is_release=False, now=begin + gap, release_after=FIVE_MINUTES)
        waits.append(backoff.wait(WEB))
    return waits


def test_wait_doubles_with_each_release_that_is_soon_reversed() -> None:
    backoff = ReleaseBackoff()
    assert flap(backoff, times=4) == [600.0, 1200.0, 2400.0, 4800.0]
    assert backoff.wait(QUEUE) == 0.0
    assert flap(backoff, times=9)[-1] == MAX_WAIT


def test_wait_does_not_grow_where_load_rises_later() -> None:
    assert flap(ReleaseBackoff(), times=3, gap=REVERSED_WITHIN + 1) == [0.0, 0.0, 0.0]


def test_wait_ends_after_a_release_that_was_not_reversed() -> None:
    backoff = ReleaseBackoff()
    flap(backoff, times=3)
    backoff.record(WEB, is_release=True, now=1e6, release_after=FIVE_MINUTES)
    assert backoff.wait(WEB) == 2400.0
    backoff.record(WEB, is_release=True, now=1e6 + REVERSED_WITHIN + 1, release_after=FIVE_MINUTES)
    assert backoff.wait(WEB) == 0.0


@pytest.mark.parametrize(("kept", "wait"), [(WEB, 600.0), (QUEUE, 0.0)])
def test_target_without_an_intent_is_forgotten(kept: WorkloadKey, wait: float) -> None:
    backoff = ReleaseBackoff()
    flap(backoff, times=1)
    backoff.forget_all_but({kept})
    assert backoff.wait(WEB) == wait
