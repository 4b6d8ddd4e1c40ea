"""Render a scan for a terminal: the summary, then the most important containers, in 80 columns or more.

Rich drops the colours if the output is not a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trimtab.api.quantity import format_short
from trimtab.kube.kinds.pods import Resources
from trimtab.scan.model import ContainerFinding, ScanResult, WorkloadFinding
from trimtab.scan.pricing import format_money
from trimtab.scan.render.summary import (
    TOTALS_HEADER,
    build_totals,
    format_change,
    format_limits_note,
    format_nodes,
    format_risks,
    format_short_name,
    format_title,
    group_skipped,
    join_names,
    list_gaps,
    list_operator_notes,
    list_relevant,
)
from trimtab.scan.risk import Severity
from trimtab.scan.showback import group_costs

WIDE_COLUMNS = 120
"""The terminal width from which names get their own columns and limits are shown."""
MAX_SKIPPED = 12
_GAP = 2
"""The number of spaces between two columns."""
_MIN_NAME_COLUMNS = 16
"""The minimum width of a workload's name; below it, a row takes several lines."""

COLOURS = {
    Severity.CRITICAL: "bold red",
    Severity.HIGH: "red",
    Severity.MEDIUM: "yellow",
    Severity.LOW: "green",
    Severity.NONE: "dim",
}


def render_scan(scan: ScanResult, *, width: int, top: int) -> Iterator[RenderableType]:
    """Yield the parts to print, in order, with at most `top` containers; 0 shows all."""
    yield Text(format_title(scan), style="bold")
    yield Text(f"Usage: {scan.source}", style="dim")
    yield ""
    # The last column repeats the last row as money, so a terminal omits it.
    yield from _lay_out(TOTALS_HEADER[:-1], [row[:-1] for row in build_totals(scan)], width)
    if nodes := format_nodes(scan):
        yield Text(nodes)
    yield Text(format_risks(scan), style="red" if scan.count_at_risk("OOM") else "")
    for line in list_gaps(scan):
        yield Text(line, style="yellow")
    found = list_relevant(scan)
    shown = found[:top] if top else found
    if shown:
        yield ""
        if width >= WIDE_COLUMNS:
            yield _build_wide_table(scan, shown)
        else:
            yield from _render_narrow(scan, shown, width)
            if limits := format_limits_note(shown):
                yield Text(limits)
    if len(shown) < len(found):
        yield Text(f"… and {len(found) - len(shown)} more; --top 0 shows all.", style="dim")
    for line in list_operator_notes(scan.workloads):
        yield ""
        yield Text(line, style="dim")
    if scan.compared and shown:
        yield ""
        yield from _render_comparison(scan, shown, width)
    if scan.skipped:
        yield ""
        yield from _render_skipped(scan)


