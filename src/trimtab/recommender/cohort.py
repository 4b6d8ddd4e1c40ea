"""Cohorts: containers that are ingested together, up to one common time, each with a row in the cohort's arrays.

A strategy takes its samples in time order, so history cannot be added to one that already has current samples. A
container with history that arrives late therefore joins a new cohort, which ingests the history first.

Strategy state and evidence live in different cohorts. Evidence does not depend on the strategy, so it survives a change
of policy or settings. Spare rows are kept so that a new container seldom costs a copy of all arrays; rows of forgotten
containers are reused when the spare ones run out. Pure.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from trimtab.recommender.oom_kills import ObservedSize, OomKill
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.proposal import (
    HOUR,
    Proposal,
    ProposalHistory,
    ProposalHistorySettings,
    build_proposal,
    describe_settings,
)
from trimtab.sizing.recommendation import Factor
from trimtab.sizing.state import NEW_ROW, ArrayState, Floats, Indices, reindex
from trimtab.sizing.strategy import STRATEGIES, Strategy, TargetRange, Targets, strategy
from trimtab.sizing.tracking.evidence_tracker import EvidenceTracker, EvidenceTrackerSettings
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.usage import PodContainer, Usage
from trimtab.usage.workload_usage import WorkloadOom, WorkloadUsage, max_over_replicas, per_pod, per_replica

WARM_UP_STEP = 30 * 86400.0
"""The seconds between warm-up samples; after this long, every strategy computes its recommendation again."""
EVIDENCE = "evidence"
"""The name that replaces a strategy's name in the spec of cohorts that hold evidence."""
MIN_ROWS = 16
SPARE_FACTOR = 1.1
"""The rows that are allocated for each one that is needed."""
_OPTIONAL_PARTS = frozenset({"proposed"})
"""The parts that states of the first version do not have."""


class StrategySpec(NamedTuple):
    """A strategy and its settings, as canonical JSON. All containers of a cohort share one spec."""

    strategy: str
    settings: str
    source: str = ""
    """The name of the usage source; empty for the default source."""

    @classmethod
    def from_settings(cls, strategy: str, settings: Mapping[str, Any]) -> StrategySpec:
        """Return the spec for a strategy with these settings."""
        return cls(strategy, msgspec.json.encode(dict(settings), order="deterministic").decode())

    @classmethod
    @cache
    def for_evidence(cls, source: str = "") -> StrategySpec:
        """Return the spec of the cohorts that hold the evidence about all containers of a source."""
        return cls(EVIDENCE, "{}", source)

    @property
    def is_evidence(self) -> bool:
        return self.strategy == EVIDENCE

    def decode_settings(self) -> dict[str, Any]:
        """Return the settings as a dictionary."""
        settings: dict[str, Any] = msgspec.json.decode(self.settings)
        return settings


class LatestUsage(NamedTuple):
    """The usage of one container in its latest sample: the maximum over its replicas."""

    cpu: float
    """The CPU usage in cores."""
    memory: float
    """The memory usage in bytes."""


class ContainerEstimate(NamedTuple):
    """A strategy's proposal for one container, with the evidence behind it."""

    proposal: Proposal
    evidence: Evidence


class _SavedRows(msgspec.Struct, frozen=True, array_like=True):
    """The stored rows of a cohort; each kind of cohort fills its own parts.

    In the first version a strategy's state also held the evidence; an `EvidenceCohort` reads such a state too.
    """

    keys: tuple[WorkloadContainer, ...]
    rows: tuple[int, ...]
    taken: int
    containers: int
    strategy: bytes = b""
    witness: bytes = b""
    proposed: bytes = b""
    pods: tuple[tuple[WorkloadContainer, PodContainer, int], ...] = ()
    """The rows of pods, where each pod has its own."""


class _SavedCohort(msgspec.Struct, frozen=True, array_like=True):
    ingested_until: float
    table: bytes


