"""How a cluster is looked at: the options and the way that every command which surveys one has in common."""

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

from trimtab import atomic_write
from trimtab.api import Duration, DurationError
from trimtab.cli import ignore_closed_pipe
from trimtab.errors import TrimtabError
from trimtab.kube.auth import Connection, load_connection
from trimtab.kube.errors import KubeResponseError, TimedOut, Unauthorized, Unreachable
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.retry import RateLimiter, RetryPolicy
from trimtab.scan import usage_reader
from trimtab.scan.model import ScanResult, build_failed_scan
from trimtab.scan.pricing import ResourcePrices
from trimtab.scan.scan import OnUsage, scan_cluster
from trimtab.scan.source_selection import AUTO, open_source

DAY = 86400.0
SNAPSHOT_WINDOW, SNAPSHOT_STEP = 1800.0, 60.0
"""The window and the step where there is no past to read."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ScanOptions:
    """Where usage comes from, and what is made of it."""

    kubeconfig: str | None = None
    """The kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config."""

    prometheus: str | None = None
    """The address of a Prometheus, Thanos, Mimir or VictoriaMetrics; found by its Service's labels when not given."""

    source: str = AUTO
    """The usage source to read: auto takes a Prometheus where there is one, and metrics-server otherwise."""

    source_setting: tuple[str, ...] = ()
    """A setting of the usage source, as name=value, like tenant=team-a or labels.cluster=prod; may be given several times."""

    strategy: str = "trimtab"
    """The strategy that names sizes: trimtab, vpa, krr, percentile, peak, autopilot-window, … or one of your own."""

    setting: Annotated[tuple[str, ...], Parameter(name=["--setting", "-s"])] = ()
    """A setting of the strategy, as name=value, like cpu_risk=0.01; may be given several times."""

    days: float = 14.0
    """How many days of usage to look at."""

    step: str | None = None
    """The time from one sample to the next, like 5m; by the size of the cluster when not given."""

    async def scan(
        self,
        *,
        context: str | None,
        namespaces: Sequence[str] | None = None,
        labels: str = "",
        kinds: Sequence[str] = (),
        names: Sequence[str] = (),
        compare: Sequence[str] = (),
        prices: ResourcePrices | None = None,
        on_usage: OnUsage = lambda _usage, _owners: None,
        on_selected: Callable[[Sequence[Workload]], None] = lambda _workloads: None,
    ) -> ScanResult:
        """One look, with its progress on stderr."""
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
            open_source(client, name=self.source, settings=settings) as found,
        ):
            with show_progress(connection.context) as told, _unfreeze_gc():
                return await scan_cluster(
                    client,
                    found.source,
                    namespaces=namespaces,
                    labels=labels,
                    kinds=kinds,
                    names=names,
                    strategy=self.strategy,
                    settings=parse_key_values("--setting", self.setting),
                    compare=compare,
                    window=window if found.has_history else SNAPSHOT_WINDOW,
                    step=step if found.has_history else SNAPSHOT_STEP,
                    now=time.time(),
                    prices=prices,
                    source_description=found.description,
                    progress=told,
                    on_planned=_announce_read,
                    on_usage=on_usage,
                    on_selected=on_selected,
                )

    def build_failed_scan(self, context: str, why: str, *, prices: ResourcePrices) -> ScanResult:
        """What is told of a cluster that could not be looked at."""
        window = parse_days(self.days)
        return build_failed_scan(
            context, why, at=time.time(), window=window, strategy=self.strategy, prices=prices
        )

    def _parse_step(self) -> float | None:
        if self.step is None:
            return None
        step = parse_seconds("--step", self.step)
        if step < 1:
            raise TrimtabError(f"--step {self.step}: must be at least 1s")
        return step


def parse_seconds(option: str, text: str) -> float:
    """What an option says of time."""
    try:
        return Duration.parse(text).seconds
    except DurationError as error:
        raise TrimtabError(f"{option}: {error}") from None


@asynccontextmanager
async def friendly_errors(connection: Connection) -> AsyncIterator[None]:
    """The refusals that everybody meets, with what to do about them."""
    try:
        yield
    except Unauthorized:
        raise TrimtabError(
            f"{connection.context}: Unauthorized: the credentials are wrong or have expired; log in again"
        ) from None
    except KubeResponseError:
        raise TrimtabError(
            f"{connection.context}: {connection.server} is no API server; see what answers there, or choose a --context"
        ) from None
    except TimedOut as error:
        if not error.sent:
            raise _unreachable_error(connection) from None
        raise TrimtabError(
            f"{connection.context}: {connection.server} fell silent; it is busy, or the way to it is bad: try again"
        ) from None
    except Unreachable:
        raise _unreachable_error(connection) from None


def _unreachable_error(connection: Connection) -> TrimtabError:
    return TrimtabError(
        f"{connection.context}: cannot connect to {connection.server}; see that it is up, or choose a --context"
    )


@contextmanager
def show_progress(context: str) -> Iterator[usage_reader.ReportProgress]:
    """A bar on stderr while something is done; nothing where that is no terminal."""
    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(escape(context), total=1.0)

        def told(text: str, share: float) -> None:
            progress.update(task, description=escape(f"{context}: {text}"), completed=share)

        yield told


def render_text(lines: Callable[[int], Iterable[RenderableType]], *, to_file: bool) -> str:
    """Text as the terminal takes it: its width and colours, or 80 columns without any; `lines` is given the width."""
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
        console.print(line)
    return text.getvalue()


def write_output(text: str, path: Path | None) -> None:
    """Print, or put into a file: whole or not at all, whatever ends us."""
    if path is None:
        with ignore_closed_pipe():
            print(text, end="")
    else:
        atomic_write.write_atomically({path: text})


@contextmanager
def _unfreeze_gc() -> Iterator[None]:
    """What was frozen in it is not afterwards."""
    try:
        yield
    finally:
        gc.unfreeze()


def _announce_read(reading: usage_reader.ReadPlan) -> None:
    gc.freeze()  # the picture of the cluster stays: no need to look through it again and again
    if reading.is_large:
        print(f"trimtab: reading usage costs about {reading.cost}", file=sys.stderr)


def parse_days(days: float) -> float:
    """The seconds of so many days to look at."""
    if not 0 < days < math.inf:
        raise TrimtabError(f"--days {days:g}: must be a number of days, and more than 0")
    return days * DAY


def parse_key_values(option: str, given: Sequence[str]) -> dict[str, Any]:
    """Settings that are given as name=value; of one that is a map, each entry as name.key=value."""
    found: dict[str, Any] = {}
    for text in given:
        path, equals, value = text.partition("=")
        name, _, key = path.partition(".")
        if not equals or not name:
            raise TrimtabError(f"{option} {text}: write it as name=value")
        before = found.get(name)
        found[name] = {**(before if isinstance(before, dict) else {}), key: value} if key else value
    return found
