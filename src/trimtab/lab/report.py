"""Render a back-test as one HTML page: cost against harm of all strategies, then the containers with the worst scores.

The page is self-contained: the chart is SVG, there is no script and nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from trimtab.lab.scores import Scores
from trimtab.plural import pluralize

WIDTH, HEIGHT, EDGE = 660, 400, 66
COLOURS = ("#0b6e4f", "#c0392b", "#2c6fbb", "#b7791f", "#7b4fa3", "#4a5568", "#0f8b8d", "#c2418f", "#6b8e23")
WORST_SHOWN = 10

STYLE = """body{font:15px system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1a202c}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #e2e8f0}
td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}"""


@dataclass(frozen=True, slots=True)
class BacktestOutcome:
    """The result of one strategy with one choice of settings."""

    strategy: str
    settings: str
    scores: Scores

    @property
    def label(self) -> str:
        return f"{self.strategy} {self.settings}".strip()


def describe_partial_coverage(outcomes: Sequence[BacktestOutcome]) -> list[str]:
    """Describe strategies that sized fewer containers than others and are scored only on these."""
    most = max((len(outcome.scores.containers) for outcome in outcomes), default=0)
    return [
        f"{outcome.label} sized {len(outcome.scores.containers)} of {pluralize(most, 'container')}; its scores cover only these"
        for outcome in outcomes
        if len(outcome.scores.containers) < most
    ]


def render_page(title: str, sections: Iterable[str]) -> str:
    """The page of all recordings."""
    head = f"<meta charset=utf-8><title>{escape(title)}</title><style>{STYLE}</style>"
    return f"<!doctype html><html lang=en>{head}{''.join(sections)}"


def render_section(title: str, outcomes: Sequence[BacktestOutcome], rows: Sequence[Sequence[str]]) -> str:
    """Render the report of one recording; `rows` is the table of scores with its header."""
    return (
        f"<h1>{escape(title)}</h1>"
        "<p>Points to the left cost less, lower points do less harm. A line joins the settings of one strategy.</p>"
        f"{render_chart(outcomes, 'cpu_under', 'time under-provisioned')}{render_chart(outcomes, 'cpu_deficit', 'CPU unserved')}"
        f"<h2>Scores</h2>{render_table(rows)}{''.join(f'<p>{escape(line)}</p>' for line in describe_partial_coverage(outcomes))}{''.join(_render_worst(outcome) for outcome in outcomes)}"
    )


def render_chart(outcomes: Sequence[BacktestOutcome], harm: str, name: str) -> str:
    """CPU slack to the right, harm upwards on a logarithmic scale."""
    points = [(outcome, outcome.scores.summary()) for outcome in outcomes]
    harms = [max(summary[harm], 1e-5) for _, summary in points if not np.isnan(summary[harm])]
    if not harms:
        return ""
    low, high = np.floor(np.log10(min(harms))), np.ceil(np.log10(max(harms)) + 1e-9)
    drawn = [_render_axes(low, high, name)]
    names = list(dict.fromkeys(outcome.strategy for outcome in outcomes))
    for number, strategy in enumerate(names):
        colour = COLOURS[number % len(COLOURS)]
        places = sorted(
            (
                _x(summary["cpu_slack"]),
                _y(max(summary[harm], 1e-5), low, high),
                f"{outcome.label}: slack {summary['cpu_slack']:.1%}, {name} {summary[harm]:.2%}",
            )
            for outcome, summary in points
            if outcome.strategy == strategy and not np.isnan(summary[harm])
        )
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        drawn += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{escape(text)}</title></circle>'
            for x, y, text in places
        ]
        drawn.append(
            f'<text x="{WIDTH + 8}" y="{EDGE + 18 * number}" fill="{colour}">{escape(strategy)}</text>'
        )
    return (
        f'<h2>CPU slack against {name}</h2><svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {WIDTH + 140} {HEIGHT}" font-size="13">{"".join(drawn)}</svg>'
    )


def _x(slack: float) -> float:
    return EDGE + slack * (WIDTH - 2 * EDGE)


def _y(harm: float, low: float, high: float) -> float:
    return float(HEIGHT - EDGE - (np.log10(harm) - low) / (high - low) * (HEIGHT - 2 * EDGE))


def _render_axes(low: float, high: float, name: str) -> str:
    lines = []
    for tenth in range(0, 11, 2):
        x = _x(tenth / 10)
        lines.append(f'<path d="M{x} {EDGE}V{HEIGHT - EDGE}" stroke="#e2e8f0"/>')
        lines.append(f'<text x="{x}" y="{HEIGHT - EDGE + 18}" text-anchor="middle">{tenth * 10} %</text>')
    for power in np.arange(low, high + 1):
        y = _y(10.0**power, low, high)
        lines.append(f'<path d="M{EDGE} {y}H{WIDTH - EDGE}" stroke="#e2e8f0"/>')
        lines.append(f'<text x="{EDGE - 6}" y="{y + 4}" text-anchor="end">{10.0 ** (power + 2):g} %</text>')
    lines.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 14}" text-anchor="middle">CPU slack</text>')
    lines.append(f'<text x="{EDGE}" y="{EDGE - 18}">{escape(name)}</text>')
    return "".join(lines)


def render_table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    drawn = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body)
    return f"<table><tr>{drawn}</tr>{lines}</table>"


def _render_worst(outcome: BacktestOutcome) -> str:
    """The containers that were over their request most of all."""
    scores = outcome.scores
    order = np.argsort(-np.nan_to_num(scores.cpu_under) - np.nan_to_num(scores.ooms), kind="stable")[
        :WORST_SHOWN
    ]
    rows = [
        ("container", "CPU slack", "time under", "CPU unserved", "memory slack", "OOMs a day", "$ a month")
    ]
    rows += [
        (
            scores.containers[index],
            _format_score(scores.cpu_slack[index], ".1%"),
            _format_score(scores.cpu_under[index], ".2%"),
            _format_score(scores.cpu_deficit[index], ".2%"),
            _format_score(scores.memory_slack[index], ".1%"),
            _format_score(scores.ooms[index], ".2f"),
            _format_score(scores.dollars[index], ".2f"),
        )
        for index in order
    ]
    return f"<details><summary>The worst of {escape(outcome.label)}</summary>{render_table(rows)}</details>"


def _format_score(value: float, form: str) -> str:
    """A resource that nobody has recorded has no score."""
    return "-" if np.isnan(value) else format(value, form)
