"""CPU usage and throttling of every pod and container: one small file per cgroup in v2, two in v1."""

from __future__ import annotations

from trimtab.node.cgroups import Cgroup, CgroupVersion, Hierarchy
from trimtab.node.cgroups.knobs import CPU_STAT, CPU_USAGE
from trimtab.node.collectors.file_reader import Meters, OpenFile, list_cgroups
from trimtab.node.model import Metric, NodeView
from trimtab.node.series import SeriesStore

PERIOD = 1.0
_USAGE = b"usage_usec "
_PERIODS = b"nr_periods "


class CpuCollector:
    """Computes rates over the actual time between two samples."""

    name = "cpu"
    period = PERIOD

    def __init__(self, hierarchy: Hierarchy) -> None:
        kind = _MeterV1 if hierarchy.version is CgroupVersion.V1 else _MeterV2
        self._meters: Meters[_CpuMeter] = Meters(hierarchy, kind, list_cgroups)

    def collect(self, view: NodeView, series: SeriesStore) -> None:
        self._meters.measure_all(view, lambda meter: meter.measure(series))

    def close(self) -> None:
        self._meters.close()


class _CpuMeter:
    """The last counters of one cgroup."""

    __slots__ = ("_at", "_periods", "_stat", "_subject", "_throttled", "_usage")

    def __init__(self, cgroup: Cgroup, subject: str) -> None:
        self._subject = subject
        self._stat = OpenFile.for_knob(cgroup, CPU_STAT)
        self._at = -1.0
        self._usage = self._periods = self._throttled = 0

    def read_counters(self) -> tuple[int, int, int]:
        """Return nanoseconds of CPU, CFS periods, and throttled periods."""
        raise NotImplementedError

    def measure(self, series: SeriesStore) -> None:
        usage, periods, throttled = self.read_counters()
        passed = series.now - self._at
        if self._at >= 0 and passed > 0 and usage >= self._usage:
            series.add(self._subject, Metric.CPU, (usage - self._usage) / passed * 1e-9, period=PERIOD)
            went_by = periods - self._periods
            share = (throttled - self._throttled) / went_by if went_by > 0 else 0.0
            series.add(self._subject, Metric.THROTTLED, share, period=PERIOD)
        self._at, self._usage, self._periods, self._throttled = series.now, usage, periods, throttled

    def close(self) -> None:
        self._stat.close()


class _MeterV2(_CpuMeter):
    __slots__ = ()

    def read_counters(self) -> tuple[int, int, int]:
        stat = self._stat.read()
        return int(stat[len(_USAGE) : stat.index(b"\n")]) * 1000, *_parse_throttling(stat)


class _MeterV1(_CpuMeter):
    __slots__ = ("_used",)

    def __init__(self, cgroup: Cgroup, subject: str) -> None:
        super().__init__(cgroup, subject)
        try:
            self._used = OpenFile.for_knob(cgroup, CPU_USAGE)
        except OSError:
            super().close()
            raise

    def read_counters(self) -> tuple[int, int, int]:
        return int(self._used.read()), *_parse_throttling(self._stat.read())

    def close(self) -> None:
        super().close()
        self._used.close()


def _parse_throttling(stat: bytes) -> tuple[int, int]:
    """Return both counters, which are adjacent in either version; 0 without the controller."""
    at = stat.find(_PERIODS)
    if at < 0:
        return 0, 0
    words = stat[at : at + 64].split(None, 4)
    return int(words[1]), int(words[3])
