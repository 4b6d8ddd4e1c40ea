"""All cohorts of a cluster: feed them with usage and OOM kills, and ask them for estimates. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from trimtab.recommender.cohort import (
    AnyCohort,
    ContainerEstimate,
    EvidenceCohort,
    StrategyCohort,
    StrategySpec,
    create_cohort,
)
from trimtab.recommender.oom_kills import MemorySize, OomKill
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.usage import Usage
from trimtab.usage.workload_usage import WorkloadUsage


class Cohorts:
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
        self, name: WorkloadContainer, strategy_spec: StrategySpec, *, now: float, is_long_running: bool
    ) -> ContainerEstimate | None:
        """Return the estimate for a container; None if nothing was ingested for it yet."""
        cohort, evidence = self.find(name, strategy_spec), self.find_evidence(name, strategy_spec.source)
        if cohort is None or evidence is None:
            return None
        return ContainerEstimate(
            cohort.get_proposal(name, now=now),
            evidence.get_evidence(name, now=now, is_long_running=is_long_running),
        )

    def observe_sizes(self, sizes: Collection[MemorySize], *, now: float) -> None:
        """Record the memory that containers have in effect. Call it before `observe_ooms`: the kills hit these sizes."""
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
