"""The strategy trimtab, beyond the contract of all strategies."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher

from trimtab.lab.backtest import BacktestSchedule, backtest, generate_sample_trace
from trimtab.lab.workloads import generate
from trimtab.sizing import Strategy, Targets, strategy
from trimtab.sizing.state import Floats
from trimtab.sizing.strategies.trimtab import TrimtabSettings
from trimtab.sizing.strategies.trimtab_engine import kernels as forecast
from trimtab.usage.trace import Trace

HOUR = 3600.0
MIB = 2.0**20


def live(sizer: Strategy[TrimtabSettings], cpu: Floats, memory: Floats, *, start: float = 0.0) -> Targets:
    """Five-minute samples, a row a step; the sizes at the end."""
    for step, (cores, size) in enumerate(zip(cpu, memory, strict=True)):
        sizer.observe(start + 300.0 * step, cores, size)
    return sizer.recommend(start + 300.0 * len(cpu))


def steady(level: float, hours: int, containers: int = 1) -> Floats:
    return np.full((12 * hours, containers), level)


def test_trimtab_sizes_steady_container_close_to_its_usage() -> None:
    sizes = live(strategy("trimtab", 1), steady(0.5, 48), steady(300 * MIB, 48))
    assert 0.5 <= sizes.cpu.target[0] <= 0.55
    assert 300 * MIB <= sizes.memory.target[0] <= 345 * MIB


def test_trimtab_sizes_container_after_one_hour() -> None:
    sizes = live(strategy("trimtab", 1), steady(0.5, 1), steady(300 * MIB, 1))
    assert sizes.cpu.target[0] >= 0.5
    assert sizes.memory.target[0] >= 300 * MIB


def test_trimtab_scales_sizes_with_usage() -> None:
    draw = np.random.default_rng(3)
    cpu, memory = draw.lognormal(0, 0.5, (576, 4)), draw.lognormal(20, 0.1, (576, 4))
    one = live(strategy("trimtab", 4), cpu, memory)
    ten = live(strategy("trimtab", 4), 10 * cpu, 10 * memory)
    np.testing.assert_allclose(ten.cpu.target, 10 * one.cpu.target, rtol=1e-9)
    np.testing.assert_allclose(ten.memory.target, 10 * one.memory.target, rtol=1e-9)


def test_trimtab_requests_more_for_less_risk() -> None:
    draw = np.random.default_rng(4)
    cpu, memory = draw.lognormal(0, 0.6, (12 * 96, 20)), draw.lognormal(20, 0.1, (12 * 96, 20))
    bold = live(strategy("trimtab", 20, cpu_risk=0.2, memory_risk=20.0), cpu, memory)
    careful = live(strategy("trimtab", 20, cpu_risk=0.005, memory_risk=0.05), cpu, memory)
    assert careful.cpu.target.mean() > bold.cpu.target.mean()
    assert careful.memory.target.mean() >= bold.memory.target.mean()


def test_trimtab_learns_the_daily_cycle() -> None:
    hours = np.arange(12 * 24 * 6) / 12
    busy = (hours % 24 >= 9) & (hours % 24 < 17)
    cpu = np.where(busy, 2.0, 0.2)[:, None]
    sizer = strategy("trimtab", 1)
    night = live(sizer, cpu[:-1], np.full_like(cpu[:-1], np.nan))
    for step in range(12 * 9):
        sizer.observe(6 * 86400 + 300.0 * step, np.array([0.2]), np.array([np.nan]))
    morning = sizer.recommend(6 * 86400 + 9 * HOUR)
    assert night.cpu.target[0] < 0.5
    assert morning.cpu.target[0] >= 2.0


def test_trimtab_follows_a_level_shift_within_hours() -> None:
    sizer = strategy("trimtab", 1)
    live(sizer, steady(0.2, 72), steady(100 * MIB, 72))
    up = live(sizer, steady(2.0, 3), steady(400 * MIB, 3), start=72 * HOUR)
    assert up.cpu.target[0] >= 2.0
    assert up.memory.target[0] >= 400 * MIB
    down = live(sizer, steady(0.2, 24), steady(400 * MIB, 24), start=75 * HOUR)
    assert down.cpu.target[0] < 1.0


def test_trimtab_unserved_setting_decides_whether_spikes_are_covered() -> None:
    spikes = np.random.default_rng(6).random((12 * 72, 1)) < 0.1
    cpu = np.where(spikes, 10.0, 1.0)
    by_time = live(strategy("trimtab", 1, unserved=0.0), cpu, np.full_like(cpu, np.nan))
    by_use = live(strategy("trimtab", 1, unserved=1.0), cpu, np.full_like(cpu, np.nan))
    assert by_time.cpu.target[0] < 5.0
    assert by_use.cpu.target[0] >= 10.0


def test_trimtab_margin_of_quiet_hours_does_not_apply_to_a_busy_hour() -> None:
    """A spike over little use is cheap to cover; the same factor on much use would not be."""
    quiet = np.where(np.random.default_rng(7).random((12 * 72, 1)) < 0.02, 1.0, 0.05)
    sizer = strategy("trimtab", 1)
    live(sizer, quiet, np.full_like(quiet, np.nan))
    busy = live(sizer, steady(5.0, 3), np.full((36, 1), np.nan), start=72 * HOUR)
    assert 5.0 <= busy.cpu.target[0] <= 6.0


def test_trimtab_does_not_change_a_daily_cycle_every_hour() -> None:
    hours = np.arange(12 * 24 * 6)[:, None] / 12
    draw = np.random.default_rng(8)
    cpu = (1.2 + np.sin(hours / 24 * 2 * np.pi)) * draw.lognormal(0.0, 0.3, (len(hours), 5))
    fleet = Trace(tuple("abcde"), start=0.0, step=300.0, cpu=cpu, memory=np.full_like(cpu, np.nan))
    assert backtest(fleet, strategy("trimtab", 5), BacktestSchedule()).changes.max() <= 8.0


def test_trimtab_sizes_for_the_whole_stabilization_window() -> None:
    hours = np.arange(12 * 24 * 9)[:, None] / 12
    draw = np.random.default_rng(9)
    busy = (hours % 24 >= 9) & (hours % 24 < 17)
    cpu = np.where(busy, 2.0, 0.2) * draw.lognormal(0.0, 0.1, (len(hours), 5))
    sizer = strategy("trimtab", 5, stabilization=24 * HOUR)
    night = live(sizer, cpu[: -12 * 20], np.full_like(cpu[: -12 * 20], np.nan)).cpu.target.copy()
    noon = live(sizer, cpu[-12 * 20 : -12 * 12], np.full((12 * 8, 5), np.nan), start=(9 * 24 - 20) * HOUR)
    assert (night >= 1.8).all()
    np.testing.assert_allclose(noon.cpu.target, night, rtol=0.25)


def test_trimtab_with_stabilization_requests_less_than_the_highest_of_the_day() -> None:
    fleet, day = generate_sample_trace(40), BacktestSchedule(stabilization=24 * HOUR)
    knows, does_not = (
        backtest(fleet, strategy("trimtab", 40, stabilization=kept), day).summary()
        for kept in (24 * HOUR, 0.0)
    )
    assert knows["cpu_slack"] < does_not["cpu_slack"]
    assert knows["cpu_under"] <= TrimtabSettings().cpu_risk


def test_trimtab_oom_kill_raises_memory_at_once_and_within_a_bound() -> None:
    sizer = strategy("trimtab", 1)
    had = live(sizer, steady(0.2, 24), steady(1000 * MIB, 24)).memory.target[0]
    sizer.observe_oom(24 * HOUR, np.array([0]), np.array([had]))
    now = sizer.recommend(24 * HOUR).memory.target[0]
    assert 1.25 * had <= now <= 1.6 * had
    later = live(sizer, steady(0.2, 24), steady(1000 * MIB, 24), start=24 * HOUR)
    assert later.memory.target[0] <= 1.5 * now


def test_trimtab_reaches_twice_the_memory_within_two_oom_kills_of_one_hour() -> None:
    sizer, need, now = strategy("trimtab", 1), 2200 * MIB, 48.25 * HOUR
    size = live(sizer, steady(0.2, 48), steady(1000 * MIB, 48)).memory.target[0]
    sizer.observe(now, np.array([0.2]), np.array([1000.0 * MIB]))
    kills = 0
    while size < need:
        sizer.observe_oom(now, np.array([0]), np.array([size]))
        size, kills = sizer.recommend(now).memory.target[0], kills + 1
    assert kills == 2
    # What two kills gave beyond the need is not learned as a need.
    later = live(sizer, steady(0.2, 24), steady(need, 24), start=49 * HOUR).memory.target[0]
    assert need < later <= 1.41 * need


def test_trimtab_memory_covers_the_second_day_of_a_daily_peak() -> None:
    fleet = generate("diurnal_web", count=10, seed=99, duration=72 * HOUR).to_trace()
    assert backtest(fleet, strategy("trimtab", 10), BacktestSchedule()).ooms.sum() == 0


def test_trimtab_raises_slowly_growing_memory_before_its_margin_is_used_up() -> None:
    fleet = generate_sample_trace()
    scores = backtest(fleet, strategy("trimtab", fleet.container_count), BacktestSchedule())
    leaks = [name.startswith("leak") for name in scores.containers]
    assert sum(leaks) == 10
    assert scores.ooms[leaks].sum() == 0


@given(seed=st.integers(0, 2**32 - 1), others=st.integers(0, 6), kept=st.sampled_from([0.0, 24 * HOUR]))
@settings(max_examples=15, deadline=None)
def test_trimtab_size_does_not_depend_on_the_containers_sized_with_it(
    seed: int, others: int, kept: float
) -> None:
    draw = np.random.default_rng(seed)
    cpu = draw.lognormal(0, draw.uniform(0.05, 1.0, others + 1), (12 * 40, others + 1))
    memory = draw.lognormal(20, 0.1, (12 * 40, others + 1))
    cpu[: draw.integers(12 * 30), 0] = np.nan  # a young container
    alone = live(strategy("trimtab", 1, stabilization=kept), cpu[:, :1], memory[:, :1])
    among = live(strategy("trimtab", others + 1, stabilization=kept), cpu, memory)
    assert among.cpu.target[0] == alone.cpu.target[0]
    assert among.memory.target[0] == alone.memory.target[0]


def test_trimtab_last_level_weighs_the_end_of_the_hour_more() -> None:
    levels = np.repeat(np.random.default_rng(10).lognormal(0.0, 1.0, (24, 1)), 12 * 3, axis=0)
    before = np.hstack([levels, levels])
    last = np.repeat([[0.5, 4.0], [4.0, 0.5]], 6, axis=0)
    cpu = np.vstack([before, last])
    rising, falling = live(strategy("trimtab", 2), cpu, np.full_like(cpu, np.nan)).cpu.target
    assert falling < rising


def test_trimtab_recommend_within_an_epoch_does_not_change_state() -> None:
    draw = np.random.default_rng(11)
    cpu, memory = draw.lognormal(0, 0.6, (12 * 30, 9)), draw.lognormal(20, 0.1, (12 * 30, 9))
    unchanged, looked_at = strategy("trimtab", 9), strategy("trimtab", 9)
    for step, (cores, size) in enumerate(zip(cpu, memory, strict=True)):
        for sizer in (unchanged, looked_at):
            sizer.observe(300.0 * step, cores, size)
            if step % 50 == 7:
                sizer.observe_oom(300.0 * step, np.array([step % 9]), np.array([2.0**30]))
        if step % 5 == 0:
            looked_at.state()
    assert unchanged.state() == looked_at.state()


def test_trimtab_kernels_are_compiled_without_fastmath() -> None:
    kernels = [each for each in vars(forecast).values() if isinstance(each, Dispatcher)]
    assert kernels
    assert not any(kernel.targetoptions.get("fastmath") for kernel in kernels)


def test_trimtab_costs_less_than_vpa_without_more_harm() -> None:
    fleet = generate_sample_trace(40)
    ours = backtest(fleet, strategy("trimtab", 40), BacktestSchedule()).summary()
    theirs = backtest(fleet, strategy("vpa", 40), BacktestSchedule()).summary()
    assert ours["cpu_slack"] < 0.8 * theirs["cpu_slack"]
    assert ours["cpu_under"] <= theirs["cpu_under"]
    assert ours["cpu_deficit"] <= theirs["cpu_deficit"]
    assert ours["dollars_month"] < theirs["dollars_month"]


def test_trimtab_explains_forecast_margin_and_expected_cost_of_each_size() -> None:
    hours = np.arange(12 * 24 * 6)[:, None] / 12
    busy = (hours % 24 >= 9) & (hours % 24 < 17)
    sizer = strategy("trimtab", 1)
    assert sizer.explain(0.0, 0) == ()
    live(sizer, np.where(busy, 2.0, 0.2), steady(300 * MIB, 24 * 6))
    end = 300.0 * len(hours)
    size = sizer.recommend(end).cpu.target[0]
    cpu, memory = sizer.explain(end, 0)
    assert (cpu.name, memory.name, cpu.source) == ("cpu forecast", "memory forecast", "strategy trimtab")
    assert "same hour on former days); " in cpu.detail
    assert "m has the lowest expected cost: " in cpu.detail
    assert "300Mi" in memory.detail
    level, times = 0.2, float(cpu.detail.split(": ")[1].split(" ")[0])
    assert abs(level * times - size) < 0.01 or f"stays at {round(size * 1000)}m until" in cpu.detail


def test_trimtab_explains_the_stabilization_window_that_it_covers() -> None:
    sizer = strategy("trimtab", 1, stabilization=24 * HOUR)
    live(sizer, steady(0.5, 48), steady(300 * MIB, 48))
    cpu = sizer.explain(48 * HOUR, 0)[0]
    assert any(words in cpu.detail for words in ("last 24 h", "busiest hour of former days", "slow mean"))
