"""What is learned of a cluster, from every source of usage: each container in the `school` of its policy's source.

The sources do not wait for each other: where one is away, the workloads of the others are learned of all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from trimtab.actuation.change_annotations import own_marks
from trimtab.kube.kinds.nodes import Room
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload
from trimtab.recommender.cohort import Learned, Sizing, Used
from trimtab.recommender.cohort_manager import Want
from trimtab.recommender.oom_kills import Kill, KillTimes, kills_of, memory_sizes
from trimtab.recommender.source_ingester import IngestMetrics, Pace, School
from trimtab.store import Store
from trimtab.usage.pod_ownership import Owners, WorkloadContainer
from trimtab.usage.source import Source
from trimtab.usage.usage import PodContainer

DEFAULT = ""
"""The name of the source for policies that name none."""


class Learning:
    """All that is learned; `sources` are by the names that policies have for them, the first under `DEFAULT`."""

    def __init__(
        self,
        sources: Mapping[str, Source[Any]],
        store: Store,
        *,
        cluster: str,
        pace: Pace | None = None,
        metrics: IngestMetrics,
    ) -> None:
        pace = pace or Pace()
        self._metrics = metrics
        self.step = pace.step
        """Seconds between two samples of the present."""
        self.lock = asyncio.Lock()
        """Held while anybody learns, which is done in a thread: who asks what was learned holds it too."""
        self._kill_times = KillTimes()
        self._schools = {
            name: School(
                source,
                store,
                cluster=cluster,
                pace=pace,
                metrics=metrics,
                name=name,
                lock=self.lock,
            )
            for name, source in sources.items()
        }

    def of(self, sizing: Sizing | None) -> School:
        """Where containers of this sizing are learned of, or would be that have none."""
        return self._schools[sizing.source if sizing else DEFAULT]

    def learned(
        self, name: WorkloadContainer, sizing: Sizing, *, now: float, runs_on: bool
    ) -> Learned | None:
        """What is known of a container; None when it is not learned of yet."""
        return self.of(sizing).learned(name, sizing, now=now, runs_on=runs_on)

    def used(self, name: WorkloadContainer, sizing: Sizing) -> Used | None:
        """What a container used when usage was last read; None when it is not learned of yet."""
        return self.of(sizing).used(name, sizing)

    def note_kills(self, kills: Iterable[Kill]) -> set[Kill]:
        """Take in kills at once, not only at the next turn; the answer is those that nobody knew of."""
        found = set(kills)
        return {new for school in self._schools.values() for new in school.note_kills(found)}

    def note_memory(
        self,
        workload: Workload,
        pods: Sequence[Pod],
        names: Collection[WorkloadContainer],
        *,
        ended: Sequence[Pod] = (),
        now: float,
    ) -> set[Kill]:
        """Note the memory that these containers of a workload have in effect, and the kills that their pods remember.

        `ended` are pods that run no more. The answer is the kills that nobody knew of.
        """
        marks = own_marks(workload)
        sizes = memory_sizes(workload, pods, names, marks)
        for school in self._schools.values():
            school.note_sizes(sizes, now=now)
        kills = (kill for name in names for kill in kills_of(name, [*pods, *ended], marks))
        return self.note_kills(self._kill_times.dated(workload.key, kills, now=now))

    @property
    def troubles(self) -> dict[str, str]:
        """Why a source could not be read at the last turn, by its name; those that could are left out."""
        return {name: school.trouble for name, school in self._schools.items() if school.trouble}

    @property
    def unsampled(self) -> set[PodContainer]:
        """The containers that run and are to be learned of, but have had no sample for long."""
        return {name for school in self._schools.values() for name in school.unsampled}

    @property
    def schools(self) -> Mapping[str, School]:
        """Where is learned of containers, by the name of the source."""
        return self._schools

    async def advance(
        self,
        now: float,
        *,
        wanted: Mapping[WorkloadContainer, Want],
        owners: Callable[[], Owners],
        running: Collection[WorkloadContainer],
        pods: Mapping[PodContainer, float] | None = None,
        machine: Room | None = None,
    ) -> set[WorkloadContainer]:
        """Read every source up to the last complete step before now; the answer is those learned of since now.

        `pods` are the containers that run and should have samples, and since when.
        """
        theirs: dict[str, dict[WorkloadContainer, Want]] = {name: {} for name in self._schools}
        for container, want in wanted.items():
            theirs[want.sizing.source][container] = want
        self._kill_times.forget_all_but({container.workload for container in wanted})
        async with asyncio.TaskGroup() as group:
            reading = [
                group.create_task(
                    school.advance(
                        now,
                        wanted=theirs[name],
                        owners=owners,
                        running=running,
                        pods=pods,
                        machine=machine,
                    )
                )
                for name, school in self._schools.items()
            ]
        return {container for task in reading for container in task.result()}

    def clear_gauges(self) -> None:
        """Report nothing more: another operator leads, and reports."""
        self._metrics.usage_lateness.clear()
        self._metrics.containers_without_samples.clear()

    async def save(self, now: float) -> None:
        """Keep what was learned."""
        for school in self._schools.values():
            await school.save(now)
