"""Memory of every pod and container: memory that cannot be reclaimed without swap, and the page cache.

Memory is the sum of the anonymous and unevictable LRU lists. They include shared memory and tmpfs, which
`anon` omits, and count locked memory once, unlike `anon` plus `unevictable`.

This is the most expensive file to read, so containers, whose memory no strategy needs within a second, are
read less often.
"""

from __future__ import annotations

from trimtab.node.cgroups import Cgroup, CgroupVersion, Hierarchy
from trimtab.node.cgroups.knobs import MEMORY_STAT
from trimtab.node.collectors.file_reader import Meters, OpenFile, list_container_cgroups, list_pod_cgroups
from trimtab.node.model import Metric, NodeView
from trimtab.node.series import SeriesStore

_V2 = (b"\ninactive_anon ", b"\nactive_anon ", b"\nunevictable ", b"\nfile ", b"\nshmem ")
_V1 = (
    b"\ntotal_inactive_anon ",
    b"\ntotal_active_anon ",
    b"\ntotal_unevictable ",
    b"\ntotal_cache ",
    b"\ntotal_shmem ",
)


class MemoryCollector:
    """Measures pods and all pods together, one file per cgroup."""

    name = "memory"
    period = 1.0
    subjects = staticmethod(list_pod_cgroups)

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._keys = _V1 if hierarchy.version is CgroupVersion.V1 else _V2
        self._meters: Meters[_MemoryMeter] = Meters(hierarchy, _MemoryMeter, self.subjects)

    def collect(self, view: NodeView, series: SeriesStore) -> None:
        keys, period = self._keys, self.period
        self._meters.measure_all(view, lambda meter: meter.measure(series, keys, period))

    def close(self) -> None:
        self._meters.close()


class ContainerMemoryCollector(MemoryCollector):
    """Measures containers."""

    name = "container_memory"
    period = 5.0
    subjects = staticmethod(list_container_cgroups)


class _MemoryMeter:
    __slots__ = ("_stat", "_subject")

    def __init__(self, cgroup: Cgroup, subject: str) -> None:
        self._subject = subject
        self._stat = OpenFile.for_knob(cgroup, MEMORY_STAT)

    def measure(self, series: SeriesStore, keys: tuple[bytes, ...], period: float) -> None:
        inactive, active, unevictable, cache, shared = _parse_amounts(self._stat.read(), keys)
        series.add(self._subject, Metric.MEMORY, inactive + active + unevictable, period=period)
        series.add(self._subject, Metric.PAGE_CACHE, max(0, cache - shared), period=period)

    def close(self) -> None:
        self._stat.close()


def _parse_amounts(stat: bytes, keys: tuple[bytes, ...]) -> list[int]:
    found = []
    for key in keys:
        at = stat.index(key) + len(key)
        found.append(int(stat[at : stat.index(b"\n", at)]))
    return found
