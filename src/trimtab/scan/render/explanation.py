"""Render an explanation for a terminal, as a self-contained HTML page, or as one image for a ticket or a slide."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.api.quantity import format_short
from trimtab.kube.kinds.pods import Resources
from trimtab.lazy import require_extra
from trimtab.plural import format_time_span, pluralize
from trimtab.scan.explanation import ContainerExplanation, Explanation
from trimtab.scan.pricing import format_fraction, format_money
from trimtab.scan.render.html import MISSING, REQUESTED, USED, WASTED, render_template
from trimtab.scan.render.summary import format_change, list_gaps, list_operator_notes
from trimtab.scan.render.text_chart import downsample_max, draw_chart
from trimtab.usage.trace import Floats

BACKTEST_HEADER = ("STRATEGY", "CPU SLACK", "TIME UNDER", "MEM SLACK", "OOM KILLS/DAY", "COST/MONTH")
BACKTEST_NOTE = (
    "The first row has the settings in use. Each row replays its history and counts what it would have requested: slack is "
    "requested and not used, time under is the share of time with more CPU used than requested. The oracle knows the future."
)
NO_BACKTEST = "Its history is too short for a backtest of goals and strategies."
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
    for line in (*list_gaps(scan), *list_operator_notes((workload,))):
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
        yield ""
        if each.backtests:
            yield Text(f"Goals and strategies on its own history of {_format_span(each)}:")
            yield _build_backtest_table(found, each)
            yield Text(BACKTEST_NOTE, style="dim")
        else:
            yield Text(NO_BACKTEST, style="dim")


def render_page(found: Explanation) -> str:
    """Render the same as HTML, with charts in SVG."""
    return render_template(
        "explanation.html",
        title=f"Trimtab: {found.key}",
        found=found,
        pods=pluralize(found.workload.replicas, "pod"),
        sections=[_build_section(found, each) for each in found.containers],
        backtest_header=BACKTEST_HEADER,
        backtest_note=BACKTEST_NOTE,
        no_backtest=NO_BACKTEST,
    )


def _build_section(found: Explanation, each: ContainerExplanation) -> dict[str, object]:
    """Build what the page shows of one container."""
    return {
        "name": each.container.name,
        "summary": _summarize(found, each),
        "plots": [_build_svg_plot(*plot) for plot in build_plots(each)],
        "factors": (*found.facts, *each.container.recommendation.explanation),
        "backtests": _build_backtest_rows(found, each),
    }


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
    if step := each.container.next_step:
        parts.append(
            "in several changes, of which the next sets CPU to "
            f"{format_short('cpu', step.cpu_request)} and memory to {format_short('memory', step.memory_request)}"
        )
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
    table.columns[0].no_wrap = True
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
                format_fraction(summary["cpu_slack"]),
                format_fraction(summary["cpu_under"]),
                format_fraction(summary["memory_slack"]),
                "-" if math.isnan(summary["ooms_day"]) else f"{summary['ooms_day']:.2f}",
                format_money(cost, found.scan.prices.currency),
            )
        )
    return rows


class _SvgLine(NamedTuple):
    """A horizontal line at an amount, with a label to the right."""

    y: float
    label_y: float
    label: str
    colour: str


class _SvgPlot(NamedTuple):
    """The coordinates of a plot in its SVG picture."""

    title: str
    width: int
    height: int
    column_width: float
    columns: list[tuple[float, float]]
    """The left and upper edge of each column with samples."""
    lines: list[_SvgLine]


def _build_svg_plot(
    title: str, usage: Floats, lines: dict[str, float | None], text: Callable[[float], str]
) -> _SvgPlot:
    columns = downsample_max(usage, PLOT_WIDTH // 2)
    drawn = {name: amount for name, amount in lines.items() if amount is not None}
    top = 1.08 * max([float(np.fmax.reduce(columns, initial=0.0)), *drawn.values(), 1e-9])

    def y(amount: float) -> float:
        return PLOT_HEIGHT * (1 - amount / top)

    width = PLOT_WIDTH / max(len(columns), 1)
    labelled: list[_SvgLine] = []
    label_y = -float(PLOT_HEIGHT)
    for name, amount in sorted(drawn.items(), key=lambda line: y(line[1])):
        label_y = max(y(amount) + 5, label_y + 15)  # labels must not overlap
        labelled.append(_SvgLine(y(amount), label_y, f"{name} {text(amount)}", LINE_COLOURS[name]))
    return _SvgPlot(
        title=title,
        width=PLOT_WIDTH,
        height=PLOT_HEIGHT,
        column_width=width,
        columns=[
            (place * width, y(amount))
            for place, amount in enumerate(columns.tolist())
            if not math.isnan(amount)
        ],
        lines=labelled,
    )


COLUMNS = 600
DAY = 86400.0


def render_png(found: Explanation) -> bytes:
    """Render a row per container: CPU and memory over time with the current and recommended sizes."""
    with require_extra("pictures", "--output png"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(13, 3.2 * len(found.containers)), layout="constrained")
    figure.suptitle(str(found.key))
    rows = figure.subplots(len(found.containers), 2, squeeze=False)
    for row, each in zip(rows, found.containers, strict=True):
        days = each.trace.steps * each.trace.step / DAY
        for axes, (name, usage, lines, text) in zip(row, build_plots(each), strict=True):
            columns = downsample_max(usage, COLUMNS)
            axes.fill_between(np.linspace(0, days, len(columns)), np.nan_to_num(columns), color=USED)
            for line, amount in lines.items():
                if amount is not None:
                    axes.axhline(
                        amount, color=LINE_COLOURS[line], linestyle="--", label=f"{line} {text(amount)}"
                    )
            axes.set_title(f"{each.container.name}: {name}", fontsize=10)
            axes.set_xlabel("days")
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(lambda amount, _, text=text: text(amount))
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="upper right", fontsize=8)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()
