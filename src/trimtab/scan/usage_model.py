"""Learn from the usage history of a scan: evidence, one cohort per strategy, and usage totals."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.cluster_state import ClusterState
from trimtab.recommender.cohort import ContainerEstimate, StrategySpec
from trimtab.recommender.cohorts import Cohorts, observe_usage
from trimtab.recommender.oom_kills import MemorySize, OomKill, read_memory
from trimtab.recommender.workload import count_containers_per_pod, list_sized_containers
from trimtab.scan.usage_totals import UsageAccumulator
from trimtab.usage.pod_ownership import WorkloadContainer
from trimtab.usage.usage import Usage


class UsageModel:
    """The learned state of all containers: usage part by part in time order, then once the OOM kills of the pods."""

    def __init__(
        self,
        state: ClusterState,
        workloads: Collection[Workload],
        strategy_specs: Iterable[StrategySpec],
        *,
        now: float,
    ) -> None:
        self.owners = state.build_owner_index()
        self.totals = UsageAccumulator(now)
        self._now = now
        self._sizes: list[MemorySize] = []
        self._kills: list[OomKill] = []
        containers: dict[WorkloadContainer, int] = {}
        for workload in workloads:
            pods, ended = state.list_pods(workload), state.list_failed_pods(workload)
            names = list_sized_containers(workload, pods)
            containers |= dict.fromkeys(names, count_containers_per_pod(workload, pods))
            sizes, kills = read_memory(workload, pods, names, ended=ended)
            self._sizes += sizes
            self._kills += (
                kill._replace(at=min(kill.at, now)) for kill in kills
            )  # a node's clock may be ahead
        self._cohorts = Cohorts()
        self._cohorts.add(StrategySpec.for_evidence(), containers, until=0.0)
        for spec in strategy_specs:
            self._cohorts.add(spec, containers, until=0.0).share_pods(containers)

    def observe_usage(self, usage: Usage, *, until: float) -> None:
        """Learn one part of the usage history, which ends at `until` as a whole."""
        self.totals.observe_usage(usage, self.owners)
        for error in observe_usage(self._cohorts, usage, self.owners, running=None, until=until).values():
            raise error

    def observe_ooms(self) -> None:
        """Learn the OOM kills in pod statuses after the usage history; kills known from usage hit the current limits."""
        self._cohorts.observe_sizes(self._sizes, now=self._now)
        if self._cohorts.observe_ooms(self._kills):
            for cohort in self._cohorts.iter_strategies():
                cohort.discard_results()

    def estimate(
        self, name: WorkloadContainer, strategy_spec: StrategySpec, *, now: float, is_long_running: bool
    ) -> ContainerEstimate | None:
        return self._cohorts.estimate(name, strategy_spec, now=now, is_long_running=is_long_running)
