"""Cohorts of strategies that size by each pod, as KRR does."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.recommender.cohort import PodStrategyCohort, StrategySpec, create_cohort
from trimtab.usage.pod_ownership import WorkloadContainer
from trimtab.usage.usage import PodContainer
from trimtab.usage.workload_usage import WorkloadUsage

STEP = 75.0
START = 1.7e9 // STEP * STEP
STEPS = 240
NAMES = [WorkloadContainer("shop", "Deployment", f"web-{number}", "app") for number in range(3)]

Lives = Sequence[tuple[int, int, int]]
"""The container, first step and end of each pod."""


def new_cohort() -> PodStrategyCohort:
    cohort = create_cohort(StrategySpec.from_settings("krr", {}), until=0.0)
    assert isinstance(cohort, PodStrategyCohort)
    return cohort


def usage(lives: Lives, *, seed: int = 0) -> WorkloadUsage:
    """Build the usage of these pods, each busy in its own way."""
    order = sorted(range(len(lives)), key=lambda pod: lives[pod][0])
    found = np.full((STEPS, len(lives)), np.nan)
    for column, pod in enumerate(order):
        _, begin, end = lives[pod]
        rng = np.random.default_rng((seed, pod))
        found[begin:end, column] = rng.uniform(0.1, 2) * rng.lognormal(0, 0.5, max(0, end - begin))
    return WorkloadUsage(
        containers=tuple(NAMES),
        roles=tuple("main" for _ in NAMES),
        start=START,
        step=STEP,
        cpu=found,
        memory=found * 1e9,
        throttled=None,
        container=np.array([lives[pod][0] for pod in order], np.intp),
        replica=np.zeros(len(lives), np.intp),
        ooms=(),
        unowned=(),
        pods=tuple(PodContainer("shop", f"pod-{pod}", "app") for pod in order),
    )


def observe(cohort: PodStrategyCohort, read: WorkloadUsage, first: int, end: int) -> None:
    part = slice(first, end)
    cohort.observe_usage(
        WorkloadUsage(
            containers=read.containers,
            roles=read.roles,
            start=read.start + first * read.step,
            step=read.step,
            cpu=read.cpu[part],
            memory=read.memory[part],
            throttled=None,
            container=read.container,
            replica=read.replica,
            ooms=(),
            unowned=(),
            pods=read.pods,
        ),
        running=None,
        until=0.0,
    )


def check_targets(cohort: PodStrategyCohort, read: WorkloadUsage) -> None:
    """Compare the targets with those computed from all samples of each pod at once."""
    for number, name in enumerate(NAMES):
        proposal = cohort.get_proposal(name, now=START + STEPS * STEP)
        pods = [column[~np.isnan(column)] for column in read.cpu[:, read.container == number].T]
        if sum(map(len, pods)) < 100:
            assert np.isnan(proposal.cpu.target), name
            continue
        highest = max(np.quantile(pod, 0.95) for pod in pods if len(pod)) * 1000
        assert proposal.cpu.target == pytest.approx(max(10, highest), rel=0.025, abs=1), name
        memory = max(pod.max() for pod in pods if len(pod)) * 1e9 * 1.15
        assert proposal.memory.target == pytest.approx(max(100 << 20, memory), abs=1 << 20), name


def test_target_is_the_highest_of_each_pod_also_of_those_that_ended() -> None:
    read = usage([(0, 0, 90), (0, 60, 150), (0, 150, 240), (1, 0, 240), (1, 0, 240), (2, 0, 99)])
    cohort = new_cohort()
    cohort.add(NAMES)
    observe(cohort, read, 0, STEPS)
    check_targets(cohort, read)


def test_pod_takes_the_row_of_one_that_ended() -> None:
    read = usage([(0, begin, begin + 5) for begin in range(0, STEPS, 6)])
    cohort = new_cohort()
    cohort.add(NAMES)
    observe(cohort, read, 0, STEPS)
    check_targets(cohort, read)
    rows = cohort.find_rows(NAMES[:1])
    observe(cohort, usage([(0, 0, STEPS)]), 0, STEPS)
    assert cohort.find_rows(NAMES[:1]) == rows


@settings(max_examples=50, deadline=None)
@given(
    lives=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, STEPS - 1), st.integers(1, STEPS)).map(
            lambda life: (life[0], life[1], min(STEPS, life[1] + life[2]))
        ),
        min_size=1,
        max_size=40,
    ),
    cuts=st.lists(st.integers(1, STEPS - 1), max_size=4, unique=True),
    restarts=st.booleans(),
)
def test_target_is_that_of_all_samples_however_they_are_read(
    lives: Lives, cuts: Sequence[int], *, restarts: bool
) -> None:
    read = usage(lives)
    cohort = new_cohort()
    cohort.add(NAMES)
    for first, end in pairwise([0, *sorted(cuts), STEPS]):
        observe(cohort, read, first, end)
        if restarts:
            again = new_cohort()
            again.restore(cohort.state())
            cohort = again
    check_targets(cohort, read)


def test_forgotten_container_starts_empty_when_it_returns() -> None:
    read = usage([(0, 0, STEPS), (0, 10, STEPS), (1, 0, STEPS)])
    cohort = new_cohort()
    cohort.add(NAMES)
    observe(cohort, read, 0, STEPS)
    cohort.forget(NAMES[:1])
    cohort.add(NAMES[:1])
    assert np.isnan(cohort.get_proposal(NAMES[0], now=START + STEPS * STEP).cpu.target)
    assert cohort.get_proposal(NAMES[1], now=START + STEPS * STEP).cpu.target > 0
