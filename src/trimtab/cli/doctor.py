"""`trimtab doctor`: is this cluster ready for us, and if not, what to do about it."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from trimtab.api import API_VERSION, GROUP, KINDS
from trimtab.api.kind import INSTALL_COMMAND
from trimtab.cli import ignore_closed_pipe
from trimtab.cli._common.doctor_checks import MAX_SHOWN, CheckResult, check_readiness
from trimtab.cli._common.operator_check import check_operator
from trimtab.cli._common.scan_options import friendly_errors, parse_days, parse_key_values
from trimtab.cli._common.webhook_check import CHECK, check_webhook
from trimtab.kube.auth import load_connection
from trimtab.kube.errors import ApiError, Forbidden, KubeError, NotFound, describe
from trimtab.kube.kinds.emergency_stop import STOP_NAME, EmergencyStopWire
from trimtab.kube.rest.capabilities import (
    KubeVersion,
    can_lower_memory_limits,
    get_server_version,
    list_served_resources,
    supports_in_place_resize,
)
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.rbac import RBAC_RULES, SYSTEM_NAMESPACE, Component, find_missing_rules
from trimtab.kube.rest.resources import CONFIG_MAPS
from trimtab.kube.rest.retry import RetryPolicy
from trimtab.usage.discovery import METRICS_SERVER_API, MONITORING_NAMESPACES, find_promql_servers

MIN_VERSION = KubeVersion(1, 29)


def doctor(
    *,
    context: str | None = None,
    kubeconfig: str | None = None,
    process: Component = "scan",
    namespace: Annotated[str | None, Parameter(name=["--namespace", "-n"])] = None,
    home: str = SYSTEM_NAMESPACE,
    prometheus: str | None = None,
    source_setting: tuple[str, ...] = (),
    days: float = 14.0,
    output: Annotated[Literal["table", "json"], Parameter(name=["--output", "-o"])] = "table",
) -> int:
    """Check a cluster's version, permissions, usage data, in-place resize, CRDs, webhook and the running operator, with a remedy for each problem.

    Is the current context's cluster ready for the operator? What does a scan with this Prometheus cost?

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
        The process whose permissions are checked: the commands that read (scan; scan-policies where the operator is
        installed), stop, the operator, its dashboard, or the node agent.
    namespace
        Check this namespace instead of the whole cluster.
    home
        The namespace in which Trimtab is or will be installed; some permissions are needed only there.
    prometheus
        The address of a Prometheus, Thanos, Mimir or VictoriaMetrics; by default, the one that is found by the labels
        of its Service.
    source_setting
        A setting of that source, as name=value, like tenant=team-a or labels.cluster=prod; may be given several times.
    days
        The days of usage that a scan needs.
    output
        A table for people or json for programs.
    """
    parse_days(days)  # rejects invalid values
    source = parse_key_values("--source-setting", source_setting) | (
        {"url": prometheus} if prometheus else {}
    )
    findings = asyncio.run(
        _run_checks(kubeconfig, context, process, namespace, home=home, source=source, days=days)
    )
    with ignore_closed_pipe():
        if output == "json":
            print(json.dumps([asdict(finding) for finding in findings], indent=2))
        else:
            _print_table(findings)
    return int(any(finding.state == "problem" for finding in findings))


async def _run_checks(
    kubeconfig: str | None,
    context: str | None,
    process: Component,
    namespace: str | None,
    *,
    home: str,
    source: Mapping[str, Any],
    days: float,
) -> list[CheckResult]:
    connection = load_connection(kubeconfig=kubeconfig, context=context)
    async with (
        Client(connection, retry=RetryPolicy(attempts=2), timeout=15) as client,
        friendly_errors(connection),
    ):
        cluster = await _check_cluster(client)  # if this fails, no other check can run
        checks: dict[str, Callable[[], Awaitable[CheckResult]]] = {
            f"rights of {process}": lambda: _check_rights(client, process, namespace, home),
            "metrics-server": lambda: _check_metrics_server(client),
            **({} if source else {"history": lambda: _check_history(client, home)}),
            "resize in place": lambda: _check_resize(client),
            "kinds": lambda: _check_kinds(client, process),
            CHECK: lambda: check_webhook(client),
            "emergency stop": lambda: _check_emergency_stop(client, home),
        }
        findings = await asyncio.gather(*(_run_guarded(name, check) for name, check in checks.items()))
        running = await check_operator(client, home)
        met = await check_readiness(client, source=source, days=days, namespace=namespace, now=time.time())
        return [cluster, *findings, *running, *met]


async def _run_guarded(name: str, check: Callable[[], Awaitable[CheckResult]]) -> CheckResult:
    """Run a check and report its failure as a problem, so that the other checks still run."""
    try:
        return await check()
    except ApiError as error:
        return CheckResult(
            name, "problem", describe(error), "ask your administrator for this permission, or try again"
        )
    except KubeError as error:
        return CheckResult(name, "problem", describe(error), "check the connection to the API server")


async def _check_cluster(client: Client) -> CheckResult:
    server, connection = await get_server_version(client), client.connection
    found = f"{connection.context} ({connection.server}), Kubernetes {server.text}"
    if server.version < MIN_VERSION:
        return CheckResult(
            "cluster", "warning", found, f"Trimtab supports Kubernetes {MIN_VERSION} and later"
        )
    return CheckResult("cluster", "ok", found)


async def _check_rights(client: Client, process: Component, namespace: str | None, home: str) -> CheckResult:
    rules = RBAC_RULES[process]
    if process == "scan" and await list_served_resources(client, API_VERSION):
        rules += RBAC_RULES["scan-policies"]
    missing = await find_missing_rules(client, rules, namespace=namespace, system_namespace=home)
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    if not missing:
        return CheckResult(f"rights of {process}", "ok", f"all that it needs {where}")
    shown = "; ".join(
        f"{right} in {home}" if right.own_namespace else str(right) for right in missing[:MAX_SHOWN]
    )
    more = f"; and {len(missing) - MAX_SHOWN} more" if len(missing) > MAX_SHOWN else ""
    return CheckResult(
        f"rights of {process}",
        "problem",
        f"missing {where}: {shown}{more}",
        "ask your administrator for a role with these verbs"
        + ("" if namespace else ", or name a namespace with --namespace"),
    )


async def _check_emergency_stop(client: Client, home: str) -> CheckResult:
    try:
        found = await client.get(CONFIG_MAPS, STOP_NAME, namespace=home, into=EmergencyStopWire)
    except NotFound:
        return CheckResult("emergency stop", "ok", "none is in effect")
    except Forbidden:
        return CheckResult("emergency stop", "ok", "not checked: you are not allowed to read ConfigMaps")
    return CheckResult(
        "emergency stop", "warning", f"{found.to_stop()}", "trimtab resume, once the cause is known"
    )


async def _check_metrics_server(client: Client) -> CheckResult:
    try:
        await client.request("GET", METRICS_SERVER_API, read=bytes)
    except ApiError as error:
        return CheckResult(
            "metrics-server",
            "warning",
            f"does not answer: {describe(error)}",
            "install or repair metrics-server, or configure a Prometheus",
        )
    return CheckResult("metrics-server", "ok", "answers")


async def _check_history(client: Client, home: str) -> CheckResult:
    servers = await find_promql_servers(client)
    if servers:
        shown = ", ".join(f"{server.flavour} at {server.url}" for server in servers[:MAX_SHOWN])
        if all(server.namespace not in {home, *MONITORING_NAMESPACES} for server in servers):
            return CheckResult(
                "history",
                "warning",
                f"{shown}; the operator does not trust a server that it finds in that namespace",
                "set metricsSource.settings.url of the operator's configuration to the server's address",
            )
        return CheckResult("history", "ok", shown)
    return CheckResult(
        "history",
        "warning",
        "no Prometheus, Thanos, Mimir or VictoriaMetrics found by its Service labels",
        "without history, recommendations take days to become reliable: install one, or give its address",
    )


async def _check_resize(client: Client) -> CheckResult:
    if await supports_in_place_resize(client):
        if not can_lower_memory_limits((await get_server_version(client)).version):
            return CheckResult(
                "resize in place",
                "warning",
                "running pods can be resized without a restart, but their memory limits cannot be lowered",
                "upgrade to Kubernetes 1.34 or later, or allow pods to be recreated (updateStrategy.allowRecreate)",
            )
        return CheckResult("resize in place", "ok", "running pods can be resized without a restart")
    return CheckResult(
        "resize in place",
        "warning",
        "the API server has no pods/resize subresource",
        "upgrade to Kubernetes 1.33 or later, or allow pods to be recreated (updateStrategy.allowRecreate)",
    )


async def _check_kinds(client: Client, process: Component) -> CheckResult:
    known = await list_served_resources(client, API_VERSION)
    missing = [kind.__name__ for kind in KINDS if kind.names.plural not in known]
    if not missing:
        return CheckResult("kinds", "ok", f"all {len(KINDS)} of {GROUP} are installed")
    found = f"not installed: {', '.join(missing)}"
    if process in {"scan", "scan-policies"}:
        return CheckResult("kinds", "warning", found, "a scan needs none; the installation creates them")
    return CheckResult(
        "kinds",
        "problem",
        found,
        f"{INSTALL_COMMAND}; or install Trimtab, which brings them (a chart that finds them there needs "
        "--set crds.install=false)",
    )


_SYMBOLS = {"ok": "[green]✔[/]", "warning": "[yellow]![/]", "problem": "[red]✘[/]"}


def _print_table(findings: list[CheckResult]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 1))
    for finding in findings:
        table.add_row(_SYMBOLS[finding.state], f"[bold]{finding.check}[/]", escape(finding.found))
        if finding.advice:
            table.add_row("", "", f"[dim]→ {escape(finding.advice)}[/]")
    Console().print(table)
