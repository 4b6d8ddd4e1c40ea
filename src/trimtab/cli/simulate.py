"""`trimtab simulate`: one policy against another on a simulated cluster, with the operator of production."""

import asyncio
import json
import logging
import shlex
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import structlog
from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from trimtab.cli._common.seed import Seed
from trimtab.errors import TrimtabError
from trimtab.lab.faults.policy_runs import FaultComparison, describe_result
from trimtab.lab.faults.runner import CaseResult
from trimtab.lab.faults.single_thread import run_alone
from trimtab.lab.faults.timeline import render_timeline
from trimtab.lab.simulator.cluster_generator import STEP, generate_cluster, generate_cluster_from_trace
from trimtab.lab.simulator.comparison import (
    NONE,
    PolicyRun,
    load_policies,
    require_matching_workloads,
    run_policy,
)
from trimtab.lab.simulator.report import render_page
from trimtab.lab.simulator.scenario import Scenario
from trimtab.plural import format_time_span, pluralize
from trimtab.usage.files import read_trace

HEADER = (
    "POLICY",
    "NODES",
    "CPU\nSLACK",
    "OVER\nREQ.",
    "MEM\nSLACK",
    "OOM\nKILLS",
    "THROT-\nTLED",
    "UN-\nSERVED",
    "SLO\nMISSED",
    "CHG\nA DAY",
    "RE-\nVERTS",
    "$ OF\nREQ.",
    "$ OF\nNODES",
)
"""The table header, over two lines so that the table fits 80 columns."""
COLUMNS = 100
"""The width of the table in a file or pipe."""


def simulate(
    *contenders: str,
    days: float = 5.0,
    warm_up: float = 1.0,
    workloads: int = 24,
    recording: Path | None = None,
    seed: Seed = 0,
    faults: Literal["none", "light", "heavy"] = "none",
    timelines: Path | None = None,
    output: Annotated[Literal["table", "json", "html"], Parameter(name=["--output", "-o"])] = "table",
) -> int:
    """Simulate a cluster under several policies, and compare nodes, slack, OOM kills, throttling, objectives and cost.

    The production operator runs in simulated time. Example:

        trimtab simulate none vpa trimtab
        trimtab simulate none mine.yaml theirs.yaml --days 7 --output html > comparison.html
        trimtab simulate none mine.yaml --faults heavy --seed 3

    Parameters
    ----------
    contenders
        The policies to compare on the same cluster and demand: none keeps all requests, a name is a strategy, a file
        has an OptimizationPolicy. The default is none, vpa and trimtab.
    days
        The simulated days.
    warm_up
        The first days, in which the operator learns and begins to act; they are not counted.
    workloads
        The number of workloads of the generated cluster: services, batch jobs and others, most with too large
        requests.
    recording
        A recording, in a format that backtest reads, as the demand. Each series is a workload and repeats if it is
        too short.
    seed
        The seed of the generated cluster and of the faults; the same seed gives the same run, bit for bit.
    faults
        Inject few (light) or many (heavy) faults: a slow API server, lost nodes, wrong usage, killed processes, other
        writers. The result also lists the faults and each promise that was not kept; then the exit code is 1.
    timelines
        A folder for a timeline of each run with faults, as HTML: who did what when, and which faults were active.
    output
        A table for people, json for programs, html for a page with plots.
    """
    _check_times(days, warm_up)
    if workloads < 1:
        raise TrimtabError(f"--workloads {workloads}: must be at least 1")
    if timelines and faults == "none":
        raise TrimtabError("--timelines: only runs with faults have timelines; add --faults light or heavy")
    names = contenders or (NONE, "vpa", "trimtab")
    for name in names:
        load_policies(name)  # rejects invalid policies before the long run
    # The operator's log of every action would hide the result.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    scenario = _build_scenario(recording, workloads=workloads, days=days, warm_up=warm_up, seed=seed)
    for name in names:
        require_matching_workloads(name, scenario)
    console = Console(file=sys.stderr)
    comparison = (
        None
        if faults == "none"
        else FaultComparison(scenario, days=days, warm_up=warm_up * 86400, seed=seed, intensity=faults)
    )
    runs: list[PolicyRun] = []
    results: list[CaseResult] = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks = [progress.add_task(escape(name), total=1.0) for name in names]
        for name, task in zip(names, tasks, strict=True):

            def advance(share: float, task: int = task) -> None:
                progress.update(task, completed=share)  # type: ignore[arg-type]

            if comparison:
                run, result = run_alone(comparison.run_policy(name, on_progress=advance))
                results.append(result)
            else:
                run = asyncio.run(
                    run_policy(
                        scenario, name, days=days, warm_up=warm_up * 86400, seed=seed, on_progress=advance
                    )
                )
            runs.append(run)
    demand = f"--recording {shlex.quote(str(recording))}" if recording else f"--workloads {workloads}"
    settings = f"--days {days:g} --warm-up {warm_up:g} {demand} --faults {faults} --seed {seed}"
    remarks = _build_remarks(runs, results, settings)
    if timelines:
        _write_timelines(timelines, runs, results, settings)
    _print(runs, results, scenario, remarks, days=days, output=output)
    return 1 if any(result.violations for result in results) else 0


