"""Draw usage over time with block characters, with a horizontal line for each size to compare with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np

from trimtab.usage.trace import Floats

BLOCKS = " ▁▂▃▄▅▆▇█"
LINE = "┄"
MIN_COLUMNS = 10
HEADROOM = 1.05
"""The factor between the highest value and the top of the chart."""


def draw_chart(
    usage: Floats,
    lines: Mapping[str, float | None],
    *,
    text: Callable[[float], str],
    width: int = 80,
    height: int = 8,
) -> list[str]:
    """Draw a chart as rows of text from the top, with names to the right; `lines` that are None are not drawn."""
    drawn = {name: amount for name, amount in lines.items() if amount is not None}
    top = HEADROOM * max([float(np.fmax.reduce(usage, initial=0.0)), *drawn.values(), 1e-9])
    named: dict[int, str] = {}
    for name, amount in drawn.items():
        row = height - 1 - int(amount / top * height)
        named[row] = ", ".join([*filter(None, [named.get(row)]), f"{name} {text(amount)}"])
    columns = downsample_max(usage, max(width - max(map(len, named.values()), default=0) - 1, MIN_COLUMNS))
    eighths = np.nan_to_num(columns / top * height * 8).round().astype(int)
    rows = []
    for row in range(height):
        filled = np.clip(eighths - (height - 1 - row) * 8, 0, 8)
        blank = LINE if row in named else " "
        cells = "".join(BLOCKS[cell] if cell else blank for cell in filled)
        rows.append(f"{cells} {named.get(row, '')}".rstrip())
    return rows


def downsample_max(usage: Floats, width: int) -> Floats:
    """Reduce usage to at most `width` columns, each the maximum of its time; NaN without samples."""
    edges = np.linspace(0, len(usage), min(width, max(len(usage), 1)) + 1).round().astype(int)
    pieces = [usage[begin:end] for begin, end in itertools.pairwise(edges)]
    highest: Floats = np.array([np.fmax.reduce(piece, initial=np.nan) for piece in pieces])
    return highest
