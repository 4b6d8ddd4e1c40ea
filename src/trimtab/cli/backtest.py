"""`trimtab backtest`: what each strategy would have cost and harmed on recorded usage."""

import asyncio
import csv
import io
import itertools
import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from trimtab.cli import print_message
from trimtab.cli._common.scan_options import friendly_errors, parse_days, parse_key_values, parse_seconds
from trimtab.errors import TrimtabError
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.retry import RetryPolicy
from trimtab.lab.backtest import BacktestSchedule, generate_sample_trace
from trimtab.lab.job import ORACLE, BacktestJob, Engine, select_schedule_settings
from trimtab.lab.local_engine import run_on_cores
from trimtab.lab.ray_engine import LOCAL, RayEngine
from trimtab.lab.report import BacktestOutcome, describe_partial_coverage, render_page, render_section
from trimtab.lab.scores import Scores
from trimtab.plural import format_time_span, pluralize
from trimtab.printable import escape_cells
from trimtab.scan.source_selection import PROMETHEUS, open_source
from trimtab.scan.usage_reader import read_usage_trace
from trimtab.sizing.strategy import STRATEGIES
from trimtab.usage.files import read_trace
from trimtab.usage.trace import Trace

DEFAULT_STRATEGIES = "trimtab,vpa,krr"
MAX_STABILIZATION = 86400.0
"""The longest stabilization that policies accept, in seconds."""
HEADER = (
    "STRATEGY",
    "CPU\nSLACK",
    "UNDER",
    "P90",
    "UN-\nSERVED",
    "MEM\nSLACK",
    "OOM\nA DAY",
    "WITH\nOOM",
    "CHG\nA DAY",
    "$ A\nMONTH",
)
"""The table header, over two lines so that the table fits 80 columns."""


def backtest(
    *paths: Path,
    strategy: str = DEFAULT_STRATEGIES,
    setting: Annotated[Sequence[str], Parameter(name=["--setting", "-s"])] = (),
    update: str = "1h",
    warm_up: str = "24h",
    minimum_change: float = 0.0,
    stabilization: str = "0s",
    form: Annotated[str | None, Parameter(name="--format")] = None,
    engine: Literal["cores", "ray"] = "cores",
    ray_address: str = LOCAL,
    demo: bool = False,
    prometheus: str | None = None,
    found: bool = False,
    source_setting: tuple[str, ...] = (),
    days: float = 14.0,
    step: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
    namespace: Annotated[tuple[str, ...], Parameter(name=["--namespace", "-n"])] = (),
    output: Annotated[Literal["table", "json", "csv", "html"], Parameter(name=["--output", "-o"])] = "table",
) -> int:
    """Replay recorded usage through strategies, and compare their cost and their risk.

    Your own recording with three strategies, one of them at three risks, as an HTML page:

        trimtab backtest usage.parquet --strategy trimtab,vpa,krr --setting trimtab.cpu_risk=0.01,0.02,0.05 --output html > report.html

    The usage of your cluster, from a given Prometheus or from the one in the cluster; the cost of the read is shown
    first:

        trimtab backtest --prometheus http://127.0.0.1:9090 --days 14
        trimtab backtest --found --namespace shop

    Without a recording, a small generated fleet:

        trimtab backtest --demo

    Parameters
    ----------
    paths
        Recordings, each a file, an archive or a folder: parquet or CSV with the columns series, t_seconds, cpu_cores
        or cpu_fraction, mem_bytes or mem_fraction; or a public format as published.
    strategy
        The strategies to compare, separated by commas; `all` is every installed one. The oracle, which knows the
        future, is always included.
    setting
        A setting of one strategy, as name.key=value; each of several values, separated by commas, is a run of its
        own.
    update
        The interval at which sizes are set.
    warm_up
        The time for which a strategy only learns; at most a quarter of a container's history.
    minimum_change
        The smallest change of a size that is applied, as a fraction.
    stabilization
        Lower a size only to the highest recommendation of this time, as changes.stabilization of a policy, whose
        default is 24h.
    form
        The format of the recordings, if their columns do not show it: trimtab, bitbrains, google2011, google2019,
        alibaba2018, alibaba2018-machines or azure.
    engine
        The engine of the replays: all cores of this machine, or a Ray cluster. The result is the same.
    ray_address
        The Ray cluster: auto, host:6379 or ray://host:10001; local starts Ray on this machine.
    demo
        Use a small generated fleet instead of files.
    prometheus
        Read usage from the Prometheus, Thanos, Mimir or VictoriaMetrics at this address instead of from files.
    found
        Read usage from the Prometheus in the cluster, which is found by the labels of its Service.
    source_setting
        A setting of that source, as name=value, like tenant=team-a or labels.cluster=prod; may be given several times.
    days
        The days of usage to read from it.
    step
        The time between two samples, like 5m; the default depends on the size of the cluster.
    context
        The kubeconfig context of the cluster that runs the workloads, instead of the current one.
    kubeconfig
        The kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config.
    namespace
        Only workloads in this namespace; may be given several times.
    output
        A table for people, json or csv for programs, html for a page with charts and the worst containers.
    """
    asked = ClusterUsageOptions(prometheus, found, source_setting, days, step, context, kubeconfig, namespace)
    if [demo, bool(paths), asked.is_given].count(True) != 1:
        raise TrimtabError("PATH: give recordings, --demo, --prometheus or --found; exactly one of these")
    asked.reject_unused()
    schedule = _build_schedule(update, warm_up, minimum_change, stabilization)
    choices = _select_strategies(strategy, setting, schedule)
    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        if asked.is_given:
            traces = asyncio.run(asked.read(progress))
        elif demo:
            traces = {"demo": generate_sample_trace()}
        else:
            traces = {str(path): _read(path, form, progress) for path in paths}
        runs = [BacktestJob(source, *choice) for source in traces for choice in [*choices, (ORACLE, {})]]
        scores = _run_backtests(
            RayEngine(ray_address) if engine == "ray" else run_on_cores, traces, runs, schedule, progress
        )
    _print(_group_outcomes(traces, zip(runs, scores, strict=True), schedule), output)
    return 0


