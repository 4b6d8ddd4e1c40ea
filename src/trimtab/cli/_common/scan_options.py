"""The options and helpers that all commands with a scan share."""

from __future__ import annotations

import gc
import io
import math
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import Progress
from rich.segment import Segment, Segments

from trimtab import atomic_write
from trimtab.api import Duration, DurationError
from trimtab.api.optimizationpolicy import DEFAULT_STRATEGY
from trimtab.cli import ignore_closed_pipe, print_message
from trimtab.errors import TrimtabError
from trimtab.kube.auth import Connection, load_connection
from trimtab.kube.errors import KubeResponseError, TimedOut, Unauthorized, Unreachable
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.rbac import SYSTEM_NAMESPACE
from trimtab.kube.rest.retry import RateLimiter, RetryPolicy
from trimtab.printable import escape_invisible
from trimtab.scan import usage_reader
from trimtab.scan.model import ScanResult, build_failed_scan
from trimtab.scan.pricing import ResourcePrices
from trimtab.scan.recording import open_recording
from trimtab.scan.scan import Scan, ScanRequest, UsageObserver, WorkloadFilter
from trimtab.scan.source_selection import AUTO, SelectedSource, open_source

DAY = 86400.0
SNAPSHOT_WINDOW, SNAPSHOT_STEP = 1800.0, 60.0
"""The window and step for a source without history."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ScanOptions:
    """The usage source, the strategy and the window of a scan."""

    kubeconfig: str | None = None
    """The kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config."""

    prometheus: str | None = None
    """The address of a Prometheus, Thanos, Mimir or VictoriaMetrics; by default, the one that is found by the labels of its Service."""

    recording: Path | None = None
    """A recording of usage to read instead of a server, in a format that `backtest` reads; its series are named NAMESPACE/POD/CONTAINER."""

    source: str = AUTO
    """The usage source to read; auto is a Prometheus if there is one, otherwise metrics-server."""

    source_setting: tuple[str, ...] = ()
    """A setting of the usage source, as name=value, like tenant=team-a or labels.cluster=prod; may be given several times."""

    strategy: str = ""
    """The strategy for all workloads: trimtab, vpa, krr, percentile, peak, autopilot-window, … or one of your own; by default, that of the workload's policy, or trimtab."""

    setting: Annotated[tuple[str, ...], Parameter(name=["--setting", "-s"])] = ()
    """A setting of the strategy, as name=value, like cpu_risk=0.01; may be given several times."""

    ignore_policies: Annotated[bool, Parameter(negative="")] = False
    """Size as if the cluster had no OptimizationPolicy; by default, workloads get what the operator recommends under their policy."""

    home: str = SYSTEM_NAMESPACE
    """The namespace of the operator, whose policies cover all namespaces and whose configuration is followed."""

    days: float = 14.0
    """The days of usage to read."""

    step: str | None = None
    """The time between two samples, like 5m; the default depends on the size of the cluster."""

    async def scan(
        self,
        workloads: WorkloadFilter,
        *,
        context: str | None,
        compare: Sequence[str] = (),
        prices: ResourcePrices | None = None,
        group_by: str = "",
        observer: UsageObserver | None = None,
    ) -> ScanResult:
        """Scan one cluster, with progress on stderr; `observer` receives the usage too."""
        window = parse_days(self.days)
        settings = parse_key_values("--source-setting", self.source_setting)
        if self.prometheus:
            settings["url"] = self.prometheus
        connection = load_connection(kubeconfig=self.kubeconfig, context=context)
        step = self._parse_step()
        rate = RateLimiter(per_second=100, burst=200)
        async with (
            Client(connection, rate=rate, retry=RetryPolicy(attempts=2), timeout=30) as client,
            friendly_errors(connection),
            self._open_source(client, settings) as (found, now),
        ):
            request = ScanRequest(
                now=now,
                workloads=workloads,
                strategy=self.strategy,
                settings=parse_key_values("--setting", self.setting),
                operator_namespace="" if self.ignore_policies else self.home,
                compare=compare,
                window=window if found.has_history else SNAPSHOT_WINDOW,
                step=step if found.has_history else SNAPSHOT_STEP,
                prices=prices,
                group_by=group_by,
            )
            with show_progress(connection.context) as report, _unfreeze_gc():
                scan = Scan(client, found, request, progress=report, observer=observer)
                snapshot = await scan.snapshot()
                selection = await scan.select(snapshot)
                plan = await scan.plan(selection)
                if plan:
                    announce_read(plan)
                model = await scan.read(snapshot, selection, plan)
                return scan.assess(snapshot, selection, plan, model)

    def build_failed_scan(self, context: str, why: str, *, prices: ResourcePrices | None) -> ScanResult:
        """Build the result for a cluster that could not be scanned."""
        window = parse_days(self.days)
        strategy = self.strategy or DEFAULT_STRATEGY
        return build_failed_scan(
            context,
            why,
            at=time.time(),
            window=window,
            strategy=strategy,
            prices=prices or ResourcePrices(),
        )

    @asynccontextmanager
    async def _open_source(
        self, client: Client, settings: dict[str, Any]
    ) -> AsyncIterator[tuple[SelectedSource, float]]:
        """Open the usage source, and return it with the time to scan at: a recording is not older for being read later."""
        if self.recording is None:
            async with open_source(client, name=self.source, settings=settings) as found:
                yield found, time.time()
            return
        if settings or self.source != AUTO:
            raise TrimtabError(
                "--recording: it replaces --prometheus, --source and --source-setting; give one"
            )
        yield await open_recording(self.recording)

    def _parse_step(self) -> float | None:
        if self.step is None:
            return None
        step = parse_seconds("--step", self.step)
        if step < 1:
            raise TrimtabError(f"--step {self.step}: must be at least 1s")
        return step


