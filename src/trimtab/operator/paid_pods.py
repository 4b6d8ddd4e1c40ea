"""Count the pods that a workload pays for, and what they request: one definition for scan, status, metrics and dashboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.sizing.evidence import Evidence

HOUR = 3600.0


class PaidWorkload(Protocol):
    """A workload with its present pods and its evidence, as the views of the operator have them."""

    @property
    def workload(self) -> Workload: ...

    @property
    def pods(self) -> Sequence[str]: ...

    @property
    def containers(self) -> Sequence[Container]: ...

    @property
    def evidence(self) -> Mapping[str, Evidence]: ...


def count_paid_pods(workload: Workload, pods: int, *, running: float) -> float:
    """Return the number of pods that a workload pays for.

    Batch workloads pay for the time in which their pods run: `running` is the mean number of them since the first was
    seen. A scan measures it; evidence gives it by the share of time in which any ran, and the parallel pods. By present
    pods, a CronJob would cost nothing and then all of a month. A finished Job costs nothing.
    """
    if workload.finished:
        return 0.0
    return float(pods) if workload.is_long_running else running


def mean_requests(containers: Sequence[Container], pods: Sequence[Pod]) -> tuple[Container, ...]:
    """Return containers with the mean of what their pods request; without pods, and where all agree, as they are.

    During a change the size in effect stays that before it, for hours of a canary whose pods have the new one already.
    """
    return tuple(_with_mean_requests(each, pods) for each in containers)


def _with_mean_requests(container: Container, pods: Sequence[Pod]) -> Container:
    own = container.resources.with_implied_requests()
    sizes = [
        each.resources.with_implied_requests()
        for pod in pods
        for each in pod.containers
        if each.name == container.name
    ]
    if all(
        (each.cpu_request, each.memory_request) == (own.cpu_request, own.memory_request) for each in sizes
    ):
        return container
    cpu, memory = (
        round(sum(amount or 0 for amount in amounts) / len(sizes))
        for amounts in (
            [each.cpu_request for each in sizes],
            [each.memory_request for each in sizes],
        )
    )
    return msgspec.structs.replace(container, resources=Resources(cpu, None, memory, None))


def count_paid_pods_of_view(view: PaidWorkload, *, now: float) -> float:
    """Return the number of pods that a workload pays for, by its evidence; its present pods if there is none."""
    if view.workload.is_long_running:
        return count_paid_pods(view.workload, len(view.pods), running=0.0)
    known = [
        view.evidence[each.name]
        for each in view.containers
        if each.role != "init" and each.name in view.evidence
    ]
    shares = [_running_share(each, now=now) for each in known]
    running = max(shares) * max(1, view.workload.replicas) if shares else float(len(view.pods))
    return count_paid_pods(view.workload, len(view.pods), running=running)


def _running_share(evidence: Evidence, *, now: float) -> float:
    """Return the share of time, since its first sample, in which a batch workload ran.

    Idle time counts in whole hours: in seconds, every refresh would change the cost and notify every page.
    """
    until = max(evidence.last_sample_at, now // HOUR * HOUR)
    return (
        evidence.total_run_seconds / max(evidence.total_run_seconds, until - evidence.first_sample_at)
        if evidence.total_run_seconds
        else 0.0
    )
