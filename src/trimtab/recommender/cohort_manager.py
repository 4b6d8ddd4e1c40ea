"""All cohorts of a cluster: feed them with usage and OOM kills, and ask them for estimates. Pure.

`RecentUsage` is evidence from steps that are still incomplete: it counts at once, but is not ingested because more
samples may arrive.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

import msgspec
import numpy as np

from trimtab.recommender.cohort import (
    AnyCohort,
    ContainerEstimate,
    EvidenceCohort,
    LatestUsage,
    StrategyCohort,
    StrategySpec,
    create_cohort,
)
from trimtab.recommender.oom_kills import ObservedSize, OomKill
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.proposal import Proposal
from trimtab.sizing.state import MAX_PLAUSIBLE_CPU, MAX_PLAUSIBLE_MEMORY
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.trace import Floats
from trimtab.usage.usage import Usage, mask_implausible
from trimtab.usage.workload_usage import WorkloadUsage, max_over_replicas


class CohortManager:
    """The cohorts of each strategy spec, and those of the evidence of each source."""

    def __init__(self) -> None:
        self._by_spec: dict[StrategySpec, list[AnyCohort]] = {}

    def __iter__(self) -> Iterator[AnyCohort]:
        for cohorts in self._by_spec.values():
            yield from cohorts

    def iter_source(self, source: str) -> Iterator[AnyCohort]:
        """Iterate over the cohorts that are fed from one source."""
        return (cohort for cohort in self if cohort.strategy_spec.source == source)

    def iter_strategies(self) -> Iterator[StrategyCohort]:
        """Iterate over the cohorts that hold the state of strategies."""
        return (cohort for cohort in self if isinstance(cohort, StrategyCohort))

    def iter_evidence(self, source: str | None = None) -> Iterator[EvidenceCohort]:
        """Iterate over the cohorts that hold evidence, of one source or of all."""
        cohorts = self if source is None else self.iter_source(source)
        return (cohort for cohort in cohorts if isinstance(cohort, EvidenceCohort))

    def add(self, spec: StrategySpec, names: Iterable[WorkloadContainer], *, until: float) -> AnyCohort:
        """Add a cohort with these containers, and return it."""
        cohort = create_cohort(spec, until=until)
        cohort.add(names)
        self._by_spec.setdefault(spec, []).append(cohort)
        return cohort

    def find(self, name: WorkloadContainer, strategy_spec: StrategySpec) -> StrategyCohort | None:
        """Return the cohort that holds a container under this spec; None if there is none yet."""
        for cohort in self._by_spec.get(strategy_spec, ()):
            if isinstance(cohort, StrategyCohort) and name in cohort:
                return cohort
        return None

    def find_evidence(self, name: WorkloadContainer, source: str) -> EvidenceCohort | None:
        """Return the cohort that holds a source's evidence about a container; None if there is none yet."""
        for cohort in self._by_spec.get(StrategySpec.for_evidence(source), ()):
            if isinstance(cohort, EvidenceCohort) and name in cohort:
                return cohort
        return None

    def estimate(
        self,
        names: Iterable[WorkloadContainer],
        strategy_spec: StrategySpec,
        *,
        now: float,
        is_long_running: bool,
        explained: bool = True,
    ) -> dict[WorkloadContainer, ContainerEstimate]:
        """Return the estimates for containers, without those for which nothing was ingested yet."""
        proposals: dict[WorkloadContainer, Proposal] = {}
        by_cohort: dict[EvidenceCohort, list[WorkloadContainer]] = {}
        for name in names:
            cohort, evidence = self.find(name, strategy_spec), self.find_evidence(name, strategy_spec.source)
            if cohort is not None and evidence is not None:
                proposals[name] = cohort.get_proposal(name, now=now, explained=explained)
                by_cohort.setdefault(evidence, []).append(name)
        # Together: the arrays of a cohort are read once for all containers of a workload.
        return {
            name: ContainerEstimate(proposals[name], evidence)
            for cohort, ours in by_cohort.items()
            for name, evidence in zip(
                ours,
                cohort.collect_evidence(ours, now=now, is_long_running=is_long_running),
                strict=True,
            )
        }

    def observe_sizes(self, sizes: Collection[ObservedSize], *, now: float) -> None:
        """Record the sizes that containers have in effect. Call it before `observe_ooms`: the kills hit these sizes."""
        for cohort in self.iter_evidence():
            cohort.observe_sizes(sizes, now=now)

    def observe_ooms(self, ooms: Iterable[OomKill]) -> set[OomKill]:
        """Ingest OOM kills, and return those that were not known before.

        A strategy learns the kills that are new to the evidence of its own source: after a change of source, a container
        is for a while in the evidence of both.
        """
        found = set(ooms)
        if not found:
            return found
        new: dict[str, set[OomKill]] = {}
        for evidence in self.iter_evidence():
            new.setdefault(evidence.strategy_spec.source, set()).update(evidence.observe_ooms(found))
        for cohort in self.iter_strategies():
            if kills := new.get(cohort.strategy_spec.source):
                cohort.observe_ooms(kills)
        return {kill for kills in new.values() for kill in kills}


