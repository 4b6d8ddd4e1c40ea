"""Learning from one source: usage is read step by step and shown to the cohorts, who `cohorts` has put together.

A cohort that is new, or was away, is first shown the past as far as the source knows it, in parts, so that no read is
large. A read that fails leaves everything as it was: the same step is asked for again at the next turn, and whoever
asks is told since when nothing was heard (`trouble`).

What was learned is saved now and then. Left out: which source a workload is learned from (`learning`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import structlog

from trimtab.kube.nodes import Room
from trimtab.operator.cohort import Cohort, Learned, Sizing, Used
from trimtab.operator.cohorts import Cohorts, Past, Want
from trimtab.operator.memory import let_go_of_llvm
from trimtab.operator.metrics import Metrics
from trimtab.operator.oom import Kill, MemorySize
from trimtab.store import Store
from trimtab.tasks import in_thread
from trimtab.usage.errors import UsageError
from trimtab.usage.owners import Owners, WorkloadContainer
from trimtab.usage.source import Ask, Source
from trimtab.usage.usage import Usage, plausible
from trimtab.usage.workloads import WorkloadUsage

log = structlog.get_logger(__name__)

GLITCH = 1.25
"""Times the CPU of the largest machine: a rate is drawn out to the ends of its window, and so may be a little more."""


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


class School:
    """All cohorts of a cluster that learn from one source."""

    def __init__(
        self,
        source: Source[Any],
        store: Store,
        *,
        cluster: str,
        pace: Pace | None = None,
        metrics: Metrics,
        name: str = "",
        lock: asyncio.Lock | None = None,
        watched: bool = True,
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
        self._watched = watched
        self.present: Usage | None = None
        """What each pod used in the last step that was read of the present; None where nobody watches."""

    def cohort_of(self, name: WorkloadContainer, sizing: Sizing) -> Cohort | None:
        return self._cohorts.of(name, sizing)

    def learned(
        self, name: WorkloadContainer, sizing: Sizing, *, now: float, runs_on: bool
    ) -> Learned | None:
        """What is known of a container; None when it is not learned of yet."""
        cohort = self.cohort_of(name, sizing)
        return cohort.learned(name, now=now, runs_on=runs_on) if cohort else None

    def used(self, name: WorkloadContainer, sizing: Sizing) -> Used | None:
        """What a container used when usage was last read; None when it is not learned of yet."""
        cohort = self.cohort_of(name, sizing)
        return cohort.used(name) if cohort else None

    def note_kills(self, kills: Iterable[Kill]) -> set[Kill]:
        """Take in kills at once, not only at the next turn; the answer is those that nobody knew of."""
        found = set(kills)
        return {new for cohort in self._cohorts for new in cohort.take_in_kills(found)} if found else found

    def note_sizes(self, sizes: Collection[MemorySize], *, now: float) -> None:
        """Note the memory that containers have in effect: before their kills, which hit these sizes."""
        for cohort in self._cohorts:
            cohort.take_in_sizes(sizes, now=now)

    async def advance(
        self,
        now: float,
        *,
        wanted: Mapping[WorkloadContainer, Want],
        owners: Callable[[], Owners],
        running: Collection[WorkloadContainer],
        machine: Room | None = None,
    ) -> set[WorkloadContainer]:
        """Bring every cohort up to the last step that can be known by now; the answer is those that are learned of since now.

        Whose usage it is is asked only once that was read: with all their names, owners are not held meanwhile. What is
        more than any node has had, of which `machine` is the largest now, is not believed.
        """
        if machine is not None:
            largest = self._largest
            self._largest = Room(
                cpu=max(machine.cpu, largest.cpu), memory=max(machine.memory, largest.memory)
            )
        async with self.lock:
            new = await self._cohorts.assign(wanted, now=now, past=self._past(now))
        try:
            await self._read(now, owners, running)
        except Exception as error:  # noqa: BLE001 - a plugin may fail in ways of its own, and must not end the rest
            self._note_trouble(error)
        else:
            if self.trouble:
                log.info("usage.back", source=self.name)
            self.trouble = ""
            self.heard = now
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

    async def _read(
        self, now: float, owners: Callable[[], Owners], running: Collection[WorkloadContainer]
    ) -> None:
        """Show each cohort what it has not seen; those that stand at the same time share a read."""
        if self.heard is None:
            await self.source.check()  # some find out only now what they can know
        await self._warm_up()
        step, knows = self._pace.step, self.source.capabilities
        end = (now - (step + knows.late if knows.sampled else 0.0)) // step * step
        for cohort in self._cohorts:
            if now - cohort.until > self._pace.past:
                cohort.until = (now - self._pace.past) // self._pace.past_step * self._pace.past_step
        shown: set[Sizing] = set()
        failed: set[Sizing] = set()
        while behind := [cohort for cohort in self._cohorts if cohort.until < end and len(cohort.fleet)]:
            by_time: dict[float, list[Cohort]] = defaultdict(list)
            for cohort in behind:
                by_time[cohort.until].append(cohort)
            until, cohorts = min(by_time.items())
            shown.update(cohort.sizing for cohort in cohorts)
            failed |= await self._show(until, end, cohorts, owners, running)
        for sizing in self._confused & (shown - failed):
            self._confused.remove(sizing)
            log.info("learning.strategy_back", strategy=sizing.strategy)

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

    async def _show(
        self,
        until: float,
        end: float,
        cohorts: list[Cohort],
        owners: Callable[[], Owners],
        running: Collection[WorkloadContainer],
    ) -> set[Sizing]:
        """One read, of the present step by step or of a part of the past, for cohorts that ended at the same time.

        The answer is whose strategy failed at it.
        """
        pace = self._pace
        is_past = end - until > 2 * pace.past_step and self.source.capabilities.history
        step = pace.past_step if is_past else pace.step
        if is_past:
            begin, last = until // step * step + step, min(until + pace.part, end) // step * step
        elif self.source.capabilities.history:
            begin, last = until // step * step + step, end
        else:
            begin = last = end
        namespaces = {name.namespace for cohort in cohorts for name in cohort.fleet}
        ask = Ask(
            start=begin,
            end=last + step,
            step=step,
            namespaces=tuple(sorted(namespaces)),
            kills=is_past,  # of those of the present the pods tell
        )
        with self._metrics.metrics_collection_duration.labels(self.name).time():
            usage = await self.source.read(ask)
        if not is_past:  # which nodes there were before we watched, the source may know: we do not
            usage = _possible(usage, self._largest)
        if self._watched and not is_past:
            self.present = usage.last_step()
        async with self.lock:
            failed = await in_thread(
                _teach, cohorts, usage, owners(), running=None if is_past else running, until=end
            )
        for sizing, error in failed.items():
            self._note_failure(sizing, error, among=self._confused)
        return set(failed)

    def _note_failure(self, sizing: Sizing, error: Exception, *, among: set[Sizing] | None = None) -> None:
        """A strategy that fails says nothing of its containers; of the others as much is learned as ever."""
        known = self._failing if among is None else among
        self._metrics.reconciliation_errors.labels("", type(error).__name__).inc()
        if sizing not in known:
            known.add(sizing)
            log.warning("learning.strategy_failed", strategy=sizing.strategy, exc_info=error)


def _teach(
    cohorts: Iterable[Cohort],
    usage: Usage,
    owners: Owners,
    *,
    running: Collection[WorkloadContainer] | None,
    until: float,
) -> dict[Sizing, Exception]:
    """Show a read to each of these, in each form that is wanted made once; the answer is whose strategy failed, and how."""
    forms: dict[object, WorkloadUsage] = {}
    failed: dict[Sizing, Exception] = {}
    for cohort in cohorts:
        if cohort.form not in forms:
            forms[cohort.form] = cohort.form(usage, owners)
        try:
            cohort.take_in(forms[cohort.form], running=running, until=until)
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
