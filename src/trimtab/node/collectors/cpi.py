"""Cycles per instruction of latency-sensitive containers; an increase indicates interference.

Two counters per container and CPU are many on a large node, so containers are counted in rotation, a few per
period.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import ExitStack, suppress

from trimtab.node.cgroups import Hierarchy
from trimtab.node.collectors.perf import CYCLES, INSTRUCTIONS, CollectorUnsupported, CounterGroup, PerfEvent
from trimtab.node.model import Metric, NodeView, Tier, container_subject
from trimtab.node.series import SeriesStore

PERIOD = 10.0
"""The seconds for which a container is counted at a time."""
CONTAINER_SECONDS = 60.0
"""The seconds after which a container is counted again; its last sample counts three times as long."""
MAX_GROUPS = 256


class CpiCollector:
    """Raises `CollectorUnsupported` if the CPU has no counters, as in most virtual machines."""

    name = "cpi"
    period = PERIOD

    def __init__(
        self, hierarchy: Hierarchy, events: tuple[PerfEvent, PerfEvent] = (CYCLES, INSTRUCTIONS)
    ) -> None:
        self._hierarchy = hierarchy
        self._events = events
        self._waiting: deque[str] = deque()
        self._counting: dict[str, list[CounterGroup]] = {}

    def collect(self, view: NodeView, series: SeriesStore) -> None:
        if not self._hierarchy.folder("", "perf_event").is_dir():
            raise CollectorUnsupported("the perf_event hierarchy of cgroup v1 is not mounted")
        for subject, groups in self._counting.items():
            _add_cpi(series, subject, groups)
        self.close()
        cgroups = {
            container_subject(pod.uid, container.name): container.cgroup
            for pod in view.pods_in_tier(Tier.LSR, Tier.LS)
            for container in pod.containers
        }
        queued = set(self._waiting)
        self._waiting.extend(subject for subject in cgroups if subject not in queued)
        # Each counter is a file of the agent: counting all containers of a large node at once would exceed
        # its open files.
        slots = max(1, MAX_GROUPS // len(view.cpus))
        for _ in range(min(slots, len(self._waiting))):
            subject = self._waiting.popleft()
            if subject in cgroups:
                with suppress(OSError):  # it ended, or a CPU went offline; retried in the next rotation
                    self._counting[subject] = self._open(cgroups[subject], view)

    def close(self) -> None:
        for groups in self._counting.values():
            for group in groups:
                group.close()
        self._counting.clear()

    def _open(self, path: str, view: NodeView) -> list[CounterGroup]:
        folder = os.open(self._hierarchy.folder(path, "perf_event"), os.O_RDONLY | os.O_CLOEXEC)
        with ExitStack() as opened:
            opened.callback(os.close, folder)
            with ExitStack() as undo:
                groups = []
                for cpu in view.cpus:
                    groups.append(CounterGroup(folder, cpu.id, self._events))
                    undo.callback(groups[-1].close)
                # Only now: if a CPU in the middle cannot be opened, the counters before it must be closed, or
                # their files leak.
                undo.pop_all()
        return groups


def _add_cpi(series: SeriesStore, subject: str, groups: list[CounterGroup]) -> None:
    counted = [counts for group in groups if (counts := group.read_counts()) is not None]
    cycles, instructions = (sum(counts[place] for counts in counted) for place in (0, 1))
    # An idle container counts no instructions, and a ratio to them does not exist.
    if instructions:
        series.add(subject, Metric.CPI, cycles / instructions, period=CONTAINER_SECONDS)