def observe_usage(
    cohorts: Iterable[AnyCohort],
    usage: Usage,
    owners: PodOwnerIndex,
    *,
    running: Collection[WorkloadContainer] | None,
    until: float,
    sample_weight: int = 1,
) -> dict[StrategySpec, Exception]:
    """Feed a read to cohorts, aggregating it once per form, and return the specs that failed with their errors."""
    forms: dict[object, WorkloadUsage] = {}
    failed: dict[StrategySpec, Exception] = {}
    for cohort in cohorts:
        if cohort.aggregate not in forms:
            forms[cohort.aggregate] = cohort.aggregate(usage, owners)
        try:
            cohort.observe_usage(
                forms[cohort.aggregate], running=running, until=until, sample_weight=sample_weight
            )
        except Exception as error:  # noqa: BLE001 - a strategy may be a plugin, and must not stop the others
            failed[cohort.strategy_spec] = error
            cohort.clear_estimates()
    return failed


@dataclass(frozen=True, slots=True)
class RecentUsage:
    """The usage of workload containers in the steps after the ingested ones."""

    columns: dict[WorkloadContainer, int] = field(default_factory=dict)
    """The column of each container in `cpu` and `memory`."""
    times: Floats = field(default_factory=lambda: np.empty(0))
    cpu: Floats = field(default_factory=lambda: np.empty((0, 0)))
    memory: Floats = field(default_factory=lambda: np.empty((0, 0)))

    @classmethod
    def from_usage(cls, usage: Usage, owners: PodOwnerIndex) -> Self:
        """Combine the usage of replicas and drop implausible samples."""
        found = max_over_replicas(usage, owners)
        columns = {name: column for column, name in enumerate(found.containers)}
        cpu = mask_implausible(found.cpu, maximum=MAX_PLAUSIBLE_CPU)
        return cls(columns, usage.times, cpu, mask_implausible(found.memory, maximum=MAX_PLAUSIBLE_MEMORY))

    def add_to(self, evidence: Evidence, name: WorkloadContainer, *, after: float) -> Evidence:
        """Return a container's evidence with the peaks and the last sample after a time, up to which it was ingested."""
        times, cpu, memory = self._samples_after(name, after)
        sampled = times[~(np.isnan(cpu) & np.isnan(memory))]
        if not sampled.size:
            return evidence
        # Only peaks and the last sample: counts and coverage wait until the step is ingested, or they would count twice.
        return msgspec.structs.replace(
            evidence,
            last_sample_at=max(evidence.last_sample_at, float(sampled[-1])),
            cpu_peak=_max_peak(evidence.cpu_peak, cpu * 1000),
            cpu_peak_week=_max_peak(evidence.cpu_peak_week, cpu * 1000),
            memory_peak=_max_peak(evidence.memory_peak, memory),
        )

    def latest_usage(self, name: WorkloadContainer, *, after: float) -> LatestUsage | None:
        """Return a container's latest usage after a time; None if it has no sample since then."""
        if not self.times.size:
            return None
        _, cpu, memory = self._samples_after(name, after)
        sampled = np.flatnonzero(~(np.isnan(cpu) & np.isnan(memory)))
        return LatestUsage(float(cpu[sampled[-1]]), float(memory[sampled[-1]])) if sampled.size else None

    def _samples_after(self, name: WorkloadContainer, after: float) -> tuple[Floats, Floats, Floats]:
        # Sources without late samples have none, and each cycle asks for every container.
        column = self.columns.get(name) if self.times.size else None
        if column is None:
            return _NO_SAMPLES, _NO_SAMPLES, _NO_SAMPLES
        later = self.times > after
        return self.times[later], self.cpu[later, column], self.memory[later, column]


_NO_SAMPLES = np.empty(0)


def _max_peak(known: int | None, found: Floats) -> int | None:
    highest = float(np.fmax.reduce(found, initial=np.nan))
    if math.isnan(highest):
        return known
    return max(known or 0, math.ceil(highest))
