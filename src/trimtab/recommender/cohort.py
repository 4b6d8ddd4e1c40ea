"""Cohorts: tables of containers that are ingested together, up to one common time.

A strategy takes its samples in time order, so history cannot be added to one that already has current samples. A
container with history that arrives late therefore joins a new cohort, which ingests the history first.

Strategy state and evidence live in different cohorts. Evidence does not depend on the strategy, so it survives a change
of policy or settings. Pure.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from trimtab.recommender.oom_kills import MemorySize, OomKill
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.proposal import Proposal, build_proposal, describe_settings
from trimtab.sizing.strategy import STRATEGIES, Floats, Indices, TargetRange, Targets
from trimtab.sizing.tracking.container_table import ContainerTable, EvidenceTable, StrategyTable
from trimtab.usage.aggregation import max_over_replicas, per_replica
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.usage import Usage
from trimtab.usage.workload_usage import WorkloadOom, WorkloadUsage

WARM_UP_STEP = 30 * 86400.0
"""The seconds between warm-up samples; after this long, every strategy computes its recommendation again."""
EVIDENCE = "evidence"
"""The name that replaces a strategy's name in the spec of cohorts that hold evidence."""

T = TypeVar("T", bound=ContainerTable[WorkloadContainer])


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


class _SavedCohort(msgspec.Struct, frozen=True, array_like=True):
    ingested_until: float
    table: bytes


class Cohort(ABC, Generic[T]):
    """A table of containers, and the time up to which their usage was ingested."""

    aggregate: Callable[[Usage, PodOwnerIndex], WorkloadUsage]
    """The function that combines the usage of replicas. `observe_usage` expects its result."""

    def __init__(self, strategy_spec: StrategySpec, table: T, *, until: float) -> None:
        self.strategy_spec = strategy_spec
        self.table = table
        self.ingested_until = until
        self.absent_since: dict[WorkloadContainer, float] = {}
        """The containers that do not exist at the moment, each with the time at which it disappeared."""

    def include(self, names: Iterable[WorkloadContainer]) -> None:
        """Add containers to the cohort; they are ingested from now on."""
        self.table.add(names)

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

    def state(self) -> bytes:
        """Return the cohort's serialized state."""
        return msgspec.msgpack.encode(_SavedCohort(self.ingested_until, self.table.state()))

    def restore(self, state: bytes) -> None:
        """Load what `state` returned for a cohort of the same spec; raise `ValueError` for any other state."""
        try:
            saved = msgspec.msgpack.decode(state, type=_SavedCohort)
        except msgspec.MsgspecError as error:
            raise ValueError(f"state: these bytes are not the state of a cohort: {error}") from None
        self.table.restore(saved.table)
        self.ingested_until = saved.ingested_until

    def warm_up(self) -> None:
        """Do expensive preparation now, so that it does not happen while a read is held in memory."""

    def share_pods(self, containers: Mapping[WorkloadContainer, int]) -> None:
        """Record how many containers share the pod of each container."""

    def clear_estimates(self) -> None:
        """Withdraw all estimates until the next read."""

    def _rows(self, usage: WorkloadUsage) -> Indices:
        """Return the row of each container of a read; -1 if it is not in this cohort."""
        known = np.array([name in self.table for name in usage.containers], dtype=bool)
        rows = np.full(known.size, -1, np.intp)
        rows[known] = self.table.find_rows(
            name for name, tracked in zip(usage.containers, known, strict=True) if tracked
        )
        return rows


