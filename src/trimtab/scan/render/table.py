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
from trimtab.scan.model import Survey, Surveyed, SurveyedContainer
from trimtab.scan.render.summary import (
    TOTALS_HEAD,
    change,
    dangers,
    gaps,
    short_name,
    title,
    totals,
    worth_showing,
)
from trimtab.scan.render.units import cpu_text, memory_text, money_text
from trimtab.scan.risk import Severity

WIDE = 120
"""Columns from which on a workload's names stand apart, and limits are shown."""
MOST_SKIPPED = 12
_GAP = 2
"""Columns between those of a table."""
_LEAST_NAME = 16
"""Columns that the name of a workload has at the least, or its row is more than one line."""

COLOURS = {
    Severity.CRITICAL: "bold red",
    Severity.HIGH: "red",
    Severity.MEDIUM: "yellow",
    Severity.LOW: "green",
    Severity.NONE: "dim",
}


def renderables(survey: Survey, *, width: int, top: int) -> Iterator[RenderableType]:
    """What to print, one after the other; `top` containers at most, 0 for all."""
    yield Text(title(survey), style="bold")
    yield Text(f"Usage: {survey.source}", style="dim")
    yield ""
    # The last column says again, as money, what the last row does; a terminal needs it once.
    yield from _laid_out(TOTALS_HEAD[:-1], [row[:-1] for row in totals(survey)], width)
    yield Text(dangers(survey), style="red" if survey.at_risk("OOM") else "")
    for line in gaps(survey):
        yield Text(line, style="yellow")
    found = worth_showing(survey)
    shown = found[:top] if top else found
    if shown:
        yield ""
        if width >= WIDE:
            yield _wide(survey, shown)
        else:
            yield from _narrow(survey, shown, width)
    if len(shown) < len(found):
        yield Text(f"… and {len(found) - len(shown)} more: --top 0 shows all.", style="dim")
    if survey.compared and shown:
        yield ""
        yield from _compared(survey, shown, width)
    if survey.skipped:
        yield ""
        yield from _skipped(survey)


def _narrow(
    survey: Survey, shown: Sequence[tuple[Surveyed, SurveyedContainer]], width: int
) -> Iterator[RenderableType]:
    rows = [
        (
            Text(short_name(found, each), style=COLOURS[each.severity], overflow="fold"),
            str(found.replicas),
            change(cpu_text(each.has.cpu_request), cpu_text(each.should.cpu_request)),
            change(memory_text(each.has.memory_request), memory_text(each.should.memory_request)),
            money_text(each.saving, survey.prices.currency),
            _risks(each),
        )
        for found, each in shown
    ]
    yield from _laid_out(("WORKLOAD", "PODS", "CPU", "MEMORY", "SAVES", "RISK"), rows, width, left=(-1,))


def _wide(survey: Survey, shown: Sequence[tuple[Surveyed, SurveyedContainer]]) -> Table:
    head = ("SEVERITY", "NAMESPACE", "KIND", "NAME", "CONTAINER", "PODS", "CPU", "CPU LIMIT", "MEMORY")
    table = _table((*head, "MEMORY LIMIT", "SAVES", "RISK", "KNOWN"))
    for column in (*table.columns[1:5], table.columns[-2], table.columns[-1]):
        column.justify = "left"
    for found, each in shown:
        has, should, key = each.has, each.should, found.key
        table.add_row(
            Text(str(each.severity), style=COLOURS[each.severity]),
            *(Text(name, overflow="fold") for name in (key.namespace, key.kind, key.name, each.name)),
            str(found.replicas),
            change(cpu_text(has.cpu_request), cpu_text(should.cpu_request)),
            change(cpu_text(has.cpu_limit), cpu_text(should.cpu_limit)),
            change(memory_text(has.memory_request), memory_text(should.memory_request)),
            change(memory_text(has.memory_limit), memory_text(should.memory_limit)),
            money_text(each.saving, survey.prices.currency),
            _risks(each),
            found.confidence,
        )
    return table


def _compared(
    survey: Survey, shown: Sequence[tuple[Surveyed, SurveyedContainer]], width: int
) -> Iterator[RenderableType]:
    """Show requests side by side; the others' are their bare targets."""
    rows: list[Sequence[str | Text]] = [
        [
            Text(short_name(found, each), overflow="fold"),
            *(_size(size) for size in (each.should, *(each.compared[name] for name in survey.compared))),
        ]
        for found, each in shown
    ]
    head = ("WORKLOAD", survey.strategy.upper(), *(name.upper() for name in survey.compared))
    yield from _laid_out(head, rows, width)


def _size(size: Resources) -> str:
    if size.cpu_request is None and size.memory_request is None:
        return "-"
    return f"{cpu_text(size.cpu_request)} {memory_text(size.memory_request)}"


def _skipped(survey: Survey) -> Iterator[RenderableType]:
    yield Text(f"Skipped: {len(survey.skipped)}", style="bold")
    for each in survey.skipped[:MOST_SKIPPED]:
        yield Text(f"  {each.key.namespace}/{each.key.kind}/{each.key.name}: {each.reason}", style="dim")
    if len(survey.skipped) > MOST_SKIPPED:
        yield Text(f"  … and {len(survey.skipped) - MOST_SKIPPED} more: --output json has all.", style="dim")


def _risks(each: SurveyedContainer) -> Text:
    short = {"OOM": "OOM", "throttling": "CPU"}
    return Text("+".join(short[risk] for risk in each.risks), style="red")


def _laid_out(
    head: Sequence[str], rows: Sequence[Sequence[str | Text]], width: int, *, left: Sequence[int] = ()
) -> Iterator[RenderableType]:
    """Lay rows out as a table, or each on lines of its own where the other columns leave no room for the names."""
    widths = [max(cell_len(str(cell)) for cell in column) for column in zip(head, *rows, strict=True)]
    if width - sum(widths[1:]) - _GAP * (len(head) - 1) >= min(widths[0], _LEAST_NAME):
        table = _table(head)
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


def _table(head: Sequence[str]) -> Table:
    table = Table(*map(escape, head), box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    return table
