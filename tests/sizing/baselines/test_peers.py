"""The simple strategies of other projects compute what their documentation describes."""

import numpy as np
import pytest

from trimtab.sizing import Targets, strategy

MIB = 2.0**20


def after(
    name: str, cpu: list[float], memory: list[float], *, step: float = 3600.0, **settings: float
) -> Targets:
    sizer = strategy(name, containers=1, **settings)
    for place, (cores, used) in enumerate(zip(cpu, memory, strict=True)):
        sizer.observe(place * step, np.array([cores]), np.array([used]))
    return sizer.recommend(len(cpu) * step)


def test_percentile_is_a_quantile_of_the_window_times_a_factor() -> None:
    hundred = [place / 100 for place in range(1, 101)]
    memory = [value * 1e9 for value in hundred]
    for quantile in (0.5, 0.9, 0.99):
        sizes = after("percentile", hundred, memory, step=60.0, quantile=quantile, safety_factor=1.5)
        assert sizes.cpu.target == pytest.approx(quantile * 1.5, rel=0.01)
        assert sizes.memory.target == pytest.approx(quantile * 1.5e9, rel=0.01)


def test_krr_requests_p95_cpu_and_peak_memory_with_buffer() -> None:
    sizes = after("krr", [place / 200 for place in range(200)], [1e9] * 199 + [2000 * MIB])
    assert sizes.cpu.target == pytest.approx(0.945, rel=0.011)
    assert sizes.memory.target == 2300 * MIB
    assert sizes.memory.lower == 2000 * MIB


def test_krr_has_no_target_below_a_hundred_samples() -> None:
    assert np.isnan(after("krr", [1.0] * 99, [1e9] * 99).cpu.target)
    assert np.isfinite(after("krr", [1.0] * 100, [1e9] * 100).cpu.target)


def test_krr_applies_minimums_and_rounds_to_whole_steps() -> None:
    small = after("krr", [0.0001] * 100, [1.0] * 100)
    assert small.cpu.target == 0.01
    assert small.memory.target == 100 * MIB
    uneven = after("krr", [0.1234] * 100, [1e9 + 1] * 100)
    assert uneven.cpu.target * 1000 == pytest.approx(round(float(uneven.cpu.target[0]) * 1000))
    assert uneven.memory.target % MIB == 0


def test_krr_requests_a_quarter_more_after_oom_kill() -> None:
    sizer = strategy("krr", containers=1)
    for hour in range(100):
        sizer.observe(hour * 3600.0, np.array([0.1]), np.array([200 * MIB]))
    sizer.observe_oom(4e5, np.array([0]), np.array([400 * MIB]))
    assert sizer.recommend(4e5).memory.target == 500 * MIB
    assert sizer.recommend(4e5 + 15 * 86400).memory.target != 500 * MIB


def test_peak_has_no_target_on_the_first_day_and_ten_percent_margin_later() -> None:
    assert np.isnan(after("peak", [1.0] * 23, [1e9] * 23).cpu.target)
    sizes = after("peak", [1.0] * 48, [1e9] * 48)
    assert sizes.cpu.target == pytest.approx(1.1, rel=0.05)
    assert sizes.memory.target == pytest.approx(1.1e9, rel=0.05)


def test_peak_half_life_is_twelve_hours() -> None:
    high_then_low = [4.0] * 24 + [1.0] * 24
    long_ago = [4.0] * 24 + [1.0] * 120
    assert after("peak", high_then_low, [1e9] * 48).cpu.target > 4
    assert after("peak", long_ago, [1e9] * 144).cpu.target < 1.2
