"""The check of `trimtab doctor` on the operator that runs: its pods, its leader and the problems that policies report."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from trimtab.cli._common.doctor_checks import CheckResult, format_some
from trimtab.cli._common.installed_names import read_installed_names
from trimtab.kube.errors import Forbidden, NotFound
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import LEASES, OPTIMIZATION_POLICIES, PODS
from trimtab.plural import format_time_span, pluralize

CHECK = "operator"
PODS_OF_OPERATOR = "app.kubernetes.io/name=trimtab,app.kubernetes.io/component=operator"
RECENT = 3600.0
"""The seconds for which a restart is worth a warning."""

Object = Mapping[str, Any]


async def check_operator(client: Client, home: str, *, now: float | None = None) -> list[CheckResult]:
    """Check the operator's pods, its lease and the conditions of all policies."""
    try:
        pods = await client.list_objects(PODS, namespace=home, labels=PODS_OF_OPERATOR)
    except Forbidden:
        return [CheckResult(CHECK, "ok", f"not checked: you are not allowed to list pods of {home}")]
    if not pods:
        return [CheckResult(CHECK, "ok", f"none is installed in namespace {home}")]
    names = await read_installed_names(client, pods, namespace=home)
    try:
        lease: Object = await client.get(LEASES, names.lease, namespace=home)
    except (NotFound, Forbidden):
        lease = {}
    try:
        policies: Iterable[Object] = await client.list_objects(OPTIMIZATION_POLICIES)
    except (NotFound, Forbidden):
        policies = ()
    at = time.time() if now is None else now
    return [
        judge_pods(pods, now=at),
        judge_leader(lease, pods, name=names.lease, now=at),
        judge_policies(policies),
    ]


def judge_pods(pods: Iterable[Object], *, now: float) -> CheckResult:
    problems, ready, total = [], 0, 0
    for pod in pods:
        total += 1
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        conditions = {each["type"]: each for each in status.get("conditions") or ()}
        if conditions.get("Ready", {}).get("status") == "True":
            ready += 1
        else:
            problems.append(f"{name} is not ready{_explain(status, conditions.get('Ready', {}))}")
        for container in status.get("containerStatuses") or ():
            ended = (container.get("lastState") or {}).get("terminated") or {}
            since = _seconds_since(ended.get("finishedAt"), now)
            if container.get("restartCount") and since is not None and since < RECENT:
                problems.append(
                    f"{name} restarted {format_time_span(since)} ago: {ended.get('reason', 'unknown')}, "
                    f"exit code {ended.get('exitCode', '?')}"
                )
    if not problems:
        return CheckResult(CHECK, "ok", f"{pluralize(total, 'replica')}, all ready")
    return CheckResult(
        CHECK,
        "warning" if ready else "problem",
        f"{ready} of {pluralize(total, 'replica')} ready; {format_some(problems)}",
        "look at its log: kubectl logs -n NAMESPACE POD --previous",
    )


def judge_leader(lease: Object, pods: Iterable[Object], *, name: str, now: float) -> CheckResult:
    spec = lease.get("spec") or {}
    holder = spec.get("holderIdentity") or ""
    renewed = _seconds_since(spec.get("renewTime"), now)
    duration = float(spec.get("leaseDurationSeconds") or 15)
    advice = "nothing is sized meanwhile; look at the log of the pods"
    if not holder or renewed is None:
        return CheckResult("leader", "problem", f"no replica holds the Lease {name}", advice)
    # The clock of this machine may differ from that of the leader.
    if renewed > 4 * duration:
        return CheckResult(
            "leader", "problem", f"{holder} renewed the Lease {format_time_span(renewed)} ago", advice
        )
    if not any(holder.startswith(pod["metadata"]["name"]) for pod in pods):
        return CheckResult(
            "leader",
            "warning",
            f"{holder} leads, which is none of the operator's pods",
            "end the other operator, such as one that runs on somebody's machine",
        )
    return CheckResult("leader", "ok", holder)


def judge_policies(policies: Iterable[Object]) -> CheckResult:
    """Report the conditions by which policies say that something does not work."""
    problems: list[str] = []
    total = 0
    for policy in policies:
        total += 1
        name = f"{policy['metadata']['namespace']}/{policy['metadata']['name']}"
        problems.extend(
            f"{name}: {each['message']}"
            for each in (policy.get("status") or {}).get("conditions") or ()
            if (each["type"] in {"Ready", "MetricsAvailable"} and each["status"] == "False")
            or (each["type"] == "ConfigurationRejected" and each["status"] == "True")
        )
    if problems:
        return CheckResult(
            "policies", "warning", format_some(problems), "kubectl describe optimizationpolicy names the rest"
        )
    if not total:
        return CheckResult("policies", "ok", "there are none; without one nothing is changed")
    return CheckResult("policies", "ok", f"{pluralize(total, 'policy', 'policies')} without problems")


def _explain(status: Object, condition: Object) -> str:
    """Return the reason why a pod is not ready, as far as its status tells."""
    for container in status.get("containerStatuses") or ():
        if waiting := (container.get("state") or {}).get("waiting"):
            return f": {waiting.get('reason', '')} {waiting.get('message', '')}".rstrip()
    return f": {condition['message']}" if condition.get("message") else ""


def _seconds_since(then: str | None, now: float) -> float | None:
    return None if not then else max(0.0, now - datetime.fromisoformat(then).timestamp())
