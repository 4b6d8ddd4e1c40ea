"""What the past teaches of all containers of a survey: the evidence, a cohort for each strategy, and the sums for the bill."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from trimtab.actuation.change_annotations import own_marks
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.operator.cluster_state import containers_per_pod
from trimtab.recommender.cohort import AnyCohort, EvidenceCohort, Learned, Sizing, StrategyCohort
from trimtab.recommender.oom_kills import kills_of, memory_sizes
from trimtab.scan.cluster_snapshot import Picture
from trimtab.scan.usage_totals import Consumption
from trimtab.usage.pod_ownership import WorkloadContainer
from trimtab.usage.usage import Usage
from trimtab.usage.workload_usage import WorkloadUsage


class Lessons:
    """Taken in part by part, in the order of time; then, once, the kills that pods remember."""

    def __init__(
        self, picture: Picture, workloads: Collection[Workload], sizings: Iterable[Sizing], *, now: float
    ) -> None:
        self.owners = picture.owners()
        self.consumption = Consumption(now)
        by_key = {workload.key: workload for workload in workloads}
        pods = {workload.key: picture.pods_of(workload) for workload in workloads}
        names = [
            WorkloadContainer.of(workload.key, container)
            for workload in workloads
            for container in _containers(workload, pods[workload.key])
        ]
        containers = {name: containers_per_pod(pods[name.workload], by_key[name.workload]) for name in names}
        self._evidence = EvidenceCohort(until=0.0)
        self._evidence.include(names)
        self._cohorts = {}
        for sizing in sizings:
            cohort = StrategyCohort(sizing, until=0.0)
            cohort.include(names)
            cohort.share_pods(containers)
            self._cohorts[sizing] = cohort
        marks = {key: own_marks(workload) for key, workload in by_key.items()}
        self._kills = [
            kill._replace(at=min(kill.at, now))  # the clock of its node may be ahead
            for name in names
            for kill in kills_of(name, pods[name.workload], marks[name.workload])
        ]
        of_workload: dict[WorkloadKey, list[WorkloadContainer]] = {}
        for name in names:
            of_workload.setdefault(name.workload, []).append(name)
        self._memory = [
            size
            for key, own in of_workload.items()
            for size in memory_sizes(by_key[key], pods[key], own, marks[key])
        ]
        self._now = now

    def take_in(self, usage: Usage, *, until: float) -> None:
        """A part of the past, which goes on up to `until`."""
        self.consumption.take_in(usage, self.owners)
        forms: dict[object, WorkloadUsage] = {}
        cohorts: list[AnyCohort] = [self._evidence, *self._cohorts.values()]
        for cohort in cohorts:
            if cohort.form not in forms:
                forms[cohort.form] = cohort.form(usage, self.owners)
            cohort.take_in(forms[cohort.form], running=None, until=until)

    def tell_of_kills(self) -> None:
        """Take in the kills that pods remember, once the past is in; those known from there hit the limits of now."""
        self._evidence.take_in_sizes(self._memory, now=self._now)
        new = self._evidence.take_in_kills(self._kills)
        for cohort in self._cohorts.values() if new else ():
            cohort.take_in_kills(new)
            cohort.include(())  # so that it names sizes anew

    def learned(
        self, name: WorkloadContainer, sizing: Sizing, *, now: float, runs_on: bool
    ) -> Learned | None:
        if name not in self._evidence.fleet:
            return None
        evidence = self._evidence.evidence(name, now=now, runs_on=runs_on)
        return Learned(self._cohorts[sizing].proposed(name, now=now), evidence)


def _containers(workload: Workload, pods: Sequence[Pod]) -> list[str]:
    """The names in the template, and those that something put beside them."""
    everyone = [workload.containers, *(pod.containers for pod in pods)]
    return list(dict.fromkeys(each.name for containers in everyone for each in containers))
