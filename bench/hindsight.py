"""The lead over VPA that perfect knowledge of each container's best forecast and margin would give.

    .venv/bin/python bench/hindsight.py TRACES --containers 100 --days 30

Ten plain forecasts of the next hour, each with 17 margins; a container keeps one of them for all its time, the best for
it in hindsight, and containers share the harm so that the sum of slack is least. Sizes change each hour with no brake.
Printed is VPA's slack and harm divided out, as `bench/backtest.py` does for trimtab: what the aims can be held against.
"""

from __future__ import annotations

import os
import warnings
from argparse import ArgumentParser
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from trimtab.lab.backtest import BacktestSchedule, backtest
from trimtab.sizing import strategy
from trimtab.usage.files import read_trace
from trimtab.usage.trace import Floats, Trace

TRACES = Path(os.environ.get("TRACES", "traces"))
HOUR, DAY = 3600.0, 24
MARGINS = np.exp(np.linspace(np.log(0.6), np.log(6.0), 17))
SLACK, UNDER, UNSERVED = range(3)
NEVER = 1e9
"""Stands for the scores of what cannot be asked for."""

console = Console()


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("traces", type=Path, nargs="?", default=TRACES)
    parser.add_argument("--containers", type=int, default=100, help="take at most so many of each set")
    parser.add_argument("--days", type=float, default=30.0, help="of each set's beginning")
    given = parser.parse_args()
    if not given.traces.is_dir():
        print(f"skipped: there are no traces at {given.traces}; name a folder that has some")
        return
    warnings.simplefilter("ignore", RuntimeWarning)  # hours without a sample
    table = Table("", "SLACK@UNDER", "SLACK@UNSERVED", "UNDER@SLACK", box=None)
    every, peers = [], []
    for file in track(sorted(given.traces.glob("*/*.parquet")), console=Console(stderr=True)):
        try:
            trace = part(read_trace(file), given.containers, given.days)
        except Exception as error:  # noqa: BLE001 - a set without usage is reported and skipped
            console.print(f"passed over: {error}")
            continue
        if np.isnan(trace.cpu).all():
            continue
        every.append(outcomes(trace))
        peers.append(vpa(trace))
        table.add_row(file.stem, *ratios(every[-1:], peers[-1:]))
    if not every:
        print(f"skipped: there is no usage of CPU in {given.traces}")
        return
    table.add_row("all", *ratios(every, peers))
    console.print(table)


def part(trace: Trace, containers: int, days: float) -> Trace:
    """Some containers, drawn evenly, and the beginning of their time."""
    columns = np.sort(np.random.default_rng(0).permutation(trace.container_count)[:containers])
    some = trace.select_columns(columns)
    rows = int(days * DAY * HOUR / trace.step)
    return Trace(some.names, some.start, some.step, some.cpu[:rows], np.full_like(some.cpu[:rows], np.nan))


def vpa(trace: Trace) -> Floats:
    """VPA's slack, time under and unserved CPU of each container."""
    scores = backtest(trace, strategy("vpa", trace.container_count), BacktestSchedule())
    return np.array([scores.cpu_slack, scores.cpu_under, scores.cpu_deficit])


def outcomes(trace: Trace) -> Floats:
    """The three scores of each forecast with each margin, of each container that is sized."""
    each = max(1, round(HOUR / trace.step))
    hours = trace.steps // each
    usage = trace.cpu[: hours * each].reshape(hours, each, -1)
    seen = np.count_nonzero(~np.isnan(usage), axis=1) > 0
    first, last = seen.argmax(axis=0), hours - seen[::-1].argmax(axis=0)
    warm = np.ceil(first + np.minimum(DAY, (last - first) / 4))
    counted = np.where(np.arange(hours)[:, None, None] >= warm, usage, np.nan)
    rows = [scores(counted, margin * level) for level in forecasts(usage) for margin in MARGINS]
    found = np.nan_to_num(np.array(rows), nan=NEVER, posinf=NEVER)
    return found[:, :, found[:, SLACK].min(axis=0) < NEVER]


