"""Collectors over files as the kernel writes them; tests/integration/node compares them with a kernel."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.builders.node_views import pod_view
from trimtab.node.cgroups import Hierarchy
from trimtab.node.collectors.file_reader import PODS
from trimtab.node.collectors.memory import ContainerMemoryCollector, MemoryCollector
from trimtab.node.collectors.pressure import PressureCollector
from trimtab.node.collectors.rundelay import MAX_THREADS, RunDelayCollector
from trimtab.node.metrics import UsageMetrics
from trimtab.node.model import NODE, Metric, NodeView, PodView, Tier, container_subject, pod_subject
from trimtab.node.series import SeriesStore

POD = pod_view("kubepods/web", ["kubepods/web/c"], uid="web")
CONTAINER = container_subject("web", "c0")
V1, V2 = 1, 2


def view(pod: PodView = POD) -> NodeView:
    return NodeView(name="node", cpus=(), memory=0, pods=(pod,), pods_cgroup="kubepods")


class Files:
    """A cgroup tree and a /proc of plain files."""

    def __init__(self, root: Path, version: int) -> None:
        self.proc, self._cgroups, self._version = root / "proc", root / "cgroup", version
        self.proc.mkdir()
        if version == V2:
            self.write("", "", "cgroup.controllers", "")
        for path in ("kubepods", "kubepods/web", "kubepods/web/c"):
            self.write("cpu", path, "cgroup.threads" if version == V2 else "tasks", "")
            self.write("memory", path, "memory.stat", "")
        self.hierarchy = Hierarchy.detect(self._cgroups)

    def write(self, controller: str, path: str, name: str, text: str) -> None:
        file = self._cgroups / (controller if self._version == V1 else "") / path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def write_proc(self, name: str, text: str) -> None:
        (self.proc / name).parent.mkdir(parents=True, exist_ok=True)
        (self.proc / name).write_text(text)


@pytest.fixture(params=[V1, V2], ids=["v1", "v2"])
def files(tmp_path: Path, request: pytest.FixtureRequest) -> Files:
    return Files(tmp_path, request.param)


@pytest.fixture
def v2(tmp_path: Path) -> Files:
    return Files(tmp_path, V2)


def pressure(some: float, full: float) -> str:
    return "".join(
        f"{kind} avg10={share:.2f} avg60=0.00 avg300=0.00 total=1\n"
        for kind, share in (("some", some), ("full", full))
    )


def collect_pressure(files: Files) -> SeriesStore:
    series = SeriesStore(now=1e9)
    collector = PressureCollector(files.hierarchy, files.proc)
    collector.collect(view(), series)
    collector.close()
    return series


@pytest.mark.parametrize(
    ("file", "some", "full"),
    [
        ("cpu", Metric.CPU_PRESSURE, None),
        ("memory", Metric.MEMORY_PRESSURE, Metric.MEMORY_PRESSURE_FULL),
        ("io", Metric.IO_PRESSURE, Metric.IO_PRESSURE_FULL),
    ],
)
def test_pressure_of_the_node_is_a_share(files: Files, file: str, some: Metric, full: Metric | None) -> None:
    files.write_proc(f"pressure/{file}", pressure(12.5, 4.0))
    series = collect_pressure(files)
    assert series.latest(NODE, some) == 0.125
    if full:
        assert series.latest(NODE, full) == 0.04


@pytest.mark.parametrize(
    ("path", "subject"),
    [("kubepods", PODS), ("kubepods/web", pod_subject("web")), ("kubepods/web/c", CONTAINER)],
)
def test_pressure_of_cgroups_is_read_without_that_of_the_node(v2: Files, path: str, subject: str) -> None:
    v2.write("", path, "memory.pressure", pressure(50.0, 20.0))
    series = collect_pressure(v2)
    assert series.latest(subject, Metric.MEMORY_PRESSURE) == 0.5
    assert series.latest(subject, Metric.MEMORY_PRESSURE_FULL) == 0.2
    assert series.latest(NODE, Metric.MEMORY_PRESSURE) is None


def test_pressure_is_unknown_on_a_kernel_without_it(files: Files) -> None:
    series = collect_pressure(files)
    assert [metric for metric in Metric if series.latest(NODE, metric) is not None] == []


class RunDelayBed:
    """A collector, and the waits of threads that it reads every ten seconds."""

    def __init__(self, files: Files, pod: PodView = POD) -> None:
        self.series = SeriesStore(now=1e9)
        self._files, self._pod = files, pod
        self._collector = RunDelayCollector(files.hierarchy, files.proc)

    def collect(self, waits: dict[int, float], *, listed: int = 0) -> float | None:
        """Return the seconds of waiting in each second; `listed` more threads end before they are read."""
        threads = [*waits, *range(10_000, 10_000 + listed)]
        for name in ("tasks", "cgroup.threads"):
            self._files.write("cpu", "kubepods/web/c", name, "".join(f"{each}\n" for each in threads))
        for thread, seconds in waits.items():
            self._files.write_proc(f"{thread}/schedstat", f"123 {seconds * 1e9:.0f} 4\n")
        self._collector.collect(view(self._pod), self.series)
        self.series.now += 10
        return self.series.latest(CONTAINER, Metric.RUN_DELAY)


def test_run_delay_sums_the_waits_of_threads_since_the_last_sample(files: Files) -> None:
    bed = RunDelayBed(files)
    assert bed.collect({1: 5.0, 2: 100.0}) is None
    assert bed.collect({1: 6.0, 2: 103.0}) == pytest.approx(0.4)


def test_run_delay_counts_a_new_thread_from_its_second_sample(files: Files) -> None:
    bed = RunDelayBed(files)
    bed.collect({1: 5.0})
    assert bed.collect({1: 6.0, 2: 900.0}) == pytest.approx(0.1)
    assert bed.collect({1: 6.0, 2: 902.0}) == pytest.approx(0.2)


def test_run_delay_is_never_negative_when_a_thread_id_is_used_again(files: Files) -> None:
    bed = RunDelayBed(files)
    bed.collect({1: 50.0})
    assert bed.collect({1: 0.5}) == 0.0


def test_run_delay_ignores_threads_that_ended_meanwhile(files: Files) -> None:
    bed = RunDelayBed(files)
    bed.collect({1: 5.0}, listed=3)
    assert bed.collect({1: 7.0}, listed=3) == pytest.approx(0.2)


def test_run_delay_omits_containers_with_very_many_threads(files: Files) -> None:
    bed = RunDelayBed(files)
    bed.collect({1: 5.0}, listed=MAX_THREADS)
    assert bed.collect({1: 7.0}, listed=MAX_THREADS) is None


def test_run_delay_omits_best_effort_containers(files: Files) -> None:
    bed = RunDelayBed(files, replace(POD, tier=Tier.BE))
    bed.collect({1: 5.0})
    assert bed.collect({1: 7.0}) is None


def test_run_delay_of_the_node_sums_its_cpus(files: Files) -> None:
    bed = RunDelayBed(files)
    for waited in (5e9, 7e9):
        lines = (f"cpu{cpu} 0 0 0 0 0 0 9 {waited + cpu:.0f} 9" for cpu in range(2))
        files.write_proc("schedstat", "\n".join(("version 15", "timestamp 1", *lines, "domain0 03 1 2\n")))
        bed.collect({})
    assert bed.series.latest(NODE, Metric.RUN_DELAY) == pytest.approx(0.4)


def write_memory(files: Files, path: str, *, anon: int, unevictable: int, cache: int, shared: int) -> None:
    prefix, cached = ("total_", "cache") if files.hierarchy.version.value == V1 else ("", "file")
    files.write(
        "memory",
        path,
        "memory.stat",
        f"first 1\n{prefix}inactive_anon {anon}\n{prefix}active_anon {anon}\n{prefix}unevictable {unevictable}\n"
        f"{prefix}{cached} {cache}\n{prefix}shmem {shared}\nlast 1\n",
    )


def test_memory_of_pods_and_containers_excludes_the_page_cache(files: Files) -> None:
    for factor, path in enumerate(("kubepods", "kubepods/web", "kubepods/web/c"), start=1):
        write_memory(files, path, anon=100 * factor, unevictable=7, cache=50, shared=20)
    series = SeriesStore(now=1e9)
    for collector in (MemoryCollector(files.hierarchy), ContainerMemoryCollector(files.hierarchy)):
        collector.collect(view(), series)
        collector.close()
    found = [series.latest(subject, Metric.MEMORY) for subject in (PODS, pod_subject("web"), CONTAINER)]
    assert found == [207, 407, 607]
    assert series.latest(CONTAINER, Metric.PAGE_CACHE) == 30


def test_page_cache_is_not_negative_when_the_kernel_counts_shared_memory_first(files: Files) -> None:
    write_memory(files, "kubepods/web", anon=1, unevictable=0, cache=10, shared=20)
    write_memory(files, "kubepods", anon=1, unevictable=0, cache=10, shared=20)
    series, collector = SeriesStore(now=1e9), MemoryCollector(files.hierarchy)
    collector.collect(view(), series)
    collector.close()
    assert series.latest(pod_subject("web"), Metric.PAGE_CACHE) == 0


def test_usage_metrics_name_only_subjects_with_samples() -> None:
    series = SeriesStore(now=1e9)
    series.add(NODE, Metric.CPU, 2.5, period=1.0)
    series.add(pod_subject("web"), Metric.CPU, 1.5, period=1.0)
    found = {family.name: family.samples for family in UsageMetrics(series).collect()}
    assert found.keys() == {f"trimtab_node_{metric.value}" for metric in Metric}
    (sample,) = found.pop("trimtab_node_cpu")
    assert (sample.labels, sample.value) == ({"subject": NODE}, 2.5)
    assert not any(found.values())
