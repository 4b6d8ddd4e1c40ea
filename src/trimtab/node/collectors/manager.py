"""Runs the collectors, each in its own period; one that fails is counted and costs only its own metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from trimtab.node.cgroups import Hierarchy
from trimtab.node.collectors.cpi import CpiCollector
from trimtab.node.collectors.cpu import CpuCollector
from trimtab.node.collectors.memory import ContainerMemoryCollector, MemoryCollector
from trimtab.node.collectors.node import NodeCollector, RemainderCollector
from trimtab.node.collectors.perf import CollectorUnsupported
from trimtab.node.collectors.pressure import PressureCollector
from trimtab.node.collectors.rundelay import RunDelayCollector
from trimtab.node.model import NodeView
from trimtab.node.series import SeriesStore
from trimtab.timing import Interval, LogOnce

log = structlog.get_logger(__name__)

SWEEP_EVERY = 60.0


class Collector(Protocol):
    """Measures a property of the node and its pods and adds it to the series."""

    @property
    def name(self) -> str: ...
    @property
    def period(self) -> float: ...

    def collect(self, view: NodeView, series: SeriesStore) -> None:
        """Collect once; `CollectorUnsupported` disables the collector, other errors fail one round."""
        ...

    def close(self) -> None: ...


def build_collectors(hierarchy: Hierarchy, proc: Path) -> list[Collector]:
    """Return all collectors in dependency order."""
    return [
        NodeCollector(proc),
        CpuCollector(hierarchy),
        MemoryCollector(hierarchy),
        ContainerMemoryCollector(hierarchy),
        RemainderCollector(),
        PressureCollector(hierarchy, proc),
        RunDelayCollector(hierarchy, proc),
        CpiCollector(hierarchy),
    ]


class CollectorManager:
    """Keeps the series up to date; call `collect` about once a second."""

    def __init__(
        self,
        collectors: Iterable[Collector],
        series: SeriesStore,
        *,
        registry: CollectorRegistry,
        cpu_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._series = series
        self._cpu_time = cpu_time
        self._due: dict[str, float] = {}
        self._collectors = {collector.name: collector for collector in collectors}
        self._errors = LogOnce()
        self._sweeping = Interval(SWEEP_EVERY)
        self._failures = Counter(
            "trimtab_agent_collector_failures_total",
            "Failed collection rounds",
            ["collector"],
            registry=registry,
        )
        self._cpu_seconds = Counter(
            "trimtab_agent_collector_cpu_seconds_total",
            "CPU seconds used by the collector",
            ["collector"],
            registry=registry,
        )
        self._up = Gauge(
            "trimtab_agent_collector_up",
            "1 while the collector works, 0 after a failure or if unsupported",
            ["collector"],
            registry=registry,
        )
        Gauge("trimtab_agent_series", "Series in memory", registry=registry).set_function(lambda: len(series))

    @property
    def failing(self) -> dict[str, str]:
        """Return the collectors whose last round failed, with the reason."""
        return {name: reason for name in self._collectors if (reason := self._errors.current(name))}

    def collect(self, view: NodeView, now: float) -> None:
        self._series.now = now
        for collector in list(self._take_due(now)):
            began = self._cpu_time()
            try:
                collector.collect(view, self._series)
            except CollectorUnsupported as reason:
                self._disable(collector, str(reason))
            except Exception as error:  # noqa: BLE001 - the other collectors must go on
                self._record_failure(collector, error)
            else:
                self._errors.clear(collector.name)
                self._up.labels(collector.name).set(1)
            self._cpu_seconds.labels(collector.name).inc(max(0.0, self._cpu_time() - began))
        if self._sweeping.due(now):
            self._series.sweep()
            self._sweeping.restart(now)

    def close(self) -> None:
        for collector in self._collectors.values():
            collector.close()

    def _take_due(self, now: float) -> Iterator[Collector]:
        for name, collector in self._collectors.items():
            due = self._due.get(name, now)
            # A clock that was set back must not delay the next round until the old time.
            if due - collector.period <= now < due - 0.1:
                continue
            # Missed rounds are not made up for: after a pause, each collector would otherwise run in every
            # round.
            self._due[name] = max(due, now - collector.period) + collector.period
            yield collector

    def _disable(self, collector: Collector, reason: str) -> None:
        log.info("collector.unsupported", collector=collector.name, reason=reason)
        collector.close()
        del self._collectors[collector.name]
        self._up.labels(collector.name).set(0)

    def _record_failure(self, collector: Collector, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        if self._errors.is_new(reason, about=collector.name):
            log.warning("collector.failed", collector=collector.name, error=reason)
        self._failures.labels(collector.name).inc()
        self._up.labels(collector.name).set(0)
