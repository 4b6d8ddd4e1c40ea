"""Recommendations for a VPA: ours with enough data, otherwise those of VPA's own checkpoints."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.builders.vpa_checkpoints import export_checkpoint
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.operator.vpa.recommender import (
    SUFFICIENT_OBSERVATION,
    choose_proposal,
    propose_from_checkpoints,
    raise_above_ooms,
)
from trimtab.recommender.cohort import ContainerEstimate
from trimtab.recommender.vpa_checkpoints import CheckpointKey
from trimtab.sizing.evidence import Evidence, OomKills
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.proposal import Proposal, ResourceTarget
from trimtab.sizing.strategies.vpa import VpaSettings, VpaStrategy

NOW = 1_800_000_000.0
DAY = 86400.0

amounts = st.floats(1, 1e9) | st.just(math.nan)
proposals = st.builds(
    lambda cpu, memory, name: Proposal(cpu=ResourceTarget(cpu), memory=ResourceTarget(memory), strategy=name),
    amounts,
    amounts,
    st.sampled_from(["trimtab", "vpa"]),
)
evidence = st.builds(
    lambda seen, killed: Evidence(
        run_seconds=seen,
        first_sample_at=NOW - seen,
        last_sample_at=NOW,
        kills=(OomKills(1, 1, NOW - 60, NOW - 60),) if killed else (),
    ),
    st.floats(0, 3 * DAY),
    st.booleans(),
)


@settings(max_examples=200)
@given(st.none() | st.builds(ContainerEstimate, proposals, evidence), st.none() | proposals)
def test_vpa_recommender_prefers_ours_after_a_day_or_a_kill(
    own: ContainerEstimate | None, before: Proposal | None
) -> None:
    found = choose_proposal(own, before)
    if own is None:
        assert found == before
        return
    assert found
    ours = before is None or own.evidence.kills or own.evidence.observed_seconds >= SUFFICIENT_OBSERVATION
    for resource in ("cpu", "memory"):
        amount = getattr(found, resource).target
        mine = getattr(own.proposal, resource).target
        theirs = getattr(before, resource).target if before else math.nan
        expected = mine if ours and not (before and math.isnan(mine)) else theirs
        assert amount == pytest.approx(expected, nan_ok=True)


def test_vpa_recommender_reads_checkpoints_and_skips_unreadable_ones() -> None:
    sizer = VpaStrategy(1, VpaSettings())
    for minute in range(0, 3 * 1440, 30):
        sizer.observe(NOW - 3 * DAY + minute * 60, np.array([0.25]), np.array([3e8]))
    checkpoint = export_checkpoint(sizer, 0, now=NOW, vpa_name="web", container_name="app")
    broken = {**checkpoint, "status": {"version": "v0"}}
    found = propose_from_checkpoints(
        {CheckpointKey("shop", "web", "app"): checkpoint, CheckpointKey("shop", "web", "log"): broken}, NOW
    )
    assert found.keys() == {("shop", "web")}
    ((container, known),) = found["shop", "web"].items()
    assert container == "app"
    assert known.cpu.target == pytest.approx(1000 * sizer.recommend(NOW).cpu.target[0], rel=0.06)


def test_inherited_recommendations_divide_the_minimum_of_a_pod() -> None:
    sizer = VpaStrategy(1, VpaSettings())
    for minute in range(0, 3 * 1440, 30):
        sizer.observe(NOW - 3 * DAY + minute * 60, np.array([0.001]), np.array([1e6]))
    keys = [CheckpointKey("shop", "web", name) for name in ("app", "log")] + [
        CheckpointKey("shop", "api", "app")
    ]
    found = propose_from_checkpoints(
        {
            key: export_checkpoint(sizer, 0, now=NOW, vpa_name=key.vpa, container_name=key.container)
            for key in keys
        },
        NOW,
    )
    assert {name: known.cpu.target for name, known in found["shop", "web"].items()} == {"app": 12, "log": 12}
    assert found["shop", "api"]["app"].memory.target == 250 * 2**20


def test_vpa_recommender_inherits_nothing_without_checkpoints() -> None:
    assert propose_from_checkpoints({}, NOW) == {}


MIB = 2**20
APP = Container("app", "main", Resources(100, None, 256 * MIB, 1024 * MIB))


def asking(memory: float) -> Proposal:
    return Proposal(
        cpu=ResourceTarget(100.0),
        memory=ResourceTarget(memory, memory * 0.9, memory * 1.1),
        strategy="percentile",
    )


def dead(*sizes: int, ago: float = 60.0) -> Evidence:
    return Evidence(kills=tuple(OomKills(size, 3, NOW - ago, NOW - ago + n) for n, size in enumerate(sizes)))


def test_vpa_recommender_requests_more_than_the_killed_limit() -> None:
    """VPA scales the limit along: four times the request, as it is now."""
    found = raise_above_ooms(asking(50.0 * MIB), APP, dead(1024 * MIB), PolicyRules(), NOW).memory
    assert found.target * 4 == pytest.approx(1024 * 1.2 * MIB, rel=0.01)
    assert found.lower > 256 * MIB, "or the updater would not act"
    assert found.lower <= found.target <= found.upper


def test_vpa_recommender_does_not_shrink_by_replayed_history_after_a_kill() -> None:
    answered = dead(512 * MIB, ago=7 * DAY)
    assert raise_above_ooms(asking(50.0 * MIB), APP, answered, PolicyRules(), NOW).memory.target == 256 * MIB
    over = dead(1024 * MIB, ago=9 * DAY)
    assert raise_above_ooms(asking(50.0 * MIB), APP, over, PolicyRules(), NOW) == asking(50.0 * MIB)


def test_vpa_recommender_does_not_feed_a_leak() -> None:
    leak = dead(*(size * MIB for size in (500, 600, 720, 1024)))
    assert raise_above_ooms(asking(9000.0 * MIB), APP, leak, PolicyRules(), NOW).memory.target == 256 * MIB
