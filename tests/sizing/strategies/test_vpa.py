"""Compare strategy `vpa` with the real VPA recommender: its own Go code answers the same series."""

import numpy as np
import pytest

from trimtab.sizing import strategy


def test_vpa_bounds_are_wide_while_history_is_short() -> None:
    sizer = strategy("vpa", containers=1, pod_min_cpu=0, pod_min_memory=0)
    for minute in range(60):
        sizer.observe(minute * 60.0, np.array([1.0]), np.array([1e9]))
    hour = sizer.recommend(3600.0).cpu
    for minute in range(60, 3 * 1440):
        sizer.observe(minute * 60.0, np.array([1.0]), np.array([1e9]))
    days = sizer.recommend(3 * 86400.0).cpu
    assert hour.target == days.target
    assert hour.upper > 10 * days.upper
    assert hour.lower < days.lower <= days.target


def test_vpa_settings_reject_percentiles_that_do_not_ascend() -> None:
    with pytest.raises(Exception, match="must ascend"):
        strategy("vpa", containers=1, lower_percentile=0.95)
