"""Strategy `seasonal` finds periods, only where there are any, and sizes by them."""

import numpy as np
import numpy.typing as npt
import pytest

from trimtab.sizing import strategy
from trimtab.sizing.stats.periods import find_periods

HOURS = 21 * 24
HOUR = np.arange(HOURS)
NOISE = np.random.default_rng(0)


def daily(hour: npt.NDArray[np.int_] = HOUR) -> npt.NDArray[np.float64]:
    return 1 + 0.8 * np.sin(hour / 24 * 2 * np.pi)


def weekly(hour: npt.NDArray[np.int_] = HOUR) -> npt.NDArray[np.float64]:
    """Busy by day from Monday to Friday."""
    return np.where(hour // 24 % 7 < 5, daily(hour), 0.2)


def noisy(series: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    return (series * NOISE.lognormal(0, 0.2, series.size)).astype(np.float32)


def period(series: npt.NDArray[np.float32]) -> int:
    return int(find_periods(series[None, :], least=4, strength=0.4)[0])


def test_seasonal_finds_daily_period() -> None:
    assert period(noisy(daily())) == 24


def test_seasonal_finds_weekly_period() -> None:
    assert period(noisy(weekly())) == 168


def test_seasonal_finds_period_other_than_a_day() -> None:
    assert period(noisy(1 + 0.8 * np.sin(HOUR / 9 * 2 * np.pi))) in {9, 18}


def test_seasonal_finds_period_despite_gaps() -> None:
    series = noisy(daily())
    series[NOISE.random(series.size) < 0.3] = np.nan
    assert period(series) == 24


@pytest.mark.parametrize(
    "series",
    [
        np.ones(HOURS),
        np.zeros(HOURS),
        np.linspace(1, 5, HOURS),
        NOISE.lognormal(0, 1, HOURS),
        np.exp(np.cumsum(NOISE.normal(0, 0.1, HOURS))),
        np.full(HOURS, np.nan),
    ],
    ids=["constant", "nothing", "trend", "noise", "walk", "gaps"],
)
def test_seasonal_finds_no_period_in_aperiodic_usage(series: npt.NDArray[np.float64]) -> None:
    assert period(series.astype(np.float32)) == 0


def test_seasonal_sizes_for_the_coming_hour() -> None:
    sizer = strategy("seasonal", containers=2)
    asked = []
    for hour, wave in zip(HOUR, daily(), strict=True):
        for minute in (0, 20, 40):
            sizer.observe(hour * 3600.0 + minute * 60, np.array([wave, 1.0]), np.array([1e9, 1e9]))
        asked.append(sizer.recommend(hour * 3600.0 + 3599).cpu.target)
    last_day, coming = np.array(asked)[-24:], daily(HOUR[-24:] + 1)
    assert (last_day[:, 0] >= coming).all()
    assert last_day[:, 0].mean() < 1.4 * coming.mean()
    assert last_day[:, 0].max() > 3 * last_day[:, 0].min()
    assert last_day[:, 1] == pytest.approx(1.1)


def test_seasonal_without_period_uses_the_last_day() -> None:
    sizer = strategy("seasonal", containers=1)
    for hour in range(72):
        sizer.observe(hour * 3600.0, np.array([4.0 if hour < 24 else 1.0]), np.array([1e9]))
    sizes = sizer.recommend(72 * 3600.0)
    assert sizes.cpu.target == pytest.approx(1.1)
    assert sizes.cpu.upper == pytest.approx(4.4)


@pytest.mark.parametrize("memory", [7 * 24, 7 * 24 + 5])
def test_seasonal_recent_usage_does_not_replace_the_usual_level(memory: int) -> None:
    """Also where a whole number of turns is remembered, so that the last hour lies where the first would."""
    sizer = strategy("seasonal", containers=1, memory=memory)
    for hour in range(3 * 24 + 3):
        grown = 2.0 if hour >= 3 * 24 else 1.0
        sizer.observe(hour * 3600.0, grown * daily(np.array([hour])), np.array([1e9]))
    sizer.observe((3 * 24 + 3) * 3600.0, np.array([np.nan]), np.array([np.nan]))
    asked = sizer.recommend((3 * 24 + 3) * 3600.0).cpu.target
    coming = daily(np.arange(3 * 24 + 2, 3 * 24 + 6)).max()
    assert asked == pytest.approx(2.0 * 1.1 * coming, rel=0.1)
