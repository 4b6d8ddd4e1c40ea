"""Run the fault simulation over many seeds, replay one, or shrink it: `python -m trimtab.lab.faults --help`."""

# ruff: noqa: T201 - a command prints
from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from itertools import count as count_from
from pathlib import Path

import cyclopts

from trimtab.errors import TrimtabError
from trimtab.lab.faults.campaign import (
    Campaign,
    LedgerRow,
    SeedSummary,
    append_to_ledger,
    connect_workers,
    count_cores,
    save_survey,
)
from trimtab.lab.faults.corpus import AnyCase, Subject, draw_any_case, load_case, run_any_case, save_case
from trimtab.lab.faults.node_runner import NodeCaseResult
from trimtab.lab.faults.runner import CaseResult
from trimtab.lab.faults.shrink import describe_case, shrink_case
from trimtab.lab.faults.single_thread import run_alone
from trimtab.lab.faults.timeline import render_timeline

app = cyclopts.App(help=__doc__)
FIXED_SECONDS = 60.0
"""The time of a core that the seeds take together which every test run repeats."""


@app.command
def run(
    first: int = 0,
    count: int = 20,
    *,
    hours: float | None = None,
    intensity: str = "heavy",
    processes: int | None = None,
    ray_address: str = "",
    save: Path | None = None,
    ledger: Path | None = None,
    commit: str = "",
    survey: bool = False,
    until_failure: bool = False,
    subject: Subject = "operator",
) -> int:
    """Run the cases of consecutive seeds, and print each violation with the command that repeats it.

    Examples:

        python -m trimtab.lab.faults run 5000 20 --until-failure

        python -m trimtab.lab.faults run 0 60 --intensity extreme --survey

        python -m trimtab.lab.faults run 9000 --hours 8 --save findings --ledger docs/research/fault-ledger.csv

    Parameters
    ----------
    first
        The first seed.
    count
        The number of seeds.
    hours
        Run as many seeds as end within this time, instead of a number.
    intensity
        The number of faults that are drawn: light (1 to 3), heavy (6 to 20) or extreme (30 to 50).
    processes
        The number of seeds that run at once; all cores by default.
    ray_address
        Run on this Ray cluster instead of this machine.
    save
        Save interesting and failing seeds in this folder.
    ledger
        Append a row about this run to this file.
    commit
        The commit of that row, where there is no repository.
    survey
        Write the counts of faults and evaluations for the reference, and choose the seeds that tests repeat.
    until_failure
        Stop after the first seed that violates an invariant.
    subject
        Run the operator on a cluster, or the agent on a node.
    """
    # The commit at the start: the tree may change while the campaign runs.
    began, commit = time.monotonic(), commit or (_find_commit() if ledger else "")
    campaign = Campaign(folder=save, on_summary=partial(_print_violations, subject=subject), subject=subject)
    seeds: Iterable[int] = range(first, first + count) if hours is None else count_from(first)
    with connect_workers(processes=processes or count_cores(), ray_address=ray_address) as workers:
        campaign.run(
            seeds,
            intensity=intensity,
            workers=workers,
            is_over=lambda: (
                (until_failure and bool(campaign.failing))
                or (hours is not None and time.monotonic() - began > hours * 3600)
            ),
        )
    taken = (time.monotonic() - began) / 3600
    seeds_run = len(campaign.summaries)
    print(
        f"{seeds_run} seeds from {first}, {campaign.days:g} cluster-days, {len(campaign.failing)} failed, "
        f"{campaign.days / taken:,.0f} cluster-days an hour, {campaign.days / campaign.core_seconds * 3600:,.0f} an hour of a core"
    )
    print("faults:", dict(sorted(campaign.count_faults().items())))
    print("invariants:", dict(sorted(campaign.count_evaluations().items())))
    if survey:
        found = campaign.build_survey(fixed_seconds=FIXED_SECONDS)
        save_survey(found, subject)
        print(f"tests repeat the seeds {', '.join(map(str, found.fixed_seeds))}")
    if ledger:
        append_to_ledger(ledger, _build_row(campaign, commit=commit, first=first, hours=taken))
    return 1 if campaign.failing else 0


