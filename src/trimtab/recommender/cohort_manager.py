"""Who learns with whom: the cohorts of each strategy and its settings, and of the evidence, while containers come and go.

Those that are new and have a past are in cohorts of their own, until these are too many. No cohort is large, for what
it takes for a moment, to save one or to make room in it, is as much again as itself. What they know is kept in the
store. It is never needed: without it the past is read again. Left out: how they learn (`school`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import structlog

from trimtab.aio import in_thread
from trimtab.recommender.cohort import AnyCohort, EvidenceCohort, Sizing, StrategyCohort, cohort_for
from trimtab.store import DamagedStateError, StateKey, Store, StoreError
from trimtab.usage.pod_ownership import WorkloadContainer

log = structlog.get_logger(__name__)

LARGEST = 5_000
"""Containers of a cohort; of fewer, each would learn less from the others."""

MOST_COHORTS = 8
"""With more than these, beyond what so many containers need, all of a strategy's begin anew, together, from the past that
the source knows."""


MOST_OF_EVIDENCE = 64
"""The same for the evidence, which the past of a source does not hold all of."""

AHEAD = 900.0
"""Seconds: who has learned of more of the future than this did so while the clock was wrong, and would wait for it."""


class Want(NamedTuple):
    """A container that is to be learned of: how it is sized, and since when it has been there."""

    sizing: Sizing
    created: float
    beside: int = 1
    """How many containers its pod has, itself included."""


class Past(NamedTuple):
    """From when on newcomers are shown what they used, and whether the source knows of more than the present."""

    begins: float
    known: bool


def state_key(cluster: str, sizing: Sizing, number: int) -> StateKey:
    """Where the store has what the cohort of this number knows."""
    told = f"{sizing.settings}@{sizing.source}" if sizing.source else sizing.settings
    digest = hashlib.blake2b(told.encode(), digest_size=6).hexdigest()
    return StateKey(cluster, sizing.strategy, f"{digest}/{number}")


class Cohorts:
    """All cohorts of a cluster that learn from one source."""

    def __init__(
        self,
        store: Store,
        *,
        cluster: str,
        young: float,
        keep: float,
        failed: Callable[[Sizing, Exception], None],
    ) -> None:
        """Seconds: who is younger has no past worth reading; and how long what was learned of one that is gone is kept.

        `failed` is told of a strategy that fails: it may be anybody's, and must not keep the others.
        """
        self._store = store
        self._cluster = cluster
        self._young = young
        self._keep = keep
        self._failed = failed
        self._cohorts: dict[Sizing, list[AnyCohort]] = {}
        self._unasked: set[Sizing] = set()
        """Those of which the store may know more than what was learned since, for it was away."""

    def __iter__(self) -> Iterator[AnyCohort]:
        for cohorts in self._cohorts.values():
            yield from cohorts

    def of(self, name: WorkloadContainer, sizing: Sizing) -> StrategyCohort | None:
        """Return that of a container by how it is sized; None when it is not learned of yet."""
        for cohort in self._cohorts.get(sizing, ()):
            if isinstance(cohort, StrategyCohort) and name in cohort.fleet:
                return cohort
        return None

    def evidence_of(self, name: WorkloadContainer) -> EvidenceCohort | None:
        """Return that with the evidence about a container; None when it is not learned of yet."""
        return next((cohort for cohort in self.evidence if name in cohort.fleet), None)

    @property
    def strategies(self) -> Iterator[StrategyCohort]:
        return (cohort for cohort in self if isinstance(cohort, StrategyCohort))

    @property
    def evidence(self) -> Iterator[EvidenceCohort]:
        return (cohort for cohort in self if isinstance(cohort, EvidenceCohort))

    async def assign(
        self, wanted: Mapping[WorkloadContainer, Want], *, now: float, past: Past
    ) -> set[WorkloadContainer]:
        """Have a place for each that is wanted; the answer is those that had none."""
        newcomers: set[WorkloadContainer] = set()
        by_sizing: dict[Sizing, dict[WorkloadContainer, Want]] = {}
        for name, want in wanted.items():
            for sizing in (want.sizing, Sizing.evidence(want.sizing.source)):
                by_sizing.setdefault(sizing, {})[name] = want
        await self._restore(by_sizing.keys() - self._cohorts.keys())
        for sizing in list(self._cohorts):
            new = self._place(sizing, by_sizing.get(sizing, {}), now=now, past=past)
            newcomers.update(new if not sizing.is_evidence else ())
        containers_per_pod = {name: want.beside for name, want in wanted.items()}
        for cohort in self:
            cohort.share_pods(containers_per_pod)
        return newcomers

    def _place(
        self, sizing: Sizing, ours: Mapping[WorkloadContainer, Want], *, now: float, past: Past
    ) -> list[WorkloadContainer]:
        """Have a place for each that is sized so; the answer is those that had none."""
        known = self._cohorts[sizing]
        cohorts = self._cohorts[sizing] = [one for one in known if one.until <= now + AHEAD]
        if len(cohorts) < len(known):
            log.warning("learning.clock_went_back", strategy=sizing.strategy, does="learns anew")
        for cohort in cohorts:
            self._forget_gone(cohort, ours, now)
        if not ours and not any(len(cohort.fleet) for cohort in cohorts):
            del self._cohorts[sizing]  # its policy is gone, or wants something else
            self._unasked.discard(sizing)
            return []
        new = [name for name in ours if not any(name in cohort.fleet for cohort in cohorts)]
        if new:
            young = all(now - ours[name].created <= self._young for name in new)
            joins = cohorts and (young or not past.known)
            try:
                self._cohorts[sizing] = (
                    _joined(cohorts, new) if joins else _beside(cohorts, sizing, new, ours, past.begins)
                )
            except Exception as error:  # noqa: BLE001 - see `failed`
                self._failed(sizing, error)
                return []
        return new

    async def save(self, now: float, *, lock: asyncio.Lock) -> None:
        """Keep what was learned, each under the lock. A store that is away costs nothing but the past's being read again."""
        async with lock:
            await self._restore(self._unasked)
        try:
            for sizing, cohorts in self._cohorts.items():
                if sizing not in self._unasked:
                    await self._save(sizing, cohorts, now, lock=lock)
        except StoreError as error:
            log.warning("learning.not_saved", error=str(error))

    async def _save(
        self, sizing: Sizing, cohorts: Sequence[AnyCohort], now: float, *, lock: asyncio.Lock
    ) -> None:
        for number, cohort in enumerate(cohorts):
            try:
                async with lock:
                    state = await in_thread(cohort.state)
            except Exception as error:  # noqa: BLE001 - see `failed`
                self._failed(sizing, error)
                return
            await self._store.states.save(self._key(sizing, number), state, timestamp=now)
        # Or one of a time when there were more cohorts would be taken for one of now.
        await self._store.states.forget(self._key(sizing, len(cohorts)))

    async def _restore(self, sizings: Collection[Sizing]) -> None:
        """Go on from what the store has of these; what was learned while it could not be asked is read again."""
        self._unasked.update(sizings)
        for sizing in sizings:
            self._cohorts.setdefault(sizing, [])
        try:
            for sizing in list(sizings):
                found = await self._found(sizing)
                if sizing.is_evidence and not found:
                    found = await self._former_evidence(sizing)
                self._cohorts[sizing] = found or self._cohorts[sizing]
                self._unasked.discard(sizing)
        except StoreError as error:  # and of each of the others it would be waited for as long
            log.warning("learning.not_restored", error=str(error))

    async def _found(self, sizing: Sizing) -> list[AnyCohort]:
        found: list[AnyCohort] = []
        try:
            while state := await self._store.states.load(self._key(sizing, len(found))):
                cohort = cohort_for(sizing, until=0.0)
                cohort.restore(state.data)
                found.append(cohort)
        except (DamagedStateError, ValueError) as error:  # as good as none: it is saved over
            log.warning("learning.not_understood", strategy=sizing.strategy, error=str(error))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - see `failed`
            self._failed(sizing, error)
        return found

    async def _former_evidence(self, evidence: Sizing) -> list[AnyCohort]:
        """Go on from the evidence that an earlier release kept with each strategy; none where there is none."""
        found: list[AnyCohort] = []
        known: set[WorkloadContainer] = set()
        for sizing in [each for each in self._cohorts if not each.is_evidence]:
            number = 0
            with suppress(DamagedStateError, ValueError):
                while state := await self._store.states.load(self._key(sizing, number)):
                    cohort = EvidenceCohort(evidence, until=0.0)
                    cohort.restore(state.data)
                    cohort.fleet.forget(known & {*cohort.fleet})
                    known.update(cohort.fleet)
                    found.append(cohort)
                    number += 1
        return found

    def _key(self, sizing: Sizing, number: int) -> StateKey:
        return state_key(self._cluster, sizing, number)

    def _forget_gone(self, cohort: AnyCohort, wanted: Collection[WorkloadContainer], now: float) -> None:
        """Let go of those that have not been wanted for long: a brief absence costs nobody what was learned of it."""
        absent = {name for name in cohort.fleet if name not in wanted}
        for name in cohort.absent.keys() - absent:
            del cohort.absent[name]
        for name in absent:
            if now - cohort.absent.setdefault(name, now) > self._keep:
                cohort.fleet.forget([name])
                del cohort.absent[name]


