"""Run the fault simulation over many seeds, replay one, or shrink it: `python -m trimtab.lab.faults --help`."""

# ruff: noqa: T201 - a command prints
from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import cyclopts

from trimtab.lab.faults.corpus import load_case, save_case
from trimtab.lab.faults.runner import CaseResult, FaultCase, draw_case, run_case
from trimtab.lab.faults.shrink import describe_case, shrink_case
from trimtab.lab.faults.timeline import render_timeline

app = cyclopts.App(help=__doc__)


class _Summary(NamedTuple):
    seed: int
    days: float
    violations: list[tuple[str, str]]
    fault_counts: Counter[str]
    evaluations: Counter[str]
    writes: int
    seconds: float


@app.command
def run(first: int = 0, count: int = 20, *, intensity: str = "heavy", processes: int = 2) -> int:
    """Run the cases of consecutive seeds."""
    began = time.monotonic()
    faults, evaluations, failed, days = Counter[str](), Counter[str](), 0, 0.0
    with ProcessPoolExecutor(processes) as pool:
        for each in pool.map(_run_seed, range(first, first + count), [intensity] * count):
            days += each.days
            faults.update(each.fault_counts)
            evaluations.update(each.evaluations)
            if each.violations:
                failed += 1
                seen: set[str] = set()
                for invariant, message in each.violations:
                    if invariant not in seen:
                        seen.add(invariant)
                        print(f"seed {each.seed}: {invariant}: {message[:600]}", flush=True)
                print(f"  repeat with: {format_replay_command(each.seed, intensity=intensity)}", flush=True)
    hours = (time.monotonic() - began) / 3600
    print(f"{count} seeds, {days:g} cluster-days, {failed} failed, {days / hours:,.0f} cluster-days an hour")
    print("faults:", dict(sorted(faults.items())))
    print("invariants:", dict(sorted(evaluations.items())))
    return 1 if failed else 0


@app.command
def replay(
    seed: int = -1,
    *,
    case: Path | None = None,
    intensity: str = "heavy",
    trace: bool = False,
    html: Path | None = None,
    hours: tuple[float, float] | None = None,
) -> int:
    """Run one seed, or the case in a file, and print its violations and its trace.

    Parameters
    ----------
    seed
        The seed of the case.
    case
        A file with a case, instead of a seed.
    intensity
        The number of faults that are drawn: light or heavy.
    trace
        Print the trace.
    html
        Write a timeline to this file.
    hours
        The hours after the start that the timeline shows, from and to.
    """
    result = asyncio.run(run_case(_load(seed, case, intensity)))
    if trace:
        print(result.trace)
    if html:
        command = format_replay_command(str(case) if case else seed, intensity=intensity)
        html.write_text(render_timeline(result, command=command, hours=hours), encoding="utf-8")
    return _report(result)


@app.command
def shrink(
    seed: int = -1, *, case: Path | None = None, intensity: str = "heavy", invariant: str = "", output: Path
) -> int:
    """Shrink a failing case, and write it to a file."""
    found = _load(seed, case, intensity)
    if not invariant:
        result = asyncio.run(run_case(found))
        if not result.violations:
            print("the case does not fail")
            return 0
        invariant = result.violations[0].invariant
    small = asyncio.run(shrink_case(found, invariant, on_progress=lambda text: print(text, flush=True)))
    save_case(output, small, invariant=invariant)
    print(f"{output}: {describe_case(small)}")
    return 0


def format_replay_command(case: str | int, *, intensity: str) -> str:
    """Format the command that repeats the case of a seed or of a file."""
    if isinstance(case, str):
        return f"python -m trimtab.lab.faults replay --case {shlex.quote(case)} --trace"
    return f"python -m trimtab.lab.faults replay {case} --intensity {intensity} --trace"


def _run_seed(seed: int, intensity: str) -> _Summary:
    began = time.monotonic()
    case = draw_case(seed, intensity)
    try:
        result = asyncio.run(run_case(case))
        violations = [(each.invariant, each.message) for each in result.violations]
        return _Summary(
            seed,
            case.world.days,
            violations,
            result.fault_counts,
            result.evaluations,
            result.writes,
            time.monotonic() - began,
        )
    except Exception as error:  # noqa: BLE001 - one broken seed must not hide the others
        import traceback

        text = "".join(traceback.format_exception(error)[-4:])
        return _Summary(seed, case.world.days, [("simulation-error", text)], Counter(), Counter(), 0, 0.0)


def _load(seed: int, case: Path | None, intensity: str) -> FaultCase:
    return load_case(case).case if case else draw_case(seed, intensity)


def _report(result: CaseResult) -> int:
    for violation in result.violations:
        print(violation)
    print(f"digest {result.digest}, {result.writes} writes, faults {dict(result.fault_counts)}")
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(app())
