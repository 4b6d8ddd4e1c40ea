"""The cohorts that learn from one source: usage is read step by step, shown to each of them, and the result kept.

A cohort that is new, or was away, is first shown the past as far as the source knows it, in parts, so that no read is
large. A read that fails leaves everything as it was: the same step is asked for again at the next turn, and whoever
asks is told since when nothing was heard (`trouble`).

What was learned is saved in the store now and then. It is never needed: without it the past is read again. Left out:
which source a workload is learned from (`learning`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import structlog

from trimtab.kube.nodes import Room
from trimtab.operator.cohort import Cohort, Kill, Learned, Sizing, Used
from trimtab.operator.memory import let_go_of_llvm
from trimtab.operator.metrics import Metrics
from trimtab.store import StateKey, Store, StoreError
from trimtab.usage.errors import UsageError
from trimtab.usage.owners import Owners, WorkloadContainer
from trimtab.usage.source import Ask, Source
from trimtab.usage.usage import Usage, plausible
from trimtab.usage.workloads import WorkloadUsage

log = structlog.get_logger(__name__)

MOST_COHORTS = 8
"""With more than these beyond what their number asks for, all of a strategy's containers begin anew, together, from the past that the source knows."""

LARGEST = 5_000
"""Containers of a cohort. To save one or to make room in it takes as much memory as itself again, for a moment; and of
fewer containers each would learn less from the others."""

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


def state_key(cluster: str, sizing: Sizing, number: int) -> StateKey:
    """Where the store has what the cohort of this number knows."""
    told = f"{sizing.settings}@{sizing.source}" if sizing.source else sizing.settings
    digest = hashlib.blake2b(told.encode(), digest_size=6).hexdigest()
    return StateKey(cluster, sizing.strategy, f"{digest}/{number}")


