"""Test the text chart."""

from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.quantity import format_short
from trimtab.scan.render.text_chart import downsample_max, draw_chart


def test_draw_chart_places_and_names_lines() -> None:
    rows = draw_chart(
        np.array([0.0, 50.0, 100.0, 50.0]),
        {"limit": 200.0, "request": 100.0, "none": None},
        text=partial(format_short, "cpu"),
        width=30,
        height=4,
    )
    assert rows[0].endswith("limit 200m")
    assert rows[0].startswith("┄┄┄┄ ")
    assert rows[2].endswith("request 100m")
    assert "none" not in "".join(rows)


@given(
    usage=st.lists(st.one_of(st.floats(0, 1e12), st.just(float("nan"))), max_size=300),
    lines=st.dictionaries(st.sampled_from(["limit", "request", "recommended"]), st.floats(0, 1e12)),
    width=st.integers(20, 200),
)
def test_draw_chart_keeps_width_and_height(usage: list[float], lines: dict[str, float], width: int) -> None:
    rows = draw_chart(
        np.array(usage), dict(lines), text=lambda amount: f"{amount:.0e}", width=width, height=6
    )
    assert len(rows) == 6
    longest = sum(len(name) + 9 for name in lines)
    assert all(len(row) <= max(width, longest + 12) for row in rows)


@given(usage=st.lists(st.floats(0, 1e9), min_size=1, max_size=500), width=st.integers(1, 100))
def test_downsample_max_keeps_peaks(usage: list[float], width: int) -> None:
    columns = downsample_max(np.array(usage), width)
    assert len(columns) == min(width, len(usage))
    assert columns.max() == max(usage)
