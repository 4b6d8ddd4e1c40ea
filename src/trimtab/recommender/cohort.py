"""Containers that are learned of together: a table of them, and up to when it has seen their usage.

Whoever is to be sized later but has a past joins in a cohort of its own, which is shown that past first: a strategy
takes its samples in the order of time, so nobody's past can be shown to one that knows the present.

What a strategy learned of containers and the evidence about them are different cohorts. The evidence is the same whatever
strategy sizes a container, so it goes on when another policy, or other settings, take over. Pure.
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
"""Seconds after which every strategy has something to say anew."""
EVIDENCE = "evidence"
"""In place of a strategy's name: cohorts that hold the evidence about containers."""

T = TypeVar("T", bound=ContainerTable[WorkloadContainer])


class StrategySpec(NamedTuple):
    """A strategy and its settings, as canonical JSON: what containers of one cohort have in common."""

    strategy: str
    settings: str
    source: str = ""
    """The name of the source of their usage; empty for that of policies that name none."""

    @classmethod
    def from_settings(cls, strategy: str, settings: Mapping[str, Any]) -> StrategySpec:
        return cls(strategy, msgspec.json.encode(dict(settings), order="deterministic").decode())

    @classmethod
    def for_evidence(cls, source: str = "") -> StrategySpec:
        """Name the cohorts that hold the evidence about all containers of a source."""
        return cls(EVIDENCE, "{}", source)

    @property
    def is_evidence(self) -> bool:
        return self.strategy == EVIDENCE

    def decode_settings(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.settings)
        return found


class LatestUsage(NamedTuple):
    """What one container used at a time: of its replicas the one that used the most."""

    cpu: float
    """Cores."""
    memory: float


class ContainerEstimate(NamedTuple):
    """What is known of one container."""

    proposal: Proposal
    evidence: Evidence


class _SavedCohort(msgspec.Struct, frozen=True, array_like=True):
    ingested_until: float
    table: bytes


class Cohort(ABC, Generic[T]):
    """A table of containers, and the time up to which it has been shown their usage."""

    aggregate: Callable[[Usage, PodOwnerIndex], WorkloadUsage]
    """How it wants the usage of replicas: `take_in` is shown what this makes of it."""

    def __init__(self, strategy_spec: StrategySpec, table: T, *, until: float) -> None:
        self.strategy_spec = strategy_spec
        self.table = table
        self.ingested_until = until
        self.absent_since: dict[WorkloadContainer, float] = {}
        """Those that are not there at the moment, and since when."""

    def include(self, names: Iterable[WorkloadContainer]) -> None:
        """Learn of these too, from now on."""
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
        """Learn from all samples of a read that goes on where the last one ended, in the cohort's `form`.

        `running` are the containers that should have samples in it; unknown for a past that nobody watched. Reads go on
        up to `until`. Each sample stands for so many of the present.
        """

    def state(self) -> bytes:
        return msgspec.msgpack.encode(_SavedCohort(self.ingested_until, self.table.state()))

    def restore(self, state: bytes) -> None:
        """Take over what `state` returned from a cohort of the same sizing; else `ValueError`."""
        try:
            kept = msgspec.msgpack.decode(state, type=_SavedCohort)
        except msgspec.MsgspecError as error:
            raise ValueError(f"state: these bytes are no cohort's: {error}") from None
        self.table.restore(kept.table)
        self.ingested_until = kept.ingested_until

    def warm_up(self) -> None:
        """Prepare what would else be done while a read is held."""

    def share_pods(self, containers: Mapping[WorkloadContainer, int]) -> None:
        """Note how many containers the pod of each has."""

    def clear_estimates(self) -> None:
        """Take back what was said, until the next read."""

    def _rows(self, usage: WorkloadUsage) -> Indices:
        """Return the row of each container of a read; -1 where it is not in this cohort."""
        known = np.array([name in self.table for name in usage.containers], dtype=bool)
        rows = np.full(known.size, -1, np.intp)
        rows[known] = self.table.find_rows(
            name for name, tracked in zip(usage.containers, known, strict=True) if tracked
        )
        return rows


