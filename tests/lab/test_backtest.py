"""A back-test counts what was asked for and what was needed, as the loop would have run."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.api.quantity import GIB
from trimtab.lab.backtest import BacktestSchedule, backtest, generate_sample_trace
from trimtab.lab.job import BacktestJob, Oracle, select_schedule_settings
from trimtab.prices import CPU_HOUR, GIB_HOUR
from trimtab.sizing import Settings, Strategy, TargetRange, Targets, strategy
from trimtab.sizing.state import Array, Floats, Indices
from trimtab.sizing.strategy import Traits
from trimtab.usage.trace import Trace

GIVEN = BacktestSchedule(update=120.0, warm_up=0.0)


class Says(Strategy[Settings]):
    """Returns scripted recommendations and records its samples."""

    name = "says"
    settings_type = Settings

    def __init__(self, cpu: float, memory: float, containers: int = 1) -> None:
        super().__init__(containers, Settings())
        self.cpu, self.memory = np.full(containers, cpu), np.full(containers, memory)
        self.shown: list[tuple[float, float, float]] = []
        self.ooms: list[tuple[float, int, float]] = []
        self.asked: list[float] = []

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        self.shown.append((t, float(cpu[0]), float(memory[0])))

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:
        self.ooms += [
            (t, int(container), float(size)) for container, size in zip(containers, memory, strict=True)
        ]
        self.memory[containers] = memory * 2

    def recommend(self, t: float) -> Targets:
        self.asked.append(t)
        cpu, memory = self.cpu.copy(), self.memory.copy()
        return Targets(cpu=TargetRange(cpu, cpu, cpu), memory=TargetRange(memory, memory, memory))

    def arrays(self) -> dict[str, Array]:
        return {}

    def load_arrays(self, arrays: Mapping[str, Array]) -> None: ...


def trace(cpu: list[float], memory: list[float] | None = None) -> Trace:
    use = np.array(cpu)[:, None]
    return Trace(
        names=("web",),
        start=0.0,
        step=60.0,
        cpu=use,
        memory=np.full_like(use, np.nan) if memory is None else np.array(memory)[:, None],
    )


def summary(trace: Trace, sizer: Strategy[Any], schedule: BacktestSchedule = GIVEN) -> dict[str, float]:
    return backtest(trace, sizer, schedule).summary()


def test_slack_and_deficit_are_what_the_definitions_say() -> None:
    scores = summary(trace([1.0, 3.0, 2.0, 6.0]), Says(4.0, np.nan))
    assert scores["cpu_slack"] == pytest.approx((3 + 1 + 2) / 16)
    assert scores["cpu_under"] == 0.25
    assert scores["cpu_deficit"] == pytest.approx(2 / 12)
    assert np.isnan(scores["memory_slack"])


def test_money_is_the_request_at_the_prices_of_opencost() -> None:
    scores = summary(trace([1.0] * 4, [GIB] * 4), Says(2.0, 3 * GIB))
    assert scores["dollars_month"] == pytest.approx(730 * (2 * CPU_HOUR + 3 * GIB_HOUR))


def test_backtest_does_not_score_a_strategy_without_answers_as_cheap() -> None:
    assert np.isnan(summary(trace([1.0] * 4), Says(np.nan, np.nan))["dollars_month"])


def test_backtest_update_sees_only_earlier_samples() -> None:
    sizer = Says(1.0, np.nan)
    summary(trace([1.0] * 6), sizer)
    assert sizer.asked == [0.0, 120.0, 240.0]
    assert [t for t, _, _ in sizer.shown] == [0.0, 60.0, 120.0, 180.0, 240.0, 300.0]


def test_backtest_counts_nothing_during_warm_up() -> None:
    sizer = Says(1.0, np.nan)
    scores = backtest(trace([9.0] * 4 + [1.0] * 12), sizer, BacktestSchedule(update=120.0, warm_up=240.0))
    assert sizer.asked[0] == 240.0
    assert scores.summary()["cpu_under"] == 0.0


def test_backtest_warms_up_for_a_quarter_of_a_short_history() -> None:
    sizer = Says(1.0, np.nan)
    backtest(trace([1.0] * 16), sizer, BacktestSchedule(update=120.0, warm_up=86400.0))
    assert sizer.asked[0] == 240.0


def test_backtest_counts_a_gap_neither_as_use_nor_as_time() -> None:
    assert summary(trace([1.0, np.nan, 3.0, np.nan]), Says(2.0, np.nan))["cpu_under"] == 0.5


def test_backtest_does_not_score_a_container_without_an_answer() -> None:
    assert summary(trace([1.0] * 4), Says(np.nan, np.nan))["containers"] == 0


def test_backtest_restarts_a_killed_container_with_the_next_recommendation() -> None:
    sizer = Says(1.0, 100.0)
    scores = summary(trace([1.0] * 6, [50.0, 150.0, 150.0, 50.0, 50.0, 50.0]), sizer)
    assert sizer.ooms == [(60.0, 0, 100.0)]
    assert [memory for _, _, memory in sizer.shown] == [50.0, 100.0, 150.0, 50.0, 50.0, 50.0]
    assert scores["ooms_day"] == pytest.approx(86400 / 360)
    assert scores["oom_share"] == 1.0


def test_backtest_counts_each_shortage_of_memory_as_an_oom() -> None:
    sizer = Says(1.0, 10.0)
    summary(trace([1.0] * 4, [75.0] * 4), sizer)
    assert [size for _, _, size in sizer.ooms] == [10.0, 20.0, 40.0]


def test_changes_over_five_percent_are_counted() -> None:
    class Grows(Says):
        def recommend(self, t: float) -> Targets:
            self.cpu *= 1.04 if t < 240 else 1.10
            return super().recommend(t)

    scores = summary(trace([1.0] * 8), Grows(2.0, np.nan))
    assert scores["changes_day"] == pytest.approx(2 * 86400 / 480)


def test_backtest_counts_days_with_sparse_samples() -> None:
    class Grows(Says):
        def recommend(self, t: float) -> Targets:
            self.cpu *= 1.10
            return super().recommend(t)

    scores = summary(trace([1.0, np.nan, np.nan, 1.0, np.nan, np.nan, np.nan, 1.0]), Grows(2.0, np.nan))
    assert scores["changes_day"] == pytest.approx(3 * 86400 / 480)


def test_backtest_skips_changes_below_the_minimum() -> None:
    class Grows(Says):
        def recommend(self, t: float) -> Targets:
            self.cpu *= 1.06
            return super().recommend(t)

    still = backtest(
        trace([1.0] * 4), Grows(1.0, np.nan), BacktestSchedule(update=120.0, warm_up=0, minimum_change=0.1)
    )
    assert still.summary()["changes_day"] == 0


def test_backtest_decreases_to_the_highest_recent_proposal() -> None:
    class Follows(Says):
        def recommend(self, t: float) -> Targets:
            self.cpu[:] = {0.0: 1.0, 120.0: 3.0}.get(t, 2.0)
            return super().recommend(t)

    use = trace([1.0] * 12)
    kept = BacktestSchedule(update=120.0, warm_up=0, stabilization=240.0)
    slack = backtest(use, Follows(1.0, np.nan), kept).summary()["cpu_slack"]
    assert slack == pytest.approx(1 - 6 / (1 + 3 + 3 + 3 + 2 + 2))


def test_backtest_without_stabilization_applies_each_proposal() -> None:
    class Shrinks(Says):
        def recommend(self, t: float) -> Targets:
            self.cpu[:] = 8.0 - t / 120.0
            return super().recommend(t)

    slack = backtest(trace([1.0] * 12), Shrinks(1.0, np.nan), BacktestSchedule(update=150.0, warm_up=0))
    assert slack.summary()["cpu_slack"] == pytest.approx(1 - 6 / (8 + 7 + 6 + 5 + 4 + 3))


def test_backtest_does_not_stabilize_a_strategy_that_covers_the_day() -> None:
    class Follows(Says):
        traits = Traits(covers_stabilization=True)

        def recommend(self, t: float) -> Targets:
            self.cpu[:] = {0.0: 1.0, 120.0: 3.0}.get(t, 2.0)
            return super().recommend(t)

    kept = BacktestSchedule(update=120.0, warm_up=0, stabilization=240.0)
    slack = backtest(trace([1.0] * 12), Follows(1.0, np.nan), kept).summary()["cpu_slack"]
    assert slack == pytest.approx(1 - 6 / (1 + 3 + 2 + 2 + 2 + 2))


@pytest.mark.parametrize(("settings", "kept"), [({}, 7200.0), ({"stabilization": "0"}, 0.0)])
def test_backtest_gives_a_strategy_its_schedule_unless_configured(
    settings: dict[str, str], kept: float
) -> None:
    fleet, schedule = generate_sample_trace(4), BacktestSchedule(update=1800.0, stabilization=7200.0)
    found = BacktestJob("made up", "trimtab", settings).compute_scores(fleet, schedule).summary()
    sizer = strategy("trimtab", 4, update=1800.0, stabilization=kept)
    assert found == backtest(fleet, sizer, schedule).summary()
    assert "update" not in select_schedule_settings("vpa", schedule)


def test_backtest_oracle_has_no_harm_and_the_least_slack() -> None:
    fleet = generate_sample_trace(8)
    oracle = summary(fleet, Oracle(fleet, update=3600.0), BacktestSchedule())
    assert oracle["cpu_under"] == oracle["ooms_day"] == 0.0
    most = np.nanmax(fleet.cpu, axis=0)
    sizer = Says(1.0, 1e12, containers=8)
    sizer.cpu[:] = most
    assert oracle["cpu_slack"] < summary(fleet, sizer, BacktestSchedule())["cpu_slack"]


def test_backtest_is_deterministic() -> None:
    fleet = generate_sample_trace(12)
    one, two = (summary(fleet, strategy("trimtab", 12), BacktestSchedule()) for _ in range(2))
    assert one == two


def test_progress_reaches_the_end() -> None:
    done: list[int] = []
    backtest(trace([1.0] * 5), Says(1.0, np.nan), GIVEN, progress=done.append)
    assert done == [2, 2, 1]


usage = st.lists(st.one_of(st.just(float("nan")), st.floats(0, 1e3)), min_size=1, max_size=40)


@settings(max_examples=100)
@given(cpu=usage, request=st.floats(0.001, 1e3))
def test_scores_are_shares_and_use_is_either_served_or_missing(cpu: list[float], request: float) -> None:
    cpu = [1.0, *cpu]  # a container is sized at the first update after its first sample
    scores = backtest(trace(cpu), Says(request, np.nan), GIVEN)
    use = float(np.nansum(cpu))
    served = float(np.nansum(np.minimum(cpu, request)))
    assert 0 <= scores.cpu_slack[0] <= 1
    assert 0 <= scores.cpu_under[0] <= 1
    assert scores.cpu_deficit[0] * use == pytest.approx(use - served, abs=1e-6)