def _build_scenario(
    recording: Path | None, *, workloads: int, days: float, warm_up: float, seed: int
) -> Scenario:
    if recording is None:
        _reject_short_run(days, warm_up, STEP)
        return generate_cluster(workloads=workloads, days=days, seed=seed)
    scenario = generate_cluster_from_trace(read_trace(recording), seed=seed)
    _reject_short_run(days, warm_up, scenario.demand.step)
    return scenario


def _check_times(days: float, warm_up: float) -> None:
    if not 0 <= warm_up < inf:
        raise TrimtabError(f"--warm-up {warm_up:g}: must be 0 or more days")
    if not warm_up < days:
        raise TrimtabError(f"--days {days:g}: must be more than --warm-up, {warm_up:g}")
    if days == inf:
        raise TrimtabError("--days inf: must be finite")


def _reject_short_run(days: float, warm_up: float, step: float) -> None:
    if round(days * 86400 / step) * step <= warm_up * 86400:
        raise TrimtabError(
            f"--days {days:g}: must be at least a step of {format_time_span(step)} more than --warm-up, {warm_up:g}"
        )


def _write_timelines(
    folder: Path, runs: Sequence[PolicyRun], results: Sequence[CaseResult], settings: str
) -> None:
    """Write the timeline of each run with faults; names of files with policies lose their folders."""
    folder.mkdir(parents=True, exist_ok=True)
    for run, result in zip(runs, results, strict=True):
        command = f"trimtab simulate {shlex.quote(run.policy_name)} {settings}"
        page = render_timeline(result, command=command)
        (folder / f"{Path(run.policy_name).stem}.html").write_text(page, encoding="utf-8")


def _build_remarks(runs: Sequence[PolicyRun], results: Sequence[CaseResult], settings: str) -> list[str]:
    """Build the lines about faults, and the command that repeats the runs with a violation."""
    pairs = list(zip(runs, results, strict=bool(results)))
    remarks = [line for run, result in pairs for line in describe_result(run, result)]
    broken = [shlex.quote(run.policy_name) for run, result in pairs if result.violations]
    if broken:
        remarks.append(f"Repeat with: trimtab simulate {' '.join(broken)} {settings}")
    return remarks


def _print(
    runs: Sequence[PolicyRun],
    results: Sequence[CaseResult],
    scenario: Scenario,
    remarks: Sequence[str],
    *,
    days: float,
    output: str,
) -> None:
    """Print the runs; `results` has what faults did to each of them, or is empty if there were none."""
    pods = sum(spec.replicas for spec in scenario.workloads)
    title = f"{pluralize(len(scenario.workloads), 'workload')}, {pluralize(pods, 'pod')}, {pluralize(days, 'day')}"
    if output == "json":
        records: list[dict[str, Any]] = [{"policy": run.policy_name, **run.summary()} for run in runs]
        for record, result in zip(records, results, strict=False):
            record["faults"] = dict(sorted(result.fault_counts.items()))
            record["violations"] = msgspec.to_builtins(result.violations)
        print(json.dumps(records, indent=2))
    elif output == "html":
        print(render_page(f"Simulated: {title}", runs, [HEADER, *map(_build_row, runs)], remarks=remarks))
    else:
        table = Table(
            *HEADER, box=None, title=title, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0)
        )
        table.columns[0].overflow = "fold"
        for column in table.columns[1:]:
            column.justify = "right"
        for run in runs:
            table.add_row(*map(escape, _build_row(run)))
        console = Console()
        if not console.is_terminal:
            console.width = COLUMNS
        console.print(table)
        for remark in remarks:
            console.print(remark, markup=False, highlight=False)


def _build_row(run: PolicyRun) -> tuple[str, ...]:
    found = run.summary()
    return (
        run.policy_name,
        f"{found['nodes']:.1f}",
        f"{found['cpu_slack']:.1%}",
        f"{found['over_request']:.1%}",
        f"{found['memory_slack']:.1%}",
        f"{found['ooms']:.0f}",
        f"{found['throttled']:.2%}",
        f"{found['starved']:.2%}",
        f"{found['slo_missed']:.2%}",
        f"{found['changes_day']:.1f}",
        f"{found['reverted']:.0f}",
        f"{found['dollars_month']:,.0f}",
        f"{found['node_dollars_month']:,.0f}",
    )
