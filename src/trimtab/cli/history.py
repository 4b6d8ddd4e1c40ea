"""`trimtab history`: what the operator did, to what, when and why, as its store remembers it."""

import asyncio
import csv
import io
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter
from rich.console import RenderableType
from rich.text import Text

from trimtab.api.fields import format_time
from trimtab.cli._common.scan_options import parse_seconds, render_text, write_output
from trimtab.cli._common.workload_selection import matches_any, parse_workload
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.operator.config.reloader import ConfigReloader
from trimtab.printable import escape_cells
from trimtab.store import HistoryRecord, Store
from trimtab.web.views.history import build_history_entry

EntryKind = Literal["applied", "reverted", "held", "released", "applying", "recommended", "refused", "killed"]
COMPLETED: tuple[EntryKind, ...] = ("applied", "refused", "reverted", "held", "released")
PAGE_SIZE = 1000
_COLOURS = {"applied": "green", "refused": "yellow", "reverted": "red", "held": "yellow"}


def history(
    workload: str | None = None,
    /,
    *,
    since: str = "24h",
    what: tuple[EntryKind, ...] = (),
    top: int = 50,
    cluster: str | None = None,
    store: str | None = None,
    config: Path | None = None,
    output: Annotated[Literal["table", "json", "csv"], Parameter(name=["--output", "-o"])] = "table",
    output_file: Path | None = None,
) -> None:
    """Show the changes, reverts and holds of workloads: when, from which size to which, and why.

    The last 24 hours, from a store in the operator's pod, and a week, from PostgreSQL:

        kubectl -n trimtab-system exec deploy/trimtab-operator -- trimtab history --config /etc/trimtab/config.yaml
        trimtab history shop/Deployment/web --since 168h --store postgresql://trimtab@db.example/trimtab

    Parameters
    ----------
    workload
        Only this workload, as NAMESPACE/KIND/NAME; kinds may be short: deploy, sts, ds, cron.
    since
        The time to look back, such as 24h; write days as hours.
    what
        The entries to show; may be given several times. By default applied, reverted, held and released.
    top
        The number of newest entries to show; 0 for all.
    cluster
        Only this cluster, if several share the store: the uid of its namespace kube-system.
    store
        The store, a file or a URL, as in the operator's configuration.
    config
        The operator's configuration file, which names the store; the default is the environment's configuration.
    output
        Text for people, json or csv for programs.
    output_file
        Write to this file instead of printing; a failure leaves no partial file.
    """
    if top < 0:
        raise TrimtabError(f"--top {top}: must be 0 or more")
    begin = time.time() - parse_seconds("--since", since)
    key = parse_workload(workload) if workload else None
    address = store or ConfigReloader(config, environment=os.environ).current.store.url
    most = top + 1 if top else sys.maxsize  # one more shows whether there are more
    found = asyncio.run(_read_entries(address, begin, what or COMPLETED, key, cluster, most=most))
    shown = found[:top] if top else found
    if output == "json":
        text = json.dumps([msgspec.to_builtins(each) for each in shown], indent=2) + "\n"
    elif output == "csv":
        text = _render_csv(shown)
    else:
        text = render_text(
            lambda _: _render_lines(shown, more=len(found) > len(shown), since=since),
            to_file=output_file is not None,
        )
    write_output(text, output_file)


async def _read_entries(
    address: str,
    begin: float,
    what: Sequence[str],
    key: WorkloadKey | None,
    cluster: str | None,
    *,
    most: int,
) -> list[HistoryRecord]:
    """Read the entries, newest first."""
    found: list[HistoryRecord] = []
    page: list[HistoryRecord] | None = None
    async with Store.open(address, read_only=True) as store:
        while page is None or (page and len(found) < most):
            page = await store.history.find(
                what=what,
                since=begin,
                cluster=cluster,
                namespace=key.namespace if key else None,
                name=key.name if key else None,
                older_than=page[-1] if page else None,
                limit=PAGE_SIZE,
            )
            found += [
                each
                for each in page
                if key is None or matches_any(WorkloadKey(each.kind, each.namespace, each.name), [key])
            ]
    return found[:most]


def _escape_control(text: str) -> str:
    """Escape control characters: reasons may contain text from untrusted users."""
    return "".join(
        each if each == "\n" or each.isprintable() else each.encode("unicode_escape").decode()
        for each in text
    )


def _render_lines(entries: Sequence[HistoryRecord], *, more: bool, since: str) -> Iterator[RenderableType]:
    if not entries:
        yield f"nothing in the last {since}"
    of_several = len({each.cluster for each in entries}) > 1
    for each in entries:
        entry = build_history_entry(each)
        head = Text(f"{format_time(each.timestamp)}  ")
        head.append(f"{each.what:<8}", style=_COLOURS.get(each.what, ""))
        head.append(f"  {each.namespace}/{each.kind}/{each.name}", style="bold")
        if of_several:
            head.append(f"  in {each.cluster}", style="dim")
        yield head
        about = f"{each.container}: " if each.container else ""
        if entry.before or entry.after:
            yield Text(f"    {about}{entry.before or 'nothing'} -> {entry.after or 'nothing'}")
        for line in _escape_control(f"{each.who}: {entry.why}".rstrip(": ")).splitlines():
            yield Text(f"    {line}", style="dim")
    if more:
        yield Text("… and older ones: --top 0 shows all.", style="dim")


def _render_csv(entries: Sequence[HistoryRecord]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    subject = ["cluster", "namespace", "kind", "name", "container"]
    rows.writerow(["time", "what", *subject, "before", "after", "who", "why"])
    for each in entries:
        entry = build_history_entry(each)
        of = each.cluster, each.namespace, each.kind, each.name, each.container
        cells = entry.before, entry.after, each.who, entry.why
        rows.writerow(
            escape_cells([format_time(each.timestamp), each.what, *of, *map(_escape_control, cells)])
        )
    return text.getvalue()