@app.command
def replay(
    seed: int = -1,
    *,
    case: Path | None = None,
    intensity: str = "heavy",
    trace: bool = False,
    html: Path | None = None,
    hours: tuple[float, float] | None = None,
    subject: Subject = "operator",
) -> int:
    """Run one seed, or the case in a file, and print its violations and its trace.

    Examples:

        python -m trimtab.lab.faults replay 42 --trace

        python -m trimtab.lab.faults replay --case findings/operator-42-heavy.json --html 42.html --hours 10 14

    Parameters
    ----------
    seed
        The seed of the case.
    case
        A file with a case, instead of a seed.
    intensity
        The number of faults that are drawn: light, heavy or extreme.
    trace
        Print the trace.
    html
        Write a timeline to this file.
    hours
        The hours after the start that the timeline shows, from and to.
    subject
        Run the operator on a cluster, or the agent on a node.
    """
    result = run_alone(run_any_case(_load(seed, case, intensity, subject)))
    if trace:
        print(result.trace)
    if html:
        if not isinstance(result, CaseResult):
            raise TrimtabError("--html: only runs of the operator have a timeline; use --trace")
        command = format_replay_command(str(case) if case else seed, intensity=intensity, subject=subject)
        html.write_text(render_timeline(result, command=command, hours=hours), encoding="utf-8")
    return _report(result)


@app.command
def shrink(
    seed: int = -1,
    *,
    case: Path | None = None,
    intensity: str = "heavy",
    subject: Subject = "operator",
    invariant: str = "",
    output: Path,
) -> int:
    """Shrink a failing case, and write it to a file.

    Example: python -m trimtab.lab.faults shrink 42 --invariant quiet-in-the-end --output tests/lab/faults/corpus/NAME.json
    """
    found = _load(seed, case, intensity, subject)
    if not invariant:
        result = run_alone(run_any_case(found))
        if not result.violations:
            print("the case does not fail")
            return 0
        invariant = result.violations[0].invariant
    small = run_alone(shrink_case(found, invariant, on_progress=lambda text: print(text, flush=True)))
    save_case(output, small, invariant=invariant)
    print(f"{output}: {describe_case(small)}")
    return 0


def format_replay_command(case: str | int, *, intensity: str, subject: Subject) -> str:
    """Format the command that repeats the case of a seed or of a file."""
    if isinstance(case, str):
        return f"python -m trimtab.lab.faults replay --case {shlex.quote(case)} --trace"
    chosen = "" if subject == "operator" else f" --subject {subject}"
    return f"python -m trimtab.lab.faults replay {case} --intensity {intensity}{chosen} --trace"


def _print_violations(summary: SeedSummary, *, subject: Subject) -> None:
    seen: set[str] = set()
    for violation in summary.violations:
        if violation.invariant not in seen:
            seen.add(violation.invariant)
            print(f"seed {summary.seed}: {violation.invariant}: {violation.message[:600]}", flush=True)
    if seen:
        print(
            f"  repeat with: {format_replay_command(summary.seed, intensity=summary.intensity, subject=subject)}",
            flush=True,
        )


def _find_commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603


def _build_row(campaign: Campaign, *, commit: str, first: int, hours: float) -> LedgerRow:
    return LedgerRow(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        commit=commit,
        first_seed=first,
        count=len(campaign.summaries),
        cluster_days=campaign.days,
        machine_hours=round(hours, 3),
        violations=len(campaign.failing),
    )


def _load(seed: int, case: Path | None, intensity: str, subject: Subject) -> AnyCase:
    return load_case(case).case if case else draw_any_case(seed, intensity, subject)


def _report(result: CaseResult | NodeCaseResult) -> int:
    for violation in result.violations:
        print(violation)
    print(f"digest {result.digest}, {result.writes} writes, faults {dict(result.fault_counts)}")
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(app())
