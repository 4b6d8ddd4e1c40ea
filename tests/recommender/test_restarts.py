"""Changes that restart pods cost more than changes in place: how often pods restart is bounded, however noisy the load."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actuation.world import KEY, World, run
from trimtab.actuation.executor import ChangeExecutor
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.kinds.pods import Resources
from trimtab.recommender.cohort import ContainerEstimate
from trimtab.recommender.workload import recommend_workload
from trimtab.sizing.constraints import Constraints
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.proposal import ProposalHistory, ProposalHistorySettings, build_proposal
from trimtab.sizing.strategy import TargetRange, Targets, Traits

HOUR, DAY = 3600, 86400
MIB = 2**20
DAYS = 3
CANARY = {"observation": "30s", "patience": "30s"}
ROLLOUTS: dict[str, object] = {"allowInPlaceResize": False, "allowRecreate": True, "canary": CANARY}
IN_PLACE: dict[str, object] = {"canary": CANARY}


class NoisyLoad:
    """A workload whose strategy proposes, hour by hour, what a noisy daily load needs next."""

    def __init__(self, update: dict[str, object], *, spread: float, seed: int) -> None:
        self.spec = OptimizationPolicySpec.model_validate({"mode": "Auto", "updateStrategy": update})
        self.world = World(template={"web": Resources(1000, None, 256 * MIB, None)}, replicas=2)
        self.actuator = ChangeExecutor(self.world, self.world.records, may_write=lambda: True)
        self.proposed = ProposalHistory(1, ProposalHistorySettings())
        self.spread, self.noise = spread, random.Random(seed)
        self.first = self.world.now
        self.starts: list[int] = []
        self.requests: list[int] = []
        self.wanted: list[float] = []

    def live(self, hours: int) -> None:
        for _ in range(hours):
            self._propose()
            start = self.world.now
            for _ in range(16):
                before = self.world.change_annotations.change
                self._reconcile()
                change = self.world.change_annotations.change
                if change and (before is None or before.id != change.id):
                    self.starts.append(self.world.now)
                if change is None:
                    break
                self.world.pass_time(60)
            self.world.pass_time(start + HOUR - self.world.now)
            ((_, size),) = next(iter(self.world.sizes))
            self.requests.append(size.cpu_request)

    def _propose(self) -> None:
        hour = (self.world.now - self.first) / HOUR
        wave = 1 + math.sin(2 * math.pi * hour / 24)
        cores = 0.3 * (1 + (self.spread - 1) * wave / 2) * self.noise.uniform(0.8, 1.25)
        self.wanted.append(cores * 1000)
        memory = np.array([200.0 * MIB])
        bounds = TargetRange(np.array([cores]), np.array([cores]), np.array([cores]))
        self.sizes = Targets(cpu=bounds, memory=TargetRange(memory, memory, memory))
        self.proposed.record(self.world.now, self.sizes)

    def _reconcile(self) -> None:
        now = float(self.world.now)
        # As the strategy `trimtab` does: it sizes CPU for the time that sizes are kept, and is not held to the highest.
        known = build_proposal(
            self.sizes,
            0,
            strategy="test",
            recent=self.proposed.recent_targets(now, 0),
            traits=Traits(covers_stabilization=True),
        )
        evidence = Evidence(
            samples=5000,
            first_sample_at=now - 30 * DAY,
            last_sample_at=now,
            run_seconds=30.0 * DAY,
            cpu_peak=400,
            memory_peak=100 * MIB,
        )
        found = recommend_workload(
            run(self.world.get_workload(KEY)),
            run(self.world.list_pods()),
            rules=PolicyRules.from_spec(self.spec),
            estimate={"web": ContainerEstimate(known, evidence)}.get,
            constraints=Constraints(),
            source="test",
            now=now,
        )
        desired = found.to_desired_change(
            self.spec.update_strategy, can_resize_in_place=True, blocked_reason=""
        )
        run(self.actuator.reconcile(KEY, desired, now=self.world.now))


@given(spread=st.floats(1.0, 3.0), seed=st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_rollouts_for_a_noisy_daily_load_are_bounded(spread: float, seed: int) -> None:
    """Up to one a day that takes something away, and a few for more until the highest of a day is reached."""
    load = NoisyLoad(ROLLOUTS, spread=spread, seed=seed)
    load.live(DAYS * 24)
    a_day = Counter((start - load.first) // DAY for start in load.starts)
    assert max(a_day.values(), default=0) <= 4, a_day
    after_the_first_day = [start for start in load.starts if start - load.first > DAY]
    assert len(after_the_first_day) <= 2 * (DAYS - 1)


@pytest.mark.parametrize("seed", range(5))
def test_rollouts_are_fewer_than_in_place_resizes(seed: int) -> None:
    rollouts, in_place = (NoisyLoad(update, spread=3.0, seed=seed) for update in (ROLLOUTS, IN_PLACE))
    for load in (rollouts, in_place):
        load.live(3 * 24)
    assert len(in_place.starts) > 3 * len(rollouts.starts)


@pytest.mark.parametrize("seed", range(5))
def test_increases_restart_pods_within_hours(seed: int) -> None:
    """Only what takes away waits: a load that grows is followed."""
    load = NoisyLoad(ROLLOUTS, spread=3.0, seed=seed)
    load.live(3 * 24)
    short = [asked < 0.7 * wanted for asked, wanted in zip(load.requests, load.wanted, strict=True)]
    assert sum(short) <= 3
