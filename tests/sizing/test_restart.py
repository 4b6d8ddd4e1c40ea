"""A hundred million samples and a restart in the middle: every later answer is the same to the bit."""

from typing import Any

import numpy as np

from sizing.conformance import numbers
from trimtab.sizing import Strategy, strategy

CONTAINERS, STEPS, SECONDS = 20_000, 2_500, 600.0
VARIETY = 37


def show(sizer: Strategy[Any], steps: range) -> None:
    rng = np.random.default_rng(0)
    cpu = rng.lognormal(-2, 1, CONTAINERS) * rng.lognormal(0, 0.5, (VARIETY, CONTAINERS))
    memory = rng.lognormal(20, 1, CONTAINERS) * rng.uniform(0.8, 1.2, (VARIETY, CONTAINERS))
    for step in steps:
        sizer.observe(step * SECONDS, cpu[step % VARIETY], memory[step * step % VARIETY])


def test_strategy_state_survives_restart_after_a_hundred_million_samples() -> None:
    assert 2 * CONTAINERS * STEPS == 100_000_000
    steady = strategy("vpa", containers=CONTAINERS)
    show(steady, range(STEPS // 2))
    restarted = strategy("vpa", containers=CONTAINERS)
    restarted.restore(steady.state())
    for sizer in (steady, restarted):
        show(sizer, range(STEPS // 2, STEPS))
    end = STEPS * SECONDS
    assert numbers(steady.recommend(end)).tobytes() == numbers(restarted.recommend(end)).tobytes()
    assert steady.state() == restarted.state()