class StrategyCohort(Cohort[StrategyTable[WorkloadContainer]]):
    """The state of one strategy with its settings for a set of containers."""

    def __init__(self, strategy_spec: StrategySpec, *, until: float) -> None:
        table = StrategyTable(strategy_spec.strategy, strategy_spec.decode_settings(), key=WorkloadContainer)
        super().__init__(strategy_spec, table, until=until)
        self.aggregate = (
            per_replica
            if STRATEGIES.load_type(strategy_spec.strategy).wants_replica_samples
            else max_over_replicas
        )
        # A recommendation reports the stabilization as a factor of its own, only where it made a difference.
        reported = {
            name: value for name, value in strategy_spec.decode_settings().items() if name != "stabilization"
        }
        self._facts = (describe_settings(strategy_spec.strategy, reported),) if reported else ()
        self._containers_per_pod: dict[WorkloadContainer, int] = {}
        self._targets: Targets | None = None

    def warm_up(self) -> None:
        """Load the strategy's compiled code from its cache, so that this does not happen while a read is held."""
        trial = type(self.table.strategy)(1, self.table.strategy.settings)
        for t in (0.0, 60.0, WARM_UP_STEP):
            trial.observe(t, np.full(1, 0.1), np.full(1, 1e8))
        trial.recommend(2 * WARM_UP_STEP)

    def include(self, names: Iterable[WorkloadContainer]) -> None:
        super().include(names)
        self._targets = None  # adding containers may move rows

    def share_pods(self, containers: Mapping[WorkloadContainer, int]) -> None:
        """Record how many containers share each pod: some strategies divide a pod's minimum among them."""
        if not self.table.strategy.divides_pod_minimum:
            return
        shared = {name: containers.get(name, 1) for name in self.table}
        if shared != self._containers_per_pod:
            self._containers_per_pod = shared
            self._targets = None

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
        rows = self._rows(usage)
        for step in range(len(usage.cpu)):
            t = usage.start + step * usage.step
            for earlier in reversed(range(sample_weight if self.table.strategy.counts_samples else 1)):
                at = t - earlier * usage.step / sample_weight
                for replica in range(int(usage.replica.max(initial=0)) + 1):
                    self._observe(usage, rows, step=step, replica=replica, t=at)
            if self.table.is_due(t, until=until):
                self._divide_pod_minimum()
                self.table.propose(t)
        if running is None:
            self._observe_past_ooms(usage, rows)
        self._divide_pod_minimum()
        self._targets = self.table.propose(self.ingested_until)

    def clear_estimates(self) -> None:
        """Withdraw all estimates until the next read: those from before a failure are outdated."""
        unknown = np.full(self.table.capacity, np.nan)
        nothing = TargetRange(target=unknown, lower=unknown, upper=unknown)
        self._targets = Targets(cpu=nothing, memory=nothing)

    def observe_ooms(self, ooms: Iterable[OomKill]) -> None:
        """Ingest OOM kills that the evidence did not contain before."""
        ours = sorted({kill for kill in ooms if kill.container in self.table}, key=lambda kill: kill.at)
        if ours:
            self.table.observe_oom(
                np.array([kill.at for kill in ours]),
                self.table.find_rows(kill.container for kill in ours),
                np.array([kill.request for kill in ours]),
            )

    def get_proposal(self, name: WorkloadContainer, *, now: float) -> Proposal:
        """Return the strategy's proposal for a container of this cohort."""
        if self._targets is None:
            self._divide_pod_minimum()
            self._targets = self.table.recommend(now)
        (row,) = self.table.find_rows([name]).tolist()
        return build_proposal(
            self._targets,
            row,
            strategy=self.strategy_spec.strategy,
            facts=self._facts,
            recent=self.table.recent_targets(now, row),
            covers_stabilization=self.table.strategy.covers_stabilization,
        )

    def restore(self, state: bytes) -> None:
        super().restore(state)
        self._targets = None

    def _observe(self, usage: WorkloadUsage, rows: Indices, *, step: int, replica: int, t: float) -> None:
        columns = np.flatnonzero(usage.replica == replica)
        columns = columns[rows[usage.container[columns]] >= 0]
        if (
            replica
            and np.isnan(usage.cpu[step, columns]).all()
            and np.isnan(usage.memory[step, columns]).all()
        ):
            return
        self.table.observe(
            t,
            rows[usage.container[columns]],
            cpu=usage.cpu[step, columns],
            memory=usage.memory[step, columns],
        )

    def _divide_pod_minimum(self) -> None:
        """Pass the number of containers per pod to the strategy. Its rows move as containers come and go."""
        if not self._containers_per_pod:
            return
        sharing = np.ones(self.table.capacity, np.intp)
        known = [name for name in self._containers_per_pod if name in self.table]
        sharing[self.table.find_rows(known)] = [self._containers_per_pod[name] for name in known]
        self.table.strategy.set_containers_per_pod(sharing)

    def _observe_past_ooms(self, usage: WorkloadUsage, rows: Indices) -> None:
        """Ingest the OOM kills that the source reports for history, each exactly once."""
        found = [oom for oom in usage.ooms if rows[oom.container] >= 0]
        if found:
            self.table.observe_oom(*_ooms_to_arrays(found, rows))


