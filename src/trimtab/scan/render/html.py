"""Render a scan as one HTML page: cost and risks first, two charts, every container, and skipped workloads.

The page is self-contained: the charts are SVG, and it has no scripts and no external resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

from trimtab.api.format import format_short
from trimtab.api.quantity import ResourceName
from trimtab.scan.model import ContainerFinding, ResourceTotals, ScanResult, WorkloadFinding
from trimtab.scan.render.summary import (
    format_all_clusters,
    format_change,
    format_risks,
    format_short_name,
    format_title,
    list_gaps,
)
from trimtab.scan.render.units import format_money, format_share

BAR, WIDTH, LABEL = 22, 720, 250
REQUESTED, USED, WASTED, MISSING = "#2c6fbb", "#0b6e4f", "#c0392b", "#b7791f"
MAX_BARS = 10

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

HEADER = (
    "Workload",
    "Container",
    "Pods",
    "CPU",
    "Memory",
    "Used",
    "Saves a month",
    "Severity",
    "Risk",
    "Confidence",
)


def render_page(scans: Sequence[ScanResult]) -> str:
    """Render all clusters on one page."""
    name = "Trimtab: " + ", ".join(scan.context for scan in scans)
    all_clusters = f"<p><b>{escape(format_all_clusters(scans))}</b></p>" if len(scans) > 1 else ""
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8>"
        f'<meta name=viewport content="width=device-width"><title>{escape(name)}</title>'
        f"<style>{STYLE}</style>{all_clusters}{''.join(map(_render_cluster, scans))}\n"
    )


def _render_cluster(scan: ScanResult) -> str:
    return (
        f"<h1>{escape(format_title(scan))}</h1><p class=source>Usage: {escape(scan.source)}</p>"
        f"{_render_cards(scan)}<p>{escape(format_risks(scan))}</p>"
        + "".join(f"<p class=gap>{escape(line)}</p>" for line in list_gaps(scan))
        + "<h2>Requested, used, wasted</h2>"
        + _render_bars(_list_resource_bars(scan))
        + _render_top_savings(scan)
        + "<h2>Every container</h2>"
        + render_html_table(
            HEADER,
            [_render_row(scan, found, each) for found in scan.workloads for each in found.containers],
            kind="names",
        )
        + _render_skipped(scan)
    )


def _render_cards(scan: ScanResult) -> str:
    currency = scan.prices.currency
    cards = (
        ("", format_money(scan.cost, currency), "requested a month"),
        (
            "bad",
            format_money(scan.wasted, currency),
            f"wasted a month ({format_share(scan.wasted, scan.cost)})",
        ),
        ("bad" if scan.count_at_risk("OOM") else "", str(scan.count_at_risk("OOM")), "at risk of OOM"),
        (
            "bad" if scan.count_at_risk("throttling") else "",
            str(scan.count_at_risk("throttling")),
            "at risk of throttling",
        ),
        ("", str(scan.without_requests), "without requests"),
    )
    drawn = (
        f'<div class="card {kind}"><b>{escape(number)}</b><span>{escape(what)}</span></div>'
        for kind, number, what in cards
    )
    return f"<div class=cards>{''.join(drawn)}</div>"


def _list_resource_bars(scan: ScanResult) -> Iterable[tuple[str, float, str, str]]:
    """List the bars of each resource, as shares of the longest one."""
    totals: dict[ResourceName, ResourceTotals] = {"cpu": scan.cpu, "memory": scan.memory}
    for resource, found in totals.items():
        name = "CPU" if resource == "cpu" else resource
        bars = (
            ("requested", found.requested, REQUESTED),
            ("used", found.used, USED),
            ("wasted", found.wasted, WASTED),
            ("missing", found.missing, MISSING),
        )
        whole = max(1.0, *(amount for _, amount, _ in bars))
        for what, amount, colour in bars:
            yield f"{name} {what}", amount / whole, format_short(resource, amount), colour


def _render_top_savings(scan: ScanResult) -> str:
    """Render the workloads with the largest savings."""
    worst = sorted(scan.workloads, key=lambda found: -found.saving)[:MAX_BARS]
    worst = [found for found in worst if found.saving > 0]
    if not worst:
        return ""
    most = worst[0].saving
    bars = (
        (
            f"{found.key.namespace}/{found.key.name}",
            found.saving / most,
            format_money(found.saving, scan.prices.currency),
            WASTED,
        )
        for found in worst
    )
    return f"<h2>Largest possible savings a month</h2>{_render_bars(bars)}"


def _render_bars(bars: Iterable[tuple[str, float, str, str]]) -> str:
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


def _render_row(scan: ScanResult, found: WorkloadFinding, each: ContainerFinding) -> tuple[str, ...]:
    current, recommended, used = each.current, each.recommended, each.usage
    severity = f"<span class={each.severity}>{each.severity}</span>"
    return (
        f'<span title="{escape(str(found.key))}">{escape(format_short_name(found, each))}</span>',
        escape(each.name),
        str(found.replicas),
        format_change("cpu", current.cpu_request, recommended.cpu_request),
        format_change("memory", current.memory_request, recommended.memory_request),
        f"{format_short('cpu', used.cpu)} {format_short('memory', used.memory)}",
        escape(format_money(each.saving, scan.prices.currency)),
        severity,
        " ".join(each.risks),
        found.confidence,
    )


def render_html_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    kind: Literal["numbers", "names", "words"] = "numbers",
) -> str:
    """Render a table of HTML cells; `kind` sets the alignment: one or two name columns before numbers, or text."""
    drawn = "".join(f"<th>{name}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table class={kind}><tr>{drawn}</tr>{lines}</table>"


def _render_skipped(scan: ScanResult) -> str:
    if not scan.skipped:
        return ""
    rows = [(escape(str(each.key)), escape(each.reason)) for each in scan.skipped]
    return f"<details><summary>Skipped: {len(scan.skipped)}</summary>{render_html_table(('Workload', 'Reason'), rows, kind='words')}</details>"
