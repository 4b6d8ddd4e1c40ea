"""Collectors against the kernel of this machine, and the advisor that runs them."""

import dataclasses
import os
from pathlib import Path

from harness.builders.node_views import node_view, pod_view
from harness.cluster import collector_checks as measured
from harness.cluster.kubepods import Kubepods
from trimtab.node.model import NODE, Metric, container_subject
from trimtab.node.series import SeriesStore


def test_cpu_collector_reports_kernel_counters(kubepods: Kubepods) -> None:
    measured.cpu_is_what_the_kernel_counted(kubepods)


def test_memory_collector_reports_kernel_counters(kubepods: Kubepods) -> None:
    measured.memory_is_what_the_kernel_counted(kubepods, Path(f"/dev/shm/trimtab-{os.getpid()}"))


def test_collectors_tolerate_a_pod_removed_while_reading(kubepods: Kubepods) -> None:
    measured.a_pod_may_vanish_under_the_reader(kubepods)


def test_collectors_use_a_pods_name_as_soon_as_it_is_known(kubepods: Kubepods) -> None:
    cgroup, containers = kubepods.pod()
    nameless = pod_view(cgroup, containers)
    named = pod_view(cgroup, containers, uid=nameless.uid)
    named = dataclasses.replace(named, containers=(dataclasses.replace(named.containers[0], name="main"),))
    series = SeriesStore()
    advisor = measured.advisor_of(kubepods, series)
    for second, pod in enumerate([nameless, named, named, named]):
        advisor.collect(node_view(kubepods, pod), 100.0 + second)
    assert series.latest(container_subject(named.uid, "main"), Metric.CPU) is not None
    advisor.close()


def test_rundelay_collector_includes_nested_cgroups(kubepods: Kubepods) -> None:
    measured.threads_below_a_container_are_seen(kubepods)


def test_missing_perf_counters_disable_only_their_collector(kubepods: Kubepods) -> None:
    series = SeriesStore()
    advisor = measured.advisor_of(kubepods, series)
    for second in range(3):
        advisor.collect(node_view(kubepods), 100.0 + second)
    assert not advisor.failing
    assert series.latest(NODE, Metric.CPU) is not None
    advisor.close()
