"""Collectors against a real cgroup v2 kernel."""

import os
from pathlib import Path

from harness.builders.node_views import node_view, pod_view
from harness.cluster import collector_checks as measured
from harness.cluster.kubepods import Kubepods
from trimtab.node.collectors.cpi import CpiCollector
from trimtab.node.collectors.pressure import PressureCollector
from trimtab.node.collectors.rundelay import RunDelayCollector
from trimtab.node.model import NODE, Metric, container_subject
from trimtab.node.series import SeriesStore

CLOCK, SWITCHES = (1, 0), (1, 3)
"""Events that the kernel counts itself: an emulated processor has no counters of its own."""


def test_cpu_collector_reports_has_cpi(kubepods: Kubepods) -> None:
    measured.cpu_is_what_the_kernel_counted(kubepods)


def test_memory_collector_reports_has_cpi(kubepods: Kubepods) -> None:
    measured.memory_is_what_the_kernel_counted(kubepods, Path("/tmp/shared"))


def test_collectors_tolerate_a_pod_removed_while_reading(kubepods: Kubepods) -> None:
    measured.a_pod_may_vanish_under_the_reader(kubepods)


def test_rundelay_collector_includes_nested_cgroups(kubepods: Kubepods) -> None:
    measured.threads_below_a_container_are_seen(kubepods)


def test_pressure_and_cpi_collectors_measure_a_waiting_container(kubepods: Kubepods) -> None:
    cgroup, [path] = kubepods.pod()
    burners = [kubepods.run(path) for _ in range(4)]  # on two CPUs
    pod = pod_view(cgroup, [path])
    view, subject, series = node_view(kubepods, pod), container_subject(pod.uid, "c0"), SeriesStore(now=100.0)
    delay = RunDelayCollector(kubepods.hierarchy, measured.PROC)
    cpi = CpiCollector(kubepods.hierarchy, (CLOCK, SWITCHES))
    delay.collect(view, series)
    cpi.collect(view, series)
    threads = [measured.PROC / str(burner.pid) / "schedstat" for burner in burners]
    measured.until(lambda: all(int(thread.read_text().split()[2]) > 20 for thread in threads))
    series.now = 110.0
    delay.collect(view, series)
    cpi.collect(view, series)
    PressureCollector(kubepods.hierarchy, measured.PROC).collect(view, series)
    assert (series.latest(subject, Metric.RUN_DELAY) or 0) > 0
    assert (series.latest(NODE, Metric.RUN_DELAY) or 0) > 0
    assert (series.latest(subject, Metric.CPI) or 0) > 0
    for metric in (Metric.CPU_PRESSURE, Metric.MEMORY_PRESSURE, Metric.IO_PRESSURE_FULL):
        assert series.latest(subject, metric) is not None
        assert series.latest(NODE, metric) is not None
    cpi.close()
    held = [os.fspath(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [name for name in held if "perf_event" in name]


def test_cpi_collector_survives_a_cpu_going_offline(kubepods: Kubepods) -> None:
    cgroup, [path] = kubepods.pod()
    kubepods.run(path)
    pod = pod_view(cgroup, [path])
    view, series, switch = (
        node_view(kubepods, pod),
        SeriesStore(),
        Path("/sys/devices/system/cpu/cpu1/online"),
    )
    cpi = CpiCollector(kubepods.hierarchy, (CLOCK, CLOCK))
    cpi.collect(view, series)
    switch.write_text("0")
    for _ in range(2):  # a view has it for some seconds yet
        cpi.collect(view, series)
    switch.write_text("1")
    series.now = 1000.0

    def has_cpi() -> bool:
        cpi.collect(view, series)
        return series.latest(container_subject(pod.uid, "c0"), Metric.CPI) is not None

    measured.until(has_cpi)
    cpi.close()
