"""Render HTML pages from the templates beside this module: a scan, and the explanation of one workload.

A page is self-contained: the charts are SVG, and it has no scripts and no external resources. All texts are escaped by
the template engine, because names and messages come from the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from trimtab.api.quantity import ResourceName, format_short
from trimtab.scan.model import ResourceTotals, ScanResult
from trimtab.scan.pricing import format_money, format_share
from trimtab.scan.render.summary import (
    format_all_clusters,
    format_change,
    format_risks,
    format_title,
    format_workload,
    group_skipped,
    list_gaps,
    list_operator_notes,
)

if TYPE_CHECKING:
    from jinja2 import Environment

BAR, BAR_PITCH, WIDTH, LABEL = 22, 28, 820, 350
MAX_LABEL = 40
"""The number of characters that fit beside a bar."""
REQUESTED, USED, WASTED, MISSING = "#2c6fbb", "#0b6e4f", "#c0392b", "#b7791f"
MAX_BARS = 10
MIN_SHARE = 0.002
"""The least share that a bar shows, so that it stays visible."""


class _Bar(NamedTuple):
    """One bar of a chart; `share` is relative to the longest one."""

    label: str
    share: float
    text: str
    colour: str

    @property
    def short_label(self) -> str:
        """The label, without its middle if that is too long: the end of a name often tells it from others."""
        if len(self.label) <= MAX_LABEL:
            return self.label
        half = (MAX_LABEL - 1) // 2
        return f"{self.label[:half]}…{self.label[-half:]}"

    @property
    def length(self) -> float:
        return max(self.share, MIN_SHARE) * (WIDTH - LABEL - 90)


def render_page(scans: Sequence[ScanResult]) -> str:
    """Render all clusters on one page: cost and risks first, two charts, every container, and skipped workloads."""
    title = "Trimtab: " + ", ".join(scan.context for scan in scans)
    return render_template("scan.html", title=title, scans=scans)


def render_template(name: str, **context: object) -> str:
    """Render one of the templates."""
    return _build_environment().get_template(name).render(context) + "\n"


@cache
def _build_environment() -> Environment:
    # Most commands print text; the import alone would cost them 30 ms.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("trimtab.scan.render"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["money"] = lambda amount, scan: format_money(amount, scan.prices.currency)
    functions = (
        format_all_clusters,
        format_change,
        format_risks,
        format_share,
        format_short,
        format_title,
        format_workload,
        group_skipped,
        list_gaps,
        list_operator_notes,
    )
    templates.globals.update({each.__name__: each for each in functions})
    templates.globals.update(
        list_resource_bars=_list_resource_bars,
        list_saving_bars=_list_saving_bars,
        BAR=BAR,
        BAR_PITCH=BAR_PITCH,
        WIDTH=WIDTH,
        LABEL=LABEL,
        USED=USED,
    )
    return templates


def _list_resource_bars(scan: ScanResult) -> list[_Bar]:
    """List the bars of each resource, as shares of the longest one."""
    totals: dict[ResourceName, ResourceTotals] = {"cpu": scan.cpu, "memory": scan.memory}
    found = []
    for resource, total in totals.items():
        name = "CPU" if resource == "cpu" else resource
        amounts = (
            ("requested", total.requested, REQUESTED),
            ("used", total.used, USED),
            ("wasted", total.wasted, WASTED),
            ("missing", total.missing, MISSING),
        )
        whole = max(1.0, *(amount for _, amount, _ in amounts))
        found += [
            _Bar(f"{name} {what}", amount / whole, format_short(resource, amount), colour)
            for what, amount, colour in amounts
        ]
    return found


def _list_saving_bars(scan: ScanResult) -> list[_Bar]:
    """List the workloads with the largest savings."""
    largest = sorted(scan.workloads, key=lambda found: -found.saving)[:MAX_BARS]
    return [
        _Bar(
            f"{found.key.namespace}/{found.key.name}",
            found.saving / largest[0].saving,
            format_money(found.saving, scan.prices.currency),
            WASTED,
        )
        for found in largest
        if found.saving > 0
    ]
