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

from trimtab.aio import run_in_thread
from trimtab.recommender.cohort import AnyCohort, EvidenceCohort, StrategyCohort, StrategySpec, create_cohort
from trimtab.store import DamagedStateError, StateKey, Store, StoreError
from trimtab.usage.pod_ownership import WorkloadContainer

log = structlog.get_logger(__name__)

MAX_COHORT_SIZE = 5_000
"""Containers of a cohort; of fewer, each would learn less from the others."""

MAX_STRATEGY_COHORTS = 8
"""With more than these, beyond what so many containers need, all of a strategy's begin anew, together, from the past that
the source knows."""


MAX_EVIDENCE_COHORTS = 64
"""The same for the evidence, which the past of a source does not hold all of."""

MAX_CLOCK_SKEW = 900.0
"""Seconds: who has learned of more of the future than this did so while the clock was wrong, and would wait for it."""


class TrackedContainer(NamedTuple):
    """A container that is to be learned of: how it is sized, and since when it has been there."""

    strategy_spec: StrategySpec
    created: float
    containers_per_pod: int = 1
    """How many containers its pod has, itself included."""


class Backfill(NamedTuple):
    """From when on newcomers are shown what they used, and whether the source knows of more than the present."""

    start: float
    is_available: bool


def state_key(cluster: str, strategy_spec: StrategySpec, number: int) -> StateKey:
    """Where the store has what the cohort of this number knows."""
    told = (
        f"{strategy_spec.settings}@{strategy_spec.source}" if strategy_spec.source else strategy_spec.settings
    )
    digest = hashlib.blake2b(told.encode(), digest_size=6).hexdigest()
    return StateKey(cluster, strategy_spec.strategy, f"{digest}/{number}")


