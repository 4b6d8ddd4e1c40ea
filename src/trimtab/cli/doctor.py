"""`trimtab doctor`: is this cluster ready for us, and if not, what to do about it."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from trimtab.api import API_VERSION, GROUP, KINDS
from trimtab.api.kind import INSTALL
from trimtab.cli import until_unread
from trimtab.cli._common.doctor_checks import SHOWN_AT_MOST, Finding, readiness
from trimtab.cli._common.scan_options import pairs, plainly_refused, window_of
from trimtab.cli._common.webhook_check import CHECK, check_webhook
from trimtab.kube.auth import load_connection
from trimtab.kube.errors import ApiError, KubeError, describe
from trimtab.kube.rest.capabilities import (
    Version,
    lowers_memory_limits,
    resizes_in_place,
    served,
    server_version,
)
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.rbac import HOME, RIGHTS, Process, missing_rights
from trimtab.kube.rest.retry import RetryRule
from trimtab.usage.discovery import find_promql_servers, has_metrics_server

OLDEST = Version(1, 29)


def doctor(
    *,
    context: str | None = None,
    kubeconfig: str | None = None,
    process: Process = "scan",
    namespace: Annotated[str | None, Parameter(name=["--namespace", "-n"])] = None,
    home: str = HOME,
    prometheus: str | None = None,
    source_setting: tuple[str, ...] = (),
    days: float = 14.0,
    output: Annotated[Literal["table", "json"], Parameter(name=["--output", "-o"])] = "table",
) -> int:
    """Check a cluster: version, rights, usage, resize in place, CRDs, webhook; and say what to do about each.

    Is the cluster of the current context ready for the operator? What would a scan with this Prometheus cost?

        trimtab doctor --process operator
        trimtab doctor --prometheus http://127.0.0.1:9090

    Exits with 1 when there is a problem; warnings alone exit with 0.

    Parameters
    ----------
    context
        The kubeconfig context to use instead of the current one.
    kubeconfig
        The kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config.
    process
        Whose rights to check: scan only reads, the operator resizes, its dashboard asks who may, the agent runs on each node.
    namespace
        Check this namespace instead of the whole cluster.
    home
        The namespace that Trimtab is, or is to be, installed in: some rights the operator needs only there.
    prometheus
        The address of a Prometheus, Thanos, Mimir or VictoriaMetrics; found by the labels of its Service when not given.
    source_setting
        A setting of that source, as name=value, like tenant=team-a or labels.cluster=prod; may be given several times.
    days
        How many days of usage are to be there.
    output
        A table for people or json for programs.
    """
    window_of(days)  # or it is refused here
    source = pairs("--source-setting", source_setting) | ({"url": prometheus} if prometheus else {})
    findings = asyncio.run(
        _examine(kubeconfig, context, process, namespace, home=home, source=source, days=days)
    )
    with until_unread():
        if output == "json":
            print(json.dumps([asdict(finding) for finding in findings], indent=2))
        else:
            _show(findings)
    return int(any(finding.state == "problem" for finding in findings))


async def _examine(
    kubeconfig: str | None,
    context: str | None,
    process: Process,
    namespace: str | None,
    *,
    home: str,
    source: Mapping[str, Any],
    days: float,
) -> list[Finding]:
    connection = load_connection(kubeconfig=kubeconfig, context=context)
    async with (
        Client(connection, retry=RetryRule(attempts=2), timeout=15) as client,
        plainly_refused(connection),
    ):
        cluster = await _cluster(
            client
        )  # when even this fails there is nothing to examine: the error says why
        checks: dict[str, Callable[[], Awaitable[Finding]]] = {
            f"rights of {process}": lambda: _rights(client, process, namespace, home),
            "metrics-server": lambda: _metrics_server(client),
            **({} if source else {"history": lambda: _history(client)}),
            "resize in place": lambda: _resize(client),
            "kinds": lambda: _kinds(client, process),
            CHECK: lambda: check_webhook(client),
        }
        findings = await asyncio.gather(*(_guarded(name, check) for name, check in checks.items()))
        met = await readiness(client, source=source, days=days, namespace=namespace, now=time.time())
        return [cluster, *findings, *met]


async def _guarded(name: str, check: Callable[[], Awaitable[Finding]]) -> Finding:
    """A check that cannot be made is a finding too: the others are still worth having."""
    try:
        return await check()
    except ApiError as error:
        return Finding(
            name, "problem", describe(error), "ask your administrator for this right, or try again"
        )
    except KubeError as error:
        return Finding(name, "problem", describe(error), "check the connection to the API server")


async def _cluster(client: Client) -> Finding:
    server, connection = await server_version(client), client.connection
    found = f"{connection.context} ({connection.server}), Kubernetes {server.text}"
    if server.version < OLDEST:
        return Finding("cluster", "warning", found, f"Trimtab is made for Kubernetes {OLDEST} and later")
    return Finding("cluster", "ok", found)


async def _rights(client: Client, process: Process, namespace: str | None, home: str) -> Finding:
    missing = await missing_rights(client, RIGHTS[process], namespace=namespace, home=home)
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    if not missing:
        return Finding(f"rights of {process}", "ok", f"all that it needs {where}")
    shown = "; ".join(f"{right} in {home}" if right.home else str(right) for right in missing[:SHOWN_AT_MOST])
    more = f"; and {len(missing) - SHOWN_AT_MOST} more" if len(missing) > SHOWN_AT_MOST else ""
    return Finding(
        f"rights of {process}",
        "problem",
        f"missing {where}: {shown}{more}",
        "ask for a role with these verbs" + ("" if namespace else ", or name a namespace with --namespace"),
    )


async def _metrics_server(client: Client) -> Finding:
    if await has_metrics_server(client):
        return Finding("metrics-server", "ok", "answers")
    return Finding(
        "metrics-server", "warning", "does not answer", "install metrics-server, or give Trimtab a Prometheus"
    )


async def _history(client: Client) -> Finding:
    servers = await find_promql_servers(client)
    if servers:
        shown = ", ".join(f"{server.flavour} at {server.url}" for server in servers[:SHOWN_AT_MOST])
        return Finding("history", "ok", shown)
    return Finding(
        "history",
        "warning",
        "no Prometheus, Thanos, Mimir or VictoriaMetrics found by its Service labels",
        "without history, recommendations start from nothing: install one, or name its address",
    )


async def _resize(client: Client) -> Finding:
    if await resizes_in_place(client):
        if not lowers_memory_limits((await server_version(client)).version):
            return Finding(
                "resize in place",
                "warning",
                "running pods can be resized without a restart, but their memory limits cannot be lowered",
                "upgrade to Kubernetes 1.34 or later, or allow pods to be recreated (updateStrategy.allowRecreate)",
            )
        return Finding("resize in place", "ok", "running pods can be resized without a restart")
    return Finding(
        "resize in place",
        "warning",
        "the server has no pods/resize",
        "upgrade to Kubernetes 1.33 or later, or allow pods to be recreated (updateStrategy.allowRecreate)",
    )


async def _kinds(client: Client, process: Process) -> Finding:
    known = await served(client, API_VERSION)
    missing = [kind.__name__ for kind in KINDS if kind.names.plural not in known]
    if not missing:
        return Finding("kinds", "ok", f"all {len(KINDS)} of {GROUP} are installed")
    found = f"not installed: {', '.join(missing)}"
    if process == "scan":
        return Finding("kinds", "warning", found, "a scan needs none; they come when Trimtab is installed")
    return Finding(
        "kinds",
        "problem",
        found,
        f"{INSTALL}; or install Trimtab, which brings them (a chart that finds them there needs "
        "--set crds.install=false)",
    )


_MARKS = {"ok": "[green]✔[/]", "warning": "[yellow]![/]", "problem": "[red]✘[/]"}


def _show(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 1))
    for finding in findings:
        table.add_row(_MARKS[finding.state], f"[bold]{finding.check}[/]", escape(finding.found))
        if finding.advice:
            table.add_row("", "", f"[dim]→ {escape(finding.advice)}[/]")
    Console().print(table)
