"""An explanation as people read it: on a terminal, or as a page that is whole in itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from html import escape

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.kube.kinds.pods import Resources
from trimtab.plural import counted, lasting
from trimtab.scan.explanation import Explained, Explanation
from trimtab.scan.render.html import MISSING, REQUESTED, STYLE, USED, WASTED, table_html
from trimtab.scan.render.summary import change, gaps
from trimtab.scan.render.text_chart import chart, squeezed
from trimtab.scan.render.units import cpu_text, memory_text, money_text
from trimtab.usage.trace import Floats

FARED_HEAD = ("STRATEGY", "CPU SLACK", "TIME UNDER", "MEM SLACK", "OOMS A DAY", "A MONTH")
PLOT_WIDTH, PLOT_HEIGHT = 720, 180
LEAST_DRAWN = 2
"""Samples: one, as metrics-server gives at a first look, makes no chart of characters."""
LINE_COLOURS = {"request": REQUESTED, "limit": WASTED, "recommended": MISSING}


def renderables(found: Explanation, *, width: int) -> Iterator[RenderableType]:
    """What to print, one after the other."""
    survey, workload = found.survey, found.workload
    yield Text(
        f"{found.key}: {counted(workload.replicas, 'pod')}, {workload.confidence} confidence", style="bold"
    )
    yield Text(f"Usage: {survey.source}", style="dim")
    for line in gaps(survey):
        yield Text(line, style="yellow")
    for each in found.containers:
        yield ""
        yield Text(f"Container {each.container.name}", style="bold")
        yield Text(_summary(found, each))
        for name, usage, lines, text in plots(each):
            if np.count_nonzero(np.isfinite(usage)) < LEAST_DRAWN:
                continue
            yield ""
            yield Text(f"{name}, {_span(each)}:")
            yield from (Text(row, no_wrap=True) for row in chart(usage, lines, text=text, width=width))
        yield ""
        yield _factors(found, each)
        if each.fared:
            yield ""
            yield Text("On its own history these strategies would have fared so:")
            yield _fared(found, each)


def page(found: Explanation) -> str:
    """The same as HTML, with charts in SVG."""
    name = f"Trimtab: {found.key}"
    workload = found.workload
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(name)}</title><style>{STYLE}</style>"
        f"<h1>{escape(str(found.key))}</h1><p class=source>{counted(workload.replicas, 'pod')}, {workload.confidence} confidence. "
        f"Usage: {escape(found.survey.source)}</p>"
        + "".join(f"<p class=gap>{escape(line)}</p>" for line in gaps(found.survey))
        + "".join(_section(found, each) for each in found.containers)
        + "\n"
    )


def _section(found: Explanation, each: Explained) -> str:
    drawn = "".join(
        f"<h3>{escape(name)}</h3>{_svg(usage, lines, text)}" for name, usage, lines, text in plots(each)
    )
    factors = [
        (escape(factor.name), escape(factor.detail), escape(factor.source))
        for factor in (*found.facts, *each.container.recommendation.explanation)
    ]
    fared = [[escape(cell) for cell in row] for row in _fared_rows(found, each)]
    return (
        f"<h2>Container {escape(each.container.name)}</h2><p>{escape(_summary(found, each))}</p>{drawn}"
        f"<h3>How the numbers came about</h3>{table_html(('Factor', 'What it did', 'Source'), factors, kind='words')}"
        + (f"<h3>On its own history</h3>{table_html(FARED_HEAD, fared)}" if fared else "")
    )


def _summary(found: Explanation, each: Explained) -> str:
    has, should, saving = each.container.has, each.container.should, each.container.saving
    money = money_text(abs(saving), found.survey.prices.currency)
    said = [
        f"CPU {change(cpu_text(has.cpu_request), cpu_text(should.cpu_request))}",
        f"limit {change(cpu_text(has.cpu_limit), cpu_text(should.cpu_limit))}",
        f"memory {change(memory_text(has.memory_request), memory_text(should.memory_request))}",
        f"limit {change(memory_text(has.memory_limit), memory_text(should.memory_limit))}",
        f"costs {money} a month more" if saving < 0 else f"saves {money} a month",
    ]
    if each.container.risks:
        said.append(f"at risk of {' and '.join(each.container.risks)}")
    if each.container.recommendation.held:
        said.append(f"held: {each.container.recommendation.held}")
    return "; ".join(said)


Plot = tuple[str, Floats, dict[str, float | None], Callable[[float], str]]


def plots(each: Explained) -> list[Plot]:
    """What is drawn of one container: a name, its usage, the sizes that it is held against, and how amounts are spelt."""
    has, should, trace = each.container.has, each.container.should, each.trace

    def lines(part: Callable[[Resources], tuple[int | None, int | None]]) -> dict[str, float | None]:
        (request, limit), (wanted, _) = part(has), part(should)
        return {"limit": limit, "request": request, "recommended": wanted}

    return [
        (
            "CPU of the busiest pod",
            trace.cpu[:, 0] * 1000,
            lines(lambda size: (size.cpu_request, size.cpu_limit)),
            cpu_text,
        ),
        (
            "Memory of the largest pod",
            trace.memory[:, 0],
            lines(lambda size: (size.memory_request, size.memory_limit)),
            memory_text,
        ),
    ]


def _span(each: Explained) -> str:
    return lasting(each.trace.steps * each.trace.step)


def _factors(found: Explanation, each: Explained) -> Table:
    table = Table("FACTOR", "WHAT IT DID", "SOURCE", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.columns[1].ratio = 1
    for factor in (*found.facts, *each.container.recommendation.explanation):
        table.add_row(Text(factor.name), Text(factor.detail), Text(factor.source, style="dim"))
    return table


def _fared(found: Explanation, each: Explained) -> Table:
    table = Table(*FARED_HEAD, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in _fared_rows(found, each):
        table.add_row(*row)
    return table


def _fared_rows(found: Explanation, each: Explained) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for fared in each.fared:
        summary, cost = fared.scores.summary(), found.cost_of(fared)
        rows.append(
            (
                fared.strategy,
                _share(summary["cpu_slack"]),
                _share(summary["cpu_under"]),
                _share(summary["memory_slack"]),
                "-" if math.isnan(summary["ooms_day"]) else f"{summary['ooms_day']:.2f}",
                money_text(cost, found.survey.prices.currency),
            )
        )
    return rows


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"


def _svg(usage: Floats, lines: dict[str, float | None], text: Callable[[float], str]) -> str:
    columns = squeezed(usage, PLOT_WIDTH // 2)
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
        below = max(y(amount) + 5, below + 15)  # a label never lies on the one above it
        across += (
            f'<path d="M0 {y(amount):.1f}H{PLOT_WIDTH}" stroke="{LINE_COLOURS[name]}" stroke-width="2" '
            f'stroke-dasharray="6 3"/><text x="{PLOT_WIDTH + 6}" y="{below:.1f}" fill="{LINE_COLOURS[name]}">'
            f"{name} {escape(text(amount))}</text>"
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -10 {PLOT_WIDTH + 180} {PLOT_HEIGHT + 40}" '
        f'width="{PLOT_WIDTH + 180}" font-size="13" role="img"><g fill="{USED}" shape-rendering="crispEdges">{bars}</g>{across}</svg>'
    )