class Want(NamedTuple):
    """A container that is to be learned of: how it is sized, and since when it has been there."""

    sizing: Sizing
    created: float


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
        self._store = store
        self._cluster = cluster
        self._pace = pace or Pace()
        self._metrics = metrics
        self._cohorts: dict[Sizing, list[Cohort]] = {}
        self._warm: set[Sizing] = set()
        self._saved_at = float("-inf")
        self._machine: Room | None = None
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
        return next((cohort for cohort in self._cohorts.get(sizing, ()) if name in cohort.fleet), None)

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
        return {new for cohort in self._all() for new in cohort.take_in_kills(found)} if found else found

    async def advance(
        self,
        now: float,
        *,
        wanted: Mapping[WorkloadContainer, Want],
        owners: Owners,
        running: Collection[WorkloadContainer],
        machine: Room | None = None,
    ) -> set[WorkloadContainer]:
        """Bring every cohort up to the last whole step before now; the answer is those that are learned of since now.

        What no `machine` has is not believed.
        """
        self._machine = machine
        async with self.lock:
            new = await self._assign(now, wanted)
        try:
            await self._read(now, owners, running)
        except Exception as error:  # noqa: BLE001 - a plugin may fail in ways of its own, and must not end the rest
            self._note_trouble(error)
        else:
            if self.trouble:
                log.info("usage.back", source=self.name)
            self.trouble = ""
            self.heard = now
        if now - self._saved_at >= self._pace.save_every:
            await self.save(now)
        return new

    def _note_trouble(self, error: Exception) -> None:
        expected = isinstance(error, UsageError)
        trouble = str(error) if expected else f"{self.name} failed: {error!r}"
        if trouble != self.trouble:
            log.warning("usage.away", source=self.name, error=trouble, exc_info=None if expected else error)
        self.trouble = trouble
        self._metrics.reconciliation_errors.labels("", type(error).__name__).inc()

    async def save(self, now: float) -> None:
        """Keep what was learned. A store that is away costs nothing but the past's being read again."""
        try:
            for sizing, cohorts in self._cohorts.items():
                for number, cohort in enumerate(cohorts):
                    async with self.lock:
                        state = await asyncio.to_thread(cohort.state)
                    await self._store.states.save(self._key(sizing, number), state, timestamp=now)
                # Or one of a time when there were more cohorts would be taken for one of now.
                await self._store.states.forget(self._key(sizing, len(cohorts)))
        except StoreError as error:
            log.warning("learning.not_saved", error=str(error))
        self._saved_at = now

    # Who is learned of, with whom

    async def _assign(self, now: float, wanted: Mapping[WorkloadContainer, Want]) -> set[WorkloadContainer]:
        newcomers: set[WorkloadContainer] = set()
        for sizing in {want.sizing for want in wanted.values()} - self._cohorts.keys():
            self._cohorts[sizing] = await self._restored(sizing)
        for sizing, cohorts in self._cohorts.items():
            ours = {name: want for name, want in wanted.items() if want.sizing == sizing}
            for cohort in cohorts:
                self._forget_gone(cohort, ours, now)
            new = [name for name in ours if not any(name in cohort.fleet for cohort in cohorts)]
            if new:
                self._cohorts[sizing] = self._with(cohorts, sizing, new, ours, now)
                newcomers.update(new)
        return newcomers

    def _forget_gone(self, cohort: Cohort, wanted: Collection[WorkloadContainer], now: float) -> None:
        """Let go of those that have not been wanted for long: a brief absence costs nobody what was learned of it."""
        absent = {name for name in cohort.fleet if name not in wanted}
        for name in cohort.absent.keys() - absent:
            del cohort.absent[name]
        for name in absent:
            if now - cohort.absent.setdefault(name, now) > self._pace.keep:
                cohort.fleet.forget([name])
                del cohort.absent[name]

    def _with(
        self,
        cohorts: list[Cohort],
        sizing: Sizing,
        new: list[WorkloadContainer],
        wanted: Mapping[WorkloadContainer, Want],
        now: float,
    ) -> list[Cohort]:
        """These cohorts and the newcomers: those with a past in cohorts of their own."""
        old = [name for name in new if now - wanted[name].created > self._pace.young]
        if cohorts and not (old and self.source.capabilities.history):
            room = max(LARGEST - len(cohorts[-1].fleet), 0)
            cohorts[-1].include(new[:room])
            return [*cohorts, *_cohorts(sizing, new[room:], until=cohorts[-1].until)]
        kept = [cohort for cohort in cohorts if len(cohort.fleet)]
        if len(kept) >= MOST_COHORTS + len(wanted) // LARGEST:
            kept, new = [], list(wanted)
        begins = now - self._pace.past if self.source.capabilities.history else now - self._pace.step
        until = begins // self._pace.past_step * self._pace.past_step
        return [*kept, *_cohorts(sizing, new, until=until)]

    async def _restored(self, sizing: Sizing) -> list[Cohort]:
        found: list[Cohort] = []
        try:
            while state := await self._store.states.load(self._key(sizing, len(found))):
                cohort = Cohort(sizing, until=0.0)
                cohort.restore(state.data)
                found.append(cohort)
        except (StoreError, ValueError) as error:
            log.warning("learning.not_restored", strategy=sizing.strategy, error=str(error))
        return found

    def _key(self, sizing: Sizing, number: int) -> StateKey:
        return state_key(self._cluster, sizing, number)

    def _all(self) -> list[Cohort]:
        return [cohort for cohorts in self._cohorts.values() for cohort in cohorts]

    # Reading

    async def _read(self, now: float, owners: Owners, running: Collection[WorkloadContainer]) -> None:
        """Show each cohort what it has not seen; those that stand at the same time share a read."""
        if self.heard is None:
            await self.source.check()  # some find out only now what they can know
        await self._warm_up()
        step = self._pace.step
        end = (now // step) * step
        for cohort in self._all():
            if now - cohort.until > self._pace.past:
                cohort.until = (now - self._pace.past) // self._pace.past_step * self._pace.past_step
        while behind := [cohort for cohort in self._all() if cohort.until < end and len(cohort.fleet)]:
            by_time: dict[float, list[Cohort]] = defaultdict(list)
            for cohort in behind:
                by_time[cohort.until].append(cohort)
            until, cohorts = min(by_time.items())
            await self._show(until, end, cohorts, owners, running)

    async def _warm_up(self) -> None:
        """Have the strategies ready that are new, and let go of what it took to make them so."""
        new = [
            cohorts[0] for sizing, cohorts in self._cohorts.items() if cohorts and sizing not in self._warm
        ]
        for cohort in new:
            await asyncio.to_thread(cohort.warm_up)
            self._warm.add(cohort.sizing)
        if new:
            let_go_of_llvm()

    async def _show(
        self,
        until: float,
        end: float,
        cohorts: list[Cohort],
        owners: Owners,
        running: Collection[WorkloadContainer],
    ) -> None:
        """One read, of the present step by step or of a part of the past, for cohorts that ended at the same time."""
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
        ask = Ask(start=begin, end=last + step, step=step, namespaces=tuple(sorted(namespaces)))
        with self._metrics.metrics_collection_duration.labels(self.name).time():
            usage = _possible(await self.source.read(ask), self._machine)
        if self._watched and not is_past:
            self.present = usage.last_step()
        async with self.lock:
            await asyncio.to_thread(_teach, cohorts, usage, owners, None if is_past else running)


def _cohorts(sizing: Sizing, names: Sequence[WorkloadContainer], *, until: float) -> Iterator[Cohort]:
    """New cohorts for all of these."""
    for first in range(0, len(names), LARGEST):
        fresh = Cohort(sizing, until=until)
        fresh.include(names[first : first + LARGEST])
        yield fresh


def _teach(
    cohorts: Iterable[Cohort],
    usage: Usage,
    owners: Owners,
    running: Collection[WorkloadContainer] | None,
) -> None:
    """Show a read to each of these; in each form that is wanted it is made once."""
    forms: dict[object, WorkloadUsage] = {}
    for cohort in cohorts:
        if cohort.form not in forms:
            forms[cohort.form] = cohort.form(usage, owners)
        cohort.take_in(forms[cohort.form], running=running)


def _possible(usage: Usage, machine: Room | None) -> Usage:
    """Without what is more than the largest machine has: one such sample would be a day's peak."""
    if machine is None or not (machine.cpu and machine.memory):
        return usage
    cpu, memory = machine.cpu / 1000 * GLITCH, float(machine.memory)
    if np.nanmax(usage.cpu, initial=0.0) <= cpu and np.nanmax(usage.memory, initial=0.0) <= memory:
        return usage  # as nearly always: a copy would be the most that is held
    return replace(
        usage,
        cpu=plausible(usage.cpu.copy(), most=cpu),
        memory=plausible(usage.memory.copy(), most=memory),
    )
