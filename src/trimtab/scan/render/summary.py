"""The summary of a scan in a few lines, shared by all formats for people."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.api.quantity import ResourceName, format_short
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.plural import format_time_span, pluralize
from trimtab.scan.model import SHORT_KINDS, ContainerFinding, ScanResult, WorkloadFinding
from trimtab.scan.pricing import format_money, format_share

SHORT_HISTORY = 86400.0
"""The seconds of usage below which a scan says that its recommendations are rough."""
_NEARLY_ALL = 0.9
MAX_NAMED = 3
MAX_LIMITS = 10
TOTALS_HEADER = ("", "REQUESTED", "USED", "WASTED", "WASTE A MONTH")


def format_title(scan: ScanResult) -> str:
    """Format the title: the cluster, the number of workloads, the window and the strategy."""
    many = pluralize(len(scan.workloads), "workload")
    return f"{scan.context}: {many}, {_format_history(scan)}, strategy {scan.strategy}"


def _format_history(scan: ScanResult) -> str:
    """Format the window, and how much of it the longest history covers where that is clearly less."""
    window = format_time_span(scan.window)
    if not scan.workloads or scan.observed_seconds >= _NEARLY_ALL * scan.window:
        return window
    return f"{format_time_span(scan.observed_seconds)} of {window}"


def build_totals(scan: ScanResult) -> list[tuple[str, str, str, str, str]]:
    """Build the rows of totals: CPU, memory, and the monthly cost of both."""
    cpu, memory, prices = scan.cpu, scan.memory, scan.prices
    used = prices.price_cpu(cpu.used) + prices.price_memory(memory.used)
    return [
        (
            "CPU",
            format_short("cpu", cpu.requested),
            f"{format_short('cpu', cpu.used)} ({format_share(cpu.used, cpu.requested)})",
            f"{format_short('cpu', cpu.wasted)} ({format_share(cpu.wasted, cpu.requested)})",
            format_money(prices.price_cpu(cpu.wasted), prices.currency),
        ),
        (
            "memory",
            format_short("memory", memory.requested),
            f"{format_short('memory', memory.used)} ({format_share(memory.used, memory.requested)})",
            f"{format_short('memory', memory.wasted)} ({format_share(memory.wasted, memory.requested)})",
            format_money(prices.price_memory(memory.wasted), prices.currency),
        ),
        (
            "a month",
            format_money(scan.cost, prices.currency),
            f"{format_money(used, prices.currency)} ({format_share(used, scan.cost)})",
            f"{format_money(scan.wasted, prices.currency)} ({format_share(scan.wasted, scan.cost)})",
            format_money(scan.wasted, prices.currency),
        ),
    ]


def format_risks(scan: ScanResult) -> str:
    """Format the number of containers at risk and the cost of additional requests."""
    risks = [
        f"{count} {words}"
        for count, words in (
            (scan.count_at_risk("OOM"), "of OOM"),
            (scan.count_at_risk("throttling"), "of throttling"),
        )
        if count
    ]
    parts = [f"Containers at risk: {', '.join(risks) if risks else 'none'}"]
    if scan.without_requests:
        parts.append(f"without requests: {scan.without_requests}")
    if scan.missing > 0:
        parts.append(
            f"additional requests needed: {format_money(scan.missing, scan.prices.currency)} a month"
        )
    return "; ".join(parts) + "."


def format_nodes(scan: ScanResult) -> str:
    """Format the bill of the nodes, which changes only with them; empty if it is unknown."""
    bill = scan.nodes
    if bill is None:
        return ""
    cost = format_money(bill.cost, scan.prices.currency)
    enough = f"; all requests fit on {bill.needed} of the largest" if bill.needed < bill.count else ""
    return f"Nodes: {bill.count} for {cost} a month{enough}."


def list_gaps(scan: ScanResult) -> list[str]:
    """List what the scan could not read, so that a partial result never passes for a complete one."""
    lines = []
    if scan.workloads and scan.observed_seconds < SHORT_HISTORY:
        # A day without a night or a week without a Monday says little, however many samples it has.
        lines.append(
            f"Little data: {format_time_span(scan.observed_seconds)} of usage; recommendations are rough. "
            "Scan again after a day, or better a week."
        )
    if scan.forbidden_namespaces:
        names = ", ".join(sorted(scan.forbidden_namespaces))
        lines.append(f"Not scanned, because access is forbidden: namespaces {names}.")
    lines += [
        f"Not read: {resource}: {reason}" for resource, reason in sorted(scan.errors_by_resource.items())
    ]
    return lines


def list_operator_notes(workloads: Iterable[WorkloadFinding]) -> list[str]:
    """List the policies that size workloads, and the recommendations that the operator does not apply, by reason."""
    by_policy: dict[tuple[str, str], list[str]] = {}
    by_reason: dict[str, list[str]] = {}
    for found in workloads:
        if policy := found.policy:
            by_policy.setdefault((policy.name, policy.strategy), []).append(format_workload(found.key))
        if found.operator_obstacle:
            by_reason.setdefault(found.operator_obstacle, []).append(format_workload(found.key))
    return [
        *(
            f"Policy {name} (strategy {strategy}) sizes {join_names(names)}."
            for (name, strategy), names in by_policy.items()
        ),
        *(
            f"The operator leaves {join_names(names)} unchanged: {reason}."
            for reason, names in by_reason.items()
        ),
    ]


def group_skipped(scan: ScanResult) -> list[tuple[str, list[str]]]:
    """Group the skipped workloads by reason, the most frequent first."""
    by_reason: dict[str, list[str]] = {}
    for each in scan.skipped:
        by_reason.setdefault(each.reason, []).append(format_workload(each.key))
    return sorted(by_reason.items(), key=lambda group: -len(group[1]))


def join_names(names: list[str], *, most: int = MAX_NAMED) -> str:
    """Join the first names, and say how many follow."""
    named = ", ".join(names[:most])
    return f"{named} and {len(names) - most} more" if len(names) > most else named


def list_relevant(scan: ScanResult) -> list[tuple[WorkloadFinding, ContainerFinding]]:
    """List the containers that should change or are at risk, in the order of their workloads."""
    return [
        (found, each)
        for found in scan.workloads
        for each in found.containers
        if each.has_changes or each.risks or each.is_missing_requests
    ]


def format_short_name(found: WorkloadFinding, container: ContainerFinding) -> str:
    """Format a name such as `shop/deploy/web`, with the container if the workload has several."""
    more = f":{container.name}" if len(found.containers) > 1 else ""
    return f"{format_workload(found.key)}{more}"


def format_workload(key: WorkloadKey) -> str:
    """Format a workload such as `shop/deploy/web`."""
    kind = SHORT_KINDS.get(key.kind, key.kind.partition(".")[0].lower())
    return f"{key.namespace}/{kind}/{key.name}"


def format_limit_changes(container: ContainerFinding) -> str:
    """Format the limits that change, such as `cpu 200m→300m, memory none→1Gi`; empty if none does."""
    before, after = container.current, container.recommended
    changes: tuple[tuple[ResourceName, int | None, int | None], ...] = (
        ("cpu", before.cpu_limit, after.cpu_limit),
        ("memory", before.memory_limit, after.memory_limit),
    )
    return ", ".join(f"{name} {format_change(name, old, new)}" for name, old, new in changes if old != new)


def format_limits_note(shown: Iterable[tuple[WorkloadFinding, ContainerFinding]]) -> str:
    """Format the changes of limits for a table that has no columns of limits; empty if there is none."""
    found = [
        f"{format_short_name(workload, each)} {changes}"
        for workload, each in shown
        if (changes := format_limit_changes(each))
    ]
    more = f"; and {len(found) - MAX_LIMITS} more: --output json lists all" if len(found) > MAX_LIMITS else ""
    return f"Limits change too: {'; '.join(found[:MAX_LIMITS])}{more}." if found else ""


def format_change(resource: ResourceName, before: int | None, after: int | None) -> str:
    """Format a change of an amount; only the amount if both look the same."""
    old, new = format_short(resource, before), format_short(resource, after)
    return old if old == new else f"{old}→{new}"


def format_all_clusters(scans: Iterable[ScanResult]) -> str:
    """Format the totals of several clusters, which share their prices."""
    known = list(scans)
    currency = known[0].prices.currency
    wasted, cost = sum(each.wasted for each in known), sum(each.cost for each in known)
    return (
        f"All {len(known)} clusters: {format_money(wasted, currency)} of {format_money(cost, currency)} a month "
        f"wasted ({format_share(wasted, cost)}); at risk of OOM {sum(each.count_at_risk('OOM') for each in known)}, "
        f"of throttling {sum(each.count_at_risk('throttling') for each in known)}."
    )
