"""Learning from one source: usage is read step by step and shown to the cohorts, who `cohorts` has put together.

A cohort that is new, or was away, is first shown the past as far as the source knows it, in parts, so that no read is
large. A read that fails leaves everything as it was: the same step is asked for again at the next turn, and whoever
asks is told since when nothing was heard (`trouble`).

Samples may reach a source late. A step is learned from once, when no more samples of it are expected (`usage.lateness`)
or when they are later than `Pace.lateness`; until then it is read again at each turn. What was seen of steps that are
not complete yet counts as evidence at once, without being learned: a peak need not wait (`recent`).

What was learned is saved now and then. Left out: which source a workload is learned from (`learning`).
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
from trimtab.recommender.cohort import AnyCohort, ContainerEstimate, LatestUsage, StrategyCohort, StrategySpec
from trimtab.recommender.cohort_manager import Backfill, CohortManager, TrackedContainer
from trimtab.recommender.oom_kills import MemorySize, OomKill
from trimtab.recommender.pending_evidence import RecentUsage
from trimtab.store import Store
from trimtab.usage.errors import QueryTooLarge, SourceRefused, UsageError
from trimtab.usage.lateness import SampleTracker, count_complete_steps
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.source import Source, UsageQuery
from trimtab.usage.usage import PodContainer, Usage, mask_implausible
from trimtab.usage.workload_usage import WorkloadUsage

log = structlog.get_logger(__name__)


class IngestMetrics(Protocol):
    """The metrics that ingesting usage reports to."""

    @property
    def metrics_collection_duration(self) -> Histogram: ...

    @property
    def usage_lateness(self) -> Gauge: ...

    @property
    def containers_without_samples(self) -> Gauge: ...

    @property
    def reconciliation_errors(self) -> Counter: ...


CPU_RATE_TOLERANCE = 1.25
"""Times the CPU of the largest machine: a rate is drawn out to the ends of its window, and so may be a little more."""
CURRENT = 5
"""Steps for which a sample tells of the present."""
UNSAMPLED_AFTER = 900.0
"""Seconds without a sample after which a container that runs is reported: it is no longer sized then."""


@dataclass(frozen=True, slots=True)
class IngestSchedule:
    """How usage is read, in seconds."""

    step: float = 60.0
    """Between two samples of the present,"""
    backfill_step: float = 300.0
    """and of the past."""
    backfill_period: float = 8 * 86400.0
    """How much of the past is shown to a cohort that is new."""
    backfill_read_period: float = 3600.0
    """How much of it is read at once: of 100,000 containers this is 30 MB, and as much again on its way here."""
    min_backfill_age: float = 3600.0
    """Who is younger has no past worth reading."""
    retention: float = 86400.0
    """How long what was learned of a container is kept when it is gone."""
    save_interval: float = 600.0
    max_lateness: float = 1800.0
    """How late samples may reach the source and still be learned from."""


class _ReadWindow(NamedTuple):
    """The steps that are read next."""

    begin: float
    last: float
    step: float
    is_backfill: bool
    """Whether they are of a past that nobody watched, in coarse steps, and older than any sample may be late."""

    def to_query(self, namespaces: Iterable[str], *, before: float = 0.0) -> UsageQuery:
        """Put it as a question, from some seconds before on."""
        return UsageQuery(
            start=self.begin - before,
            end=self.last + self.step,
            step=self.step,
            namespaces=tuple(sorted(namespaces)),
            include_ooms=self.is_backfill,  # of those of the present the pods tell
        )


class _IngestContext(NamedTuple):
    """What is known of the cluster when usage is read."""

    owners: Callable[[], PodOwnerIndex]
    tracked: Collection[WorkloadContainer]
    running: Collection[WorkloadContainer]
    pods: Mapping[PodContainer, float] | None


class SourceIngester:
    """All cohorts of a cluster that learn from one source."""

    def __init__(
        self,
        source: Source[Any],
        store: Store,
        *,
        cluster: str,
        schedule: IngestSchedule | None = None,
        metrics: IngestMetrics,
        name: str = "",
        lock: asyncio.Lock | None = None,
    ) -> None:
        self.name = name or source.name
        """What users call the source."""
        self.source = source
        self._schedule = schedule or IngestSchedule()
        self._metrics = metrics
        self._cohorts = CohortManager(
            store,
            cluster=cluster,
            min_backfill_age=self._schedule.min_backfill_age,
            retention=self._schedule.retention,
            on_failure=self._record_failure,
        )
        self._warmed_up: set[StrategySpec] = set()
        self._failed_strategies: set[StrategySpec] = set()
        """Whose strategy failed at something else than learning, ever,"""
        self._failed_ingestions: set[StrategySpec] = set()
        """and at learning, when it was last shown anything."""
        self._saved_at = float("-inf")
        self._largest_node = NodeResources(cpu=0, memory=0)
        """The most CPU and the most memory that any node has had while this was watched."""
        self.lock = lock or asyncio.Lock()
        """Held while cohorts learn, which is done in a thread: who asks them anything holds it too."""
        self.last_error = ""
        """Why nothing could be read at the last turn; empty when it could."""
        self.last_read_at: float | None = None
        """When usage was last read."""
        self._sample_times = SampleTracker()
        self._recent_usage = RecentUsage()
        self.unsampled: tuple[PodContainer, ...] = ()
        """The containers of pods that run, are wanted, and have had no sample for `UNSAMPLED` seconds."""

    def find_cohort(self, name: WorkloadContainer, strategy_spec: StrategySpec) -> StrategyCohort | None:
        return self._cohorts.find(name, strategy_spec)

    def estimate(
        self, name: WorkloadContainer, strategy_spec: StrategySpec, *, now: float, is_long_running: bool
    ) -> ContainerEstimate | None:
        """What is known of a container; None when it is not learned of yet."""
        cohort, seen = self.find_cohort(name, strategy_spec), self._cohorts.find_evidence(name)
        if cohort is None or seen is None:
            return None
        evidence = seen.get_evidence(name, now=now, is_long_running=is_long_running)
        return ContainerEstimate(
            cohort.get_proposal(name, now=now),
            self._recent_usage.add_to(evidence, name, after=seen.ingested_until),
        )

    def latest_usage(self, name: WorkloadContainer, strategy_spec: StrategySpec) -> LatestUsage | None:
        """What a container used when it was last sampled; None when it is not learned of yet."""
        seen = self._cohorts.find_evidence(name)
        if seen is None or self.find_cohort(name, strategy_spec) is None:
            return None
        return self._recent_usage.latest_usage(name, after=seen.ingested_until) or seen.latest_usage(name)

    def observe_ooms(self, ooms: Iterable[OomKill]) -> set[OomKill]:
        """Take in kills at once, not only at the next turn; the answer is those that nobody knew of."""
        found = set(ooms)
        if not found:
            return found
        new = {kill for cohort in self._cohorts.evidence_cohorts for kill in cohort.observe_ooms(found)}
        for cohort in self._cohorts.strategy_cohorts if new else ():
            cohort.observe_ooms(new)
        return new

    def observe_sizes(self, sizes: Collection[MemorySize], *, now: float) -> None:
        """Note the memory that containers have in effect: before their kills, which hit these sizes."""
        for cohort in self._cohorts.evidence_cohorts:
            cohort.observe_sizes(sizes, now=now)

    @property
    def first_sample_at(self) -> float | None:
        """The time of the first sample that was learned from; None where there was none yet."""
        firsts = [cohort.table.first_sample_at() for cohort in self._cohorts.evidence_cohorts]
        return min((first for first in firsts if first is not None), default=None)

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
        """Bring every cohort up to the last step that is complete by now; the answer is those that are learned of since now.

        Whose usage it is is asked only once that was read: with all their names, owners are not held meanwhile. `pods` are
        the containers that should have samples, and since when they run; where it is None, those of which `running` has the
        workload's container. What is more than any node has had, of which `machine` is the largest now, is not believed.
        """
        if largest_node is not None:
            largest = self._largest_node
            self._largest_node = NodeResources(
                cpu=max(largest_node.cpu, largest.cpu), memory=max(largest_node.memory, largest.memory)
            )
        async with self.lock:
            new = await self._cohorts.assign(tracked, now=now, backfill=self._plan_backfill(now))
        try:
            await self._catch_up(now, _IngestContext(owners, tracked.keys(), running, pods))
        except Exception as error:  # noqa: BLE001 - a plugin may fail in ways of its own, and must not end the rest
            self._record_error(error)
        else:
            if self.last_error:
                log.info("usage.back", source=self.name)
            self.last_error = ""
            self.last_read_at = now
            self._metrics.containers_without_samples.labels(self.name).set(len(self.unsampled))
            if learned := [cohort.ingested_until for cohort in self._cohorts if len(cohort.table)]:
                self._metrics.usage_lateness.labels(self.name).set(max(now - min(learned), 0.0))
        if not 0 <= now - self._saved_at < self._schedule.save_interval:  # also when the clock was set back
            await self.save(now)
        return new

    def _record_error(self, error: Exception) -> None:
        expected = isinstance(error, UsageError)
        trouble = str(error) if expected else f"{self.name} failed: {error!r}"
        if trouble != self.last_error:
            log.warning("usage.away", source=self.name, error=trouble, exc_info=None if expected else error)
        self.last_error = trouble
        self._metrics.reconciliation_errors.labels("", type(error).__name__).inc()

    def _plan_backfill(self, now: float) -> Backfill:
        """From when on newcomers are shown what they used."""
        knows = self.source.capabilities.history
        begins = now - (self._schedule.backfill_period if knows else self._schedule.step)
        return Backfill(
            begins // self._schedule.backfill_step * self._schedule.backfill_step, is_available=knows
        )

    async def save(self, now: float) -> None:
        """Keep what was learned."""
        await self._cohorts.save(now, lock=self.lock)
        self._saved_at = now

    # Reading

    async def _catch_up(self, now: float, around: _IngestContext) -> None:
        """Show each cohort what it has not seen; those that stand at the same time share a read."""
        if self.last_read_at is None:
            await self.source.check()  # some find out only now what they can know
        await self._warm_up()
        end = self._last_step(now)
        reach = max(self._schedule.backfill_period, self._schedule.max_lateness)
        for cohort in self._cohorts:
            if now - cohort.ingested_until > reach:
                cohort.ingested_until = (
                    (now - reach) // self._schedule.backfill_step * self._schedule.backfill_step
                )
        shown: set[StrategySpec] = set()
        failed: set[StrategySpec] = set()
        done: set[AnyCohort] = set()
        while behind := [
            cohort
            for cohort in self._cohorts
            if cohort.ingested_until < end and len(cohort.table) and cohort not in done
        ]:
            by_time: dict[float, list[AnyCohort]] = defaultdict(list)
            for cohort in behind:
                by_time[cohort.ingested_until].append(cohort)
            until, cohorts = min(by_time.items())
            shown.update(cohort.strategy_spec for cohort in cohorts)
            read = self._next_read(until, now)
            failed |= await self._read_for_cohorts(read, now, cohorts, around)
            if not read.is_backfill:  # what it has not learned from by now is not complete
                done.update(cohorts)
        for sizing in self._failed_ingestions & (shown - failed):
            self._failed_ingestions.remove(sizing)
            log.info("learning.strategy_back", strategy=sizing.strategy)

    @property
    def current(self) -> float:
        """Seconds for which a sample tells of the present."""
        return CURRENT * self._schedule.step + self.source.capabilities.publish_delay

    async def read_present(self, now: float) -> Usage:
        """Read what every container of the cluster used in the last steps, learned of or not, and learn nothing from it.

        Where the source refuses that, those namespaces are read that are learned of.
        """
        ask = replace(UsageQuery.last(self.current, now=now, step=self._schedule.step), include_ooms=False)
        try:
            usage = await self.source.read(ask)
        except (SourceRefused, QueryTooLarge):
            async with self.lock:
                own = {name.namespace for cohort in self._cohorts.evidence_cohorts for name in cohort.table}
            if not own:
                raise
            usage = await self.source.read(replace(ask, namespaces=tuple(sorted(own))))
        return _drop_impossible(usage, self._largest_node)

    def _last_step(self, now: float) -> float:
        """Return the last step that may have all its samples by now."""
        step, knows = self._schedule.step, self.source.capabilities
        return (now - (step + knows.publish_delay if knows.polled else 0.0)) // step * step

    def _last_final_step(self, now: float) -> float:
        """Return the last step of which no more samples are waited for, whatever it lacks."""
        knows, step = self.source.capabilities, self._schedule.step
        waits = knows.history and not knows.polled
        return (now - self._schedule.max_lateness) // step * step if waits else self._last_step(now)

    def _next_read(self, until: float, now: float) -> _ReadWindow:
        """Return what comes after a time: the past in coarse steps as far as it is sure, then the present in fine ones."""
        pace, end, sure = self._schedule, self._last_step(now), self._last_final_step(now)
        if not self.source.capabilities.history:
            return _ReadWindow(end, end, pace.step, is_backfill=False)
        # On the fine grid, wherever the coarse steps begin: so none has what was learned before.
        begun = until // pace.step * pace.step
        if sure - begun > 2 * pace.backfill_step:
            steps = min(pace.backfill_read_period, sure - begun) // pace.backfill_step
            last = begun + steps * pace.backfill_step
            return _ReadWindow(begun + pace.backfill_step, last, pace.backfill_step, is_backfill=True)
        return _ReadWindow(begun + pace.step, end, pace.step, is_backfill=False)

    async def _warm_up(self) -> None:
        """Have the strategies ready that are new, and let go of what it took to make them so."""
        new = {
            cohort.strategy_spec: cohort
            for cohort in self._cohorts
            if cohort.strategy_spec not in self._warmed_up
        }
        for cohort in new.values():
            try:
                await asyncio.to_thread(cohort.warm_up)
            except Exception as error:  # noqa: BLE001 - as when it learns
                self._record_failure(cohort.strategy_spec, error)
            self._warmed_up.add(cohort.strategy_spec)
        if new:
            release_compiler_memory()

    async def _read_for_cohorts(
        self, read: _ReadWindow, now: float, cohorts: list[AnyCohort], around: _IngestContext
    ) -> set[StrategySpec]:
        """Make one read for cohorts that stand at the same time; the answer is whose strategy failed at it."""
        # After a restart it is not known who had samples before: that is looked up once.
        knows = self.source.capabilities
        before = 0.0
        if knows.history and not read.is_backfill and not len(self._sample_times):
            before = self._schedule.max_lateness // read.step * read.step
        namespaces = {name.namespace for cohort in cohorts for name in cohort.table}
        with self._metrics.metrics_collection_duration.labels(self.name).time():
            usage = await self.source.read(read.to_query(namespaces, before=before))
        if not read.is_backfill:  # which nodes there were before we watched, the source may know: we do not
            usage = _drop_impossible(usage, self._largest_node)
        async with self.lock:
            failed = await run_in_thread(
                self._observe_usage, usage, read, round(before / read.step), cohorts, now, around
            )
        for sizing, error in failed.items():
            self._record_failure(sizing, error, among=self._failed_ingestions)
        return set(failed)

    def _observe_usage(
        self,
        usage: Usage,
        read: _ReadWindow,
        known: int,
        cohorts: list[AnyCohort],
        now: float,
        around: _IngestContext,
    ) -> dict[StrategySpec, Exception]:
        """Learn from the steps of a read that are complete, without the first, which are `known`; note what the others say."""
        owners = around.owners()
        forget = now - max(self._schedule.max_lateness, UNSAMPLED_AFTER)
        if read.is_backfill:
            self._sample_times.record(usage, expire_before=forget, coarse=True)
            stands_for = max(1, round(usage.step / self._schedule.step))
            return _observe_in_cohorts(
                cohorts, usage, owners, running=None, until=self._last_step(now), stands_for=stands_for
            )
        self._sample_times.record(usage.slice_steps(0, known), expire_before=forget)
        usage = usage.slice_steps(known, usage.steps)
        expected = self._expected_containers(usage, owners, around)
        complete = count_complete_steps(
            usage,
            running=expected,
            tracker=self._sample_times,
            final_until=self._last_final_step(now),
            atomic_steps=self.source.capabilities.atomic_steps,
        )
        failed: dict[StrategySpec, Exception] = {}
        if complete:
            learned = usage.slice_steps(0, complete)
            failed = _observe_in_cohorts(
                cohorts, learned, owners, running=around.running, until=self._last_step(now)
            )
            self._sample_times.record(learned, expire_before=forget)
        rest = usage.slice_steps(complete, usage.steps)
        self._sample_times.record_incomplete(rest)
        self._recent_usage = RecentUsage.from_usage(rest, owners)
        self.unsampled = self._find_unsampled(usage, owners, around, now)
        return failed

    def _expected_containers(
        self, usage: Usage, owners: PodOwnerIndex, around: _IngestContext
    ) -> Mapping[PodContainer, float]:
        """Return the containers of pods that should have samples, and since when they run."""
        if around.pods is not None:
            return around.pods

        def runs(name: PodContainer) -> bool:
            workload = owners.find_workload(name.namespace, name.pod)
            return (
                workload is not None
                and WorkloadContainer.from_workload(workload, name.container) in around.running
            )

        return {name: -math.inf for name in {*usage.containers, *self._sample_times} if runs(name)}

    def _find_unsampled(
        self, usage: Usage, owners: PodOwnerIndex, around: _IngestContext, now: float
    ) -> tuple[PodContainer, ...]:
        """Find the containers that run and are to be learned of, but have had no sample for long."""
        silent_here = np.flatnonzero((np.isnan(usage.cpu) & np.isnan(usage.memory)).all(axis=0))
        sampled = {*usage.containers} - {usage.containers[column] for column in silent_here}
        long_ago = now - UNSAMPLED_AFTER
        silent = [
            name
            for name, since in (around.pods or {}).items()
            if since < long_ago
            and name not in sampled
            and self._sample_times.last_sample_times([name])[0] < long_ago
        ]
        return tuple(
            name
            for name in silent
            if (workload := owners.find_workload(name.namespace, name.pod))
            and WorkloadContainer.from_workload(workload, name.container) in around.tracked
        )

    def _record_failure(
        self, strategy_spec: StrategySpec, error: Exception, *, among: set[StrategySpec] | None = None
    ) -> None:
        """A strategy that fails says nothing of its containers; of the others as much is learned as ever."""
        known = self._failed_strategies if among is None else among
        self._metrics.reconciliation_errors.labels("", type(error).__name__).inc()
        if strategy_spec not in known:
            known.add(strategy_spec)
            log.warning("learning.strategy_failed", strategy=strategy_spec.strategy, exc_info=error)


def _observe_in_cohorts(
    cohorts: Iterable[AnyCohort],
    usage: Usage,
    owners: PodOwnerIndex,
    *,
    running: Collection[WorkloadContainer] | None,
    until: float,
    stands_for: int = 1,
) -> dict[StrategySpec, Exception]:
    """Show a read to each of these, in each form that is wanted made once; the answer is whose strategy failed, and how."""
    forms: dict[object, WorkloadUsage] = {}
    failed: dict[StrategySpec, Exception] = {}
    for cohort in cohorts:
        if cohort.aggregate not in forms:
            forms[cohort.aggregate] = cohort.aggregate(usage, owners)
        try:
            cohort.observe_usage(
                forms[cohort.aggregate], running=running, until=until, sample_weight=stands_for
            )
        except Exception as error:  # noqa: BLE001 - it may be anybody's, and must not end the rest
            failed[cohort.strategy_spec] = error
            cohort.clear_estimates()
    return failed


def _drop_impossible(usage: Usage, largest_node: NodeResources) -> Usage:
    """Drop what is more than the largest machine has: one such sample would be a day's peak."""
    if not (largest_node.cpu and largest_node.memory):
        return usage
    cpu, memory = largest_node.cpu / 1000 * CPU_RATE_TOLERANCE, float(largest_node.memory)
    if np.nanmax(usage.cpu, initial=0.0) <= cpu and np.nanmax(usage.memory, initial=0.0) <= memory:
        return usage  # as nearly always: a copy would be the most that is held
    return replace(
        usage,
        cpu=mask_implausible(usage.cpu.copy(), maximum=cpu),
        memory=mask_implausible(usage.memory.copy(), maximum=memory),
    )