def parse_seconds(option: str, text: str) -> float:
    """Parse the duration of an option to seconds."""
    try:
        return Duration.parse(text).seconds
    except DurationError as error:
        raise TrimtabError(f"{option}: {error}") from None


@asynccontextmanager
async def friendly_errors(connection: Connection) -> AsyncIterator[None]:
    """Turn common connection errors into messages with a remedy."""
    try:
        yield
    except Unauthorized:
        raise TrimtabError(
            f"{connection.context}: Unauthorized: the credentials are wrong or have expired; log in again"
        ) from None
    except KubeResponseError:
        raise TrimtabError(
            f"{connection.context}: {connection.server} is not a Kubernetes API server; check the address, or choose a --context"
        ) from None
    except TimedOut as error:
        if not error.sent:
            raise _unreachable_error(connection) from None
        raise TrimtabError(
            f"{connection.context}: {connection.server} stopped responding; it is overloaded or the network is bad: try again"
        ) from None
    except Unreachable:
        raise _unreachable_error(connection) from None


def _unreachable_error(connection: Connection) -> TrimtabError:
    return TrimtabError(
        f"{connection.context}: cannot connect to {connection.server}; check that it is running, or choose a --context"
    )


@contextmanager
def show_progress(context: str) -> Iterator[usage_reader.ReportProgress]:
    """Show a progress bar on stderr if it is a terminal."""
    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(escape(context), total=1.0)

        def report(text: str, share: float) -> None:
            progress.update(task, description=escape(f"{context}: {text}"), completed=share)

        yield report


def render_text(lines: Callable[[int], Iterable[RenderableType]], *, to_file: bool) -> str:
    """Render text for the terminal's width and colours, or plain text in 80 columns; `lines` receives the width."""
    screen = Console()
    coloured = screen.is_terminal and not to_file
    text = io.StringIO()
    console = Console(
        file=text,
        width=screen.width,
        force_terminal=coloured,
        color_system=screen.color_system if coloured else None,  # type: ignore[arg-type]
        highlight=False,
    )
    for line in lines(console.width):
        console.print(Segments(map(_make_printable, console.render(line))), end="")
    return text.getvalue()


def _make_printable(segment: Segment) -> Segment:
    """Escape control characters, which could rewrite the terminal: texts quote names and messages of others."""
    if segment.control:
        return segment
    return Segment("\n".join(map(escape_invisible, segment.text.split("\n"))), segment.style)


def write_output(text: str, path: Path | None) -> None:
    """Print the text, or write it to a file atomically."""
    if path is None:
        with ignore_closed_pipe():
            print(text, end="")
    else:
        atomic_write.write_atomically({path: text})


@contextmanager
def _unfreeze_gc() -> Iterator[None]:
    """Unfreeze the garbage collector at the end of the block."""
    try:
        yield
    finally:
        gc.unfreeze()


def announce_read(plan: usage_reader.ReadPlan) -> None:
    gc.freeze()  # the snapshot lives until the end, so the collector need not scan it
    if plan.is_large:
        print_message(f"plan usage costs about {plan.cost}")


def parse_days(days: float) -> float:
    """Convert a number of days to seconds; rejects zero and infinity."""
    if not 0 < days < math.inf:
        raise TrimtabError(f"--days {days:g}: must be a number of days, and more than 0")
    return days * DAY


def parse_key_values(option: str, given: Sequence[str]) -> dict[str, Any]:
    """Parse settings given as name=value; entries of a map are given as name.key=value."""
    found: dict[str, Any] = {}
    for text in given:
        path, equals, value = text.partition("=")
        name, _, key = path.partition(".")
        if not equals or not name:
            raise TrimtabError(f"{option} {text}: write it as name=value")
        before = found.get(name)
        found[name] = {**(before if isinstance(before, dict) else {}), key: value} if key else value
    return found