class Cohort(ABC):
    """Containers, a row for each in arrays (`parts`), and the time up to which their usage was ingested."""

    aggregate: Callable[[Usage, PodOwnerIndex], WorkloadUsage]
    """The function that combines the usage of replicas. `observe_usage` expects its result."""

    def __init__(
        self, strategy_spec: StrategySpec, parts: Mapping[str, ArrayState[Any]], *, until: float
    ) -> None:
        self.strategy_spec = strategy_spec
        self.ingested_until = until
        self.absent_since: dict[WorkloadContainer, float] = {}
        """The containers that do not exist at the moment, each with the time at which it disappeared."""
        self._parts = dict(parts)
        self._rows: dict[WorkloadContainer, int] = {}
        self._used_rows = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: WorkloadContainer) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[WorkloadContainer]:
        return iter(self._rows)

    @property
    def capacity(self) -> int:
        """The number of rows, including spare ones."""
        return next(iter(self._parts.values())).containers

    def add(self, names: Iterable[WorkloadContainer]) -> None:
        """Give an empty row to each container that has none; they are ingested from now on."""
        new = [name for name in dict.fromkeys(names) if name not in self._rows]
        self._reserve(len(new))
        for name in new:
            self._rows[name] = self._take_row()
        self.discard_results()

    def forget(self, names: Iterable[WorkloadContainer]) -> None:
        """Forget these containers."""
        # The row stays as it is until the arrays grow: moving all others would copy them for each deleted container.
        for name in names:
            self._rows.pop(name, None)

    def find_rows(self, names: Iterable[WorkloadContainer]) -> Indices:
        """Return the rows of these containers; valid until the next `add`."""
        return np.fromiter((self._rows[name] for name in names), dtype=np.intp)

    @abstractmethod
    def observe_usage(
        self,
        usage: WorkloadUsage,
        *,
        running: Collection[WorkloadContainer] | None,
        until: float,
        sample_weight: int = 1,
    ) -> None:
        """Ingest all samples of a read that continues where the last one ended, combined by `aggregate`.

        `running` are the containers that should have samples in the read; None for history that nobody observed. Reads
        will continue up to `until`. Each sample counts as `sample_weight` current samples.
        """

    @abstractmethod
    def discard_results(self) -> None:
        """Discard what was computed from the rows: they have moved or changed."""

    def state(self) -> bytes:
        """Return the cohort's serialized state."""
        rows = _SavedRows(
            keys=tuple(self._rows),
            rows=tuple(self._rows.values()),
            taken=self._used_rows,
            containers=self.capacity,
            pods=self._list_pods(),
            **{name: part.state() for name, part in self._parts.items()},
        )
        return msgspec.msgpack.encode(_SavedCohort(self.ingested_until, msgspec.msgpack.encode(rows)))

    def restore(self, state: bytes) -> None:
        """Load what `state` returned for a cohort of the same spec; raise `ValueError` for any other state."""
        try:
            saved = msgspec.msgpack.decode(state, type=_SavedCohort)
            rows = msgspec.msgpack.decode(saved.table, type=_SavedRows)
        except msgspec.MsgspecError as error:
            raise ValueError(f"state: these bytes are not the state of a cohort: {error}") from None
        if len(rows.keys) != len(rows.rows) or not (
            all(0 <= row < rows.taken for row in (*rows.rows, *(row for *_, row in rows.pods)))
            and rows.taken <= rows.containers
        ):
            raise ValueError("state: its rows are not in order")
        parts = {name: type(part)(rows.containers, part.settings) for name, part in self._parts.items()}
        for name, part in parts.items():
            data: bytes = getattr(rows, name)
            # States of earlier versions have no data of parts that were added later.
            if data or name not in _OPTIONAL_PARTS:
                part.restore(data)
        self._parts = parts
        self._rows = dict(zip(rows.keys, rows.rows, strict=True))
        self._used_rows = rows.taken
        self._restore_pods(rows.pods)
        self.ingested_until = saved.ingested_until
        self.discard_results()

    def warm_up(self) -> None:  # noqa: B027 - evidence has nothing to do here
        """Do expensive preparation now, so that it does not happen while a read is held in memory."""

    def share_pods(self, containers: Mapping[WorkloadContainer, int]) -> None:  # noqa: B027 - evidence has nothing to do here
        """Record how many containers share the pod of each container."""

    def clear_estimates(self) -> None:  # noqa: B027 - evidence has nothing to do here
        """Withdraw all estimates until the next read."""

    def _rows_in(self, usage: WorkloadUsage) -> Indices:
        """Return the row of each container of a read; -1 if it is not in this cohort."""
        return np.fromiter((self._rows.get(name, -1) for name in usage.containers), dtype=np.intp)

    def _scatter(self, rows: Indices, values: Floats) -> Floats:
        whole = np.full(self.capacity, np.nan)
        whole[rows] = values
        return whole

    def _list_pods(self) -> tuple[tuple[WorkloadContainer, PodContainer, int], ...]:
        """Return the row of each pod, if pods have rows of their own."""
        return ()

    def _restore_pods(  # noqa: B027 - most cohorts have no rows of pods
        self, saved: Iterable[tuple[WorkloadContainer, PodContainer, int]]
    ) -> None:
        """Load what `_list_pods` returned."""

    def _reserve(self, new: int) -> None:
        """Reserve so many new rows; until then rows may move."""
        if self._used_rows + new <= self.capacity:
            return
        held = self._held_rows()
        rows = np.full(max(MIN_ROWS, int((len(held) + new) * SPARE_FACTOR)), NEW_ROW, dtype=np.intp)
        rows[: len(held)] = held
        # One after another, so that each old part is released before the next is copied.
        for name in self._parts:
            self._parts[name] = reindex(self._parts[name], rows)
        self._renumber({old: row for row, old in enumerate(held)})
        self._used_rows = len(held)

    def _take_row(self) -> int:
        """Return a row that was never used, after `_reserve`."""
        self._used_rows += 1
        return self._used_rows - 1

    def _held_rows(self) -> list[int]:
        return list(self._rows.values())

    def _renumber(self, rows: Mapping[int, int]) -> None:
        """Follow the move of rows, given by their former numbers."""
        self._rows = {name: rows[row] for name, row in self._rows.items()}


