"""Each setting of the damping chain decides by itself: no other link masks it."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.sizing import strategy
from trimtab.sizing.constraints import Constraints
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.proposal import Proposal, RecentTargets, build_proposal
from trimtab.sizing.recommend import recommend_container

DAY, HOUR, NOW = 86400.0, 3600.0, 40 * 86400.0
EVIDENCE = Evidence(
    samples=5000, run_seconds=30 * DAY, first_sample_at=NOW - 30 * DAY, last_sample_at=NOW - 60, cpu_peak=10
)


def propose(target: float, recent: tuple[float, ...] = ()) -> Proposal:
    """Build a proposal of the default strategy, in millicores, with the range and traits that it really has."""
    sizer = strategy("trimtab", 1)
    for step in range(24):
        sizer.observe(300.0 * step, np.array([0.5]), np.array([1e8]))
    cpu = sizer.recommend(24 * 300.0).cpu
    made = build_proposal(
        sizer.recommend(24 * 300.0), 0, strategy="trimtab", recent=RecentTargets((), ()), traits=sizer.traits
    )
    scale = target / float(cpu.target[0])
    return msgspec.structs.replace(
        made,
        cpu=msgspec.structs.replace(
            made.cpu,
            target=target,
            lower=float(cpu.lower[0]) * scale,
            upper=float(cpu.upper[0]) * scale,
            recent=recent,
        ),
    )


def decide(request: int, proposal: Proposal, **changes: Any) -> int | None:
    """Return the next CPU request under a policy with these changes."""
    spec = OptimizationPolicySpec.model_validate({"changes": changes})
    found = recommend_container(
        Container("app", "main", Resources(cpu_request=request)),
        proposal=proposal,
        evidence=EVIDENCE,
        rules=PolicyRules.from_spec(spec),
        constraints=Constraints(qos_class="Burstable"),
        now=NOW,
    )
    return found.resources.cpu_request


@given(
    target=st.integers(500, 5000),
    low=st.floats(0, 0.25),
    more=st.floats(0.06, 0.2),
    sign=st.sampled_from([-1, 1]),
)
def test_minimum_change_decides_alone_also_below_a_fifth(
    target: int, low: float, more: float, sign: int
) -> None:
    distance = low + more / 2
    request = round(target * (1 + sign * distance))
    proposal = propose(float(target))
    assert decide(request, proposal, minimum=low) != request
    assert decide(request, proposal, minimum=low + more) == request


@given(target=st.integers(500, 2000), highest=st.floats(1.1, 1.4))
def test_stabilization_decides_how_far_a_decrease_goes(target: int, highest: float) -> None:
    request, proposal = 2 * target, propose(float(target), recent=(target, target * highest))
    held, free = (decide(request, proposal, stabilization=window) for window in ("24h", "0s"))
    assert held is not None
    assert free is not None
    assert request > held > free


@pytest.mark.parametrize(
    ("request_now", "target", "step", "values"),
    [(1000, 300.0, "decrease", (0.1, 0.3)), (1000, 4000.0, "increase", (0.5, 1.0))],
)
def test_largest_step_decides_how_far_one_change_goes(
    request_now: int, target: float, step: str, values: tuple[float, float]
) -> None:
    small, large = (decide(request_now, propose(target), cpu={step: value}) for value in values)
    assert small is not None
    assert large is not None
    assert abs(large - request_now) > abs(small - request_now) > 0


def test_tolerance_of_the_strategy_decides_how_often_its_target_changes() -> None:
    usage = np.random.default_rng(2).lognormal(0.0, 0.4, 12 * 72)
    changes = []
    for tolerance in (0.0, 3.0):
        sizer, targets = strategy("trimtab", 1, tolerance=tolerance), set()
        for step, cores in enumerate(usage):
            sizer.observe(300.0 * step, np.array([cores]), np.array([np.nan]))
            if step % 12 == 11:
                targets.add(float(sizer.recommend(300.0 * (step + 1)).cpu.target[0]))
        changes.append(len(targets))
    eager, patient = changes
    assert eager > 2 * patient