def scores(usage: Floats, size: Floats) -> Floats:
    asked = np.where(np.isnan(usage), np.nan, size[:, None])
    deficit = np.maximum(usage - asked, 0.0)
    both = (0, 1)
    unused = np.nansum(np.maximum(asked - usage, 0.0), axis=both) / np.nansum(asked, axis=both)
    known = np.count_nonzero(~np.isnan(deficit), axis=both)
    unserved = np.nansum(deficit, axis=both) / np.nansum(usage, axis=both)
    return np.array([unused, np.count_nonzero(deficit > 0, axis=both) / known, unserved])


def forecasts(usage: Floats) -> list[Floats]:
    """A level for each hour from the hours before it; the last one from all of them."""
    mean = filled(np.nanmean(usage, axis=1))
    high, peak = filled(np.nanquantile(usage, 0.9, axis=1)), filled(np.nanmax(usage, axis=1))
    slow = [late(faded(mean, half_life)) for half_life in (24.0, 96.0)]
    hourly = at_this_hour(mean, slow[-1])
    day = range(1, DAY + 1)
    window_high = np.nanquantile([late(high, back) for back in day], 0.9, axis=0)
    window_peak = np.nanmax([late(peak, back) for back in day], axis=0)
    constant = np.broadcast_to(np.nanmean(mean, axis=0), mean.shape)
    last = [late(mean), late(high), late(peak)]
    return [*last, *slow, hourly, np.fmax(hourly, last[0]), window_high, window_peak, constant]


def late(values: Floats, hours: int = 1) -> Floats:
    return np.vstack([np.full((min(hours, len(values)), values.shape[1]), np.nan), values[:-hours]])


def filled(values: Floats) -> Floats:
    """Fill missing samples with the one before."""
    for before, now in pairwise(values):
        np.copyto(now, before, where=np.isnan(now))
    return values


def faded(values: Floats, half_life: float) -> Floats:
    kept = 0.5 ** (1.0 / half_life)
    total, weight = np.zeros((2, values.shape[1]))
    means = np.empty_like(values)
    for hour, row in enumerate(values):
        total, weight = total * kept + np.nan_to_num(row), weight * kept + ~np.isnan(row)
        means[hour] = total / weight
    return means


def at_this_hour(mean: Floats, otherwise: Floats) -> Floats:
    known = np.full((DAY, mean.shape[1]), np.nan)
    levels = np.empty_like(mean)
    for hour, row in enumerate(mean):
        place = known[hour % DAY]
        levels[hour] = np.where(np.isnan(place), otherwise[hour], place)
        known[hour % DAY] = np.where(np.isnan(place), row, (place + row) / 2)
    return levels


def ratios(every: Sequence[Floats], peers: Sequence[Floats]) -> list[str]:
    """The least slack at VPA's harm, and the least time under at its slack, divided by VPA's."""
    found, peer = np.concatenate(every, axis=2), np.nanmean(np.concatenate(peers, axis=1), axis=1)
    under, unserved = curve(found, UNDER), curve(found, UNSERVED)
    return [
        f"{np.interp(peer[UNDER], under[:, 0], under[:, 1]) / peer[SLACK]:.2f}",
        f"{np.interp(peer[UNSERVED], unserved[:, 0], unserved[:, 1]) / peer[SLACK]:.2f}",
        f"{np.interp(peer[SLACK], under[::-1, 1], under[::-1, 0]) / peer[UNDER]:.2f}",
    ]


def curve(found: Floats, harm: int) -> Floats:
    """The mean harm and slack of all containers, at many prices of harm."""
    containers = np.arange(found.shape[2])
    points = []
    for price in np.exp(np.linspace(-5.0, 8.0, 120)):
        best = (found[:, SLACK] + price * found[:, harm]).argmin(axis=0)
        points.append((found[best, harm, containers].mean(), found[best, SLACK, containers].mean()))
    return np.array(sorted(points))


if __name__ == "__main__":
    main()