class StrategyCohort(Cohort):
    """The state of one strategy with its settings for a set of containers, and its recent proposals."""

    def __init__(self, strategy_spec: StrategySpec, *, until: float) -> None:
        settings = strategy_spec.decode_settings()
        sizer: Strategy[Any] = strategy(strategy_spec.strategy, containers=MIN_ROWS, **settings)
        history = ProposalHistory(MIN_ROWS, ProposalHistorySettings())
        super().__init__(strategy_spec, {"strategy": sizer, "proposed": history}, until=until)
        self.aggregate = per_replica if sizer.traits.wants_replica_samples else max_over_replicas
        # A recommendation reports the stabilization as a factor of its own, only where it made a difference.
        reported = {name: value for name, value in settings.items() if name != "stabilization"}
        self._facts = (describe_settings(strategy_spec.strategy, reported),) if reported else ()
        self._containers_per_pod: dict[WorkloadContainer, int] = {}
        self._targets: Targets | None = None
        self._targets_at = 0.0
        self._explanations: dict[int, tuple[Factor, ...]] = {}

    @property
    def strategy(self) -> Strategy[Any]:
        """The strategy itself, for callers that import state; its rows are those of `find_rows`."""
        found: Strategy[Any] = self._parts["strategy"]  # type: ignore[assignment]
        return found

    @property
    def _proposal_history(self) -> ProposalHistory:
        found: ProposalHistory = self._parts["proposed"]  # type: ignore[assignment]
        return found

    def warm_up(self) -> None:
        """Load the strategy's compiled code from its cache, so that this does not happen while a read is held."""
        trial = type(self.strategy)(1, self.strategy.settings)
        for t in (0.0, 60.0, WARM_UP_STEP):
            trial.observe(t, np.full(1, 0.1), np.full(1, 1e8))
        trial.observe_oom(WARM_UP_STEP, np.zeros(1, np.intp), np.full(1, 1e8))
        trial.recommend(2 * WARM_UP_STEP)
        trial.explain(2 * WARM_UP_STEP, 0)

    def discard_results(self) -> None:
        """Compute the proposals again when they are next asked for."""
        self._replace_targets(None, 0.0)

    def share_pods(self, containers: Mapping[WorkloadContainer, int]) -> None:
        """Record how many containers share each pod: some strategies divide a pod's minimum among them."""
        # The minimum of VPA (25m, 250Mi) is that of a pod: without the count, each small sidecar got all of it.
        if not self.strategy.traits.divides_pod_minimum:
            return
        shared = {name: containers.get(name, 1) for name in self}
        if shared != self._containers_per_pod:
            self._containers_per_pod = shared
            self.discard_results()

    def observe_usage(
        self,
        usage: WorkloadUsage,
        *,
        running: Collection[WorkloadContainer] | None,
        until: float,
        sample_weight: int = 1,
    ) -> None:
        """Ingest samples; proposals that would expire before `until` are not computed. See `Cohort.observe_usage`."""
        # Advance first: a strategy that fails on these samples must not receive them again.
        self.ingested_until = usage.start + (len(usage.cpu) - 1) * usage.step
        rows = self._assign_rows(usage)
        for step in range(len(usage.cpu)):
            t = usage.start + step * usage.step
            # A strategy that counts samples would otherwise give a minute of the present five times the weight of one in the
            # history, which has a sample every five minutes.
            for earlier in reversed(range(sample_weight if self.strategy.traits.counts_samples else 1)):
                at = t - earlier * usage.step / sample_weight
                self._observe_step(usage, rows, step=step, t=at)
            # Proposals that are forgotten before anybody reads them are not computed: they cost a scan much of its CPU.
            if self._proposal_history.is_due(t, until=until):
                self._propose(t)
        if running is None:
            self._observe_past_ooms(usage)
        self._replace_targets(self._propose(self.ingested_until), self.ingested_until)

    def clear_estimates(self) -> None:
        """Withdraw all estimates until the next read: those from before a failure are outdated."""
        unknown = np.full(self.capacity, np.nan)
        nothing = TargetRange(target=unknown, lower=unknown, upper=unknown)
        self._replace_targets(Targets(cpu=nothing, memory=nothing), self.ingested_until)

    def observe_ooms(self, ooms: Iterable[OomKill]) -> None:
        """Ingest OOM kills that the evidence did not contain before, each with the memory that was requested.

        A strategy sizes requests, and its samples show how far above them usage was.
        """
        ours = sorted({kill for kill in ooms if kill.container in self}, key=lambda kill: kill.at)
        if ours:
            self._observe_ooms(
                np.array([kill.at for kill in ours]),
                self.find_rows(kill.container for kill in ours),
                np.array([kill.request for kill in ours]),
            )

    def get_proposal(self, name: WorkloadContainer, *, now: float, explained: bool = True) -> Proposal:
        """Return the strategy's proposal for a container of this cohort, with its facts if `explained`."""
        row = self._rows[name]
        return build_proposal(
            self._current_targets(now),
            row,
            strategy=self.strategy_spec.strategy,
            facts=self.explain(name, now=now) if explained else (),
            recent=self._proposal_history.recent_targets(now, row),
            traits=self.strategy.traits,
        )

    def explain(self, name: WorkloadContainer, *, now: float) -> tuple[Factor, ...]:
        """Return the facts behind the strategy's proposal for a container of this cohort."""
        return (*self._facts, *self._explain(self._current_targets(now), self._rows[name]))

    def _current_targets(self, now: float) -> Targets:
        if self._targets is None:
            self._describe_rows()
            targets = self.strategy.recommend(now)
            self._replace_targets(targets, now)
            return targets
        return self._targets

    def _assign_rows(self, usage: WorkloadUsage) -> Indices:
        """Return the rows of a read that `_observe_step` fills."""
        return self._rows_in(usage)

    def _observe_step(self, usage: WorkloadUsage, rows: Indices, *, step: int, t: float) -> None:
        for replica in range(int(usage.replica.max(initial=0)) + 1):
            self._observe_replica(usage, rows, step=step, replica=replica, t=t)

    def _observe_replica(
        self, usage: WorkloadUsage, rows: Indices, *, step: int, replica: int, t: float
    ) -> None:
        columns = np.flatnonzero(usage.replica == replica)
        columns = columns[rows[usage.container[columns]] >= 0]
        cpu, memory = usage.cpu[step, columns], usage.memory[step, columns]
        if replica and np.isnan(cpu).all() and np.isnan(memory).all():
            return
        sampled = rows[usage.container[columns]]
        self.strategy.observe(t, self._scatter(sampled, cpu), self._scatter(sampled, memory))

    def _replace_targets(self, targets: Targets | None, at: float) -> None:
        self._targets, self._targets_at = targets, at
        self._explanations.clear()

    def _explain(self, targets: Targets, row: int) -> tuple[Factor, ...]:
        """Return the strategy's explanation of a row, computed once for each computation of the targets."""
        if np.isnan(targets.cpu.target[row]) and np.isnan(targets.memory.target[row]):
            return ()  # A withdrawn estimate has nothing to explain.
        found = self._explanations.get(row)
        if found is None:
            found = self._explanations[row] = self.strategy.explain(self._targets_at, row)
        return found

    def _propose(self, t: float) -> Targets:
        """Return the targets of all containers and remember them."""
        self._describe_rows()
        targets = self.strategy.recommend(t)
        self._proposal_history.record(t, targets)
        return targets

    def _describe_rows(self) -> None:
        """Pass the number of containers per pod to the strategy. Its rows move as containers come and go."""
        if not self._containers_per_pod:
            return
        sharing = np.ones(self.capacity, np.intp)
        known = [name for name in self._containers_per_pod if name in self]
        sharing[self.find_rows(known)] = [self._containers_per_pod[name] for name in known]
        self.strategy.set_containers_per_pod(sharing)

    def _observe_past_ooms(self, usage: WorkloadUsage) -> None:
        """Ingest the OOM kills that the source reports for history, each exactly once."""
        rows = self._rows_in(usage)
        found = [oom for oom in usage.ooms if rows[oom.container] >= 0]
        if found:
            self._observe_ooms(*_ooms_to_arrays(found, rows))

    def _observe_ooms(self, times: Floats, rows: Indices, memory: Floats) -> None:
        hours, known = times // HOUR, np.isfinite(memory)
        for hour in np.unique(hours[known]):  # One kill may be from now and another from days ago.
            then = known & (hours == hour)
            self.strategy.observe_oom(float(times[then].max()), rows[then], memory[then])


