"""Learn from every source of usage and recommend resources for all containers of a cluster.

Each container is fed from the source that its policy names. Sources are independent: if one is unavailable, workloads of
the others are ingested all the same.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from trimtab.kube.kinds.nodes import NodeResources
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload
from trimtab.recommender.cohort import ContainerEstimate, LatestUsage, StrategySpec
from trimtab.recommender.cohort_store import CohortStore, TrackedContainer
from trimtab.recommender.oom_kills import OomKill, OomTimestampCorrector, PodStatusReader
from trimtab.recommender.source_ingester import (
    IngestContext,
    IngestMetrics,
    IngestSchedule,
    SourceIngester,
    SourceLifecycle,
)
from trimtab.sizing.recommendation import Factor
from trimtab.store import Store
from trimtab.timing import is_recent
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.source import Source
from trimtab.usage.usage import PodContainer

DEFAULT_SOURCE = ""
"""The name of the default source, for policies that name none."""


class _Ingesters(dict[str, SourceIngester]):
    """The ingesters by the names of their sources; a missing one is built."""

    def __init__(self, build: Callable[[str], SourceIngester]) -> None:
        super().__init__()
        self._build = build

    def __missing__(self, name: str) -> SourceIngester:
        found = self[name] = self._build(name)
        return found


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
        source_lifecycle: SourceLifecycle | None = None,
    ) -> None:
        """Create a recommender without state; without a `source_lifecycle` all sources are open."""
        schedule = schedule or IngestSchedule()
        self._metrics = metrics
        self._save_interval = schedule.save_interval
        self._saved_at = float("-inf")
        self.step = schedule.step
        """The seconds between two current samples."""
        self.lock = asyncio.Lock()
        """A lock that is held during ingestion, which runs in a thread. Callers that read estimates hold it too."""
        self._oom_timestamps = OomTimestampCorrector()
        self._status_reader = PodStatusReader()
        self.cohorts = CohortStore(
            store,
            cluster=cluster,
            min_backfill_age=schedule.min_backfill_age,
            retention=schedule.retention,
            on_failure=lambda spec, error: self.ingester_for(spec).record_failure(spec, error),
        )
        """The learned state of all containers."""

        def build_ingester(name: str) -> SourceIngester:
            return SourceIngester(
                name,
                sources[name],
                self.cohorts,
                schedule=schedule,
                metrics=metrics,
                lock=self.lock,
                lifecycle=source_lifecycle,
            )

        self.ingesters: dict[str, SourceIngester] = _Ingesters(build_ingester)
        """The ingester of each source, by the source's name; that of a policy's Secret exists while a policy names it."""
        for name in sources:
            _ = self.ingesters[name]
        self._configured = source_lifecycle.configured if source_lifecycle else frozenset(sources)

    def ingester_for(self, strategy_spec: StrategySpec | None) -> SourceIngester:
        """Return the ingester for containers of this strategy spec; that of the default source without one."""
        return self.ingesters[strategy_spec.source if strategy_spec else DEFAULT_SOURCE]

    def estimate(
        self,
        name: WorkloadContainer,
        strategy_spec: StrategySpec,
        *,
        now: float,
        is_long_running: bool,
        explained: bool = True,
    ) -> ContainerEstimate | None:
        """Return the estimate for a container; None if nothing was ingested for it yet."""
        found = self.estimate_all(
            [name], strategy_spec, now=now, is_long_running=is_long_running, explained=explained
        )
        return found.get(name)

    def estimate_all(
        self,
        names: Iterable[WorkloadContainer],
        strategy_spec: StrategySpec,
        *,
        now: float,
        is_long_running: bool,
        explained: bool = True,
    ) -> dict[WorkloadContainer, ContainerEstimate]:
        """Return the estimates for the containers of a workload, with the strategy's facts if `explained`.

        Containers for which nothing was ingested yet are left out.
        """
        found = self.cohorts.estimate(
            names, strategy_spec, now=now, is_long_running=is_long_running, explained=explained
        )
        source, recent = strategy_spec.source, self.ingesters[strategy_spec.source].recent_usage
        if not recent.times.size:
            return found
        return {
            name: each._replace(evidence=recent.add_to(each.evidence, name, after=cohort.ingested_until))
            for name, each in found.items()
            if (cohort := self.cohorts.find_evidence(name, source)) is not None
        }

    def explain(
        self, name: WorkloadContainer, strategy_spec: StrategySpec, *, now: float
    ) -> tuple[Factor, ...]:
        """Return the strategy's facts behind the estimate for a container; none before its first samples."""
        cohort = self.cohorts.find(name, strategy_spec)
        return cohort.explain(name, now=now) if cohort else ()

    def latest_usage(self, name: WorkloadContainer, strategy_spec: StrategySpec) -> LatestUsage | None:
        """Return a container's latest usage; None if nothing was ingested for it yet."""
        evidence = self.cohorts.find_evidence(name, strategy_spec.source)
        if evidence is None or self.cohorts.find(name, strategy_spec) is None:
            return None
        recent = self.ingesters[strategy_spec.source].recent_usage
        return recent.latest_usage(name, after=evidence.ingested_until) or evidence.latest_usage(name)

    def observe_pod_status(
        self,
        workload: Workload,
        pods: Sequence[Pod],
        names: Collection[WorkloadContainer],
        *,
        ended: Sequence[Pod] = (),
        now: float,
    ) -> set[OomKill]:
        """Record the sizes that these containers have in effect, and the OOM kills that their pods report.

        `ended` are pods that no longer run. Returns the kills that were not known before.
        """
        sizes, kills = self._status_reader.read(workload, pods, names, ended=ended)
        self.cohorts.observe_sizes(sizes, now=now)
        # One kill that seemed to be of next year hid all later ones of its container, which never got more memory again.
        return self.cohorts.observe_ooms(self._oom_timestamps.correct(workload.key, kills, now=now))

    @property
    def errors_by_source(self) -> dict[str, str]:
        """The errors of the sources that could not be read in the last cycle, by the source's name."""
        return {name: each.last_error for name, each in self.ingesters.items() if each.last_error}

    @property
    def unsampled(self) -> set[PodContainer]:
        """The tracked containers that run but have had no sample for a long time."""
        return {name for ingester in self.ingesters.values() for name in ingester.unsampled}

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
        by_source: defaultdict[str, set[WorkloadContainer]] = defaultdict(set)
        for name, container in tracked.items():
            by_source[container.strategy_spec.source].add(name)
        for source in by_source:
            _ = self.ingesters[source]  # a policy may have named a Secret since the last cycle
        workloads = {container.workload for container in tracked}
        self._oom_timestamps.forget_all_but(workloads)
        self._status_reader.forget_all_but(workloads)
        async with self.lock:
            backfill = {name: ingester.plan_backfill(now) for name, ingester in self.ingesters.items()}
            new = await self.cohorts.assign(tracked, now=now, backfill=backfill)
        for unused in self.ingesters.keys() - self._configured - by_source.keys():
            await self.ingesters.pop(unused).close()
        # A source that is slow or away must not delay the workloads of the others.
        async with asyncio.TaskGroup() as group:
            for source, ingester in self.ingesters.items():
                context = IngestContext(owners, by_source[source], running, pods, largest_node)
                group.create_task(ingester.ingest(now, context))
        if not is_recent(self._saved_at, now, within=self._save_interval):
            await self.save(now)
        return new

    def clear_gauges(self) -> None:
        """Remove the gauges of this process: the new leader reports them."""
        self._metrics.usage_lateness.clear()
        self._metrics.containers_without_samples.clear()

    async def save(self, now: float) -> None:
        """Save the learned state to the store."""
        await self.cohorts.save(now, lock=self.lock)
        self._saved_at = now
