"""The time that tasks wait in run queues: of the node, and of latency-sensitive containers.

A container suffers this when others use its CPU, before any quota is reached. The scheduler counts it per
CPU, depending on the kernel's build options, and per thread. Each thread has a file, so only relevant ones
are read, and a container with very many threads is left out.
"""

from __future__ import annotations

from pathlib import Path

from trimtab.node.cgroups import Hierarchy
from trimtab.node.collectors.file_reader import read_once
from trimtab.node.model import NODE, Metric, NodeView, Tier, container_subject
from trimtab.node.series import SeriesStore

PERIOD = 10.0
MAX_THREADS = 128
_CPU_WAIT_FIELD, _THREAD_WAIT_FIELD = 8, 1
"""The field with the nanoseconds that tasks waited."""


class RunDelayCollector:
    """Sums the waiting time of each thread since the last sample; new threads count from the next on."""

    name = "run_delay"
    period = PERIOD

    def __init__(self, hierarchy: Hierarchy, proc: Path) -> None:
        self._hierarchy = hierarchy
        self._proc = proc
        self._at = 0.0
        self._delays: dict[str, dict[str, int]] = {}

    def collect(self, view: NodeView, series: SeriesStore) -> None:
        found = {NODE: self._read_cpu_delays()} | {
            container_subject(pod.uid, container.name): self._read_thread_delays(container.cgroup)
            for pod in view.pods_in_tier(Tier.LSR, Tier.LS)
            for container in pod.containers
        }
        passed = series.now - self._at
        for subject, delays in found.items():
            before = self._delays.get(subject)
            if before and passed > 0:
                # A thread that is new since the last sample waited before it was watched: all of it would
                # count for this period.
                waited = sum(delay - before[one] for one, delay in delays.items() if one in before)
                # Thread ids are used again, and the counter of the new thread is lower.
                series.add(subject, Metric.RUN_DELAY, max(0, waited) * 1e-9 / passed, period=PERIOD)
        self._delays, self._at = found, series.now

    def close(self) -> None:
        self._delays.clear()

    def _read_cpu_delays(self) -> dict[str, int]:
        try:
            lines = (self._proc / "schedstat").read_text().splitlines()
        except OSError:
            return {}
        words = [line.split() for line in lines if line.startswith("cpu")]
        return {each[0]: int(each[_CPU_WAIT_FIELD]) for each in words}

    def _read_thread_delays(self, path: str) -> dict[str, int]:
        """Return the waiting time of each thread; empty if the container ended or has too many."""
        threads = self._hierarchy.threads(path)
        found: dict[str, int] = {}
        for thread in threads if len(threads) <= MAX_THREADS else ():
            try:
                found[str(thread)] = int(
                    read_once(f"{self._proc}/{thread}/schedstat").split()[_THREAD_WAIT_FIELD]
                )
            except (OSError, IndexError):
                continue  # it ended
        return found