def render_groups(scan: ScanResult, key: str) -> Table:
    """Return the table of costs by this label of the workloads."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(escape(key.upper()), overflow="fold")
    for heading in ("WORKLOADS", "COST A MONTH", "CAN SAVE"):
        table.add_column(heading, justify="right")
    currency = scan.prices.currency
    for each in group_costs(scan.workloads, key):
        table.add_row(
            "(none)" if each.name is None else escape(each.name),
            str(each.workloads),
            format_money(each.cost, currency),
            format_money(each.saving, currency),
        )
    return table


def _render_narrow(
    scan: ScanResult, shown: Sequence[tuple[WorkloadFinding, ContainerFinding]], width: int
) -> Iterator[RenderableType]:
    rows = [
        (
            Text(format_short_name(found, each), style=COLOURS[each.severity], overflow="fold"),
            str(found.replicas),
            format_change("cpu", each.current.cpu_request, each.recommended.cpu_request),
            format_change("memory", each.current.memory_request, each.recommended.memory_request),
            format_money(each.saving, scan.prices.currency),
            _format_risks(each),
        )
        for found, each in shown
    ]
    yield from _lay_out(("WORKLOAD", "PODS", "CPU", "MEMORY", "SAVES", "RISK"), rows, width, left=(-1,))


def _build_wide_table(scan: ScanResult, shown: Sequence[tuple[WorkloadFinding, ContainerFinding]]) -> Table:
    head = ("SEVERITY", "NAMESPACE", "KIND", "NAME", "CONTAINER", "PODS", "CPU", "CPU LIMIT", "MEMORY")
    table = _build_table((*head, "MEMORY LIMIT", "SAVES", "RISK", "CONFIDENCE"))
    for column in (*table.columns[1:5], table.columns[-2], table.columns[-1]):
        column.justify = "left"
    for found, each in shown:
        current, recommended, key = each.current, each.recommended, found.key
        table.add_row(
            Text(str(each.severity), style=COLOURS[each.severity]),
            *(Text(name, overflow="fold") for name in (key.namespace, key.kind, key.name, each.name)),
            str(found.replicas),
            format_change("cpu", current.cpu_request, recommended.cpu_request),
            format_change("cpu", current.cpu_limit, recommended.cpu_limit),
            format_change("memory", current.memory_request, recommended.memory_request),
            format_change("memory", current.memory_limit, recommended.memory_limit),
            format_money(each.saving, scan.prices.currency),
            _format_risks(each),
            found.confidence,
        )
    return table


def _render_comparison(
    scan: ScanResult, shown: Sequence[tuple[WorkloadFinding, ContainerFinding]], width: int
) -> Iterator[RenderableType]:
    """Show the requests of all strategies side by side; those of the others are without guards."""
    rows: list[Sequence[str | Text]] = [
        [
            Text(format_short_name(found, each), overflow="fold"),
            *(
                _format_size(size)
                for size in (each.recommended, *(each.compared[name] for name in scan.compared))
            ),
        ]
        for found, each in shown
    ]
    head = ("WORKLOAD", scan.strategy.upper(), *(name.upper() for name in scan.compared))
    yield from _lay_out(head, rows, width)


def _format_size(size: Resources) -> str:
    if size.cpu_request is None and size.memory_request is None:
        return "-"
    return f"{format_short('cpu', size.cpu_request)} {format_short('memory', size.memory_request)}"


def _render_skipped(scan: ScanResult) -> Iterator[RenderableType]:
    yield Text(f"Skipped: {len(scan.skipped)}", style="bold")
    groups = group_skipped(scan)
    for reason, names in groups[:MAX_SKIPPED]:
        yield Text(f"  {reason}: {join_names(names)}", style="dim")
    if len(groups) > MAX_SKIPPED:
        yield Text(f"  … and {len(groups) - MAX_SKIPPED} more reasons; --output json lists all.", style="dim")


def _format_risks(each: ContainerFinding) -> Text:
    short = {"OOM": "OOM", "throttling": "CPU"}
    return Text("+".join(short[risk] for risk in each.risks), style="red")


def _lay_out(
    head: Sequence[str], rows: Sequence[Sequence[str | Text]], width: int, *, left: Sequence[int] = ()
) -> Iterator[RenderableType]:
    """Lay rows out as a table, or each on its own lines if the other columns leave too little width for the names."""
    widths = [max(cell_len(str(cell)) for cell in column) for column in zip(head, *rows, strict=True)]
    if width - sum(widths[1:]) - _GAP * (len(head) - 1) >= min(widths[0], _MIN_NAME_COLUMNS):
        table = _build_table(head)
        for column in left:
            table.columns[column].justify = "left"
        for row in rows:
            table.add_row(*row)
        yield table
        return
    for name, *cells in rows:
        yield name
        parts = [f"{word.lower()} {cell}" for word, cell in zip(head[1:], cells, strict=True) if str(cell)]
        yield Padding(Text(", ".join(parts)), (0, 0, 0, _GAP))


def _build_table(head: Sequence[str]) -> Table:
    table = Table(*map(escape, head), box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    return table
