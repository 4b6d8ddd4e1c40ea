"""What the past teaches of all containers of a survey: the evidence, a cohort for each strategy, and the sums for the bill."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from trimtab.actuation.change_annotations import read_change_annotations
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.operator.cluster_state import count_containers_per_pod
from trimtab.recommender.cohort import (
    AnyCohort,
    ContainerEstimate,
    EvidenceCohort,
    StrategyCohort,
    StrategySpec,
)
from trimtab.recommender.oom_kills import find_oom_kills, memory_sizes
from trimtab.scan.cluster_snapshot import ClusterSnapshot
from trimtab.scan.usage_totals import UsageAccumulator
from trimtab.usage.pod_ownership import WorkloadContainer
from trimtab.usage.usage import Usage
from trimtab.usage.workload_usage import WorkloadUsage


class UsageModel:
    """Taken in part by part, in the order of time; then, once, the kills that pods remember."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        workloads: Collection[Workload],
        strategy_specs: Iterable[StrategySpec],
        *,
        now: float,
    ) -> None:
        self.owners = snapshot.build_owner_index()
        self.totals = UsageAccumulator(now)
        by_key = {workload.key: workload for workload in workloads}
        pods = {workload.key: snapshot.list_pods(workload) for workload in workloads}
        names = [
            WorkloadContainer.from_workload(workload.key, container)
            for workload in workloads
            for container in _list_container_names(workload, pods[workload.key])
        ]
        containers = {
            name: count_containers_per_pod(pods[name.workload], by_key[name.workload]) for name in names
        }
        self._evidence = EvidenceCohort(until=0.0)
        self._evidence.include(names)
        self._cohorts = {}
        for sizing in strategy_specs:
            cohort = StrategyCohort(sizing, until=0.0)
            cohort.include(names)
            cohort.share_pods(containers)
            self._cohorts[sizing] = cohort
        marks = {key: read_change_annotations(workload) for key, workload in by_key.items()}
        self._kills = [
            kill._replace(at=min(kill.at, now))  # the clock of its node may be ahead
            for name in names
            for kill in find_oom_kills(name, pods[name.workload], marks[name.workload])
        ]
        of_workload: dict[WorkloadKey, list[WorkloadContainer]] = {}
        for name in names:
            of_workload.setdefault(name.workload, []).append(name)
        self._memory = [
            size
            for key, own in of_workload.items()
            for size in memory_sizes(by_key[key], pods[key], own, marks[key])
        ]
        self._now = now

    def observe_usage(self, usage: Usage, *, until: float) -> None:
        """A part of the past, which goes on up to `until`."""
        self.totals.observe_usage(usage, self.owners)
        forms: dict[object, WorkloadUsage] = {}
        cohorts: list[AnyCohort] = [self._evidence, *self._cohorts.values()]
        for cohort in cohorts:
            if cohort.aggregate not in forms:
                forms[cohort.aggregate] = cohort.aggregate(usage, self.owners)
            cohort.observe_usage(forms[cohort.aggregate], running=None, until=until)

    def observe_ooms(self) -> None:
        """Take in the kills that pods remember, once the past is in; those known from there hit the limits of now."""
        self._evidence.observe_sizes(self._memory, now=self._now)
        new = self._evidence.observe_ooms(self._kills)
        for cohort in self._cohorts.values() if new else ():
            cohort.observe_ooms(new)
            cohort.include(())  # so that it names sizes anew

    def estimate(
        self, name: WorkloadContainer, strategy_spec: StrategySpec, *, now: float, is_long_running: bool
    ) -> ContainerEstimate | None:
        if name not in self._evidence.table:
            return None
        evidence = self._evidence.get_evidence(name, now=now, is_long_running=is_long_running)
        return ContainerEstimate(self._cohorts[strategy_spec].get_proposal(name, now=now), evidence)


def _list_container_names(workload: Workload, pods: Sequence[Pod]) -> list[str]:
    """The names in the template, and those that something put beside them."""
    everyone = [workload.containers, *(pod.containers for pod in pods)]
    return list(dict.fromkeys(each.name for containers in everyone for each in containers))
