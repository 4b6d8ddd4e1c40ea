"""The current usage of all pods, managed or not, read only for the pages.

Ingestion reads only the namespaces that policies select, and only complete steps. Pages show all pods that the source
knows, and the time of the last sample.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from trimtab.operator.views import UsageReader
from trimtab.usage.errors import UsageError
from trimtab.usage.usage import Usage
from trimtab.web.model import PodName, PodUsageSample


class _SourceUsage(NamedTuple):
    """The usage from one source."""

    pods: dict[PodName, PodUsageSample]
    max_sample_age: float
    """The seconds for which a sample counts as current."""
    error: str = ""


class CurrentUsage:
    """The newest samples of all pods; `read` them once a step."""

    def __init__(self) -> None:
        self._by_source: dict[str, _SourceUsage] = {}
        self.last_sampled_at: float | None = None
        """The time of the newest sample of any pod; None before the first."""

    async def read(
        self, sources: Mapping[str, UsageReader], pods: Collection[PodName], *, now: float
    ) -> None:
        """Read all sources concurrently; samples of pods that are not in `pods` are dropped.

        Earlier samples are kept if a source fails or has nothing new.
        """
        # Sources still have samples of pods that were deleted minutes ago.
        existing = frozenset(pods)
        found = await asyncio.gather(
            *(self._read_source(name, source, existing, now) for name, source in sources.items())
        )
        self._by_source = dict(zip(sources, found, strict=True))
        samples = (pod.sampled_at for reading in found for pod in reading.pods.values())
        self.last_sampled_at = max(
            (at for at in (self.last_sampled_at, *samples) if at is not None), default=None
        )

    async def _read_source(
        self, name: str, source: UsageReader, existing: frozenset[PodName], now: float
    ) -> _SourceUsage:
        before = self._by_source.get(name)
        pods, error_text = before.pods if before else dict[PodName, PodUsageSample](), ""
        try:
            # A polled source has no sample in some steps: a pod keeps its last one until that is too old.
            pods = pods | sum_by_pod(await source.read_present(now))
        except UsageError as error:
            error_text = str(error)
        except Exception as error:  # noqa: BLE001 - a failing plugin must not stop the other sources
            error_text = f"{source.name} failed: {error!r}"
        return _SourceUsage(
            {pod: used for pod, used in pods.items() if pod in existing}, source.current, error_text
        )

    @property
    def errors(self) -> list[str]:
        """The errors of the sources at the last read."""
        return [reading.error for reading in self._by_source.values() if reading.error]

    def list_current(self, now: float) -> dict[PodName, PodUsageSample]:
        """Return the current usage of pods with a current sample; the first source wins."""
        found: dict[PodName, PodUsageSample] = {}
        for reading in self._by_source.values():
            oldest = now - reading.max_sample_age
            found = {pod: used for pod, used in reading.pods.items() if used.sampled_at >= oldest} | found
        return found

    def find_last_sample(self, pods: Iterable[PodName]) -> float | None:
        """Return the time of the last sample of any of these pods; None if unknown."""
        names = list(pods)
        times = (
            reading.pods[name].sampled_at
            for reading in self._by_source.values()
            for name in names
            if name in reading.pods
        )
        return max(times, default=None)


def sum_by_pod(usage: Usage) -> dict[PodName, PodUsageSample]:
    """Sum the newest samples of each pod's containers; pods without a sample of CPU or of memory are omitted.

    A source may know only one of them: CPU is a rate, so a new pod has memory samples one scrape earlier.
    """
    if not usage.steps:
        return {}
    found: dict[PodName, PodUsageSample] = defaultdict(lambda: PodUsageSample(0.0, 0.0, 0.0))
    has_cpu: set[PodName] = set()
    has_memory: set[PodName] = set()
    newest, times = usage.take_latest(), usage.last_times()
    for name, cpu, memory, at in zip(
        usage.containers, newest.cpu[0].tolist(), newest.memory[0].tolist(), times.tolist(), strict=True
    ):
        if math.isnan(at):
            continue
        pod = name.namespace, name.pod
        total = found[pod]
        if not math.isnan(cpu):
            has_cpu.add(pod)
            total = total._replace(cpu=total.cpu + cpu)
        if not math.isnan(memory):
            has_memory.add(pod)
            total = total._replace(memory=total.memory + memory)
        found[pod] = total._replace(sampled_at=max(total.sampled_at, at))
    return {pod: used for pod, used in found.items() if pod in has_cpu and pod in has_memory}
