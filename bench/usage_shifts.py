"""False alarms and detection of usage shifts on recordings.

    .venv/bin/python bench/usage_shifts.py TRACES

Printed for each set that is longer than the first week: shifts in each container-week, the share of time that they hold
decreases, and the share of containers of at least 0.2 cores in which an injected change of the daily pattern is found within
two days, and after how many hours (median).
"""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from trimtab.sizing.tracking.usage_shifts import MATURE_SECONDS, NO_HOUR, UsageShiftTracker
from trimtab.usage.files import read_trace
from trimtab.usage.trace import Floats

TRACES = Path(os.environ.get("TRACES", "traces"))
HOUR, DAY, WEEK = 3600.0, 86400.0, 604800.0
MIN_CPU, WITHIN_HOURS = 0.2, 48.0


class Found(NamedTuple):
    """The shifts of a set: the hour and the container of each, the weeks watched, and the weeks held."""

    shifts: list[tuple[float, int]]
    weeks: float
    held: float


def scale(usage: Floats, before: Floats, factor: float) -> Floats:
    del before
    return usage * factor


def stretch(usage: Floats, before: Floats, factor: float) -> Floats:
    mean = float(np.nanmean(before))
    return np.maximum(mean + (usage - mean) * factor, 0.0)


def delay(usage: Floats, before: Floats, factor: float) -> Floats:
    """Follow what was at another time of the day."""
    shift = int(len(before) * factor)
    return np.concatenate([before[len(before) - shift :], usage])[: len(usage)]


CHANGES: dict[str, tuple[Callable[[Floats, Floats, float], Floats], float]] = {
    "level x2": (scale, 2.0),
    "level x3": (scale, 3.0),
    "level /3": (scale, 1 / 3),
    "level /10": (scale, 0.1),
    "amplitude x2": (stretch, 2.0),
    "amplitude x3": (stretch, 3.0),
    "12 h later": (delay, 0.5),
}

console = Console()


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("traces", type=Path, nargs="?", default=TRACES)
    given = parser.parse_args()
    if not given.traces.is_dir():
        print(f"skipped: there are no traces at {given.traces}; name a folder that has some")
        return
    table = Table("", "WEEKS", "CPU/WEEK", "MEMORY/WEEK", "HELD", *CHANGES, box=None)
    for file in sorted(given.traces.glob("*/*.parquet")):
        try:
            trace = read_trace(file)
        except Exception as error:  # noqa: BLE001 - a set without usage is reported and skipped
            console.print(f"passed over: {error}")
            continue
        if len(trace.cpu) * trace.step < MATURE_SECONDS + 3 * DAY or trace.step > HOUR / 2:
            continue
        cpu, memory = (watch(trace.cpu, trace.memory, trace.step, resource) for resource in (0, 1))
        busy = trace.cpu[:, np.nan_to_num(np.nanmedian(trace.cpu, axis=0)) >= MIN_CPU]
        table.add_row(
            file.parent.name,
            f"{cpu.weeks:.0f}",
            f"{len(cpu.shifts) / cpu.weeks:.3f}",
            f"{len(memory.shifts) / cpu.weeks:.3f}",
            f"{(cpu.held + memory.held) / cpu.weeks:.1%}",
            *(detect(busy, trace.step, *change) for change in CHANGES.values()),
        )
    console.print(table)


def detect(cpu: Floats, step: float, change: Callable[[Floats, Floats, float], Floats], factor: float) -> str:
    """Return in how many containers a change is found that comes at a random time of each, and after how many hours."""
    choose, day = np.random.default_rng(2), int(DAY / step)
    changed, times = cpu.copy(), []
    for container in range(cpu.shape[1]):
        last = int(np.flatnonzero(np.isfinite(cpu[:, container]))[-1])
        at = int(min(choose.uniform(10, 25) * day, last - 3 * day))
        changed[at:, container] = change(cpu[at:, container], cpu[max(at - day, 0) : at, container], factor)
        times.append(at * step / HOUR)
    first: dict[int, float] = {}
    for hour, container in watch(changed, np.full_like(changed, np.nan), step, 0).shifts:
        if 0.0 <= hour - times[container] <= WITHIN_HOURS:
            first.setdefault(container, hour - times[container])
    return f"{len(first)}/{cpu.shape[1]}" + (f", {np.median(list(first.values())):.0f} h" if first else "")


def watch(cpu: Floats, memory: Floats, step: float, resource: int) -> Found:
    tracker, ran = UsageShiftTracker(cpu.shape[1]), np.zeros(cpu.shape[1])
    before, shifts, held = np.full(cpu.shape[1], NO_HOUR), [], 0.0
    for row in range(len(cpu)):
        tracker.observe(row * step, cpu[row], memory[row], seconds=step, observed=ran)
        ran += step * np.isfinite(cpu[row])
        since = tracker.arrays("")["since"][resource].copy()
        held += step * float((since != NO_HOUR).sum())
        begun = np.flatnonzero((since != before) & (since != NO_HOUR))
        shifts += [(row * step / HOUR, int(container)) for container in begun]
        before = since
    return Found(shifts, max(float(np.maximum(ran - MATURE_SECONDS, 0.0).sum()) / WEEK, 1e-9), held / WEEK)


if __name__ == "__main__":
    main()