class EvidenceCohort(Cohort):
    """The evidence about containers, independent of the strategy that sizes them: history, peaks, kills, earlier sizes."""

    def __init__(self, strategy_spec: StrategySpec | None = None, *, until: float) -> None:
        tracker = EvidenceTracker(MIN_ROWS, EvidenceTrackerSettings())
        super().__init__(strategy_spec or StrategySpec.for_evidence(), {"witness": tracker}, until=until)
        self.aggregate = max_over_replicas
        self._latest_usage: Floats | None = None
        self._first_sample: list[float | None] = []
        """The time of the first sample, once it was asked for: each policy's status asks, about all containers."""

    @property
    def _tracker(self) -> EvidenceTracker:
        found: EvidenceTracker = self._parts["witness"]  # type: ignore[assignment]
        return found

    def discard_results(self) -> None:
        """Forget the usage of the last step, whose rows have moved."""
        self._latest_usage = None
        self._first_sample.clear()

    def forget(self, names: Iterable[WorkloadContainer]) -> None:
        super().forget(names)
        self._first_sample.clear()

    def observe_usage(
        self,
        usage: WorkloadUsage,
        *,
        running: Collection[WorkloadContainer] | None,
        until: float,  # noqa: ARG002 - evidence makes no proposals
        sample_weight: int = 1,  # noqa: ARG002 - evidence counts seconds
    ) -> None:
        """Ingest samples, and the OOM kills of history. See `Cohort.observe_usage`."""
        self._first_sample.clear()
        self.ingested_until = usage.start + (len(usage.cpu) - 1) * usage.step
        rows = self._rows_in(usage)
        here = rows >= 0
        due = (
            None
            if running is None
            else np.isin(np.arange(self.capacity), self.find_rows(name for name in running if name in self))
        )
        for step in range(len(usage.cpu)):
            self._tracker.observe(
                usage.start + step * usage.step,
                self._scatter(rows[here], usage.cpu[step, here]),
                self._scatter(rows[here], usage.memory[step, here]),
                throttled=None
                if usage.throttled is None
                else self._scatter(rows[here], usage.throttled[step, here]),
                running=due,
                sample_seconds=usage.step,
            )
        self._latest_usage = np.full((2, self.capacity), np.nan)
        if len(usage.cpu):
            self._latest_usage[:, rows[here]] = usage.cpu[-1, here], usage.memory[-1, here]
        found = [oom for oom in usage.ooms if here[oom.container]] if running is None else []
        if found:
            # A source reports only the usage before a kill; `observe_sizes` adds the limit that the container hit.
            self._tracker.observe_oom(*_ooms_to_arrays(found, rows), estimated=True)

    def observe_ooms(self, ooms: Iterable[OomKill]) -> set[OomKill]:
        """Record OOM kills and return those that were not known yet."""
        ours = sorted({kill for kill in ooms if kill.container in self}, key=lambda kill: kill.at)
        if not ours:
            return set()
        rows, limits, requests = (
            self.find_rows(kill.container for kill in ours),
            np.array([kill.limit for kill in ours]),
            np.array([kill.request for kill in ours]),
        )
        used = self._tracker.memory_peak(ours[-1].at, rows)
        new = self._tracker.observe_oom(
            np.array([kill.at for kill in ours]),
            rows,
            # A container without a limit was killed because its node ran out of memory: use beyond its request counts too.
            np.where(limits > 0, limits, np.fmax(requests, used)),
            images=np.array([kill.image for kill in ours], np.uint32),
        )
        return {kill for kill, is_new in zip(ours, new, strict=True) if is_new}

    def observe_sizes(self, sizes: Iterable[ObservedSize], *, now: float) -> None:
        """Record the sizes that containers have in effect."""
        ours = [size for size in sizes if size.container in self]
        if ours:
            rows = self.find_rows(size.container for size in ours)
            self._tracker.observe_replicas(rows, np.array([size.replicas for size in ours], np.intp))
            self._tracker.observe_sizes(
                now,
                rows,
                np.array([size.memory for size in ours]),
                before=np.array([size.before for size in ours]),
                images=np.array([size.image for size in ours], np.uint32),
                cpu=np.array([size.cpu for size in ours]),
            )

    def collect_evidence(
        self, names: Sequence[WorkloadContainer], *, now: float, is_long_running: bool
    ) -> list[Evidence]:
        """Return the evidence about containers of this cohort; `is_long_running` is False for Jobs."""
        return self._tracker.collect_evidence(
            now, self.find_rows(names), is_long_running=[is_long_running] * len(names)
        )

    def first_sample_at(self) -> float | None:
        """Return the time of the first sample of any container; None if there is none."""
        if not self._first_sample:
            self._first_sample.append(self._tracker.first_sample_at(self.find_rows(self)))
        return self._first_sample[0]

    def latest_usage(self, name: WorkloadContainer) -> LatestUsage:
        """Return a container's usage in the last ingested step; NaN if it has no sample there."""
        if self._latest_usage is None:
            return LatestUsage(math.nan, math.nan)
        cpu, memory = self._latest_usage[:, self._rows[name]].tolist()
        return LatestUsage(cpu, memory)


