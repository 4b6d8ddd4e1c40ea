"""The compiled kernels of the default strategy and its plain-Python reference agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizing.strategies.reference import Reference
from trimtab.sizing.strategies.trimtab import TrimtabSettings, TrimtabStrategy
from trimtab.sizing.strategies.trimtab_engine.kernels import FORECASTERS
from trimtab.sizing.strategies.trimtab_engine.state import ResourceState

CONTAINERS, SAMPLES, EPOCHS = 4, 4, 30


@pytest.mark.parametrize("resource", ["cpu", "memory"])
@given(
    seed=st.integers(0, 2**32 - 1),
    options=st.fixed_dictionaries(
        {},
        optional={
            "stabilization": st.sampled_from([0.0, 6 * 3600.0, 86400.0]),
            "cpu_risk": st.floats(0.005, 0.2),
            "memory_risk": st.floats(0.02, 5.0),
            "unserved": st.floats(0.0, 1.0),
            "tolerance": st.floats(0.0, 1.0),
            "half_life": st.floats(5.0, 200.0),
        },
    ),
)
@settings(max_examples=25, deadline=None)
def test_kernels_give_the_sizes_of_the_reference(resource: str, seed: int, options: dict[str, Any]) -> None:
    draw = np.random.default_rng(seed)
    strategy = TrimtabStrategy(CONTAINERS, TrimtabSettings(**options))
    kernel: ResourceState = strategy._cpu if resource == "cpu" else strategy._memory
    buckets = kernel._tuning.buckets.buckets
    references = [
        Reference(
            kernel._tuning,
            kernel._decay,
            kernel._cost_model,
            np.zeros((FORECASTERS, buckets), np.float32),
        )
        for _ in range(CONTAINERS)
    ]
    level, spread = draw.lognormal(0, 2, CONTAINERS), draw.uniform(0.02, 1.0, CONTAINERS)
    for epoch in range(EPOCHS):
        # One container is idle now and then: an epoch without a sample changes nothing.
        there = draw.random(CONTAINERS) > 0.2
        for _ in range(SAMPLES):
            usage = np.where(there, level * draw.lognormal(0, spread), np.nan)
            kernel.observe(usage, 1 / SAMPLES)
            for i in np.flatnonzero(there):
                references[i].record(usage[i], 1 / SAMPLES)
        kernel.close_epoch(epoch % 24, (epoch + 1) % 24)
        for reference in references:
            reference.close(epoch % 24, (epoch + 1) % 24, kernel._prior)
        np.testing.assert_allclose(
            kernel.current.held, [each.held for each in references], rtol=1e-9, err_msg=f"epoch {epoch}"
        )
