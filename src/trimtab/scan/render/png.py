"""Render the charts of an explanation as one image, for a ticket or a slide."""

from __future__ import annotations

import io

import numpy as np

from trimtab.lazy import require_extra
from trimtab.scan.explanation import Explanation
from trimtab.scan.render.explanation import LINE_COLOURS, build_plots
from trimtab.scan.render.html import USED
from trimtab.scan.render.text_chart import downsample_max

COLUMNS = 600
DAY = 86400.0


def render_png(found: Explanation) -> bytes:
    """Render a row per container: CPU and memory over time with the current and recommended sizes."""
    with require_extra("pictures", "--output png"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(13, 3.2 * len(found.containers)), layout="constrained")
    figure.suptitle(str(found.key))
    rows = figure.subplots(len(found.containers), 2, squeeze=False)
    for row, each in zip(rows, found.containers, strict=True):
        days = each.trace.steps * each.trace.step / DAY
        for axes, (name, usage, lines, text) in zip(row, build_plots(each), strict=True):
            columns = downsample_max(usage, COLUMNS)
            axes.fill_between(np.linspace(0, days, len(columns)), np.nan_to_num(columns), color=USED)
            for line, amount in lines.items():
                if amount is not None:
                    axes.axhline(
                        amount, color=LINE_COLOURS[line], linestyle="--", label=f"{line} {text(amount)}"
                    )
            axes.set_title(f"{each.container.name}: {name}", fontsize=10)
            axes.set_xlabel("days")
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(lambda amount, _, text=text: text(amount))
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="upper right", fontsize=8)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()
