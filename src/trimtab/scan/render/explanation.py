"""Render an explanation for a terminal, or as a self-contained HTML page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from html import escape

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.api.format import format_short
from trimtab.kube.kinds.pods import Resources
from trimtab.plural import format_time_span, pluralize
from trimtab.scan.explanation import ContainerExplanation, Explanation
from trimtab.scan.render.html import MISSING, REQUESTED, STYLE, USED, WASTED, render_html_table
from trimtab.scan.render.summary import format_change, list_gaps
from trimtab.scan.render.text_chart import downsample_max, draw_chart
from trimtab.scan.render.units import format_money
from trimtab.usage.trace import Floats

BACKTEST_HEADER = ("STRATEGY", "CPU SLACK", "TIME UNDER", "MEM SLACK", "OOM KILLS A DAY", "COST A MONTH")
PLOT_WIDTH, PLOT_HEIGHT = 720, 180
MIN_SAMPLES = 2
"""The number of samples that a chart needs; metrics-server gives only one at first."""
LINE_COLOURS = {"request": REQUESTED, "limit": WASTED, "recommended": MISSING}


def render_explanation(found: Explanation, *, width: int) -> Iterator[RenderableType]:
    """Yield the parts to print, in order."""
    scan, workload = found.scan, found.workload
    yield Text(
        f"{found.key}: {pluralize(workload.replicas, 'pod')}, {workload.confidence} confidence", style="bold"
    )
    yield Text(f"Usage: {scan.source}", style="dim")
    for line in list_gaps(scan):
        yield Text(line, style="yellow")
    for each in found.containers:
        yield ""
        yield Text(f"Container {each.container.name}", style="bold")
        yield Text(_summarize(found, each))
        for name, usage, lines, text in build_plots(each):
            if np.count_nonzero(np.isfinite(usage)) < MIN_SAMPLES:
                continue
            yield ""
            yield Text(f"{name}, {_format_span(each)}:")
            yield from (Text(row, no_wrap=True) for row in draw_chart(usage, lines, text=text, width=width))
        yield ""
        yield _build_factor_table(found, each)
        if each.backtests:
            yield ""
            yield Text("Backtest of the strategies on its own history:")
            yield _build_backtest_table(found, each)


def render_page(found: Explanation) -> str:
    """Render the same as HTML, with charts in SVG."""
    name = f"Trimtab: {found.key}"
    workload = found.workload
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(name)}</title><style>{STYLE}</style>"
        f"<h1>{escape(str(found.key))}</h1><p class=source>{pluralize(workload.replicas, 'pod')}, {workload.confidence} confidence. "
        f"Usage: {escape(found.scan.source)}</p>"
        + "".join(f"<p class=gap>{escape(line)}</p>" for line in list_gaps(found.scan))
        + "".join(_render_section(found, each) for each in found.containers)
        + "\n"
    )


def _render_section(found: Explanation, each: ContainerExplanation) -> str:
    drawn = "".join(
        f"<h3>{escape(name)}</h3>{_render_svg(usage, lines, text)}"
        for name, usage, lines, text in build_plots(each)
    )
    factors = [
        (escape(factor.name), escape(factor.detail), escape(factor.source))
        for factor in (*found.facts, *each.container.recommendation.explanation)
    ]
    backtests = [[escape(cell) for cell in row] for row in _build_backtest_rows(found, each)]
    return (
        f"<h2>Container {escape(each.container.name)}</h2><p>{escape(_summarize(found, each))}</p>{drawn}"
        f"<h3>Factors behind the numbers</h3>{render_html_table(('Factor', 'Effect', 'Source'), factors, kind='words')}"
        + (
            f"<h3>Backtest on its own history</h3>{render_html_table(BACKTEST_HEADER, backtests)}"
            if backtests
            else ""
        )
    )


def _summarize(found: Explanation, each: ContainerExplanation) -> str:
    current, recommended, saving = each.container.current, each.container.recommended, each.container.saving
    money = format_money(abs(saving), found.scan.prices.currency)
    parts = [
        f"CPU {format_change('cpu', current.cpu_request, recommended.cpu_request)}",
        f"limit {format_change('cpu', current.cpu_limit, recommended.cpu_limit)}",
        f"memory {format_change('memory', current.memory_request, recommended.memory_request)}",
        f"limit {format_change('memory', current.memory_limit, recommended.memory_limit)}",
        f"costs {money} more a month" if saving < 0 else f"saves {money} a month",
    ]
    if each.container.risks:
        parts.append(f"at risk of {' and '.join(each.container.risks)}")
    if each.container.recommendation.no_change_reason:
        parts.append(f"no change: {each.container.recommendation.no_change_reason}")
    return "; ".join(parts)


UsagePlot = tuple[str, Floats, dict[str, float | None], Callable[[float], str]]


def build_plots(each: ContainerExplanation) -> list[UsagePlot]:
    """Build the plots of one container: title, usage, the sizes to compare with, and the formatter of amounts."""
    current, recommended, trace = each.container.current, each.container.recommended, each.trace

    def lines(part: Callable[[Resources], tuple[int | None, int | None]]) -> dict[str, float | None]:
        (request, limit), (wanted, _) = part(current), part(recommended)
        return {"limit": limit, "request": request, "recommended": wanted}

    return [
        (
            "CPU of the busiest pod",
            trace.cpu[:, 0] * 1000,
            lines(lambda size: (size.cpu_request, size.cpu_limit)),
            partial(format_short, "cpu"),
        ),
        (
            "Memory of the largest pod",
            trace.memory[:, 0],
            lines(lambda size: (size.memory_request, size.memory_limit)),
            partial(format_short, "memory"),
        ),
    ]


def _format_span(each: ContainerExplanation) -> str:
    return format_time_span(each.trace.steps * each.trace.step)


def _build_factor_table(found: Explanation, each: ContainerExplanation) -> Table:
    table = Table("FACTOR", "EFFECT", "SOURCE", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.columns[1].ratio = 1
    for factor in (*found.facts, *each.container.recommendation.explanation):
        table.add_row(Text(factor.name), Text(factor.detail), Text(factor.source, style="dim"))
    return table


def _build_backtest_table(found: Explanation, each: ContainerExplanation) -> Table:
    table = Table(*BACKTEST_HEADER, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in _build_backtest_rows(found, each):
        table.add_row(*row)
    return table


def _build_backtest_rows(found: Explanation, each: ContainerExplanation) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for backtest in each.backtests:
        summary, cost = backtest.scores.summary(), found.price_backtest(backtest)
        rows.append(
            (
                backtest.strategy,
                _format_share(summary["cpu_slack"]),
                _format_share(summary["cpu_under"]),
                _format_share(summary["memory_slack"]),
                "-" if math.isnan(summary["ooms_day"]) else f"{summary['ooms_day']:.2f}",
                format_money(cost, found.scan.prices.currency),
            )
        )
    return rows


def _format_share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"


def _render_svg(usage: Floats, lines: dict[str, float | None], text: Callable[[float], str]) -> str:
    columns = downsample_max(usage, PLOT_WIDTH // 2)
    drawn = {name: amount for name, amount in lines.items() if amount is not None}
    top = 1.08 * max([float(np.fmax.reduce(columns, initial=0.0)), *drawn.values(), 1e-9])

    def y(amount: float) -> float:
        return PLOT_HEIGHT * (1 - amount / top)

    step = PLOT_WIDTH / max(len(columns), 1)
    bars = "".join(
        f'<rect x="{place * step:.1f}" y="{y(amount):.1f}" width="{step:.1f}" height="{PLOT_HEIGHT - y(amount):.1f}"/>'
        for place, amount in enumerate(columns.tolist())
        if not math.isnan(amount)
    )
    across, below = "", -float(PLOT_HEIGHT)
    for name, amount in sorted(drawn.items(), key=lambda line: y(line[1])):
        below = max(y(amount) + 5, below + 15)  # labels must not overlap
        across += (
            f'<path d="M0 {y(amount):.1f}H{PLOT_WIDTH}" stroke="{LINE_COLOURS[name]}" stroke-width="2" '
            f'stroke-dasharray="6 3"/><text x="{PLOT_WIDTH + 6}" y="{below:.1f}" fill="{LINE_COLOURS[name]}">'
            f"{name} {escape(text(amount))}</text>"
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -10 {PLOT_WIDTH + 180} {PLOT_HEIGHT + 40}" '
        f'width="{PLOT_WIDTH + 180}" font-size="13" role="img"><g fill="{USED}" shape-rendering="crispEdges">{bars}</g>{across}</svg>'
    )