@dataclass(frozen=True, slots=True)
class ClusterUsageOptions:
    """The options for reading usage from a cluster."""

    prometheus: str | None
    found: bool
    source_setting: tuple[str, ...]
    days: float
    step: str | None
    context: str | None
    kubeconfig: str | None
    namespaces: tuple[str, ...]

    @property
    def is_given(self) -> bool:
        return self.found or self.prometheus is not None

    def reject_unused(self) -> None:
        """Reject options for a cluster's usage if none is read: they would have no effect."""
        options = {
            "--namespace": self.namespaces,
            "--source-setting": self.source_setting,
            "--step": self.step,
        }
        for option, given in options.items():
            if given and not self.is_given:
                raise TrimtabError(
                    f"{option}: applies only to usage of a cluster; add --prometheus or --found"
                )

    async def read(self, progress: Progress) -> dict[str, Trace]:
        window = parse_days(self.days)
        settings = parse_key_values("--source-setting", self.source_setting)
        if self.prometheus is not None:
            settings["url"] = self.prometheus
        step = None if self.step is None else _parse_seconds("--step", self.step)
        connection = load_connection(kubeconfig=self.kubeconfig, context=self.context)
        task = progress.add_task(escape(connection.context), total=1.0)
        async with (
            Client(connection, retry=RetryPolicy(attempts=2)) as client,
            friendly_errors(connection),
            open_source(client, name=PROMETHEUS, settings=settings) as opened,
        ):
            trace = await read_usage_trace(
                client,
                opened.source,
                namespaces=self.namespaces or None,
                window=window,
                step=step,
                now=time.time(),
                progress=lambda text, share: progress.update(task, description=text, completed=share),
                on_planned=lambda reading: print_message(f"reading usage costs about {reading.cost}"),
            )
        return {opened.description: trace}


def _parse_seconds(option: str, text: str) -> float:
    found = parse_seconds(option, text)
    if found < 0 or (found == 0 and option not in {"--warm-up", "--stabilization"}):
        raise TrimtabError(f"{option}: must be more than 0")
    return found


def _build_schedule(update: str, warm_up: str, minimum_change: float, stabilization: str) -> BacktestSchedule:
    if not minimum_change >= 0:
        raise TrimtabError(f"--minimum-change {minimum_change:g}: must be 0 or more")
    stabilization_seconds = _parse_seconds("--stabilization", stabilization)
    if stabilization_seconds > MAX_STABILIZATION:
        raise TrimtabError("--stabilization: must be 24h or less")
    return BacktestSchedule(
        update=_parse_seconds("--update", update),
        warm_up=_parse_seconds("--warm-up", warm_up),
        minimum_change=minimum_change,
        stabilization=stabilization_seconds,
    )


def _select_strategies(
    strategy: str, settings: Sequence[str], schedule: BacktestSchedule
) -> list[tuple[str, dict[str, str]]]:
    """Return the strategies with each combination of settings; rejects invalid ones before the long run."""
    names = STRATEGIES.names() if strategy == "all" else tuple(strategy.split(","))
    choices = [(name, choice) for name in names for choice in _expand_settings(name, settings)]
    _reject_unused(settings, names)
    for name, choice in choices:
        STRATEGIES.parse_settings(name, {**select_schedule_settings(name, schedule), **choice})
    return choices


