"""Test the backtest in the explanation of a workload."""

import numpy as np

from trimtab.scan.explanation import backtest_strategies
from trimtab.usage.trace import Trace


def test_backtest_strategies_applies_settings_to_chosen_strategy() -> None:
    draw = np.random.default_rng(1)
    cpu, memory = draw.gamma(2.0, 0.2, (864, 1)), draw.normal(3e8, 2e7, (864, 1))
    trace = Trace(("web",), start=0.0, step=300.0, cpu=cpu, memory=memory)
    usual, low = (
        {
            each.strategy: each.scores.summary()["cpu_slack"]
            for each in backtest_strategies(trace, "percentile", settings, stabilization=0.0)
        }
        for settings in ({}, {"quantile": 0.5})
    )
    assert low.pop("percentile") < usual.pop("percentile")
    assert low == usual


def test_backtest_strategies_shows_what_each_goal_costs_and_harms() -> None:
    draw = np.random.default_rng(1)
    cpu, memory = draw.gamma(2.0, 0.2, (1440, 1)), draw.normal(3e8, 2e7, (1440, 1))
    trace = Trace(("web",), start=0.0, step=300.0, cpu=cpu, memory=memory)
    found = {
        each.strategy: each.scores.summary()
        for each in backtest_strategies(trace, "trimtab", {"stabilization": 86400.0}, stabilization=86400.0)
    }
    savings, balanced, reliability, batch = (
        found[f"goal {goal}"] for goal in ("Savings", "Balanced", "Reliability", "Batch")
    )
    assert balanced == found["trimtab"]
    assert batch["cpu_slack"] < savings["cpu_slack"] < balanced["cpu_slack"] < reliability["cpu_slack"]
    assert batch["memory_slack"] == reliability["memory_slack"]
    assert savings["cpu_under"] > balanced["cpu_under"] > reliability["cpu_under"]
