"""Ingest usage from one source: read it step by step and feed its cohorts.

A cohort that is new, or that missed some time, first ingests the source's history in parts, so that no read is large. A
read that fails changes nothing: the next cycle asks for the same step again, and `last_error` holds the reason.

Samples may arrive late. A step is ingested once, when no more samples of it are expected (`usage.lateness`) or when they
are later than `IngestSchedule.max_lateness`; until then every cycle reads it again. Samples of incomplete steps count as
evidence at once, without being ingested, so that a peak takes effect immediately (`pending_evidence`).

`recommender` owns the cohorts and answers from them; `cohort_store` places containers and saves the cohorts.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import structlog
from prometheus_client import Counter, Gauge, Histogram

from trimtab.aio import run_in_thread
from trimtab.kube.kinds.nodes import NodeResources
from trimtab.memory_trim import release_compiler_memory
from trimtab.recommender.cohort import AnyCohort, StrategySpec
from trimtab.recommender.cohort_manager import CohortManager, RecentUsage, observe_usage
from trimtab.recommender.cohort_store import Backfill
from trimtab.usage.errors import QueryTooLarge, SourceRefused, UsageError
from trimtab.usage.lateness import SampleTracker, count_complete_steps
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.source import Source, UsageQuery
from trimtab.usage.usage import PodContainer, Usage, mask_implausible

log = structlog.get_logger(__name__)


class IngestMetrics(Protocol):
    """The metrics that an ingester reports."""

    @property
    def metrics_collection_duration(self) -> Histogram:
        """The seconds that a read took, by source."""
        ...

    @property
    def usage_lateness(self) -> Gauge:
        """The age of the newest ingested step, by source."""
        ...

    @property
    def containers_without_samples(self) -> Gauge:
        """The number of running containers without recent samples, by source."""
        ...

    @property
    def reconciliation_errors(self) -> Counter:
        """The number of failures, by error type."""
        ...


class SourceLifecycle(Protocol):
    """Opens sources at their first use, and closes those that are not used any more."""

    @property
    def configured(self) -> Collection[str]:
        """The names of the sources that stay open without any policy."""
        ...

    async def open(self, name: str) -> None:
        """Open a source, unless it is open."""
        ...

    async def close(self, name: str) -> None:
        """Close a source and forget it."""
        ...


CPU_RATE_TOLERANCE = 1.25
"""The factor by which a plausible CPU rate may exceed the largest node, because rates are extrapolated to their window."""
CURRENT = 5
"""The number of steps for which a sample counts as current."""
UNSAMPLED_AFTER = 900.0
"""The seconds without a sample after which a running container is reported. By then it is no longer sized."""


@dataclass(frozen=True, slots=True)
class IngestSchedule:
    """The times at which usage is read, in seconds."""

    step: float = 60.0
    """The seconds between two current samples."""
    backfill_step: float = 300.0
    """The seconds between two samples of history."""
    backfill_period: float = 8 * 86400.0
    """The seconds of history that a new cohort ingests."""
    backfill_read_period: float = 86400.0
    """The most seconds of history per read. Servers answer a few long reads for a fraction of what many short ones cost."""
    backfill_read_samples: int = 1_200_000
    """The most samples of one resource per read of history: an hour of 100,000 containers, 30 MB and as much again in
    transit."""
    min_backfill_age: float = 3600.0
    """The age in seconds below which a container has no history worth reading."""
    retention: float = 86400.0
    """The seconds for which the state of a deleted container is kept."""
    save_interval: float = 600.0
    """The seconds between two saves to the store."""
    max_lateness: float = 1800.0
    """The seconds by which samples may arrive late and still be ingested."""


class _ReadWindow(NamedTuple):
    """The steps that are read next."""

    begin: float
    last: float
    step: float
    is_backfill: bool
    """True for history: coarse steps, older than any late sample may be, that nobody observed."""

    def to_query(self, namespaces: Iterable[str], *, before: float = 0.0) -> UsageQuery:
        """Return the query for this window, extended by some seconds before it."""
        return UsageQuery(
            start=self.begin - before,
            end=self.last + self.step,
            step=self.step,
            namespaces=tuple(sorted(namespaces)),
            include_ooms=self.is_backfill,  # pods report current OOM kills themselves
        )


class IngestContext(NamedTuple):
    """The state of the cluster during a read of usage."""

    owners: Callable[[], PodOwnerIndex]
    """Builds the index of owners. It is called only after the read: the index is large and need not be held meanwhile."""
    tracked: Collection[WorkloadContainer]
    """The containers that are fed from the source."""
    running: Collection[WorkloadContainer]
    """The containers that should have samples."""
    pods: Mapping[PodContainer, float] | None = None
    """The same by pod, each with its start time; if None, those whose workload container is in `running`."""
    largest_node: NodeResources | None = None
    """The largest node at present. Samples above the capacity of the largest node ever seen are dropped."""


class SourceIngester:
    """Reads one source and feeds the cohorts of a cluster that belong to it."""

    def __init__(
        self,
        key: str,
        source: Source[Any],
        cohorts: CohortManager,
        *,
        schedule: IngestSchedule,
        metrics: IngestMetrics,
        lock: asyncio.Lock,
        lifecycle: SourceLifecycle | None = None,
    ) -> None:
        """Create the ingester of a source; `key` is its name in strategy specs, and `lock` that of the cohorts.

        Without a `lifecycle` the source is open.
        """
        self.name = key or source.name
        """The source's name, as users know it."""
        self.source = source
        self._key = key
        self._cohorts = cohorts
        self._schedule = schedule
        self._metrics = metrics
        self._lock = lock
        self._lifecycle = lifecycle
        self._warmed_up: set[StrategySpec] = set()
        self._failed_strategies: set[StrategySpec] = set()
        """The specs whose strategy ever failed outside ingestion."""
        self._failed_ingestions: set[StrategySpec] = set()
        """The specs whose strategy failed on the last ingestion."""
        self._largest_node = NodeResources(cpu=0, memory=0)
        """The largest CPU and the largest memory capacity that any node has had since the start."""
        self._namespaces: tuple[str, ...] = ()
        """The namespaces of the containers that were tracked in the last cycle."""
        self.last_error = ""
        """The reason why the last cycle could not read the source; empty if it could."""
        self.last_read_at: float | None = None
        """The Unix time of the last successful read; None before the first one."""
        self._sample_times = SampleTracker()
        self.recent_usage = RecentUsage()
        """The usage in the steps that are not ingested yet, because more samples of them may arrive."""
        self.unsampled: tuple[PodContainer, ...] = ()
        """The tracked, running containers without a sample for `UNSAMPLED_AFTER` seconds."""

    @property
    def first_sample_at(self) -> float | None:
        """The Unix time of the first ingested sample; None if there is none yet."""
        firsts = [cohort.first_sample_at() for cohort in self._cohorts.iter_evidence(self._key)]
        return min((first for first in firsts if first is not None), default=None)

    async def ingest(self, now: float, context: IngestContext) -> None:
        """Bring every cohort up to the last complete step; `last_error` tells if that failed."""
        self._namespaces = tuple(sorted({name.namespace for name in context.tracked}))
        if (node := context.largest_node) is not None:
            largest = self._largest_node
            # The largest ever, not the largest now: a node pool may be scaled to zero while its samples are still read.
            self._largest_node = NodeResources(
                cpu=max(node.cpu, largest.cpu), memory=max(node.memory, largest.memory)
            )
        try:
            if self._lifecycle:
                await self._lifecycle.open(self._key)
            await self._catch_up(now, context)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything, and must not stop the other sources
            self._record_error(error)
            return
        if self.last_error:
            log.info("usage.source_recovered", source=self.name)
        self.last_error = ""
        self.last_read_at = now
        self._metrics.containers_without_samples.labels(self.name).set(len(self.unsampled))
        if times := [cohort.ingested_until for cohort in self._own_cohorts() if len(cohort)]:
            self._metrics.usage_lateness.labels(self.name).set(max(now - min(times), 0.0))

    async def close(self) -> None:
        """Close the source, which no policy names any more, and remove its gauges."""
        for gauge in (self._metrics.containers_without_samples, self._metrics.usage_lateness):
            gauge.remove(self.name)
        if self._lifecycle is None:
            return
        try:
            await self._lifecycle.close(self._key)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything, and must not stop the other sources
            log.warning("usage.source_not_closed", source=self.name, error=repr(error))

    def _own_cohorts(self) -> list[AnyCohort]:
        return list(self._cohorts.iter_source(self._key))

    def _record_error(self, error: Exception) -> None:
        # A plugin may raise anything: only its unexpected errors get a traceback, and the same error is logged once.
        expected = isinstance(error, UsageError)
        reason = str(error) if expected else f"{self.name} failed: {error!r}"
        if reason != self.last_error:
            log.warning(
                "usage.source_unavailable",
                source=self.name,
                error=reason,
                exc_info=None if expected else error,
            )
        self.last_error = reason
        self._metrics.reconciliation_errors.labels("", type(error).__name__).inc()

    def plan_backfill(self, now: float) -> Backfill:
        """Return the history that new containers ingest first."""
        has_history = self.source.capabilities.history
        start = now - (self._schedule.backfill_period if has_history else self._schedule.step)
        return Backfill(
            start // self._schedule.backfill_step * self._schedule.backfill_step, is_available=has_history
        )

    async def _catch_up(self, now: float, context: IngestContext) -> None:
        """Feed each cohort the steps that it has not ingested; cohorts at the same time share a read."""
        if self.last_read_at is None:
            await self.source.check()  # some sources detect their capabilities only here
        await self._warm_up()
        end = self._last_step(now)
        horizon = max(self._schedule.backfill_period, self._schedule.max_lateness)
        # After a long outage only as much history is read as a new container gets: more would delay present samples.
        for cohort in self._own_cohorts():
            if now - cohort.ingested_until > horizon:
                cohort.ingested_until = (
                    (now - horizon) // self._schedule.backfill_step * self._schedule.backfill_step
                )
        fed: set[StrategySpec] = set()
        failed: set[StrategySpec] = set()
        done: set[AnyCohort] = set()
        while behind := [
            cohort
            for cohort in self._own_cohorts()
            if cohort.ingested_until < end and len(cohort) and cohort not in done
        ]:
            by_time: dict[float, list[AnyCohort]] = defaultdict(list)
            for cohort in behind:
                by_time[cohort.ingested_until].append(cohort)
            # The cohorts furthest behind come first: once they have caught up, they share the reads of the others.
            until, cohorts = min(by_time.items())
            fed.update(cohort.strategy_spec for cohort in cohorts)
            read = self._next_read(
                until, now, containers=max(len(context.pods or ()), len(context.tracked), 1)
            )
            failed |= await self._read_for_cohorts(read, now, cohorts, context)
            if not read.is_backfill:  # steps that are still not ingested are incomplete
                done.update(cohorts)
        for spec in self._failed_ingestions & (fed - failed):
            self._failed_ingestions.remove(spec)
            log.info("recommender.strategy_recovered", strategy=spec.strategy)

    @property
    def current(self) -> float:
        """The seconds for which a sample counts as current."""
        return CURRENT * self._schedule.step + (self.source.capabilities.final_after or 0.0)

    async def read_present(self, now: float) -> Usage:
        """Read the latest usage of every container in the cluster, tracked or not, without ingesting it.

        If the source refuses that query, read only the namespaces of tracked containers. No lock is taken: the dashboard
        reads too, and must never wait for an ingestion, nor delay one.
        """
        query = replace(UsageQuery.last(self.current, now=now, step=self._schedule.step), include_ooms=False)
        try:
            usage = await self.source.read(query)
        # A server with limits per query or tenant may refuse the whole cluster and still answer for single namespaces.
        except (SourceRefused, QueryTooLarge):
            if not self._namespaces:
                raise
            usage = await self.source.read(replace(query, namespaces=self._namespaces))
        return _drop_impossible(usage, self._largest_node)

    def _last_step(self, now: float) -> float:
        """Return the last step that may have all its samples by now."""
        step = self._schedule.step
        return (now - (self.source.capabilities.final_after or 0.0)) // step * step

    def _last_final_step(self, now: float) -> float:
        """Return the last step that is ingested even if samples are missing."""
        capabilities, step = self.source.capabilities, self._schedule.step
        waits = capabilities.history and capabilities.final_after is None
        return (now - self._schedule.max_lateness) // step * step if waits else self._last_step(now)

    def _next_read(self, until: float, now: float, *, containers: int) -> _ReadWindow:
        """Return the next window after a time: coarse steps while they are final, then fine ones up to now.

        The fewer containers, the longer the windows of history.
        """
        schedule, end, final = self._schedule, self._last_step(now), self._last_final_step(now)
        if not self.source.capabilities.history:
            return _ReadWindow(end, end, schedule.step, is_backfill=False)
        # Start on the fine grid wherever the coarse steps begin, so that no step contains samples ingested before.
        start = until // schedule.step * schedule.step
        if final - start > 2 * schedule.backfill_step:
            period = min(schedule.backfill_read_period, final - start)
            steps = max(
                1, min(period // schedule.backfill_step, schedule.backfill_read_samples // containers)
            )
            last = start + steps * schedule.backfill_step
            return _ReadWindow(start + schedule.backfill_step, last, schedule.backfill_step, is_backfill=True)
        return _ReadWindow(start + schedule.step, end, schedule.step, is_backfill=False)

    async def _warm_up(self) -> None:
        """Warm up new strategies, then release the memory that their compilation took."""
        new = {
            cohort.strategy_spec: cohort
            for cohort in self._own_cohorts()
            if cohort.strategy_spec not in self._warmed_up
        }
        for cohort in new.values():
            try:
                await asyncio.to_thread(cohort.warm_up)
            except Exception as error:  # noqa: BLE001 - a strategy may be a plugin and raise anything
                self.record_failure(cohort.strategy_spec, error)
            self._warmed_up.add(cohort.strategy_spec)
        if new:
            release_compiler_memory()

    async def _read_for_cohorts(
        self, read: _ReadWindow, now: float, cohorts: list[AnyCohort], context: IngestContext
    ) -> set[StrategySpec]:
        """Make one read for cohorts at the same time, and return the specs whose strategy failed on it."""
        # After a restart the tracker is empty: one longer read finds the containers that had samples before.
        before = 0.0
        has_history = self.source.capabilities.history
        if has_history and not read.is_backfill and not len(self._sample_times):
            before = self._schedule.max_lateness // read.step * read.step
        namespaces = {name.namespace for cohort in cohorts for name in cohort}
        with self._metrics.metrics_collection_duration.labels(self.name).time():
            usage = await self.source.read(read.to_query(namespaces, before=before))
        if not read.is_backfill:  # the nodes of the past, from before this process started, are unknown
            usage = _drop_impossible(usage, self._largest_node)
        # If this task is cancelled, it waits for the thread: a state saved meanwhile would lose the rest of the read.
        async with self._lock:
            failed = await run_in_thread(
                self._observe_usage, usage, read, round(before / read.step), cohorts, now, context
            )
        for spec, error in failed.items():
            self.record_failure(spec, error, among=self._failed_ingestions)
        return set(failed)

    def _observe_usage(
        self,
        usage: Usage,
        read: _ReadWindow,
        known: int,
        cohorts: list[AnyCohort],
        now: float,
        context: IngestContext,
    ) -> dict[StrategySpec, Exception]:
        """Ingest the complete steps of a read after the first `known` ones, and keep the rest as pending evidence."""
        owners = context.owners()
        forget = now - max(self._schedule.max_lateness, UNSAMPLED_AFTER)
        if read.is_backfill:
            self._sample_times.record(usage, expire_before=forget, coarse=True)
            sample_weight = max(1, round(usage.step / self._schedule.step))
            return observe_usage(
                cohorts, usage, owners, running=None, until=self._last_step(now), sample_weight=sample_weight
            )
        self._sample_times.record(usage.slice_steps(0, known), expire_before=forget)
        usage = usage.slice_steps(known, usage.steps)
        expected = self._expected_containers(usage, owners, context)
        complete = count_complete_steps(
            usage,
            running=expected,
            tracker=self._sample_times,
            final_until=self._last_final_step(now),
            atomic_steps=self.source.capabilities.atomic_steps,
        )
        failed: dict[StrategySpec, Exception] = {}
        if complete:
            ingested = usage.slice_steps(0, complete)
            # A step is ingested once, when it is complete. A source that is minutes behind (remote write, Mimir, Thanos) would
            # otherwise have each step read while it is still empty.
            failed = observe_usage(
                cohorts, ingested, owners, running=context.running, until=self._last_step(now)
            )
            self._sample_times.record(ingested, expire_before=forget)
        rest = usage.slice_steps(complete, usage.steps)
        self._sample_times.record_incomplete(rest)
        self.recent_usage = RecentUsage.from_usage(rest, owners)
        self.unsampled = self._find_unsampled(usage, owners, context, now)
        return failed

    def _expected_containers(
        self, usage: Usage, owners: PodOwnerIndex, context: IngestContext
    ) -> Mapping[PodContainer, float]:
        """Return the containers of pods that should have samples, each with its start time."""
        if context.pods is not None:
            return context.pods

        def is_running(name: PodContainer) -> bool:
            workload = owners.find_workload(name.namespace, name.pod)
            return (
                workload is not None
                and WorkloadContainer.from_workload(workload, name.container) in context.running
            )

        return {name: -math.inf for name in {*usage.containers, *self._sample_times} if is_running(name)}

    def _find_unsampled(
        self, usage: Usage, owners: PodOwnerIndex, context: IngestContext, now: float
    ) -> tuple[PodContainer, ...]:
        """Find the tracked containers that run but have had no sample for a long time."""
        silent_here = np.flatnonzero((np.isnan(usage.cpu) & np.isnan(usage.memory)).all(axis=0))
        sampled = {*usage.containers} - {usage.containers[column] for column in silent_here}
        long_ago = now - UNSAMPLED_AFTER
        silent = [
            name
            for name, since in (context.pods or {}).items()
            if since < long_ago
            and name not in sampled
            and self._sample_times.last_sample_times([name])[0] < long_ago
        ]
        return tuple(
            name
            for name in silent
            if (workload := owners.find_workload(name.namespace, name.pod))
            and WorkloadContainer.from_workload(workload, name.container) in context.tracked
        )

    def record_failure(
        self, strategy_spec: StrategySpec, error: Exception, *, among: set[StrategySpec] | None = None
    ) -> None:
        """Count a strategy's failure and log the first one. Other strategies are not affected."""
        known = self._failed_strategies if among is None else among
        self._metrics.reconciliation_errors.labels("", type(error).__name__).inc()
        if strategy_spec not in known:
            known.add(strategy_spec)
            log.warning("recommender.strategy_failed", strategy=strategy_spec.strategy, exc_info=error)


def _drop_impossible(usage: Usage, largest_node: NodeResources) -> Usage:
    """Drop samples above the largest node's capacity: a single one would be the peak of a whole day."""
    if not (largest_node.cpu and largest_node.memory):
        return usage
    cpu, memory = largest_node.cpu / 1000 * CPU_RATE_TOLERANCE, float(largest_node.memory)
    if np.nanmax(usage.cpu, initial=0.0) <= cpu and np.nanmax(usage.memory, initial=0.0) <= memory:
        return usage  # nearly always; a copy would double the memory held
    return replace(
        usage,
        cpu=mask_implausible(usage.cpu.copy(), maximum=cpu),
        memory=mask_implausible(usage.memory.copy(), maximum=memory),
    )