def _expand_settings(name: str, settings: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield each combination of the values given for a strategy."""
    swept: dict[str, list[str]] = {}
    for text in settings:
        whose, _, rest = text.partition(".")
        key, equals, values = rest.partition("=")
        if not equals:
            raise TrimtabError(f"--setting {text}: write it as name.key=value, like trimtab.cpu_risk=0.01")
        if whose == name:
            swept[key] = values.split(",")
    for choice in itertools.product(*swept.values()):
        yield dict(zip(swept, choice, strict=True))


def _reject_unused(settings: Sequence[str], names: Sequence[str]) -> None:
    for text in settings:
        if text.partition(".")[0] not in names:
            raise TrimtabError(
                f"--setting {text}: this strategy is not compared; --strategy has: {', '.join(names)}"
            )


def _group_outcomes(
    traces: Mapping[str, Trace], scored: Iterable[tuple[BacktestJob, Scores]], schedule: BacktestSchedule
) -> dict[str, list[BacktestOutcome]]:
    """Group the outcomes by recording; raises if a recording is too short for any score."""
    results: dict[str, list[BacktestOutcome]] = {source: [] for source in traces}
    for run, scores in scored:
        if run.strategy == ORACLE and not scores.containers:
            raise TrimtabError(_format_too_short(run.recording, traces[run.recording], schedule))
        results[run.recording].append(BacktestOutcome(run.strategy, _format_settings(run.settings), scores))
    return results


def _format_too_short(source: str, trace: Trace, schedule: BacktestSchedule) -> str:
    return (
        f"{source}: too short to score: {pluralize(trace.sample_count, 'sample')}, {format_time_span(trace.step)} apart, and sizes are "
        f"set every {format_time_span(schedule.update)}; record for longer, or set sizes more often with --update"
    )


def _read(path: Path, form: str | None, progress: Progress) -> Trace:
    task = progress.add_task(escape(f"read {path.name}"), total=1.0)
    return read_trace(path, format_name=form, progress=lambda share: progress.update(task, completed=share))


def _run_backtests(
    engine: Engine,
    traces: Mapping[str, Trace],
    runs: Sequence[BacktestJob],
    schedule: BacktestSchedule,
    progress: Progress,
) -> list[Scores]:
    tasks = [
        progress.add_task(
            escape(f"{run.strategy} {_format_settings(run.settings)}"), total=traces[run.recording].steps
        )
        for run in runs
    ]
    scores = dict(
        engine(traces, runs, schedule, advance=lambda number, steps: progress.advance(tasks[number], steps))
    )
    return [scores[number] for number in range(len(runs))]


def _format_settings(settings: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items())


def _print(results: Mapping[str, Sequence[BacktestOutcome]], output: str) -> None:
    if output == "html":
        sections = [
            render_section(source, outcomes, [HEADER, *map(_build_row, outcomes)])
            for source, outcomes in results.items()
        ]
        print(render_page(f"Back-test: {', '.join(results)}", sections))
    elif output == "table":
        console = Console()
        for source, outcomes in results.items():
            table = Table(
                *HEADER,
                box=None,
                title=escape(source),
                title_justify="left",
                pad_edge=False,
                padding=(0, 1, 0, 0),
            )
            table.columns[0].overflow, table.columns[0].min_width = "fold", 16
            for column in table.columns[1:]:
                column.justify = "right"
            for outcome in outcomes:
                table.add_row(*map(escape, _build_row(outcome)))
            console.print(table)
            for line in describe_partial_coverage(outcomes):
                console.print(escape(line), soft_wrap=True)
    else:
        print(_render_records(results, output), end="")


def _render_records(results: Mapping[str, Sequence[BacktestOutcome]], output: str) -> str:
    records: list[dict[str, str | float]] = [
        {
            "source": source,
            "strategy": outcome.strategy,
            "settings": outcome.settings,
            **outcome.scores.summary(),
        }
        for source, outcomes in results.items()
        for outcome in outcomes
    ]
    if output == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(records[0])
        writer.writerows(escape_cells(record.values()) for record in records)
        return text.getvalue()
    return json.dumps([_nan_to_null(record) for record in records], indent=2) + "\n"


def _nan_to_null(record: Mapping[str, str | float]) -> dict[str, str | float | None]:
    """JSON knows no NaN: what was not measured is null."""
    return {
        key: None if isinstance(value, float) and math.isnan(value) else value
        for key, value in record.items()
    }


def _build_row(outcome: BacktestOutcome) -> tuple[str, ...]:
    summary = outcome.scores.summary()

    def share(key: str, digits: int = 1) -> str:
        return "-" if math.isnan(summary[key]) else f"{summary[key]:.{digits}%}"

    def number(key: str) -> str:
        return "-" if math.isnan(summary[key]) else f"{summary[key]:,.2f}"

    return (
        outcome.label,
        share("cpu_slack"),
        share("cpu_under", 2),
        share("cpu_under_p90", 2),
        share("cpu_deficit", 2),
        share("memory_slack"),
        number("ooms_day"),
        share("oom_share"),
        number("changes_day"),
        number("dollars_month"),
    )
