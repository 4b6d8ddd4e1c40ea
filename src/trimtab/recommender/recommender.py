"""What is learned of a cluster, from every source of usage: each container in the `school` of its policy's source.

The sources do not wait for each other: where one is away, the workloads of the others are learned of all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from trimtab.actuation.change_annotations import read_change_annotations
from trimtab.kube.kinds.nodes import NodeResources
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload
from trimtab.recommender.cohort import ContainerEstimate, LatestUsage, StrategySpec
from trimtab.recommender.cohort_manager import TrackedContainer
from trimtab.recommender.oom_kills import OomKill, OomTimestampCorrector, find_oom_kills, memory_sizes
from trimtab.recommender.source_ingester import IngestMetrics, IngestSchedule, SourceIngester
from trimtab.store import Store
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.source import Source
from trimtab.usage.usage import PodContainer

DEFAULT_SOURCE = ""
"""The name of the source for policies that name none."""


class Recommender:
    """All that is learned; `sources` are by the names that policies have for them, the first under `DEFAULT`."""

    def __init__(
        self,
        sources: Mapping[str, Source[Any]],
        store: Store,
        *,
        cluster: str,
        schedule: IngestSchedule | None = None,
        metrics: IngestMetrics,
    ) -> None:
        schedule = schedule or IngestSchedule()
        self._metrics = metrics
        self.step = schedule.step
        """Seconds between two samples of the present."""
        self.lock = asyncio.Lock()
        """Held while anybody learns, which is done in a thread: who asks what was learned holds it too."""
        self._oom_timestamps = OomTimestampCorrector()
        self._ingesters = {
            name: SourceIngester(
                source,
                store,
                cluster=cluster,
                schedule=schedule,
                metrics=metrics,
                name=name,
                lock=self.lock,
            )
            for name, source in sources.items()
        }

    def ingester_for(self, strategy_spec: StrategySpec | None) -> SourceIngester:
        """Where containers of this sizing are learned of, or would be that have none."""
        return self._ingesters[strategy_spec.source if strategy_spec else DEFAULT_SOURCE]

    def estimate(
        self, name: WorkloadContainer, strategy_spec: StrategySpec, *, now: float, is_long_running: bool
    ) -> ContainerEstimate | None:
        """What is known of a container; None when it is not learned of yet."""
        return self.ingester_for(strategy_spec).estimate(
            name, strategy_spec, now=now, is_long_running=is_long_running
        )

    def latest_usage(self, name: WorkloadContainer, strategy_spec: StrategySpec) -> LatestUsage | None:
        """What a container used when usage was last read; None when it is not learned of yet."""
        return self.ingester_for(strategy_spec).latest_usage(name, strategy_spec)

    def observe_ooms(self, ooms: Iterable[OomKill]) -> set[OomKill]:
        """Take in kills at once, not only at the next turn; the answer is those that nobody knew of."""
        found = set(ooms)
        return {new for school in self._ingesters.values() for new in school.observe_ooms(found)}

    def observe_memory(
        self,
        workload: Workload,
        pods: Sequence[Pod],
        names: Collection[WorkloadContainer],
        *,
        ended: Sequence[Pod] = (),
        now: float,
    ) -> set[OomKill]:
        """Note the memory that these containers of a workload have in effect, and the kills that their pods remember.

        `ended` are pods that run no more. The answer is the kills that nobody knew of.
        """
        marks = read_change_annotations(workload)
        sizes = memory_sizes(workload, pods, names, marks)
        for school in self._ingesters.values():
            school.observe_sizes(sizes, now=now)
        kills = (kill for name in names for kill in find_oom_kills(name, [*pods, *ended], marks))
        return self.observe_ooms(self._oom_timestamps.correct(workload.key, kills, now=now))

    @property
    def errors_by_source(self) -> dict[str, str]:
        """Why a source could not be read at the last turn, by its name; those that could are left out."""
        return {name: school.last_error for name, school in self._ingesters.items() if school.last_error}

    @property
    def unsampled(self) -> set[PodContainer]:
        """The containers that run and are to be learned of, but have had no sample for long."""
        return {name for school in self._ingesters.values() for name in school.unsampled}

    @property
    def schools(self) -> Mapping[str, SourceIngester]:
        """Where is learned of containers, by the name of the source."""
        return self._ingesters

    async def ingest(
        self,
        now: float,
        *,
        tracked: Mapping[WorkloadContainer, TrackedContainer],
        owners: Callable[[], PodOwnerIndex],
        running: Collection[WorkloadContainer],
        pods: Mapping[PodContainer, float] | None = None,
        largest_node: NodeResources | None = None,
    ) -> set[WorkloadContainer]:
        """Read every source up to the last complete step before now; the answer is those learned of since now.

        `pods` are the containers that run and should have samples, and since when.
        """
        theirs: dict[str, dict[WorkloadContainer, TrackedContainer]] = {name: {} for name in self._ingesters}
        for container, want in tracked.items():
            theirs[want.strategy_spec.source][container] = want
        self._oom_timestamps.forget_all_but({container.workload for container in tracked})
        async with asyncio.TaskGroup() as group:
            reading = [
                group.create_task(
                    school.ingest(
                        now,
                        tracked=theirs[name],
                        owners=owners,
                        running=running,
                        pods=pods,
                        largest_node=largest_node,
                    )
                )
                for name, school in self._ingesters.items()
            ]
        return {container for task in reading for container in task.result()}

    def clear_gauges(self) -> None:
        """Report nothing more: another operator leads, and reports."""
        self._metrics.usage_lateness.clear()
        self._metrics.containers_without_samples.clear()

    async def save(self, now: float) -> None:
        """Keep what was learned."""
        for school in self._ingesters.values():
            await school.save(now)