def _ooms_to_arrays(ooms: Sequence[WorkloadOom], rows: Indices) -> tuple[Floats, Indices, Floats]:
    """Return the times of OOM kills, the rows of their containers, and the memory in use at each kill."""
    return (
        np.array([oom.at for oom in ooms]),
        np.array([rows[oom.container] for oom in ooms], np.intp),
        np.array([oom.memory for oom in ooms]),
    )


class PodStrategyCohort(StrategyCohort):
    """The state of a strategy that has a row for each pod of a container that runs at the same time.

    A pod takes the row of one that ended. The container's own row is the first of them, and has the targets of all.
    """

    def __init__(self, strategy_spec: StrategySpec, *, until: float) -> None:
        super().__init__(strategy_spec, until=until)
        self.aggregate = per_pod
        self._pods: dict[WorkloadContainer, dict[PodContainer, int]] = {}
        """The row of each pod; that of a pod which ended until another takes it."""
        self._restarts: dict[int, list[int]] = {}
        """The rows that another pod takes, by the step of the read in which it begins."""

    def forget(self, names: Iterable[WorkloadContainer]) -> None:
        names = tuple(names)
        super().forget(names)
        for name in names:
            self._pods.pop(name, None)

    def _held_rows(self) -> list[int]:
        first = super()._held_rows()
        further = {row for pods in self._pods.values() for row in pods.values()} - set(first)
        return [*first, *sorted(further)]

    def _renumber(self, rows: Mapping[int, int]) -> None:
        super()._renumber(rows)
        for pods in self._pods.values():
            pods.update({pod: rows[row] for pod, row in pods.items()})

    def _list_pods(self) -> tuple[tuple[WorkloadContainer, PodContainer, int], ...]:
        return tuple((name, pod, row) for name, pods in self._pods.items() for pod, row in pods.items())

    def _restore_pods(self, saved: Iterable[tuple[WorkloadContainer, PodContainer, int]]) -> None:
        self._pods = {}
        for name, pod, row in saved:
            self._pods.setdefault(name, {})[pod] = row

    def _assign_rows(self, usage: WorkloadUsage) -> Indices:
        sampled = ~(np.isnan(usage.cpu) & np.isnan(usage.memory))
        there = [
            column
            for column in np.flatnonzero(sampled.any(axis=0)).tolist()
            if usage.containers[usage.container[column]] in self
        ]
        begins = sampled.argmax(axis=0)
        ends = len(sampled) - 1 - sampled[::-1].argmax(axis=0)
        known = {pod for pods in self._pods.values() for pod in pods}
        self._reserve(sum(usage.pods[column] not in known for column in there))
        self._restarts.clear()
        rows = np.full(len(usage.container), -1, np.intp)
        by_container: dict[WorkloadContainer, list[int]] = {}
        for column in sorted(there, key=lambda column: int(begins[column])):
            by_container.setdefault(usage.containers[usage.container[column]], []).append(column)
        for name, columns in by_container.items():
            pods = self._pods.setdefault(name, {})
            busy = {usage.pods[column]: int(ends[column]) for column in columns if usage.pods[column] in pods}
            for column in columns:
                pod, begin = usage.pods[column], int(begins[column])
                if pod not in pods:
                    ended = next((other for other in pods if busy.get(other, -1) < begin), None)
                    if ended is not None:
                        pods[pod] = pods.pop(ended)
                        self._restarts.setdefault(begin, []).append(pods[pod])
                    else:
                        pods[pod] = self._take_row() if pods else self._rows[name]
                    busy[pod] = int(ends[column])
                rows[column] = pods[pod]
        return rows

    def _observe_step(self, usage: WorkloadUsage, rows: Indices, *, step: int, t: float) -> None:
        if restarted := self._restarts.pop(step, None):
            self.strategy.restart_rows(t, np.array(restarted, np.intp))
        cpu, memory = usage.cpu[step], usage.memory[step]
        # Two pods that follow each other have the same row, so only the one with a sample may fill it.
        there = np.flatnonzero((rows >= 0) & ~(np.isnan(cpu) & np.isnan(memory)))
        self.strategy.observe(
            t, self._scatter(rows[there], cpu[there]), self._scatter(rows[there], memory[there])
        )

    def _describe_rows(self) -> None:
        super()._describe_rows()
        containers = np.arange(self.capacity)
        for name, pods in self._pods.items():
            containers[list(pods.values())] = self._rows[name]
        self.strategy.share_rows(containers)


AnyCohort = StrategyCohort | EvidenceCohort


def create_cohort(strategy_spec: StrategySpec, *, until: float) -> AnyCohort:
    """Return an empty cohort for a strategy spec, or for evidence."""
    if strategy_spec.is_evidence:
        return EvidenceCohort(strategy_spec, until=until)
    separates_pods = STRATEGIES.load_type(strategy_spec.strategy).traits.separates_pods
    return (PodStrategyCohort if separates_pods else StrategyCohort)(strategy_spec, until=until)
