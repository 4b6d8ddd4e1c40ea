"""CSV rows whose text no spreadsheet takes for a formula.

A spreadsheet runs a cell that starts with = or @ as a formula, which can read other cells and send them elsewhere. Names and
reasons come from users of the cluster, and the file is opened by an administrator.
"""

from __future__ import annotations

from collections.abc import Iterable

_FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001 - spreadsheets also take the full-width signs


def escape_cells(row: Iterable[object]) -> list[object]:
    """Return a row in which text that would be a formula starts with an apostrophe; numbers stay as they are."""
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