class CohortManager:
    """All cohorts of a cluster that learn from one source."""

    def __init__(
        self,
        store: Store,
        *,
        cluster: str,
        min_backfill_age: float,
        retention: float,
        on_failure: Callable[[StrategySpec, Exception], None],
    ) -> None:
        """Seconds: who is younger has no past worth reading; and how long what was learned of one that is gone is kept.

        `failed` is told of a strategy that fails: it may be anybody's, and must not keep the others.
        """
        self._store = store
        self._cluster = cluster
        self._min_backfill_age = min_backfill_age
        self._retention = retention
        self._on_failure = on_failure
        self._cohorts: dict[StrategySpec, list[AnyCohort]] = {}
        self._unrestored: set[StrategySpec] = set()
        """Those of which the store may know more than what was learned since, for it was away."""

    def __iter__(self) -> Iterator[AnyCohort]:
        for cohorts in self._cohorts.values():
            yield from cohorts

    def find(self, name: WorkloadContainer, strategy_spec: StrategySpec) -> StrategyCohort | None:
        """Return that of a container by how it is sized; None when it is not learned of yet."""
        for cohort in self._cohorts.get(strategy_spec, ()):
            if isinstance(cohort, StrategyCohort) and name in cohort.table:
                return cohort
        return None

    def find_evidence(self, name: WorkloadContainer) -> EvidenceCohort | None:
        """Return that with the evidence about a container; None when it is not learned of yet."""
        return next((cohort for cohort in self.evidence_cohorts if name in cohort.table), None)

    @property
    def strategy_cohorts(self) -> Iterator[StrategyCohort]:
        return (cohort for cohort in self if isinstance(cohort, StrategyCohort))

    @property
    def evidence_cohorts(self) -> Iterator[EvidenceCohort]:
        return (cohort for cohort in self if isinstance(cohort, EvidenceCohort))

    async def assign(
        self, tracked: Mapping[WorkloadContainer, TrackedContainer], *, now: float, backfill: Backfill
    ) -> set[WorkloadContainer]:
        """Have a place for each that is wanted; the answer is those that had none."""
        newcomers: set[WorkloadContainer] = set()
        by_sizing: dict[StrategySpec, dict[WorkloadContainer, TrackedContainer]] = {}
        for name, want in tracked.items():
            for sizing in (want.strategy_spec, StrategySpec.for_evidence(want.strategy_spec.source)):
                by_sizing.setdefault(sizing, {})[name] = want
        await self._restore(by_sizing.keys() - self._cohorts.keys())
        for sizing in list(self._cohorts):
            new = self._assign_to_cohorts(sizing, by_sizing.get(sizing, {}), now=now, backfill=backfill)
            newcomers.update(new if not sizing.is_evidence else ())
        containers_per_pod = {name: want.containers_per_pod for name, want in tracked.items()}
        for cohort in self:
            cohort.share_pods(containers_per_pod)
        return newcomers

    def _assign_to_cohorts(
        self,
        strategy_spec: StrategySpec,
        ours: Mapping[WorkloadContainer, TrackedContainer],
        *,
        now: float,
        backfill: Backfill,
    ) -> list[WorkloadContainer]:
        """Have a place for each that is sized so; the answer is those that had none."""
        known = self._cohorts[strategy_spec]
        cohorts = self._cohorts[strategy_spec] = [
            one for one in known if one.ingested_until <= now + MAX_CLOCK_SKEW
        ]
        if len(cohorts) < len(known):
            log.warning("learning.clock_went_back", strategy=strategy_spec.strategy, does="learns anew")
        for cohort in cohorts:
            self._forget_expired(cohort, ours, now)
        if not ours and not any(len(cohort.table) for cohort in cohorts):
            del self._cohorts[strategy_spec]  # its policy is gone, or wants something else
            self._unrestored.discard(strategy_spec)
            return []
        new = [name for name in ours if not any(name in cohort.table for cohort in cohorts)]
        if new:
            young = all(now - ours[name].created <= self._min_backfill_age for name in new)
            joins = cohorts and (young or not backfill.is_available)
            try:
                self._cohorts[strategy_spec] = (
                    _extend_last_cohort(cohorts, new)
                    if joins
                    else _add_cohorts(cohorts, strategy_spec, new, ours, backfill.start)
                )
            except Exception as error:  # noqa: BLE001 - see `failed`
                self._on_failure(strategy_spec, error)
                return []
        return new

    async def save(self, now: float, *, lock: asyncio.Lock) -> None:
        """Keep what was learned, each under the lock. A store that is away costs nothing but the past's being read again."""
        async with lock:
            await self._restore(self._unrestored)
        try:
            for sizing, cohorts in self._cohorts.items():
                if sizing not in self._unrestored:
                    await self._save(sizing, cohorts, now, lock=lock)
        except StoreError as error:
            log.warning("learning.not_saved", error=str(error))

    async def _save(
        self, strategy_spec: StrategySpec, cohorts: Sequence[AnyCohort], now: float, *, lock: asyncio.Lock
    ) -> None:
        for number, cohort in enumerate(cohorts):
            try:
                async with lock:
                    state = await run_in_thread(cohort.state)
            except Exception as error:  # noqa: BLE001 - see `failed`
                self._on_failure(strategy_spec, error)
                return
            await self._store.states.save(self._state_key(strategy_spec, number), state, timestamp=now)
        # Or one of a time when there were more cohorts would be taken for one of now.
        await self._store.states.forget(self._state_key(strategy_spec, len(cohorts)))

    async def _restore(self, sizings: Collection[StrategySpec]) -> None:
        """Go on from what the store has of these; what was learned while it could not be asked is read again."""
        self._unrestored.update(sizings)
        for sizing in sizings:
            self._cohorts.setdefault(sizing, [])
        try:
            for sizing in list(sizings):
                found = await self._load(sizing)
                if sizing.is_evidence and not found:
                    found = await self._load_legacy_evidence(sizing)
                self._cohorts[sizing] = found or self._cohorts[sizing]
                self._unrestored.discard(sizing)
        except StoreError as error:  # and of each of the others it would be waited for as long
            log.warning("learning.not_restored", error=str(error))

    async def _load(self, strategy_spec: StrategySpec) -> list[AnyCohort]:
        found: list[AnyCohort] = []
        try:
            while state := await self._store.states.load(self._state_key(strategy_spec, len(found))):
                cohort = create_cohort(strategy_spec, until=0.0)
                cohort.restore(state.data)
                found.append(cohort)
        except (DamagedStateError, ValueError) as error:  # as good as none: it is saved over
            log.warning("learning.not_understood", strategy=strategy_spec.strategy, error=str(error))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - see `failed`
            self._on_failure(strategy_spec, error)
        return found

    async def _load_legacy_evidence(self, evidence: StrategySpec) -> list[AnyCohort]:
        """Go on from the evidence that an earlier release kept with each strategy; none where there is none."""
        found: list[AnyCohort] = []
        known: set[WorkloadContainer] = set()
        for sizing in [each for each in self._cohorts if not each.is_evidence]:
            number = 0
            with suppress(DamagedStateError, ValueError):
                while state := await self._store.states.load(self._state_key(sizing, number)):
                    cohort = EvidenceCohort(evidence, until=0.0)
                    cohort.restore(state.data)
                    cohort.table.forget(known & {*cohort.table})
                    known.update(cohort.table)
                    found.append(cohort)
                    number += 1
        return found

    def _state_key(self, strategy_spec: StrategySpec, number: int) -> StateKey:
        return state_key(self._cluster, strategy_spec, number)

    def _forget_expired(self, cohort: AnyCohort, wanted: Collection[WorkloadContainer], now: float) -> None:
        """Let go of those that have not been wanted for long: a brief absence costs nobody what was learned of it."""
        absent = {name for name in cohort.table if name not in wanted}
        for name in cohort.absent_since.keys() - absent:
            del cohort.absent_since[name]
        for name in absent:
            if now - cohort.absent_since.setdefault(name, now) > self._retention:
                cohort.table.forget([name])
                del cohort.absent_since[name]


def _extend_last_cohort(cohorts: list[AnyCohort], new: list[WorkloadContainer]) -> list[AnyCohort]:
    """With newcomers that have no past: in the last cohort, and where that is full in others like it."""
    last = cohorts[-1]
    room = max(MAX_COHORT_SIZE - len(last.table), 0)
    last.include(new[:room])
    return [*cohorts, *_create_cohorts(last.strategy_spec, new[room:], until=last.ingested_until)]


def _add_cohorts(
    cohorts: list[AnyCohort],
    strategy_spec: StrategySpec,
    new: list[WorkloadContainer],
    wanted: Collection[WorkloadContainer],
    start: float,
) -> list[AnyCohort]:
    """With newcomers that have a past, in cohorts of their own; or all anew, where there are too many."""
    kept = [cohort for cohort in cohorts if len(cohort.table)]
    most = MAX_EVIDENCE_COHORTS if strategy_spec.is_evidence else MAX_STRATEGY_COHORTS
    if len(kept) >= most + len(wanted) // MAX_COHORT_SIZE:
        kept, new = [], list(wanted)
    return [*kept, *_create_cohorts(strategy_spec, new, until=start)]


def _create_cohorts(
    strategy_spec: StrategySpec, names: Sequence[WorkloadContainer], *, until: float
) -> Iterator[AnyCohort]:
    for first in range(0, len(names), MAX_COHORT_SIZE):
        cohort = create_cohort(strategy_spec, until=until)
        cohort.include(names[first : first + MAX_COHORT_SIZE])
        yield cohort