def _joined(cohorts: list[AnyCohort], new: list[WorkloadContainer]) -> list[AnyCohort]:
    """With newcomers that have no past: in the last cohort, and where that is full in others like it."""
    last = cohorts[-1]
    room = max(LARGEST - len(last.fleet), 0)
    last.include(new[:room])
    return [*cohorts, *_fresh(last.sizing, new[room:], until=last.until)]


def _beside(
    cohorts: list[AnyCohort],
    sizing: Sizing,
    new: list[WorkloadContainer],
    wanted: Collection[WorkloadContainer],
    begins: float,
) -> list[AnyCohort]:
    """With newcomers that have a past, in cohorts of their own; or all anew, where there are too many."""
    kept = [cohort for cohort in cohorts if len(cohort.fleet)]
    most = MOST_OF_EVIDENCE if sizing.is_evidence else MOST_COHORTS
    if len(kept) >= most + len(wanted) // LARGEST:
        kept, new = [], list(wanted)
    return [*kept, *_fresh(sizing, new, until=begins)]


def _fresh(sizing: Sizing, names: Sequence[WorkloadContainer], *, until: float) -> Iterator[AnyCohort]:
    for first in range(0, len(names), LARGEST):
        cohort = cohort_for(sizing, until=until)
        cohort.include(names[first : first + LARGEST])
        yield cohort
