"""Render a comparison of policies as one HTML page: a table, and charts of nodes, requests and usage over time.

The page is self-contained: charts are SVG, there is no script and nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import numpy as np

from trimtab.api.quantity import GIB
from trimtab.lab.report import COLOURS, STYLE, render_table
from trimtab.lab.simulator.comparison import PolicyRun
from trimtab.lab.simulator.physics import Floats

WIDTH, HEIGHT, EDGE, LEGEND = 660, 240, 46, 150
MAX_POINTS = 600

ChartLine = tuple[str, Floats]


def render_page(
    title: str, runs: Sequence[PolicyRun], rows: Sequence[Sequence[str]], *, remarks: Sequence[str] = ()
) -> str:
    """Render the page; `rows` is the table with its head, `remarks` follow it, a paragraph each."""
    charts = [
        _render_comparison_chart("Nodes", runs, lambda run: run.metric_series("nodes")),
        _render_comparison_chart(
            "Cost of requests, $ a month", runs, lambda run: run.metric_series("dollars_month")
        ),
        *map(_render_cpu_chart, runs),
        *map(_render_memory_chart, runs),
        _render_comparison_chart(
            "OOM kills, total",
            runs,
            lambda run: np.cumsum(run.metric_series("kills")),
        ),
        _render_comparison_chart(
            "Services that miss their objective", runs, lambda run: run.metric_series("slow")
        ),
    ]
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{escape(title)}</h1><p>The same cluster and demand under each policy.</p>"
        f"{render_table(rows)}{''.join(f'<p>{escape(each)}' for each in remarks)}{''.join(charts)}"
    )


def _render_comparison_chart(
    title: str, runs: Sequence[PolicyRun], select: Callable[[PolicyRun], Floats]
) -> str:
    return render_chart(title, _elapsed_days(runs[0]), [(run.policy_name, select(run)) for run in runs])


def _render_cpu_chart(run: PolicyRun) -> str:
    lines = [(what, run.metric_series(f"cpu_{what}")) for what in ("allocatable", "requested", "used")]
    return render_chart(f"CPU under {run.policy_name}, cores", _elapsed_days(run), lines)


def _render_memory_chart(run: PolicyRun) -> str:
    lines = [
        (what, run.metric_series(f"memory_{what}") / GIB) for what in ("allocatable", "requested", "used")
    ]
    return render_chart(f"Memory under {run.policy_name}, GiB", _elapsed_days(run), lines)


def _elapsed_days(run: PolicyRun) -> Floats:
    at = run.metric_series("at")
    days: Floats = (at - at[0]) / 86400
    return days


def render_chart(title: str, days: Floats, lines: Sequence[ChartLine]) -> str:
    """Render lines over days, with a y-axis from 0."""
    top = max(1e-9, *(float(values.max()) for _, values in lines))
    long = max(float(days[-1]), 1e-9)
    every = max(1, len(days) // MAX_POINTS)

    def x(day: float) -> float:
        return EDGE + day / long * (WIDTH - 2 * EDGE)

    def y(value: float) -> float:
        return HEIGHT - EDGE - value / top * (HEIGHT - 2 * EDGE)

    drawn = []
    for share in (0.0, 0.5, 1.0):
        drawn.append(f'<path d="M{EDGE} {y(share * top):.1f}H{WIDTH - EDGE}" stroke="#e2e8f0"/>')
        drawn.append(
            f'<text x="{EDGE - 6}" y="{y(share * top) + 4:.1f}" text-anchor="end">{share * top:,.4g}</text>'
        )
    drawn += [
        f'<text x="{x(day):.1f}" y="{HEIGHT - EDGE + 18}" text-anchor="middle">day {day}</text>'
        for day in range(0, int(long) + 1, max(1, round(long / 7)))
    ]
    for number, (name, values) in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(
            f"{x(day):.1f},{y(value):.1f}" for day, value in zip(days[::every], values[::every], strict=True)
        )
        drawn.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        drawn.append(
            f'<text x="{WIDTH - EDGE + 8}" y="{EDGE + 18 * number}" fill="{colour}">{escape(name)}</text>'
        )
    return (
        f'<h2>{escape(title)}</h2><svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {WIDTH + LEGEND} {HEIGHT}" font-size="13">{"".join(drawn)}</svg>'
    )
