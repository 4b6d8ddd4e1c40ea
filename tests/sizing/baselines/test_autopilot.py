"""The two Autopilot recommenders behave as their paper describes."""

from typing import Any

import numpy as np
import pytest

from trimtab.errors import TrimtabError
from trimtab.sizing import Strategy, Targets, strategy

HOUR = 3600.0


def observe_series(
    name: str, cpu: list[float], memory: list[float] | None = None, **settings: Any
) -> Strategy[Any]:
    sizer = strategy(name, containers=1, **settings)
    for place, cores in enumerate(cpu):
        sizer.observe(place * 300.0, np.array([cores]), np.array([memory[place] if memory else 1e9]))
    return sizer


def after(name: str, cpu: list[float], memory: list[float] | None = None, **settings: Any) -> Targets:
    return observe_series(name, cpu, memory, **settings).recommend(len(cpu) * 300.0)


def test_autopilot_window_serves_a_share_of_load() -> None:
    """One sample in twenty is twenty times as large: half of the load, though a twentieth of the time."""
    spiky = [2.0 if place % 20 == 0 else 0.1 for place in range(400)]
    assert after("autopilot-window", spiky, cpu_quantile=0.9).cpu.target == pytest.approx(2.2, rel=0.02)


def test_autopilot_window_cpu_half_life_is_twelve_hours() -> None:
    then, now = [4.0] * 288, [1.0] * 288 * 4
    assert after("autopilot-window", then + now[:100]).cpu.target > 4
    assert after("autopilot-window", then + now).cpu.target == pytest.approx(1.1, rel=0.02)


@pytest.mark.parametrize(
    ("tolerance", "expected"), [("minimal", 4.4e9), ("low", 1.1e9), ("intermediate", 2.2e9)]
)
def test_autopilot_window_memory_depends_on_oom_tolerance(tolerance: str, expected: float) -> None:
    memory = [1e9] * 500 + [4e9] + [1e9] * 75
    sizes = after("autopilot-window", [1.0] * 576, memory, oom_tolerance=tolerance)
    assert sizes.memory.target == pytest.approx(expected, rel=0.03)


def test_autopilot_ml_converges_for_steady_usage() -> None:
    sizes = after("autopilot-ml", [0.5] * 600)
    assert sizes.cpu.target == pytest.approx(0.5, rel=0.03)
    assert sizes.cpu.upper == pytest.approx(0.5 * 1.25, rel=0.03)


def test_autopilot_ml_requests_more_for_costlier_overruns() -> None:
    rng = np.random.default_rng(0)
    cpu = list(rng.lognormal(0, 0.8, 800))
    cheap, dear = (after("autopilot-ml", cpu, cpu_over_cost=cost).cpu.target for cost in (0.5, 200.0))
    assert cheap < np.quantile(cpu, 0.9)
    assert dear > np.quantile(cpu, 0.98)


def test_autopilot_ml_changes_its_limit_seldom() -> None:
    rng = np.random.default_rng(1)
    sizer = strategy("autopilot-ml", containers=1)
    targets = []
    for place in range(288 * 7):
        sizer.observe(place * 300.0, np.array([rng.uniform(0.4, 0.6)]), np.array([1e9]))
        targets.append(float(sizer.recommend(place * 300.0).cpu.target[0]))
    settled = np.array(targets[288:])
    assert np.count_nonzero(np.diff(settled)) <= 12


def test_autopilot_ml_follows_a_level_shift() -> None:
    assert after("autopilot-ml", [0.2] * 600 + [2.0] * 144).cpu.target >= 2.0


def test_autopilot_after_oom_kill_requests_more_than_the_killed_size() -> None:
    sizer = observe_series("autopilot-ml", [0.5] * 100, [1e9] * 100)
    sizer.observe_oom(100 * 300.0, np.array([0]), np.array([3e9]))
    assert sizer.recommend(100 * 300.0).memory.target == pytest.approx(3.3e9)


def test_autopilot_ml_late_oom_kill_improves_no_model() -> None:
    sizer = observe_series("autopilot-ml", [0.5] * 100, [1e9] * 100)
    before = sizer.arrays()["memory.cost"].copy()
    sizer.observe_oom(50 * 300.0, np.array([0]), np.array([3e9]))
    assert (sizer.arrays()["memory.cost"] >= before).all()


@pytest.mark.parametrize(
    "given", [{"half_lives": [0.0]}, {"half_lives": [3600.0, -1.0]}, {"margins": [-0.5]}]
)
def test_autopilot_ml_settings_reject_invalid_models(given: dict[str, Any]) -> None:
    with pytest.raises(TrimtabError, match="must be"):
        strategy("autopilot-ml", containers=1, **given)
