"""Compare collectors with what the kernel counted, for either version of cgroups."""

import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry

from harness.builders.node_views import node_view, pod_view
from harness.cluster.kubepods import Kubepods
from trimtab.node.arbiter import KnobRef
from trimtab.node.cgroups import Cgroup, CgroupVersion
from trimtab.node.cgroups.knobs import CPU_QUOTA, CPU_STAT, CPU_USAGE, MEMORY_STAT, THREADS
from trimtab.node.collectors import CollectorManager, build_collectors
from trimtab.node.collectors.rundelay import RunDelayCollector
from trimtab.node.executor import KnobFiles
from trimtab.node.model import (
    NODE,
    SYSTEM,
    Metric,
    Tier,
    container_subject,
    pod_subject,
    tier_subject,
)
from trimtab.node.series import SeriesStore

PROC = Path("/proc")
MIB = 1 << 20
HOLDER = (
    "dd if=/dev/zero of=$0 bs=1M count=8 2>/dev/null; dd if=/dev/zero bs=8M count=1 2>/dev/null | sleep 1000"
)
"""A shell keeps the memory of text that it writes to an unread pipe; a shell variable takes a minute on a slow machine."""


def advisor_of(kubepods: Kubepods, series: SeriesStore) -> CollectorManager:
    return CollectorManager(build_collectors(kubepods.hierarchy, PROC), series, registry=CollectorRegistry())


def threads_below_a_container_are_seen(kubepods: Kubepods) -> None:
    """The cgroup `container` within the container's own, in which crun keeps the processes."""
    cgroup, [container] = kubepods.pod()
    inner = f"{container}/container"
    kubepods.create(inner)
    process = kubepods.run(inner)
    pod, series = pod_view(cgroup, [container]), SeriesStore()
    collector = RunDelayCollector(kubepods.hierarchy, PROC)
    for now in (100.0, 110.0):
        series.now = now
        collector.collect(node_view(kubepods, pod), series)
    collector.close()
    assert series.latest(container_subject(pod.uid, "c0"), Metric.RUN_DELAY) is not None
    surface = KnobFiles(kubepods.hierarchy)
    assert list(kubepods.hierarchy.threads(container)) == [process.pid]
    assert str(surface.read(KnobRef(container, THREADS))) == f"({process.pid},)"
    assert surface.read(KnobRef(f"{container}/gone", THREADS)) is None


def cpu_is_what_the_kernel_counted(kubepods: Kubepods) -> None:
    """A burner with a fifth of a core, in its container, its pod and its tier."""
    cgroup, [path] = kubepods.pod()
    container = kubepods.hierarchy.cgroup(path)
    _limit(container, 20_000)
    kubepods.run(path)
    pod = pod_view(cgroup, [path], tier=Tier.BE)
    view, series = node_view(kubepods, pod), SeriesStore()
    advisor = advisor_of(kubepods, series)

    counted, times = [], []
    for _ in range(2):
        begun = container.read(CPU_STAT)["nr_throttled"]
        until(lambda begun=begun: container.read(CPU_STAT)["nr_throttled"] >= begun + 12)  # type: ignore[misc]
        counted.append(container.read(CPU_USAGE))
        times.append(time.time())
        advisor.collect(view, times[-1])
        counted.append(container.read(CPU_USAGE))
    passed = times[1] - times[0]
    least, most = (counted[2] - counted[1]) / 1e9, (counted[3] - counted[0]) / 1e9
    for subject in (container_subject(pod.uid, "c0"), pod_subject(pod.uid), tier_subject(Tier.BE)):
        cores = series.latest(subject, Metric.CPU)
        assert cores is not None
        assert least * 0.999 <= cores * passed <= most * 1.001, (subject, least, cores * passed, most)
    share = series.latest(container_subject(pod.uid, "c0"), Metric.THROTTLED)
    assert share is not None
    assert 0 < share <= 1
    for subject in (NODE, SYSTEM):
        assert (series.latest(subject, Metric.CPU) or -1.0) >= 0
        assert (series.latest(subject, Metric.MEMORY) or -1.0) > 0
    advisor.close()


def memory_is_what_the_kernel_counted(kubepods: Kubepods, file: Path) -> None:
    """Eight MiB of its own and eight of shared memory in `file`, which is on a tmpfs."""
    cgroup, [path] = kubepods.pod()
    container = kubepods.hierarchy.cgroup(path)
    kubepods.run(path, ["/bin/busybox", "sh", "-c", HOLDER, str(file)])
    total = "total_" if kubepods.hierarchy.version is CgroupVersion.V1 else ""
    names = (f"{total}shmem", "rss" if total else "anon")
    until(lambda: all(container.read(MEMORY_STAT)[name] >= 8 * MIB for name in names))
    pod, series = pod_view(cgroup, [path]), SeriesStore()
    advisor = advisor_of(kubepods, series)
    advisor.collect(node_view(kubepods, pod), time.time())
    subject = container_subject(pod.uid, "c0")
    memory, cache = series.latest(subject, Metric.MEMORY), series.latest(subject, Metric.PAGE_CACHE)
    counted = container.read(MEMORY_STAT)
    own = counted[names[1]]
    assert memory is not None
    assert cache is not None
    assert abs(memory - own - counted[f"{total}shmem"]) <= MIB  # pages on their way to a list are on none
    assert cache < 4 * MIB
    assert series.latest(pod_subject(pod.uid), Metric.MEMORY) is not None
    advisor.close()
    file.unlink()


def a_pod_may_vanish_under_the_reader(kubepods: Kubepods) -> None:
    """Its files are closed at once, the others' samples go on, and no failure is counted."""
    stays, [its] = kubepods.pod()
    goes, others = kubepods.pod(containers=2)
    kubepods.run(others[0])
    first, second = pod_view(stays, [its]), pod_view(goes, others)
    view, series = node_view(kubepods, first, second), SeriesStore()
    before = _descriptors()
    advisor = advisor_of(kubepods, series)
    advisor.collect(view, 100.0)
    advisor.collect(view, 101.0)
    held = _descriptors()
    kubepods.remove(goes)
    advisor.collect(view, 102.0)  # no event has arrived yet
    assert _descriptors() < held
    advisor.collect(view, 103.0)
    assert not advisor.failing
    assert series.latest(pod_subject(first.uid), Metric.CPU) is not None
    advisor.collect(node_view(kubepods, first), 107.0)
    assert series.latest(pod_subject(second.uid), Metric.CPU) is None
    advisor.close()
    assert _descriptors() == before


def _limit(cgroup: Cgroup, quota: int) -> None:
    file = cgroup.file(CPU_QUOTA)
    assert file is not None
    [line] = CPU_QUOTA.encode(quota, cgroup.hierarchy.version)
    file.write_text(line)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
