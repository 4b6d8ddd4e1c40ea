"""Learn from the usage history of a scan: evidence, one cohort per strategy, and usage totals."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from trimtab.actuation.change_annotations import read_change_annotations
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.recommender.cohort import ContainerEstimate, StrategySpec
from trimtab.recommender.cohorts import Cohorts, observe_usage
from trimtab.recommender.oom_kills import find_oom_kills, memory_sizes
from trimtab.recommender.workload import count_containers_per_pod, list_sized_containers
from trimtab.scan.cluster_snapshot import ClusterSnapshot
from trimtab.scan.usage_totals import UsageAccumulator
from trimtab.usage.pod_ownership import WorkloadContainer
from trimtab.usage.usage import Usage


class UsageModel:
    """The learned state of all containers: usage part by part in time order, then once the OOM kills of the pods."""

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
            name for workload in workloads for name in list_sized_containers(workload, pods[workload.key])
        ]
        containers = {
            name: count_containers_per_pod(by_key[name.workload], pods[name.workload]) for name in names
        }
        self._cohorts = Cohorts()
        self._cohorts.add(StrategySpec.for_evidence(), names, until=0.0)
        for spec in strategy_specs:
            self._cohorts.add(spec, names, until=0.0).share_pods(containers)
        annotations = {key: read_change_annotations(workload) for key, workload in by_key.items()}
        self._kills = [
            kill._replace(at=min(kill.at, now))  # the node's clock may be ahead
            for name in names
            for kill in find_oom_kills(name, pods[name.workload], annotations[name.workload])
        ]
        names_by_workload: dict[WorkloadKey, list[WorkloadContainer]] = {}
        for name in names:
            names_by_workload.setdefault(name.workload, []).append(name)
        self._memory = [
            size
            for key, own in names_by_workload.items()
            for size in memory_sizes(by_key[key], pods[key], own, annotations[key])
        ]
        self._now = now

    def observe_usage(self, usage: Usage, *, until: float) -> None:
        """Learn one part of the usage history, which ends at `until` as a whole."""
        self.totals.observe_usage(usage, self.owners)
        for error in observe_usage(self._cohorts, usage, self.owners, running=None, until=until).values():
            raise error

    def observe_ooms(self) -> None:
        """Learn the OOM kills in pod statuses after the usage history; kills known from usage hit the current limits."""
        self._cohorts.observe_sizes(self._memory, now=self._now)
        if self._cohorts.observe_ooms(self._kills):
            for cohort in self._cohorts.iter_strategies():
                cohort.discard_results()

    def estimate(
        self, name: WorkloadContainer, strategy_spec: StrategySpec, *, now: float, is_long_running: bool
    ) -> ContainerEstimate | None:
        return self._cohorts.estimate(name, strategy_spec, now=now, is_long_running=is_long_running)
