"""Plot a workload as a self-contained HTML page, or as PNG if matplotlib is installed.

The first series are drawn, each in its colour; of more than a line can show, the highest of each stretch of time.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

import numpy as np

from trimtab.api.quantity import MIB
from trimtab.atomic_write import replace_atomically
from trimtab.errors import TrimtabError
from trimtab.lab.workloads.workload import GeneratedWorkload
from trimtab.lazy import require_extra
from trimtab.usage.trace import Floats

MAX_SERIES = 6
COLOURS = ("#0b6e4f", "#c0392b", "#2c6fbb", "#b7791f", "#7b4fa3", "#4a5568")
WIDTH, HEIGHT, EDGE = 900, 240, 56
MAX_POINTS = 1500

STYLE = """body{font:15px system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1a202c}
svg{max-width:100%;height:auto}td{padding:.1rem .8rem .1rem 0}"""


def build_panels(workload: GeneratedWorkload) -> list[tuple[str, Floats]]:
    """Build the charts, one above the other."""
    drawn = [("CPU, cores", workload.cpu), ("memory, MiB", workload.memory / MIB)]
    return drawn if workload.requests is None else [*drawn, ("requests a second", workload.requests)]


def render_page(workload: GeneratedWorkload, title: str) -> str:
    """Render the page."""
    rows = "".join(
        f"<tr><td>{escape(name)}<td>{escape(str(value))}" for name, value in workload.settings.items()
    )
    charts = "".join(
        f"<h2>{escape(name)}</h2>{_render_svg(rows_, workload.step)}"
        for name, rows_ in build_panels(workload)
    )
    description = f"{workload.series} series of {workload.steps} samples, {workload.step:g} s apart; seed {workload.seed}"
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{escape(title)}</h1><p>{description}.</p>{charts}<h2>Settings</h2><table>{rows}</table>\n"
    )


def write_png(workload: GeneratedWorkload, title: str, path: Path) -> None:
    """Write the charts as PNG."""
    with require_extra("pictures", f"--output-file {path}", alternative="write .html"):
        from matplotlib.figure import Figure
    drawn = build_panels(workload)
    figure = Figure(figsize=(10, 2.4 * len(drawn)), layout="constrained")
    figure.subplots(len(drawn))
    hours = np.arange(workload.steps) * workload.step / 3600
    for axis, (name, rows) in zip(figure.axes, drawn, strict=True):
        for colour, row in zip(COLOURS, rows[:MAX_SERIES], strict=False):
            axis.plot(hours, row, color=colour, linewidth=0.8)
        axis.set_ylabel(name)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    figure.axes[0].set_title(title)
    figure.axes[-1].set_xlabel("hours")
    try:
        with replace_atomically(path) as place:
            figure.savefig(place, dpi=110, format="png")
    except OSError as error:
        raise TrimtabError(f"--output-file {path}: cannot be written: {error.strerror}") from None


def _render_svg(rows: Floats, step: float) -> str:
    shown = [downsample_max(row, MAX_POINTS) for row in rows[:MAX_SERIES]]
    top = max(max(float(row.max()) for row in shown) * 1.05, 1e-12)
    hours = rows.shape[1] * step / 3600
    lines = []
    for part in range(5):
        y = HEIGHT - 24 - part / 4 * (HEIGHT - 36)
        x = EDGE + part / 4 * (WIDTH - EDGE - 12)
        lines.append(f'<path d="M{EDGE} {y:.1f}H{WIDTH - 12}" stroke="#e2e8f0"/>')
        lines.append(f'<text x="{EDGE - 6}" y="{y + 4:.1f}" text-anchor="end">{top * part / 4:.3g}</text>')
        lines.append(
            f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{hours * part / 4:.3g} h</text>'
        )
    for colour, row in zip(COLOURS, shown, strict=False):
        across = np.linspace(EDGE, WIDTH - 12, len(row))
        up = HEIGHT - 24 - row / top * (HEIGHT - 36)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, up, strict=True))
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="12">'
        f"{''.join(lines)}</svg>"
    )


def downsample_max(row: Floats, most: int) -> Floats:
    """Return at most this many points, each the highest of its interval."""
    if len(row) <= most:
        return row
    edges = np.linspace(0, len(row), most, endpoint=False).astype(np.intp)
    found: Floats = np.maximum.reduceat(row, edges)
    return found
