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

from trimtab.aio import in_thread
from trimtab.kube.kinds.nodes import Room
from trimtab.memory_trim import let_go_of_llvm
from trimtab.recommender.cohort import AnyCohort, Learned, Sizing, StrategyCohort, Used
from trimtab.recommender.cohort_manager import Cohorts, Past, Want
from trimtab.recommender.oom_kills import Kill, MemorySize
from trimtab.recommender.pending_evidence import Recent
from trimtab.store import Store
from trimtab.usage.errors import SourceRefused, TooMuchAsked, UsageError
from trimtab.usage.lateness import Sightings, complete_steps
from trimtab.usage.pod_ownership import Owners, WorkloadContainer
from trimtab.usage.source import Ask, Source
from trimtab.usage.usage import PodContainer, Usage, plausible
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


GLITCH = 1.25
"""Times the CPU of the largest machine: a rate is drawn out to the ends of its window, and so may be a little more."""
CURRENT = 5
"""Steps for which a sample tells of the present."""
UNSAMPLED = 900.0
"""Seconds without a sample after which a container that runs is reported: it is no longer sized then."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How usage is read, in seconds."""

    step: float = 60.0
    """Between two samples of the present,"""
    past_step: float = 300.0
    """and of the past."""
    past: float = 8 * 86400.0
    """How much of the past is shown to a cohort that is new."""
    part: float = 3600.0
    """How much of it is read at once: of 100,000 containers this is 30 MB, and as much again on its way here."""
    young: float = 3600.0
    """Who is younger has no past worth reading."""
    keep: float = 86400.0
    """How long what was learned of a container is kept when it is gone."""
    save_every: float = 600.0
    lateness: float = 1800.0
    """How late samples may reach the source and still be learned from."""


class _Read(NamedTuple):
    """The steps that are read next."""

    begin: float
    last: float
    step: float
    is_past: bool
    """Whether they are of a past that nobody watched, in coarse steps, and older than any sample may be late."""

    def ask(self, namespaces: Iterable[str], *, before: float = 0.0) -> Ask:
        """Put it as a question, from some seconds before on."""
        return Ask(
            start=self.begin - before,
            end=self.last + self.step,
            step=self.step,
            namespaces=tuple(sorted(namespaces)),
            kills=self.is_past,  # of those of the present the pods tell
        )


class _Around(NamedTuple):
    """What is known of the cluster when usage is read."""

    owners: Callable[[], Owners]
    wanted: Collection[WorkloadContainer]
    running: Collection[WorkloadContainer]
    pods: Mapping[PodContainer, float] | None


