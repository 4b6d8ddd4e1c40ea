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

from trimtab.recommender.recommender import Recommender
from trimtab.recommender.source_ingester import SourceIngester
from trimtab.usage.errors import UsageError
from trimtab.usage.usage import Usage

PodName = tuple[str, str]
"""A pod by its namespace and name."""


class PodUsageSample(NamedTuple):
    """What all containers of a pod used together, when it was last sampled."""

    cpu: float
    """Cores."""
    memory: float
    """Bytes."""
    sampled_at: float
    """When the newest of its samples was taken, in seconds since 1970."""


class _SourceUsage(NamedTuple):
    """What one source told."""

    pods: dict[PodName, PodUsageSample]
    max_sample_age: float
    """Seconds for which a sample tells of the present."""
    error: str = ""


class CurrentUsage:
    """The newest samples of all pods; `read` them once a step."""

    def __init__(self) -> None:
        self._by_source: dict[str, _SourceUsage] = {}
        self.last_sampled_at: float | None = None
        """When anything was last sampled."""

    async def read(self, recommender: Recommender, pods: Collection[PodName], *, now: float) -> None:
        """Read every source; samples of pods that are no longer among `pods` are forgotten.

        The sources do not wait for each other. What a source told before is kept where it fails, or knows nothing new.
        """
        there = frozenset(pods)
        ingesters = recommender.ingesters
        found = await asyncio.gather(
            *(self._read_source(name, ingesters[name], there, now) for name in ingesters)
        )
        self._by_source = dict(zip(ingesters, found, strict=True))
        samples = (pod.sampled_at for reading in found for pod in reading.pods.values())
        self.last_sampled_at = max(
            (at for at in (self.last_sampled_at, *samples) if at is not None), default=None
        )

    async def _read_source(
        self, name: str, ingester: SourceIngester, there: frozenset[PodName], now: float
    ) -> _SourceUsage:
        before = self._by_source.get(name)
        pods, trouble = before.pods if before else dict[PodName, PodUsageSample](), ""
        try:
            pods = pods | sum_by_pod(await ingester.read_present(now))
        except UsageError as error:
            trouble = str(error)
        except Exception as error:  # noqa: BLE001 - a plugin may fail in ways of its own, and must not end the others
            trouble = f"{name or ingester.name} failed: {error!r}"
        return _SourceUsage(
            {pod: used for pod, used in pods.items() if pod in there}, ingester.current, trouble
        )

    @property
    def errors(self) -> list[str]:
        """Why sources could not be read the last time."""
        return [reading.error for reading in self._by_source.values() if reading.error]

    def list_current(self, now: float) -> dict[PodName, PodUsageSample]:
        """Return what pods use now; those without a current sample are left out. Of two sources the first is believed."""
        found: dict[PodName, PodUsageSample] = {}
        for reading in self._by_source.values():
            oldest = now - reading.max_sample_age
            found = {pod: used for pod, used in reading.pods.items() if used.sampled_at >= oldest} | found
        return found

    def find_last_sample(self, pods: Iterable[PodName]) -> float | None:
        """Return when any of these pods was last sampled; None where it is not known."""
        names = list(pods)
        times = (
            reading.pods[name].sampled_at
            for reading in self._by_source.values()
            for name in names
            if name in reading.pods
        )
        return max(times, default=None)


def sum_by_pod(usage: Usage) -> dict[PodName, PodUsageSample]:
    """Return the newest samples of each pod's containers together; pods without any are left out."""
    found: dict[PodName, PodUsageSample] = defaultdict(lambda: PodUsageSample(0.0, 0.0, 0.0))
    if not usage.steps:
        return {}
    newest, times = usage.take_latest(), usage.last_times()
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
            found[pod] = PodUsageSample(so_far.cpu + cpu, so_far.memory + memory, max(so_far.sampled_at, at))
    return dict(found)
