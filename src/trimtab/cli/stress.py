"""`trimtab stress`: real pods follow a workload on a real cluster, sized in place by a strategy."""

import asyncio
import csv
import io
import json
import math
import secrets
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import structlog
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from trimtab.api.quantity import ResourceName, format_short
from trimtab.cli import ignore_closed_pipe
from trimtab.cli._common.scan_options import friendly_errors, parse_key_values, parse_seconds, show_progress
from trimtab.errors import TrimtabError
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client
from trimtab.lab.emulator import EmulationConfig, LoadProfile, PeriodRecord, RunLog, StressStrategy
from trimtab.lab.emulator import run_stress as follow
from trimtab.lab.workloads import WorkloadLibrary
from trimtab.printable import escape_cells
from trimtab.scan.pricing import format_fraction
from trimtab.sizing.strategy import STRATEGIES


def stress(
    workload: str,
    *,
    namespace: Annotated[str, Parameter(name=["--namespace", "-n"])],
    strategy: str = "trimtab",
    setting: Annotated[tuple[str, ...], Parameter(name=["--setting", "-s"])] = (),
    pods: int = 1,
    period: str = "15s",
    duration: str | None = None,
    update: str = "1h",
    scale: float = 1.0,
    cpu_limit: float = 1.0,
    memory_limit: float = 1.0,
    source: str = "cadvisor",
    source_setting: tuple[str, ...] = (),
    image: str = "busybox:1",
    folder: Path | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
    output: Annotated[Literal["table", "json", "csv"], Parameter(name=["--output", "-o"])] = "table",
) -> int:
    """Run pods with the load of a stored workload while a strategy sizes them in place, and report both.

    Two pods run ten hours of a web service's load in ten minutes:

        trimtab workload generate --workload-type diurnal_web --setting step=900 --count 2 --id shop
        trimtab stress shop --namespace lab --pods 2 --strategy vpa --period 15s --duration 10m

    The command creates the pods in that namespace and deletes them at the end, also after an interrupt. Each step of
    the workload takes one period; the strategy sees the workload's own time. Pods receive their load through the API
    server, which needs permission to get services/proxy.

    Exits with 1 if a pod was OOM-killed.

    Parameters
    ----------
    workload
        The id of a workload that `trimtab workload generate` has stored.
    namespace
        The namespace of the pods; it must exist.
    strategy
        The strategy that sizes the pods; none keeps them at the size of their highest demand.
    setting
        A setting of the strategy, as name=value; may be given several times.
    pods
        The number of pods, each with a series of the workload.
    period
        The real time that one step of the workload takes.
    duration
        The duration of the run; the default is the whole workload.
    update
        The time between two recommendations, in the workload's own time.
    scale
        A factor for the workload's demand, to fit it to the cluster.
    cpu_limit
        The CPU limit as a multiple of the request, such as 1.5; 0 for no limit.
    memory_limit
        The memory limit as a multiple of the request; 0 for no limit.
    source
        The source of usage: cadvisor (the kernel's counters), kubelet, metrics-server or prometheus.
    source_setting
        A setting of the source, as name=value, like url=http://127.0.0.1:9090 or reach=direct.
    image
        The image of the pods; any with a busybox that has httpd.
    folder
        The folder of stored workloads, instead of $XDG_DATA_HOME/trimtab/workloads.
    context
        The kubeconfig context to use instead of the current one.
    kubeconfig
        The kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config.
    output
        A summary table, or every period as json or csv.
    """
    found = WorkloadLibrary(folder).load(workload)
    if not 1 <= pods <= found.series:
        raise TrimtabError(
            f"--pods {pods}: workload {workload} has {found.series} series; use 1 to that number"
        )
    if not 0 < scale < math.inf:
        raise TrimtabError(f"--scale {scale:g}: must be a finite number above 0")
    name = f"stress-{secrets.token_hex(3)}"
    place = EmulationConfig(
        namespace=namespace,
        run=name,
        period=_parse_seconds("--period", period),
        cpu_limit=_parse_limit("--cpu-limit", cpu_limit),
        memory_limit=_parse_limit("--memory-limit", memory_limit),
        source=source,
        source_settings=parse_key_values("--source-setting", source_setting),
        image=image,
    )
    profiles = {
        f"{name}-{number}": LoadProfile.from_workload(found, series=number, scale=scale)
        for number in range(pods)
    }
    recommender = _build_recommender(strategy, setting, update)
    periods = (
        None if duration is None else max(1, round(_parse_seconds("--duration", duration) / place.period))
    )

    async def whole() -> RunLog:
        connection = load_connection(kubeconfig=kubeconfig, context=context)
        async with Client(connection) as client, friendly_errors(connection):
            with show_progress(connection.context) as report_progress:
                return await follow(
                    client,
                    profiles,
                    place,
                    under_test=recommender,
                    periods=periods,
                    on_progress=report_progress,
                )

    with _redirect_logs():
        journal = asyncio.run(_interruptible(whole()))
    with ignore_closed_pipe():
        _print(journal, output)
    return int(journal.summary()["ooms"] > 0)


