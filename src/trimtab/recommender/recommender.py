"""Learn from every source of usage and recommend resources for all containers of a cluster.

Each container is fed from the source that its policy names. Sources are independent: if one is unavailable, workloads of
the others are ingested all the same.
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
"""The name of the default source, for policies that name none."""


class Recommender:
    """The state of all containers; `sources` maps the names that policies use, the default one under `DEFAULT_SOURCE`."""

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
        """The seconds between two current samples."""
        self.lock = asyncio.Lock()
        """A lock that is held during ingestion, which runs in a thread. Callers that read estimates hold it too."""
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
        """Return the ingester for containers of this strategy spec; that of the default source without one."""
        return self._ingesters[strategy_spec.source if strategy_spec else DEFAULT_SOURCE]

    def estimate(
        self, name: WorkloadContainer, strategy_spec: StrategySpec, *, now: float, is_long_running: bool
    ) -> ContainerEstimate | None:
        """Return the estimate for a container; None if nothing was ingested for it yet."""
        return self.ingester_for(strategy_spec).estimate(
            name, strategy_spec, now=now, is_long_running=is_long_running
        )

    def latest_usage(self, name: WorkloadContainer, strategy_spec: StrategySpec) -> LatestUsage | None:
        """Return a container's usage in the last read; None if nothing was ingested for it yet."""
        return self.ingester_for(strategy_spec).latest_usage(name, strategy_spec)

    def observe_ooms(self, ooms: Iterable[OomKill]) -> set[OomKill]:
        """Ingest OOM kills without waiting for the next cycle, and return those that were not known before."""
        found = set(ooms)
        return {new for ingester in self._ingesters.values() for new in ingester.observe_ooms(found)}

    def observe_memory(
        self,
        workload: Workload,
        pods: Sequence[Pod],
        names: Collection[WorkloadContainer],
        *,
        ended: Sequence[Pod] = (),
        now: float,
    ) -> set[OomKill]:
        """Record the memory that these containers have in effect, and the OOM kills that their pods report.

        `ended` are pods that no longer run. Returns the kills that were not known before.
        """
        annotations = read_change_annotations(workload)
        sizes = memory_sizes(workload, pods, names, annotations)
        for ingester in self._ingesters.values():
            ingester.observe_sizes(sizes, now=now)
        kills = (kill for name in names for kill in find_oom_kills(name, [*pods, *ended], annotations))
        return self.observe_ooms(self._oom_timestamps.correct(workload.key, kills, now=now))

    @property
    def errors_by_source(self) -> dict[str, str]:
        """The errors of the sources that could not be read in the last cycle, by the source's name."""
        return {name: each.last_error for name, each in self._ingesters.items() if each.last_error}

    @property
    def unsampled(self) -> set[PodContainer]:
        """The tracked containers that run but have had no sample for a long time."""
        return {name for ingester in self._ingesters.values() for name in ingester.unsampled}

    @property
    def ingesters(self) -> Mapping[str, SourceIngester]:
        """The ingester of each source, by the source's name."""
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
        """Read every source up to the last complete step, and return the containers that are new since the last cycle.

        `pods` are the running containers that should have samples, each with its start time.
        """
        by_source: dict[str, dict[WorkloadContainer, TrackedContainer]] = {
            name: {} for name in self._ingesters
        }
        for name, container in tracked.items():
            by_source[container.strategy_spec.source][name] = container
        self._oom_timestamps.forget_all_but({container.workload for container in tracked})
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    ingester.ingest(
                        now,
                        tracked=by_source[name],
                        owners=owners,
                        running=running,
                        pods=pods,
                        largest_node=largest_node,
                    )
                )
                for name, ingester in self._ingesters.items()
            ]
        return {container for task in tasks for container in task.result()}

    def clear_gauges(self) -> None:
        """Remove the gauges of this process: the new leader reports them."""
        self._metrics.usage_lateness.clear()
        self._metrics.containers_without_samples.clear()

    async def save(self, now: float) -> None:
        """Save the state of every source to the store."""
        for ingester in self._ingesters.values():
            await ingester.save(now)
