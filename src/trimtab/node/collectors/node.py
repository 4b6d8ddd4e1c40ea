"""The usage of the whole node, and of the system without its pods."""

from __future__ import annotations

import os
from pathlib import Path

from trimtab.node.collectors.file_reader import PODS, OpenFile
from trimtab.node.model import NODE, SYSTEM, Metric, NodeView, Tier, pod_subject, tier_subject
from trimtab.node.series import SeriesStore

PERIOD = 1.0


class NodeCollector:
    """Measures CPU and memory of the node."""

    name = "node"
    period = PERIOD

    def __init__(self, proc: Path) -> None:
        self._tick = 1.0 / os.sysconf("SC_CLK_TCK")
        self._stat = OpenFile(proc / "stat")
        self._meminfo = OpenFile(proc / "meminfo")
        self._at = -1.0
        self._busy = 0

    def collect(self, view: NodeView, series: SeriesStore) -> None:  # noqa: ARG002 - as every collector
        busy = _parse_busy_ticks(self._stat.read())
        passed = series.now - self._at
        if self._at >= 0 and passed > 0:
            series.add(NODE, Metric.CPU, max(0, busy - self._busy) * self._tick / passed, period=PERIOD)
        self._at, self._busy = series.now, busy
        used, cache = _parse_meminfo(self._meminfo.read())
        series.add(NODE, Metric.MEMORY, used, period=PERIOD)
        series.add(NODE, Metric.PAGE_CACHE, cache, period=PERIOD)

    def close(self) -> None:
        self._stat.close()
        self._meminfo.close()


class RemainderCollector:
    """Sums the usage of tiers and derives that of the system; runs after the collectors that it sums."""

    name = "remainder"
    period = PERIOD

    def collect(self, view: NodeView, series: SeriesStore) -> None:
        for metric in (Metric.CPU, Metric.MEMORY):
            sums = dict.fromkeys(Tier, 0.0)
            for pod in view.pods:
                sums[pod.tier] += series.latest(pod_subject(pod.uid), metric) or 0.0
            for tier, total in sums.items():
                series.add(tier_subject(tier), metric, total, period=PERIOD)
            node, pods = series.latest(NODE, metric), series.latest(PODS, metric)
            if node is not None and pods is not None:
                series.add(SYSTEM, metric, max(0.0, node - pods), period=PERIOD)

    def close(self) -> None:
        """Hold nothing to close."""


def _parse_busy_ticks(stat: bytes) -> int:
    """Return the ticks of user (which includes guests), nice, system, irq and softirq."""
    words = stat[: stat.index(b"\n")].split()
    return int(words[1]) + int(words[2]) + int(words[3]) + int(words[6]) + int(words[7])


def _parse_meminfo(meminfo: bytes) -> tuple[int, int]:
    """Return unavailable bytes, and bytes of page cache without shared memory.

    Huge pages are excluded, because Kubernetes allocates them separately.
    """
    kib = {line[0]: int(line[1]) for text in meminfo.splitlines() if len(line := text.split()) > 1}
    cache = kib.get(b"Cached:", 0) + kib.get(b"Buffers:", 0) - kib.get(b"Shmem:", 0)
    total = kib[b"MemTotal:"] - kib.get(b"Hugetlb:", 0)
    return max(0, total - kib[b"MemAvailable:"]) << 10, max(0, cache) << 10
