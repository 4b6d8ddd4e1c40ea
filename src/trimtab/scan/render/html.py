"""A survey as one HTML page: money and risk first, two charts, then every container, and what was skipped.

The page is whole in itself: the charts are SVG, there is no script and nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

from trimtab.scan.model import Survey, Surveyed, SurveyedContainer
from trimtab.scan.render.summary import change, dangers, gaps, short_name, title, together
from trimtab.scan.render.units import cpu_text, memory_text, money_text, share_text

BAR, WIDTH, LABEL = 22, 720, 250
REQUESTED, USED, WASTED, MISSING = "#2c6fbb", "#0b6e4f", "#c0392b", "#b7791f"
MOST_BARS = 10

STYLE = """body{font:15px system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;color:#1a202c}
h1{font-size:1.5rem;margin-bottom:.2rem}p.source{color:#4a5568;margin-top:0;overflow-wrap:anywhere}
.cards{display:flex;flex-wrap:wrap;gap:1rem;margin:1.2rem 0}
.card{border:1px solid #e2e8f0;border-radius:.5rem;padding:.7rem 1.1rem;min-width:9rem}
.card b{display:block;font-size:1.5rem}.card span{color:#4a5568}.bad b{color:#c0392b}
table{border-collapse:collapse;margin:1rem 0;width:100%}
td,th{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #e2e8f0;white-space:nowrap}
td:first-child,th:first-child,.names td:nth-child(2),.names th:nth-child(2),.words td,.words th{text-align:left}
td:first-child,.words td{white-space:normal;overflow-wrap:anywhere}.words td:first-child{white-space:nowrap}
.critical{color:#c0392b;font-weight:600}.high{color:#c0392b}.medium{color:#b7791f}.low{color:#0b6e4f}.none{color:#718096}
.gap{background:#fffaf0;border-left:4px solid #b7791f;padding:.4rem .8rem}svg{max-width:100%;height:auto}
@media(max-width:60rem){table{display:block;overflow-x:auto}}"""

HEAD = (
    "Workload",
    "Container",
    "Pods",
    "CPU",
    "Memory",
    "Used",
    "Saves a month",
    "Severity",
    "Risk",
    "Known",
)


def page(surveys: Sequence[Survey]) -> str:
    """All clusters on one page."""
    name = "Trimtab: " + ", ".join(survey.context for survey in surveys)
    all_of_them = f"<p><b>{escape(together(surveys))}</b></p>" if len(surveys) > 1 else ""
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8>"
        f'<meta name=viewport content="width=device-width"><title>{escape(name)}</title>'
        f"<style>{STYLE}</style>{all_of_them}{''.join(map(_cluster, surveys))}\n"
    )


def _cluster(survey: Survey) -> str:
    return (
        f"<h1>{escape(title(survey))}</h1><p class=source>Usage: {escape(survey.source)}</p>"
        f"{_cards(survey)}<p>{escape(dangers(survey))}</p>"
        + "".join(f"<p class=gap>{escape(line)}</p>" for line in gaps(survey))
        + "<h2>Requested, used, wasted</h2>"
        + _bars(_resource_bars(survey))
        + _wasters(survey)
        + "<h2>Every container</h2>"
        + table_html(
            HEAD,
            [_row(survey, found, each) for found in survey.workloads for each in found.containers],
            kind="names",
        )
        + _skipped(survey)
    )


def _cards(survey: Survey) -> str:
    currency = survey.prices.currency
    cards = (
        ("", money_text(survey.cost, currency), "requested a month"),
        (
            "bad",
            money_text(survey.wasted, currency),
            f"wasted a month ({share_text(survey.wasted, survey.cost)})",
        ),
        ("bad" if survey.at_risk("OOM") else "", str(survey.at_risk("OOM")), "at risk of OOM"),
        (
            "bad" if survey.at_risk("throttling") else "",
            str(survey.at_risk("throttling")),
            "at risk of throttling",
        ),
        ("", str(survey.without_requests), "without requests"),
    )
    drawn = (
        f'<div class="card {kind}"><b>{escape(number)}</b><span>{escape(what)}</span></div>'
        for kind, number, what in cards
    )
    return f"<div class=cards>{''.join(drawn)}</div>"


def _resource_bars(survey: Survey) -> Iterable[tuple[str, float, str, str]]:
    """Each resource, as shares of the longest bar."""
    for name, found, text in (("CPU", survey.cpu, cpu_text), ("memory", survey.memory, memory_text)):
        bars = (
            ("requested", found.requested, REQUESTED),
            ("used", found.used, USED),
            ("wasted", found.wasted, WASTED),
            ("missing", found.missing, MISSING),
        )
        whole = max(1.0, *(amount for _, amount, _ in bars))
        for what, amount, colour in bars:
            yield f"{name} {what}", amount / whole, text(amount), colour


def _wasters(survey: Survey) -> str:
    """Where the money goes."""
    worst = sorted(survey.workloads, key=lambda found: -found.saving)[:MOST_BARS]
    worst = [found for found in worst if found.saving > 0]
    if not worst:
        return ""
    most = worst[0].saving
    bars = (
        (
            f"{found.key.namespace}/{found.key.name}",
            found.saving / most,
            money_text(found.saving, survey.prices.currency),
            WASTED,
        )
        for found in worst
    )
    return f"<h2>What could be saved a month</h2>{_bars(bars)}"


def _bars(bars: Iterable[tuple[str, float, str, str]]) -> str:
    drawn = []
    for place, (label, share, text, colour) in enumerate(bars):
        y, length = place * (BAR + 6), max(share, 0.002) * (WIDTH - LABEL - 90)
        drawn.append(
            f'<text x="{LABEL - 8}" y="{y + 16}" text-anchor="end">{escape(label)}</text>'
            f'<rect x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3" fill="{colour}"/>'
            f'<text x="{LABEL + length + 8:.1f}" y="{y + 16}">{escape(text)}</text>'
        )
    height = len(drawn) * (BAR + 6)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'font-size="14" role="img">{"".join(drawn)}</svg>'
    )


def _row(survey: Survey, found: Surveyed, each: SurveyedContainer) -> tuple[str, ...]:
    has, should, used = each.has, each.should, each.consumed
    severity = f"<span class={each.severity}>{each.severity}</span>"
    return (
        f'<span title="{escape(str(found.key))}">{escape(short_name(found, each))}</span>',
        escape(each.name),
        str(found.replicas),
        change(cpu_text(has.cpu_request), cpu_text(should.cpu_request)),
        change(memory_text(has.memory_request), memory_text(should.memory_request)),
        f"{cpu_text(used.cpu)} {memory_text(used.memory)}",
        escape(money_text(each.saving, survey.prices.currency)),
        severity,
        " ".join(each.risks),
        found.confidence,
    )


def table_html(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    kind: Literal["numbers", "names", "words"] = "numbers",
) -> str:
    """A table whose cells are HTML already: of numbers but for the first column, or the first two, or of words."""
    drawn = "".join(f"<th>{name}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table class={kind}><tr>{drawn}</tr>{lines}</table>"


def _skipped(survey: Survey) -> str:
    if not survey.skipped:
        return ""
    rows = [(escape(str(each.key)), escape(each.reason)) for each in survey.skipped]
    return f"<details><summary>Skipped: {len(survey.skipped)}</summary>{table_html(('Workload', 'Why'), rows, kind='words')}</details>"