def _parse_limit(option: str, times: float) -> float | None:
    """Parse the factor between request and limit; None for no limit."""
    if times != 0 and not 1 <= times < math.inf:
        raise TrimtabError(
            f"{option} {times:g}: must be at least 1, because a limit is not below its request, or 0 for no limit"
        )
    return times or None


def _build_recommender(strategy: str, setting: tuple[str, ...], update: str) -> StressStrategy | None:
    """Build the strategy under test; rejects invalid settings before any pod is created."""
    settings, every = parse_key_values("--setting", setting), _parse_seconds("--update", update)
    if strategy == "none":
        return None
    STRATEGIES.parse_settings(strategy, settings)
    return StressStrategy(name=strategy, settings=settings, update=every)


@contextmanager
def _redirect_logs() -> Iterator[None]:
    """Send logs to stderr, so that they do not mix with output for programs."""
    before = structlog.get_config()
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))
    try:
        yield
    finally:
        structlog.configure(**before)


async def _interruptible(run: Coroutine[Any, Any, RunLog]) -> RunLog:
    """Delete the pods on SIGTERM too, as on Ctrl-C."""
    task = asyncio.ensure_future(run)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _parse_seconds(option: str, text: str) -> float:
    found = parse_seconds(option, text)
    if found < 1:
        raise TrimtabError(f"{option} {text}: must be at least 1s")
    return found


def _print(run_log: RunLog, output: str) -> None:
    if output == "json":
        summary = {key: None if math.isnan(value) else value for key, value in run_log.summary().items()}
        entries = [
            {
                key: None if isinstance(value, float) and math.isnan(value) else value
                for key, value in row.items()
            }
            for row in (entry._asdict() for entry in run_log.entries)
        ]
        print(
            json.dumps({"summary": summary, "refusals": run_log.resize_errors, "periods": entries}, indent=2)
        )
    elif output == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([PeriodRecord._fields, *map(escape_cells, run_log.entries)])
        print(text.getvalue(), end="")
    else:
        _print_table(run_log)


def _print_table(run_log: RunLog) -> None:
    summary = run_log.summary()
    table = Table("", "CPU", "MEMORY", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for what in ("wanted", "used"):
        cpu, memory = summary[f"cpu_{what}"], summary[f"memory_{what}"]
        table.add_row(what, _format_amount("cpu", cpu * 1000), _format_amount("memory", memory))
    table.add_row("unserved", format_fraction(summary["cpu_unserved"]), "")
    table.add_row("slack", format_fraction(summary["cpu_slack"]), format_fraction(summary["memory_slack"]))
    table.add_row("throttled", format_fraction(summary["throttled"]), "")
    table.add_row("OOM kills", "", f"{summary['ooms']:.0f}")
    console = Console()
    console.print(table)
    counts = f"{summary['periods']:.0f} periods, {summary['resizes']:.0f} resizes"
    console.print(
        counts
        + (
            f", {summary['unheard']:.0f} periods whose load a pod did not receive"
            if summary["unheard"]
            else ""
        )
    )
    for line in dict.fromkeys(run_log.resize_errors):
        console.print(line, highlight=False, markup=False)


def _format_amount(resource: ResourceName, amount: float) -> str:
    return "-" if math.isnan(amount) else format_short(resource, amount)