class StrategyCohort(Cohort[StrategyTable[WorkloadContainer]]):
    """What one strategy with its settings learned of containers."""

    def __init__(self, strategy_spec: StrategySpec, *, until: float) -> None:
        fleet = StrategyTable(strategy_spec.strategy, strategy_spec.decode_settings(), key=WorkloadContainer)
        super().__init__(strategy_spec, fleet, until=until)
        self.aggregate = (
            per_replica
            if STRATEGIES.load_type(strategy_spec.strategy).wants_replica_samples
            else max_over_replicas
        )
        # How long sizes are kept is said of the policy, where it made a difference.
        said = {
            name: value for name, value in strategy_spec.decode_settings().items() if name != "stabilization"
        }
        self._facts = (describe_settings(strategy_spec.strategy, said),) if said else ()
        self._containers_per_pod: dict[WorkloadContainer, int] = {}
        self._targets: Targets | None = None

    def warm_up(self) -> None:
        """Bring what its strategy is compiled to from its cache, so that this is not done while a read is held."""
        trial = type(self.table.strategy)(1, self.table.strategy.settings)
        for t in (0.0, 60.0, WARM_UP_STEP):
            trial.observe(t, np.full(1, 0.1), np.full(1, 1e8))
        trial.recommend(2 * WARM_UP_STEP)

    def include(self, names: Iterable[WorkloadContainer]) -> None:
        super().include(names)
        self._targets = None  # their rows may have moved

    def share_pods(self, containers: Mapping[WorkloadContainer, int]) -> None:
        """Note how many containers the pod of each has: some strategies divide a pod's minimum among them."""
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
        """See `Cohort.take_in`; what was proposed so long before `until` that nobody will remember it is not asked for."""
        # At once: samples on which a strategy fails are not shown to it again.
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
        """Until the next read: what a strategy said before it failed is of then."""
        unknown = np.full(self.table.capacity, np.nan)
        nothing = TargetRange(target=unknown, lower=unknown, upper=unknown)
        self._targets = Targets(cpu=nothing, memory=nothing)

    def observe_ooms(self, ooms: Iterable[OomKill]) -> None:
        """Learn of kills that the evidence did not know yet."""
        ours = sorted({kill for kill in ooms if kill.container in self.table}, key=lambda kill: kill.at)
        if ours:
            self.table.observe_oom(
                np.array([kill.at for kill in ours]),
                self.table.find_rows(kill.container for kill in ours),
                np.array([kill.request for kill in ours]),
            )

    def get_proposal(self, name: WorkloadContainer, *, now: float) -> Proposal:
        """Return what the strategy proposes for a container of this cohort."""
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
        """Tell the strategy how many containers share each pod; its rows move as containers come and go."""
        if not self._containers_per_pod:
            return
        sharing = np.ones(self.table.capacity, np.intp)
        known = [name for name in self._containers_per_pod if name in self.table]
        sharing[self.table.find_rows(known)] = [self._containers_per_pod[name] for name in known]
        self.table.strategy.set_containers_per_pod(sharing)

    def _observe_past_ooms(self, usage: WorkloadUsage, rows: Indices) -> None:
        """Of a past that nobody watched the source tells, each kill once; their samples are all that is known of them."""
        found = [oom for oom in usage.ooms if rows[oom.container] >= 0]
        if found:
            self.table.observe_oom(*_ooms_to_arrays(found, rows))


class EvidenceCohort(Cohort[EvidenceTable[WorkloadContainer]]):
    """What was seen of containers, whatever strategy sizes them."""

    def __init__(self, strategy_spec: StrategySpec | None = None, *, until: float) -> None:
        super().__init__(
            strategy_spec or StrategySpec.for_evidence(), EvidenceTable(key=WorkloadContainer), until=until
        )
        self.aggregate = max_over_replicas
        self._latest_usage: Floats | None = None

    def include(self, names: Iterable[WorkloadContainer]) -> None:
        super().include(names)
        self._latest_usage = None  # their rows may have moved

    def observe_usage(
        self,
        usage: WorkloadUsage,
        *,
        running: Collection[WorkloadContainer] | None,
        until: float,  # noqa: ARG002 - it proposes nothing
        sample_weight: int = 1,  # noqa: ARG002 - it counts seconds
    ) -> None:
        """See `Cohort.take_in`; the kills of a past that nobody watched are noted too."""
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
            # Their samples are all that is known of them here; `take_in_sizes` tells the limits that they hit.
            self.table.observe_oom(*_ooms_to_arrays(found, rows), estimated=True)

    def observe_ooms(self, ooms: Iterable[OomKill]) -> set[OomKill]:
        """Note kills; the answer is those that were not known yet."""
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
            # Without a limit its node ran short of memory: what it used beyond its request counts as well.
            np.where(limits > 0, limits, np.fmax(requests, used)),
            images=np.array([kill.image for kill in ours], np.uint32),
        )
        return {kill for kill, is_new in zip(ours, new, strict=True) if is_new}

    def observe_sizes(self, sizes: Iterable[MemorySize], *, now: float) -> None:
        """Note the memory that containers have in effect."""
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
        """Return what was seen of a container of this cohort."""
        (found,) = self.table.collect_evidence(
            now, self.table.find_rows([name]), is_long_running=[is_long_running]
        )
        return found

    def latest_usage(self, name: WorkloadContainer) -> LatestUsage:
        """What a container used in the last step that was shown; NaN where that was not seen."""
        if self._latest_usage is None:
            return LatestUsage(math.nan, math.nan)
        (row,) = self.table.find_rows([name])
        cpu, memory = self._latest_usage[:, row].tolist()
        return LatestUsage(cpu, memory)


def _ooms_to_arrays(ooms: Sequence[WorkloadOom], rows: Indices) -> tuple[Floats, Indices, Floats]:
    """Return the times of kills, the rows of their containers, and the memory that they had."""
    return (
        np.array([oom.at for oom in ooms]),
        np.array([rows[oom.container] for oom in ooms], np.intp),
        np.array([oom.memory for oom in ooms]),
    )


AnyCohort = StrategyCohort | EvidenceCohort


def create_cohort(strategy_spec: StrategySpec, *, until: float) -> AnyCohort:
    """Return an empty cohort of the kind that a sizing stands for."""
    return (
        EvidenceCohort(strategy_spec, until=until)
        if strategy_spec.is_evidence
        else StrategyCohort(strategy_spec, until=until)
    )
