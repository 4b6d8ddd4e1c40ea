"""Render a scan as Markdown, short enough for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trimtab.printable import escape_invisible
from trimtab.scan.model import ScanResult
from trimtab.scan.pricing import format_money
from trimtab.scan.render.summary import (
    TOTALS_HEADER,
    build_totals,
    format_change,
    format_limits_note,
    format_risks,
    format_title,
    group_skipped,
    join_names,
    list_gaps,
    list_operator_notes,
    list_relevant,
)

HEADER = ("Workload", "Container", "Pods", "CPU", "Memory", "Saves a month", "Severity", "Risk")

_SPECIAL = re.compile(r"[\\`*\[\]|~]")
_ZERO_WIDTH_SPACE = "\u200b"

MAX_SKIPPED = 100
"""The number of skipped workloads to list: a comment on GitHub holds 65,536 characters."""


def render_markdown(scan: ScanResult, *, top: int) -> str:
    """Render the summary and the first `top` containers; 0 renders all."""
    return "\n".join(_render_lines(scan, top)) + "\n"


def _render_lines(scan: ScanResult, top: int) -> Iterator[str]:
    yield f"## {_escape(format_title(scan))}"
    yield ""
    yield f"Usage: {_escape(scan.source)}"
    yield ""
    yield from _render_table(TOTALS_HEADER, build_totals(scan))
    yield ""
    yield f"**{format_risks(scan)}**"
    for line in list_gaps(scan):
        yield f"\n⚠ {_escape(line)}"
    found = list_relevant(scan)
    shown = found[:top] if top else found
    if shown:
        yield ""
        yield from _render_table(
            HEADER,
            [
                (
                    f"{one.key.namespace}/{one.key.kind}/{one.key.name}",
                    each.name,
                    str(one.replicas),
                    format_change("cpu", each.current.cpu_request, each.recommended.cpu_request),
                    format_change("memory", each.current.memory_request, each.recommended.memory_request),
                    format_money(each.saving, scan.prices.currency),
                    str(each.severity),
                    " ".join(each.risks),
                )
                for one, each in shown
            ],
        )
    if limits := format_limits_note(shown):
        yield f"\n{_escape(limits)}"
    if len(shown) < len(found):
        yield f"\n… and {len(found) - len(shown)} more."
    for line in list_operator_notes(scan.workloads):
        yield f"\n{_escape(line)}"
    if scan.skipped:
        yield f"\n<details><summary>Skipped: {len(scan.skipped)}</summary>\n"
        groups = group_skipped(scan)
        shown_groups = groups[:MAX_SKIPPED] if top else groups
        for reason, names in shown_groups:
            most = max(1, MAX_SKIPPED // len(shown_groups)) if top else len(names)
            yield f"- {_escape(reason)}: {_escape(join_names(names, most=most))}"
        if len(shown_groups) < len(groups):
            yield f"- … and {len(groups) - len(shown_groups)} more reasons; --output json lists all."
        yield "\n</details>"


def _render_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'|'.join('---' if place == 0 else '---:' for place in range(len(head)))}|"
    for row in rows:
        yield f"| {' | '.join(map(_escape, row))} |"


def _escape(text: str) -> str:
    """Escape what would be formatted, load an image, or mention people: a comment quotes texts of others."""
    escaped = _SPECIAL.sub(r"\\\g<0>", escape_invisible(text).replace("&", "&amp;"))
    return escaped.replace("<", "&lt;").replace("@", f"@{_ZERO_WIDTH_SPACE}")
