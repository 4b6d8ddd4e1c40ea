"""What pods use now, be they managed or not: read for the pages alone, and kept only until the next read.

Learning reads the namespaces that policies select, and steps as they become complete. Pages show all pods of the cluster,
as far as the source knows them, and say when it last knew.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

from trimtab.recommender.recommender import Learning
from trimtab.recommender.source_ingester import School
from trimtab.usage.errors import UsageError
from trimtab.usage.usage import Usage

PodName = tuple[str, str]
"""A pod by its namespace and name."""


class PodUsage(NamedTuple):
    """What all containers of a pod used together, when it was last sampled."""

    cpu: float
    """Cores."""
    memory: float
    """Bytes."""
    at: float
    """When the newest of its samples was taken, in seconds since 1970."""


class _Reading(NamedTuple):
    """What one source told."""

    pods: dict[PodName, PodUsage]
    current: float
    """Seconds for which a sample tells of the present."""
    trouble: str = ""


class Present:
    """The newest samples of all pods; `read` them once a step."""

    def __init__(self) -> None:
        self._readings: dict[str, _Reading] = {}
        self.last: float | None = None
        """When anything was last sampled."""

    async def read(self, learning: Learning, pods: Collection[PodName], *, now: float) -> None:
        """Read every source; samples of pods that are no longer among `pods` are forgotten.

        The sources do not wait for each other. What a source told before is kept where it fails, or knows nothing new.
        """
        there = frozenset(pods)
        schools = learning.schools
        found = await asyncio.gather(*(self._read(name, schools[name], there, now) for name in schools))
        self._readings = dict(zip(schools, found, strict=True))
        samples = (pod.at for reading in found for pod in reading.pods.values())
        self.last = max((at for at in (self.last, *samples) if at is not None), default=None)

    async def _read(self, name: str, school: School, there: frozenset[PodName], now: float) -> _Reading:
        before = self._readings.get(name)
        pods, trouble = before.pods if before else dict[PodName, PodUsage](), ""
        try:
            pods = pods | by_pod(await school.read_present(now))
        except UsageError as error:
            trouble = str(error)
        except Exception as error:  # noqa: BLE001 - a plugin may fail in ways of its own, and must not end the others
            trouble = f"{name or school.name} failed: {error!r}"
        return _Reading({pod: used for pod, used in pods.items() if pod in there}, school.current, trouble)

    @property
    def troubles(self) -> list[str]:
        """Why sources could not be read the last time."""
        return [reading.trouble for reading in self._readings.values() if reading.trouble]

    def current(self, now: float) -> dict[PodName, PodUsage]:
        """Return what pods use now; those without a current sample are left out. Of two sources the first is believed."""
        found: dict[PodName, PodUsage] = {}
        for reading in self._readings.values():
            oldest = now - reading.current
            found = {pod: used for pod, used in reading.pods.items() if used.at >= oldest} | found
        return found

    def last_sample(self, pods: Iterable[PodName]) -> float | None:
        """Return when any of these pods was last sampled; None where it is not known."""
        names = list(pods)
        times = (
            reading.pods[name].at
            for reading in self._readings.values()
            for name in names
            if name in reading.pods
        )
        return max(times, default=None)


def by_pod(usage: Usage) -> dict[PodName, PodUsage]:
    """Return the newest samples of each pod's containers together; pods without any are left out."""
    found: dict[PodName, PodUsage] = defaultdict(lambda: PodUsage(0.0, 0.0, 0.0))
    if not usage.steps:
        return {}
    newest, times = usage.newest(), usage.last_times()
    for name, cpu, memory, at in zip(
        usage.containers,
        np.nan_to_num(newest.cpu[0]).tolist(),
        np.nan_to_num(newest.memory[0]).tolist(),
        times.tolist(),
        strict=True,
    ):
        if at == at:  # noqa: PLR0124 - NaN
            pod = name.namespace, name.pod
            so_far = found[pod]
            found[pod] = PodUsage(so_far.cpu + cpu, so_far.memory + memory, max(so_far.at, at))
    return dict(found)
