"""All kinds of faults and all invariants, and the plans that are drawn from a seed."""

from __future__ import annotations

import random

from trimtab.lab.faults import (
    api_faults,
    change_invariants,
    intent_invariants,
    kpi_faults,
    process_faults,
    record_invariants,
    run_invariants,
    size_invariants,
    store_faults,
    usage_faults,
    watch_faults,
    world_faults,
)
from trimtab.lab.faults.invariant import Invariant
from trimtab.lab.faults.plan import FaultKind, FaultPlan, draw_plan
from trimtab.lab.faults.worlds import HOUR, WorldSpec

FAULT_KINDS: tuple[FaultKind, ...] = (
    *api_faults.KINDS,
    *watch_faults.KINDS,
    *usage_faults.KINDS,
    *store_faults.KINDS,
    *kpi_faults.KINDS,
    *world_faults.KINDS,
    *process_faults.KINDS,
)
INVARIANTS: tuple[type[Invariant], ...] = (
    *size_invariants.INVARIANTS,
    *change_invariants.INVARIANTS,
    *intent_invariants.INVARIANTS,
    *record_invariants.INVARIANTS,
    *run_invariants.INVARIANTS,
)
INTENSITIES = {"light": (1, 3), "heavy": (6, 20), "extreme": (30, 50)}
"""The smallest and the largest number of faults of a run."""


def draw_faults(world: WorldSpec, *, seed: int, intensity: str, times: int = 1) -> FaultPlan:
    """Draw the faults of a run: all within its first part, so that the rest shows how it converges.

    With `times` there are so many times more, as a longer run needs.
    """
    fewest, most = INTENSITIES[intensity]
    count = random.Random(f"count/{seed}").randint(fewest, most) * times  # noqa: S311 - not for secrets
    return draw_plan(FAULT_KINDS, world, seed=seed, count=count, window=(0.0, world.calm_at - HOUR))