class School:
    """All cohorts of a cluster that learn from one source."""

    def __init__(
        self,
        source: Source[Any],
        store: Store,
        *,
        cluster: str,
        pace: Pace | None = None,
        metrics: IngestMetrics,
        name: str = "",
        lock: asyncio.Lock | None = None,
    ) -> None:
        self.name = name or source.name
        """What users call the source."""
        self.source = source
        self._pace = pace or Pace()
        self._metrics = metrics
        self._cohorts = Cohorts(
            store,
            cluster=cluster,
            young=self._pace.young,
            keep=self._pace.keep,
            failed=self._note_failure,
        )
        self._warm: set[Sizing] = set()
        self._failing: set[Sizing] = set()
        """Whose strategy failed at something else than learning, ever,"""
        self._confused: set[Sizing] = set()
        """and at learning, when it was last shown anything."""
        self._saved_at = float("-inf")
        self._largest = Room(cpu=0, memory=0)
        """The most CPU and the most memory that any node has had while this was watched."""
        self.lock = lock or asyncio.Lock()
        """Held while cohorts learn, which is done in a thread: who asks them anything holds it too."""
        self.trouble = ""
        """Why nothing could be read at the last turn; empty when it could."""
        self.heard: float | None = None
        """When usage was last read."""
        self._seen = Sightings()
        self._recent = Recent()
        self.unsampled: tuple[PodContainer, ...] = ()
        """The containers of pods that run, are wanted, and have had no sample for `UNSAMPLED` seconds."""

    def cohort_of(self, name: WorkloadContainer, sizing: Sizing) -> StrategyCohort | None:
        return self._cohorts.of(name, sizing)

    def learned(
        self, name: WorkloadContainer, sizing: Sizing, *, now: float, runs_on: bool
    ) -> Learned | None:
        """What is known of a container; None when it is not learned of yet."""
        cohort, seen = self.cohort_of(name, sizing), self._cohorts.evidence_of(name)
        if cohort is None or seen is None:
            return None
        evidence = seen.evidence(name, now=now, runs_on=runs_on)
        return Learned(
            cohort.proposed(name, now=now), self._recent.added_to(evidence, name, after=seen.until)
        )

    def used(self, name: WorkloadContainer, sizing: Sizing) -> Used | None:
        """What a container used when it was last sampled; None when it is not learned of yet."""
        seen = self._cohorts.evidence_of(name)
        if seen is None or self.cohort_of(name, sizing) is None:
            return None
        return self._recent.used(name, after=seen.until) or seen.used(name)

    def note_kills(self, kills: Iterable[Kill]) -> set[Kill]:
        """Take in kills at once, not only at the next turn; the answer is those that nobody knew of."""
        found = set(kills)
        if not found:
            return found
        new = {kill for cohort in self._cohorts.evidence for kill in cohort.take_in_kills(found)}
        for cohort in self._cohorts.strategies if new else ():
            cohort.take_in_kills(new)
        return new

    def note_sizes(self, sizes: Collection[MemorySize], *, now: float) -> None:
        """Note the memory that containers have in effect: before their kills, which hit these sizes."""
        for cohort in self._cohorts.evidence:
            cohort.take_in_sizes(sizes, now=now)

    @property
    def since(self) -> float | None:
        """The time of the first sample that was learned from; None where there was none yet."""
        firsts = [cohort.fleet.first_sample() for cohort in self._cohorts.evidence]
        return min((first for first in firsts if first is not None), default=None)

    async def advance(
        self,
        now: float,
        *,
        wanted: Mapping[WorkloadContainer, Want],
        owners: Callable[[], Owners],
        running: Collection[WorkloadContainer],
        pods: Mapping[PodContainer, float] | None = None,
        machine: Room | None = None,
    ) -> set[WorkloadContainer]:
        """Bring every cohort up to the last step that is complete by now; the answer is those that are learned of since now.

        Whose usage it is is asked only once that was read: with all their names, owners are not held meanwhile. `pods` are
        the containers that should have samples, and since when they run; where it is None, those of which `running` has the
        workload's container. What is more than any node has had, of which `machine` is the largest now, is not believed.
        """
        if machine is not None:
            largest = self._largest
            self._largest = Room(
                cpu=max(machine.cpu, largest.cpu), memory=max(machine.memory, largest.memory)
            )
        async with self.lock:
            new = await self._cohorts.assign(wanted, now=now, past=self._past(now))
        try:
            await self._read(now, _Around(owners, wanted.keys(), running, pods))
        except Exception as error:  # noqa: BLE001 - a plugin may fail in ways of its own, and must not end the rest
            self._note_trouble(error)
        else:
            if self.trouble:
                log.info("usage.back", source=self.name)
            self.trouble = ""
            self.heard = now
            self._metrics.containers_without_samples.labels(self.name).set(len(self.unsampled))
            if learned := [cohort.until for cohort in self._cohorts if len(cohort.fleet)]:
                self._metrics.usage_lateness.labels(self.name).set(max(now - min(learned), 0.0))
        if not 0 <= now - self._saved_at < self._pace.save_every:  # also when the clock was set back
            await self.save(now)
        return new

    def _note_trouble(self, error: Exception) -> None:
        expected = isinstance(error, UsageError)
        trouble = str(error) if expected else f"{self.name} failed: {error!r}"
        if trouble != self.trouble:
            log.warning("usage.away", source=self.name, error=trouble, exc_info=None if expected else error)
        self.trouble = trouble
        self._metrics.reconciliation_errors.labels("", type(error).__name__).inc()

    def _past(self, now: float) -> Past:
        """From when on newcomers are shown what they used."""
        knows = self.source.capabilities.history
        begins = now - (self._pace.past if knows else self._pace.step)
        return Past(begins // self._pace.past_step * self._pace.past_step, known=knows)

    async def save(self, now: float) -> None:
        """Keep what was learned."""
        await self._cohorts.save(now, lock=self.lock)
        self._saved_at = now

    # Reading

    async def _read(self, now: float, around: _Around) -> None:
        """Show each cohort what it has not seen; those that stand at the same time share a read."""
        if self.heard is None:
            await self.source.check()  # some find out only now what they can know
        await self._warm_up()
        end = self._end(now)
        reach = max(self._pace.past, self._pace.lateness)
        for cohort in self._cohorts:
            if now - cohort.until > reach:
                cohort.until = (now - reach) // self._pace.past_step * self._pace.past_step
        shown: set[Sizing] = set()
        failed: set[Sizing] = set()
        done: set[AnyCohort] = set()
        while behind := [
            cohort
            for cohort in self._cohorts
            if cohort.until < end and len(cohort.fleet) and cohort not in done
        ]:
            by_time: dict[float, list[AnyCohort]] = defaultdict(list)
            for cohort in behind:
                by_time[cohort.until].append(cohort)
            until, cohorts = min(by_time.items())
            shown.update(cohort.sizing for cohort in cohorts)
            read = self._next(until, now)
            failed |= await self._show(read, now, cohorts, around)
            if not read.is_past:  # what it has not learned from by now is not complete
                done.update(cohorts)
        for sizing in self._confused & (shown - failed):
            self._confused.remove(sizing)
            log.info("learning.strategy_back", strategy=sizing.strategy)

    @property
    def current(self) -> float:
        """Seconds for which a sample tells of the present."""
        return CURRENT * self._pace.step + self.source.capabilities.late

    async def read_present(self, now: float) -> Usage:
        """Read what every container of the cluster used in the last steps, learned of or not, and learn nothing from it.

        Where the source refuses that, those namespaces are read that are learned of.
        """
        ask = replace(Ask.last(self.current, now=now, step=self._pace.step), kills=False)
        try:
            usage = await self.source.read(ask)
        except (SourceRefused, TooMuchAsked):
            async with self.lock:
                own = {name.namespace for cohort in self._cohorts.evidence for name in cohort.fleet}
            if not own:
                raise
            usage = await self.source.read(replace(ask, namespaces=tuple(sorted(own))))
        return _possible(usage, self._largest)

    def _end(self, now: float) -> float:
        """Return the last step that may have all its samples by now."""
        step, knows = self._pace.step, self.source.capabilities
        return (now - (step + knows.late if knows.sampled else 0.0)) // step * step

    def _sure(self, now: float) -> float:
        """Return the last step of which no more samples are waited for, whatever it lacks."""
        knows, step = self.source.capabilities, self._pace.step
        waits = knows.history and not knows.sampled
        return (now - self._pace.lateness) // step * step if waits else self._end(now)

    def _next(self, until: float, now: float) -> _Read:
        """Return what comes after a time: the past in coarse steps as far as it is sure, then the present in fine ones."""
        pace, end, sure = self._pace, self._end(now), self._sure(now)
        if not self.source.capabilities.history:
            return _Read(end, end, pace.step, is_past=False)
        # On the fine grid, wherever the coarse steps begin: so none has what was learned before.
        begun = until // pace.step * pace.step
        if sure - begun > 2 * pace.past_step:
            steps = min(pace.part, sure - begun) // pace.past_step
            last = begun + steps * pace.past_step
            return _Read(begun + pace.past_step, last, pace.past_step, is_past=True)
        return _Read(begun + pace.step, end, pace.step, is_past=False)

    async def _warm_up(self) -> None:
        """Have the strategies ready that are new, and let go of what it took to make them so."""
        new = {cohort.sizing: cohort for cohort in self._cohorts if cohort.sizing not in self._warm}
        for cohort in new.values():
            try:
                await asyncio.to_thread(cohort.warm_up)
            except Exception as error:  # noqa: BLE001 - as when it learns
                self._note_failure(cohort.sizing, error)
            self._warm.add(cohort.sizing)
        if new:
            let_go_of_llvm()

    async def _show(self, read: _Read, now: float, cohorts: list[AnyCohort], around: _Around) -> set[Sizing]:
        """Make one read for cohorts that stand at the same time; the answer is whose strategy failed at it."""
        # After a restart it is not known who had samples before: that is looked up once.
        knows = self.source.capabilities
        before = 0.0
        if knows.history and not read.is_past and not len(self._seen):
            before = self._pace.lateness // read.step * read.step
        namespaces = {name.namespace for cohort in cohorts for name in cohort.fleet}
        with self._metrics.metrics_collection_duration.labels(self.name).time():
            usage = await self.source.read(read.ask(namespaces, before=before))
        if not read.is_past:  # which nodes there were before we watched, the source may know: we do not
            usage = _possible(usage, self._largest)
        async with self.lock:
            failed = await in_thread(
                self._take_in, usage, read, round(before / read.step), cohorts, now, around
            )
        for sizing, error in failed.items():
            self._note_failure(sizing, error, among=self._confused)
        return set(failed)

    def _take_in(
        self, usage: Usage, read: _Read, known: int, cohorts: list[AnyCohort], now: float, around: _Around
    ) -> dict[Sizing, Exception]:
        """Learn from the steps of a read that are complete, without the first, which are `known`; note what the others say."""
        owners = around.owners()
        forget = now - max(self._pace.lateness, UNSAMPLED)
        if read.is_past:
            self._seen.note(usage, forget=forget, coarse=True)
            stands_for = max(1, round(usage.step / self._pace.step))
            return _teach(cohorts, usage, owners, running=None, until=self._end(now), stands_for=stands_for)
        self._seen.note(usage.part(0, known), forget=forget)
        usage = usage.part(known, usage.steps)
        expected = self._expected(usage, owners, around)
        complete = complete_steps(
            usage,
            running=expected,
            seen=self._seen,
            sure=self._sure(now),
            whole_steps=self.source.capabilities.whole_steps,
        )
        failed: dict[Sizing, Exception] = {}
        if complete:
            learned = usage.part(0, complete)
            failed = _teach(cohorts, learned, owners, running=around.running, until=self._end(now))
            self._seen.note(learned, forget=forget)
        rest = usage.part(complete, usage.steps)
        self._seen.note_open(rest)
        self._recent = Recent.of(rest, owners)
        self.unsampled = self._unsampled(usage, owners, around, now)
        return failed

    def _expected(self, usage: Usage, owners: Owners, around: _Around) -> Mapping[PodContainer, float]:
        """Return the containers of pods that should have samples, and since when they run."""
        if around.pods is not None:
            return around.pods

        def runs(name: PodContainer) -> bool:
            workload = owners.of(name.namespace, name.pod)
            return workload is not None and WorkloadContainer.of(workload, name.container) in around.running

        return {name: -math.inf for name in {*usage.containers, *self._seen} if runs(name)}

    def _unsampled(
        self, usage: Usage, owners: Owners, around: _Around, now: float
    ) -> tuple[PodContainer, ...]:
        """Find the containers that run and are to be learned of, but have had no sample for long."""
        silent_here = np.flatnonzero((np.isnan(usage.cpu) & np.isnan(usage.memory)).all(axis=0))
        sampled = {*usage.containers} - {usage.containers[column] for column in silent_here}
        long_ago = now - UNSAMPLED
        silent = [
            name
            for name, since in (around.pods or {}).items()
            if since < long_ago and name not in sampled and self._seen.last([name])[0] < long_ago
        ]
        return tuple(
            name
            for name in silent
            if (workload := owners.of(name.namespace, name.pod))
            and WorkloadContainer.of(workload, name.container) in around.wanted
        )

    def _note_failure(self, sizing: Sizing, error: Exception, *, among: set[Sizing] | None = None) -> None:
        """A strategy that fails says nothing of its containers; of the others as much is learned as ever."""
        known = self._failing if among is None else among
        self._metrics.reconciliation_errors.labels("", type(error).__name__).inc()
        if sizing not in known:
            known.add(sizing)
            log.warning("learning.strategy_failed", strategy=sizing.strategy, exc_info=error)


def _teach(
    cohorts: Iterable[AnyCohort],
    usage: Usage,
    owners: Owners,
    *,
    running: Collection[WorkloadContainer] | None,
    until: float,
    stands_for: int = 1,
) -> dict[Sizing, Exception]:
    """Show a read to each of these, in each form that is wanted made once; the answer is whose strategy failed, and how."""
    forms: dict[object, WorkloadUsage] = {}
    failed: dict[Sizing, Exception] = {}
    for cohort in cohorts:
        if cohort.form not in forms:
            forms[cohort.form] = cohort.form(usage, owners)
        try:
            cohort.take_in(forms[cohort.form], running=running, until=until, stands_for=stands_for)
        except Exception as error:  # noqa: BLE001 - it may be anybody's, and must not end the rest
            failed[cohort.sizing] = error
            cohort.say_nothing()
    return failed


def _possible(usage: Usage, machine: Room) -> Usage:
    """Drop what is more than the largest machine has: one such sample would be a day's peak."""
    if not (machine.cpu and machine.memory):
        return usage
    cpu, memory = machine.cpu / 1000 * GLITCH, float(machine.memory)
    if np.nanmax(usage.cpu, initial=0.0) <= cpu and np.nanmax(usage.memory, initial=0.0) <= memory:
        return usage  # as nearly always: a copy would be the most that is held
    return replace(
        usage,
        cpu=plausible(usage.cpu.copy(), most=cpu),
        memory=plausible(usage.memory.copy(), most=memory),
    )
