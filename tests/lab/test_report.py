"""The page of a back-test is whole in itself."""

from dataclasses import replace

import numpy as np

from trimtab.lab.backtest import BacktestSchedule, backtest, generate_sample_trace
from trimtab.lab.report import BacktestOutcome, describe_partial_coverage, render_page, render_section
from trimtab.sizing import strategy


def test_backtest_page_shows_strategies_and_worst_containers_without_requests() -> None:
    fleet = generate_sample_trace(8)
    outcomes = [
        BacktestOutcome("vpa", "", backtest(fleet, strategy("vpa", 8), BacktestSchedule())),
        BacktestOutcome(
            "vpa", "margin=<0>", backtest(fleet, strategy("vpa", 8, margin=0), BacktestSchedule())
        ),
    ]
    rows = [("STRATEGY", "SLACK"), ("vpa", "1")]
    text = render_page("A & B", [render_section("A & B", outcomes, rows)])
    assert "A &amp; B" in text
    assert "vpa margin=&lt;0&gt;: slack" in text
    assert text.count("<svg") == 2
    assert "The worst of vpa" in text
    assert "spiky-0" in text
    assert "<script" not in text
    assert "src=" not in text


def test_backtest_page_names_strategies_that_sized_fewer_containers() -> None:
    fleet = generate_sample_trace(4)
    all_of_them = backtest(fleet, strategy("vpa", 4), BacktestSchedule())
    young = replace(fleet, cpu=fleet.cpu[:100], memory=fleet.memory[:100])
    young.cpu[:, 1:] = np.nan
    young.memory[:, 1:] = np.nan
    few = backtest(young, strategy("vpa", 4), BacktestSchedule())
    outcomes = [BacktestOutcome("vpa", "", all_of_them), BacktestOutcome("<krr>", "", few)]
    assert describe_partial_coverage(outcomes) == [
        "<krr> sized 1 of 4 containers; its scores cover only these"
    ]
    assert "<p>&lt;krr&gt; sized 1 of 4 containers" in render_section("Few", outcomes, [("STRATEGY",)])
    assert describe_partial_coverage(outcomes[:1]) == []


def test_backtest_page_has_no_score_for_what_was_not_recorded() -> None:
    fleet = generate_sample_trace(4)
    bare = replace(fleet, memory=np.full_like(fleet.memory, np.nan))
    outcomes = [BacktestOutcome("vpa", "", backtest(bare, strategy("vpa", 4), BacktestSchedule()))]
    text = render_section("CPU", outcomes, [("STRATEGY",)])
    assert "nan" not in text
    assert "<td>-</td>" in text