class EvidenceCohort(Cohort[EvidenceTable[WorkloadContainer]]):
    """The evidence about containers, independent of the strategy that sizes them."""

    def __init__(self, strategy_spec: StrategySpec | None = None, *, until: float) -> None:
        super().__init__(
            strategy_spec or StrategySpec.for_evidence(), EvidenceTable(key=WorkloadContainer), until=until
        )
        self.aggregate = max_over_replicas
        self._latest_usage: Floats | None = None

    def include(self, names: Iterable[WorkloadContainer]) -> None:
        super().include(names)
        self._latest_usage = None  # adding containers may move rows

    def observe_usage(
        self,
        usage: WorkloadUsage,
        *,
        running: Collection[WorkloadContainer] | None,
        until: float,  # noqa: ARG002 - evidence makes no proposals
        sample_weight: int = 1,  # noqa: ARG002 - evidence counts seconds
    ) -> None:
        """Ingest samples, and the OOM kills of history. See `Cohort.observe_usage`."""
        self.ingested_until = usage.start + (len(usage.cpu) - 1) * usage.step
        rows = self._rows(usage)
        here = rows >= 0
        due = (
            None if running is None else self.table.find_rows(name for name in running if name in self.table)
        )
        for step in range(len(usage.cpu)):
            self.table.observe(
                usage.start + step * usage.step,
                rows[here],
                cpu=usage.cpu[step, here],
                memory=usage.memory[step, here],
                throttled=None if usage.throttled is None else usage.throttled[step, here],
                running=due,
                sample_seconds=usage.step,
            )
        self._latest_usage = np.full((2, self.table.capacity), np.nan)
        if len(usage.cpu):
            self._latest_usage[:, rows[here]] = usage.cpu[-1, here], usage.memory[-1, here]
        found = [oom for oom in usage.ooms if here[oom.container]] if running is None else []
        if found:
            # A source reports only the usage before a kill; `observe_sizes` adds the limit that the container hit.
            self.table.observe_oom(*_ooms_to_arrays(found, rows), estimated=True)

    def observe_ooms(self, ooms: Iterable[OomKill]) -> set[OomKill]:
        """Record OOM kills and return those that were not known yet."""
        ours = sorted({kill for kill in ooms if kill.container in self.table}, key=lambda kill: kill.at)
        if not ours:
            return set()
        rows, limits, requests = (
            self.table.find_rows(kill.container for kill in ours),
            np.array([kill.limit for kill in ours]),
            np.array([kill.request for kill in ours]),
        )
        used = self.table.memory_peak(ours[-1].at, rows)
        new = self.table.observe_oom(
            np.array([kill.at for kill in ours]),
            rows,
            # A container without a limit was killed because its node ran out of memory: use beyond its request counts too.
            np.where(limits > 0, limits, np.fmax(requests, used)),
            images=np.array([kill.image for kill in ours], np.uint32),
        )
        return {kill for kill, is_new in zip(ours, new, strict=True) if is_new}

    def observe_sizes(self, sizes: Iterable[MemorySize], *, now: float) -> None:
        """Record the memory that containers have in effect."""
        ours = [size for size in sizes if size.container in self.table]
        if ours:
            self.table.observe_sizes(
                now,
                self.table.find_rows(size.container for size in ours),
                np.array([size.memory for size in ours]),
                before=np.array([size.before for size in ours]),
                images=np.array([size.image for size in ours], np.uint32),
            )

    def get_evidence(self, name: WorkloadContainer, *, now: float, is_long_running: bool) -> Evidence:
        """Return the evidence about a container of this cohort."""
        (found,) = self.table.collect_evidence(
            now, self.table.find_rows([name]), is_long_running=[is_long_running]
        )
        return found

    def latest_usage(self, name: WorkloadContainer) -> LatestUsage:
        """Return a container's usage in the last ingested step; NaN if it has no sample there."""
        if self._latest_usage is None:
            return LatestUsage(math.nan, math.nan)
        (row,) = self.table.find_rows([name])
        cpu, memory = self._latest_usage[:, row].tolist()
        return LatestUsage(cpu, memory)


def _ooms_to_arrays(ooms: Sequence[WorkloadOom], rows: Indices) -> tuple[Floats, Indices, Floats]:
    """Return the times of OOM kills, the rows of their containers, and the memory in use at each kill."""
    return (
        np.array([oom.at for oom in ooms]),
        np.array([rows[oom.container] for oom in ooms], np.intp),
        np.array([oom.memory for oom in ooms]),
    )


AnyCohort = StrategyCohort | EvidenceCohort


def create_cohort(strategy_spec: StrategySpec, *, until: float) -> AnyCohort:
    """Return an empty cohort for a strategy spec, or for evidence."""
    return (
        EvidenceCohort(strategy_spec, until=until)
        if strategy_spec.is_evidence
        else StrategyCohort(strategy_spec, until=until)
    )
