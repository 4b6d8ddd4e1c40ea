"""Place containers in cohorts as they come and go, and save the cohorts.

New containers with history get cohorts of their own, until there are too many cohorts. CohortManager are kept small because
saving or growing one briefly needs as much memory again as the cohort itself. Their state is saved in the store, but
the store is optional: without it, the history is read again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import structlog

from trimtab.aio import run_in_thread
from trimtab.recommender.cohort import AnyCohort, EvidenceCohort, StrategySpec, create_cohort
from trimtab.recommender.cohort_manager import CohortManager
from trimtab.store import DamagedStateError, StateKey, Store, StoreError
from trimtab.usage.pod_ownership import WorkloadContainer

log = structlog.get_logger(__name__)

MAX_COHORT_SIZE = 5_000
"""The maximum number of containers in a cohort. In smaller cohorts a container would learn less from the others."""

MAX_STRATEGY_COHORTS = 8
"""The maximum number of cohorts per strategy spec, beyond those that its number of containers requires.

With more, all of them are replaced by new cohorts that ingest the source's history together."""


MAX_EVIDENCE_COHORTS = 64
"""The same maximum for evidence. It is higher because the source's history does not contain all evidence."""

MAX_CLOCK_SKEW = 900.0
"""The seconds that a cohort may be ahead of the clock.

A cohort further ahead was fed while the clock was wrong, and would wait until the clock catches up."""


class TrackedContainer(NamedTuple):
    """A container to make recommendations for."""

    strategy_spec: StrategySpec
    created: float
    """The Unix time at which the container was created."""
    containers_per_pod: int = 1
    """The number of containers in its pod, itself included."""


class Backfill(NamedTuple):
    """The history that new containers ingest first."""

    start: float
    """The Unix time at which the history starts."""
    is_available: bool
    """True if the source stores history; otherwise it only has current samples."""


def state_key(cluster: str, strategy_spec: StrategySpec, number: int) -> StateKey:
    """Return the store's key for the cohort with this number."""
    settings = (
        f"{strategy_spec.settings}@{strategy_spec.source}" if strategy_spec.source else strategy_spec.settings
    )
    digest = hashlib.blake2b(settings.encode(), digest_size=6).hexdigest()
    return StateKey(cluster, strategy_spec.strategy, f"{digest}/{number}")


