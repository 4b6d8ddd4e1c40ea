"""A survey on a terminal: the headline, then the containers to look at first, within 80 columns or as wide as there is room.

Left out: colours where there is no terminal, which rich sees to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trimtab.kube.kinds.pods import Resources
from trimtab.scan.model import ContainerFinding, ScanResult, WorkloadFinding
from trimtab.scan.render.summary import (
    TOTALS_HEADER,
    build_totals,
    format_change,
    format_risks,
    format_short_name,
    format_title,
    list_gaps,
    list_relevant,
)
from trimtab.scan.render.units import format_cpu, format_memory, format_money
from trimtab.scan.risk import Severity

WIDE_COLUMNS = 120
"""Columns from which on a workload's names stand apart, and limits are shown."""
MAX_SKIPPED = 12
_GAP = 2
"""Columns between those of a table."""
_MIN_NAME_COLUMNS = 16
"""Columns that the name of a workload has at the least, or its row is more than one line."""

COLOURS = {
    Severity.CRITICAL: "bold red",
    Severity.HIGH: "red",
    Severity.MEDIUM: "yellow",
    Severity.LOW: "green",
    Severity.NONE: "dim",
}


def render_scan(scan: ScanResult, *, width: int, top: int) -> Iterator[RenderableType]:
    """What to print, one after the other; `top` containers at most, 0 for all."""
    yield Text(format_title(scan), style="bold")
    yield Text(f"Usage: {scan.source}", style="dim")
    yield ""
    # The last column says again, as money, what the last row does; a terminal needs it once.
    yield from _lay_out(TOTALS_HEADER[:-1], [row[:-1] for row in build_totals(scan)], width)
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
    if len(shown) < len(found):
        yield Text(f"… and {len(found) - len(shown)} more: --top 0 shows all.", style="dim")
    if scan.compared and shown:
        yield ""
        yield from _render_comparison(scan, shown, width)
    if scan.skipped:
        yield ""
        yield from _render_skipped(scan)


def _render_narrow(
    scan: ScanResult, shown: Sequence[tuple[WorkloadFinding, ContainerFinding]], width: int
) -> Iterator[RenderableType]:
    rows = [
        (
            Text(format_short_name(found, each), style=COLOURS[each.severity], overflow="fold"),
            str(found.replicas),
            format_change(format_cpu(each.current.cpu_request), format_cpu(each.recommended.cpu_request)),
            format_change(
                format_memory(each.current.memory_request), format_memory(each.recommended.memory_request)
            ),
            format_money(each.saving, scan.prices.currency),
            _format_risks(each),
        )
        for found, each in shown
    ]
    yield from _lay_out(("WORKLOAD", "PODS", "CPU", "MEMORY", "SAVES", "RISK"), rows, width, left=(-1,))


def _build_wide_table(scan: ScanResult, shown: Sequence[tuple[WorkloadFinding, ContainerFinding]]) -> Table:
    head = ("SEVERITY", "NAMESPACE", "KIND", "NAME", "CONTAINER", "PODS", "CPU", "CPU LIMIT", "MEMORY")
    table = _build_table((*head, "MEMORY LIMIT", "SAVES", "RISK", "KNOWN"))
    for column in (*table.columns[1:5], table.columns[-2], table.columns[-1]):
        column.justify = "left"
    for found, each in shown:
        has, should, key = each.current, each.recommended, found.key
        table.add_row(
            Text(str(each.severity), style=COLOURS[each.severity]),
            *(Text(name, overflow="fold") for name in (key.namespace, key.kind, key.name, each.name)),
            str(found.replicas),
            format_change(format_cpu(has.cpu_request), format_cpu(should.cpu_request)),
            format_change(format_cpu(has.cpu_limit), format_cpu(should.cpu_limit)),
            format_change(format_memory(has.memory_request), format_memory(should.memory_request)),
            format_change(format_memory(has.memory_limit), format_memory(should.memory_limit)),
            format_money(each.saving, scan.prices.currency),
            _format_risks(each),
            found.confidence,
        )
    return table


def _render_comparison(
    scan: ScanResult, shown: Sequence[tuple[WorkloadFinding, ContainerFinding]], width: int
) -> Iterator[RenderableType]:
    """Show requests side by side; the others' are their bare targets."""
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
    return f"{format_cpu(size.cpu_request)} {format_memory(size.memory_request)}"


def _render_skipped(scan: ScanResult) -> Iterator[RenderableType]:
    yield Text(f"Skipped: {len(scan.skipped)}", style="bold")
    for each in scan.skipped[:MAX_SKIPPED]:
        yield Text(f"  {each.key.namespace}/{each.key.kind}/{each.key.name}: {each.reason}", style="dim")
    if len(scan.skipped) > MAX_SKIPPED:
        yield Text(f"  … and {len(scan.skipped) - MAX_SKIPPED} more: --output json has all.", style="dim")


def _format_risks(each: ContainerFinding) -> Text:
    short = {"OOM": "OOM", "throttling": "CPU"}
    return Text("+".join(short[risk] for risk in each.risks), style="red")


def _lay_out(
    head: Sequence[str], rows: Sequence[Sequence[str | Text]], width: int, *, left: Sequence[int] = ()
) -> Iterator[RenderableType]:
    """Lay rows out as a table, or each on lines of its own where the other columns leave no room for the names."""
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
        said = [f"{word.lower()} {cell}" for word, cell in zip(head[1:], cells, strict=True) if str(cell)]
        yield Padding(Text(", ".join(said)), (0, 0, 0, _GAP))


def _build_table(head: Sequence[str]) -> Table:
    table = Table(*map(escape, head), box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    return table
