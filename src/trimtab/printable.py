"""Make text that others wrote safe for what shows it: a terminal, a YAML comment, a spreadsheet.

Names, annotations and answers of servers come from other people.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any

_FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001 - spreadsheets also take the full-width signs


def escape_invisible(text: str) -> str:
    r"""Replace line breaks, control and formatting characters by escapes such as `\n` and `\u202e`.

    A line break would end a comment of a YAML document, and an escape sequence would rewrite a terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode()
        for char in text
    )


def shorten(text: str, length: int) -> str:
    """Return one printable line of at most this length; an ellipsis replaces what is cut off."""
    # Escapes are up to ten characters long, so the rest of a long text need not be escaped.
    printable = escape_invisible(text[: length + 1])
    return printable if len(printable) <= length else printable[: length - 1] + "…"


def escape_event(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape the texts of a log line for a terminal, as a processor of structlog before the one that renders lines.

    Messages of errors quote names and answers of others. Only tracebacks have several lines, which are indented so that
    none looks like a line of the log.
    """
    escaped = {name: escape_invisible(value) for name, value in event.items() if isinstance(value, str)}
    if "exception" in escaped:
        escaped["exception"] = "\n".join(
            f"  {escape_invisible(line)}" for line in event["exception"].splitlines()
        )
    event.update(escaped)
    return event


def escape_cells(row: Iterable[object]) -> list[object]:
    """Return a row in which text that would be a formula starts with an apostrophe; numbers stay as they are.

    A spreadsheet runs a cell that starts with = or @ as a formula, which can read other cells and send them elsewhere,
    and an administrator opens the file.
    """
    return [
        f"'{cell}"
        if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS) and not _is_number(cell)
        else cell
        for cell in row
    ]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii()