class CohortStore(CohortManager):
    """All cohorts of a cluster, placed by the containers that exist and saved in the store."""

    def __init__(
        self,
        store: Store,
        *,
        cluster: str,
        min_backfill_age: float,
        retention: float,
        on_failure: Callable[[StrategySpec, Exception], None],
    ) -> None:
        """Create a store without cohorts.

        Containers younger than `min_backfill_age` seconds have no history worth reading. The state of a deleted container
        is kept for `retention` seconds. `on_failure` is called when a strategy raises: strategies may be plugins, and one
        that fails must not stop the others.
        """
        super().__init__()
        self._store = store
        self._cluster = cluster
        self._min_backfill_age = min_backfill_age
        self._retention = retention
        self._on_failure = on_failure
        self._unrestored: set[StrategySpec] = set()
        """The specs for which the store may hold more than the cohorts, because it was unavailable."""

    async def assign(
        self,
        tracked: Mapping[WorkloadContainer, TrackedContainer],
        *,
        now: float,
        backfill: Mapping[str, Backfill],
    ) -> set[WorkloadContainer]:
        """Assign every tracked container to its cohorts and return those that were not in any before.

        `backfill` is the history of each source, by its name.
        """
        by_spec: dict[StrategySpec, dict[WorkloadContainer, TrackedContainer]] = {}
        for name, container in tracked.items():
            # Evidence has a spec of its own for each source. Kept with a strategy, it would start again whenever a policy of higher
            # weight or another setting took over.
            for spec in (container.strategy_spec, StrategySpec.for_evidence(container.strategy_spec.source)):
                by_spec.setdefault(spec, {})[name] = container
        await self._restore(by_spec.keys() - self._by_spec.keys())
        new_containers: set[WorkloadContainer] = set()
        for spec in list(self._by_spec):
            wanted = by_spec.get(spec, {})
            self._drop_future_state(spec, now)
            self._forget_absent(spec, wanted, now)
            if self._delete_unused(spec, wanted):
                continue
            new = self._place(spec, wanted, now=now, backfill=backfill)
            new_containers.update(new if not spec.is_evidence else ())
        containers_per_pod = {name: container.containers_per_pod for name, container in tracked.items()}
        for cohort in self:
            cohort.share_pods(containers_per_pod)
        return new_containers

    def _drop_future_state(self, spec: StrategySpec, now: float) -> None:
        """Drop cohorts that were fed while the clock was ahead; they would wait until it catches up."""
        known = self._by_spec[spec]
        self._by_spec[spec] = [one for one in known if one.ingested_until <= now + MAX_CLOCK_SKEW]
        if len(self._by_spec[spec]) < len(known):
            log.warning(
                "recommender.clock_went_back",
                strategy=spec.strategy,
                action="state from the future was dropped; the history is read again",
            )

    def _forget_absent(self, spec: StrategySpec, wanted: Collection[WorkloadContainer], now: float) -> None:
        """Drop containers that have been absent for longer than the retention; a brief absence costs nothing."""
        for cohort in self._by_spec[spec]:
            absent = {name for name in cohort if name not in wanted}
            for name in cohort.absent_since.keys() - absent:
                del cohort.absent_since[name]
            for name in absent:
                if now - cohort.absent_since.setdefault(name, now) > self._retention:
                    cohort.forget([name])
                    del cohort.absent_since[name]

    def _delete_unused(self, spec: StrategySpec, wanted: Collection[WorkloadContainer]) -> bool:
        """Delete a spec without containers: its policy was deleted or now asks for another one. Return if it was."""
        if wanted or any(len(cohort) for cohort in self._by_spec[spec]):
            return False
        del self._by_spec[spec]
        self._unrestored.discard(spec)
        return True

    def _place(
        self,
        spec: StrategySpec,
        wanted: Mapping[WorkloadContainer, TrackedContainer],
        *,
        now: float,
        backfill: Mapping[str, Backfill],
    ) -> list[WorkloadContainer]:
        """Place the containers that are in no cohort of this spec, and return them."""
        cohorts = self._by_spec[spec]
        new = [name for name in wanted if not any(name in cohort for cohort in cohorts)]
        if not new:
            return new
        history = backfill[spec.source]
        # A young container has no history, so that the last cohort can take it without reading anything again.
        are_young = all(now - wanted[name].created <= self._min_backfill_age for name in new)
        try:
            self._by_spec[spec] = (
                _extend_last_cohort(cohorts, new)
                if cohorts and (are_young or not history.is_available)
                else _add_cohorts(cohorts, spec, new, wanted, history.start)
            )
        except Exception as error:  # noqa: BLE001 - see `on_failure`
            self._on_failure(spec, error)
            return []
        return new

    async def save(self, now: float, *, lock: asyncio.Lock) -> None:
        """Save all cohorts, each under the lock. If the store is unavailable, the history is read again after a restart."""
        async with lock:
            await self._restore(self._unrestored)
        try:
            for spec, cohorts in self._by_spec.items():
                if spec not in self._unrestored:
                    await self._save(spec, cohorts, now, lock=lock)
        except StoreError as error:
            log.warning("recommender.save_failed", error=str(error))

    async def _save(
        self, strategy_spec: StrategySpec, cohorts: Sequence[AnyCohort], now: float, *, lock: asyncio.Lock
    ) -> None:
        # One after another: the serialized state is as large as the cohort, and all of them at once would double memory.
        for number, cohort in enumerate(cohorts):
            try:
                async with lock:
                    state = await run_in_thread(cohort.state)
            except Exception as error:  # noqa: BLE001 - see `on_failure`
                self._on_failure(strategy_spec, error)
                return
            await self._store.states.save(self._state_key(strategy_spec, number), state, timestamp=now)
        # Otherwise a state from a time with more cohorts would be restored as if it were current.
        await self._store.states.forget(self._state_key(strategy_spec, len(cohorts)))

    async def _restore(self, specs: Collection[StrategySpec]) -> None:
        """Restore these specs from the store; usage ingested while it was unavailable is read again."""
        self._unrestored.update(specs)
        for spec in specs:
            self._by_spec.setdefault(spec, [])
        try:
            for spec in list(specs):
                found = await self._load(spec)
                if spec.is_evidence and not found:
                    found = await self._load_legacy_evidence(spec)
                self._by_spec[spec] = found or self._by_spec[spec]
                self._unrestored.discard(spec)
        except StoreError as error:  # each further spec would wait for the same timeout
            log.warning("recommender.restore_failed", error=str(error))

    async def _load(self, strategy_spec: StrategySpec) -> list[AnyCohort]:
        found: list[AnyCohort] = []
        try:
            # The cohorts of a spec are numbered without gaps; `_save` forgets the number after the last one.
            while state := await self._store.states.load(self._state_key(strategy_spec, len(found))):
                cohort = create_cohort(strategy_spec, until=0.0)
                cohort.restore(state.data)
                found.append(cohort)
        except (DamagedStateError, ValueError) as error:  # the next save overwrites it
            log.warning("recommender.state_unreadable", strategy=strategy_spec.strategy, error=str(error))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - see `on_failure`
            self._on_failure(strategy_spec, error)
        return found

    async def _load_legacy_evidence(self, evidence: StrategySpec) -> list[AnyCohort]:
        """Return the evidence that an earlier release saved with each strategy; empty if there is none."""
        found: list[AnyCohort] = []
        known: set[WorkloadContainer] = set()
        # Releases before evidence had cohorts of its own saved it with every strategy. The first copy of a container counts.
        for spec in [
            each for each in self._by_spec if not each.is_evidence and each.source == evidence.source
        ]:
            number = 0
            with suppress(DamagedStateError, ValueError):
                while state := await self._store.states.load(self._state_key(spec, number)):
                    cohort = EvidenceCohort(evidence, until=0.0)
                    cohort.restore(state.data)
                    cohort.forget(known & {*cohort})
                    known.update(cohort)
                    found.append(cohort)
                    number += 1
        return found

    def _state_key(self, strategy_spec: StrategySpec, number: int) -> StateKey:
        return state_key(self._cluster, strategy_spec, number)


