"""Pressure stall information (PSI) of the node, and of pods and containers in v2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from trimtab.node.cgroups import Hierarchy
from trimtab.node.cgroups.knobs import CPU_PRESSURE, IO_PRESSURE, MEMORY_PRESSURE
from trimtab.node.collectors.file_reader import list_cgroups, read_once
from trimtab.node.model import NODE, Metric, NodeView
from trimtab.node.series import SeriesStore

PERIOD = 10.0

_METRICS = {
    CPU_PRESSURE: (Metric.CPU_PRESSURE, None),
    MEMORY_PRESSURE: (Metric.MEMORY_PRESSURE, Metric.MEMORY_PRESSURE_FULL),
    IO_PRESSURE: (Metric.IO_PRESSURE, Metric.IO_PRESSURE_FULL),
}
_FILES: Final = {CPU_PRESSURE: "cpu", MEMORY_PRESSURE: "memory", IO_PRESSURE: "io"}


class PressureCollector:
    """Opens its files each time: three open files per cgroup would be more than all others together."""

    name = "pressure"
    period = PERIOD

    def __init__(self, hierarchy: Hierarchy, proc: Path) -> None:
        self._hierarchy = hierarchy
        self._proc = proc / "pressure"

    def collect(self, view: NodeView, series: SeriesStore) -> None:
        for knob, metrics in _METRICS.items():
            with suppress(OSError):  # a kernel without PSI, or one that has it switched off
                _add_samples(series, NODE, metrics, read_once(f"{self._proc}/{_FILES[knob]}"))
            file = knob.file(self._hierarchy.version)
            if file is None:
                continue
            for path, subject in list_cgroups(view):
                with suppress(OSError):  # it ended meanwhile
                    _add_samples(
                        series, subject, metrics, read_once(f"{self._hierarchy.root}/{path}/{file.name}")
                    )

    def close(self) -> None:
        """Hold nothing to close."""


def _add_samples(
    series: SeriesStore, subject: str, metrics: tuple[Metric, Metric | None], text: bytes
) -> None:
    for metric, share in zip(metrics, _parse_shares(text), strict=False):
        if metric is not None:
            series.add(subject, metric, share, period=PERIOD)


def _parse_shares(text: bytes) -> Iterator[float]:
    """Yield the ten-second averages of the lines `some` and `full`, 0 to 1."""
    for line in text.splitlines():
        yield float(line.split()[1].removeprefix(b"avg10=")) / 100