def _extend_last_cohort(cohorts: list[AnyCohort], new: list[WorkloadContainer]) -> list[AnyCohort]:
    """Add containers without history to the last cohort, and to new ones at the same time if that is full."""
    last = cohorts[-1]
    free = max(MAX_COHORT_SIZE - len(last), 0)
    last.add(new[:free])
    return [*cohorts, *_create_cohorts(last.strategy_spec, new[free:], until=last.ingested_until)]


def _add_cohorts(
    cohorts: list[AnyCohort],
    strategy_spec: StrategySpec,
    new: list[WorkloadContainer],
    wanted: Collection[WorkloadContainer],
    start: float,
) -> list[AnyCohort]:
    """Add cohorts for containers with history; with too many cohorts, replace all of them by new ones."""
    kept = [cohort for cohort in cohorts if len(cohort)]
    maximum = MAX_EVIDENCE_COHORTS if strategy_spec.is_evidence else MAX_STRATEGY_COHORTS
    if len(kept) >= maximum + len(wanted) // MAX_COHORT_SIZE:
        kept, new = [], list(wanted)
    return [*kept, *_create_cohorts(strategy_spec, new, until=start)]


def _create_cohorts(
    strategy_spec: StrategySpec, names: Sequence[WorkloadContainer], *, until: float
) -> Iterator[AnyCohort]:
    for first in range(0, len(names), MAX_COHORT_SIZE):
        cohort = create_cohort(strategy_spec, until=until)
        cohort.add(names[first : first + MAX_COHORT_SIZE])
        yield cohort
