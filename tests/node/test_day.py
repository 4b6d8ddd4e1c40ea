"""A day of pods that come and go under the agent's eyes, in fast time: nothing of them is left."""

import random
import shutil
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from trimtab.node.cgroups import CgroupDriver, CgroupLayout, Hierarchy, QosClass
from trimtab.node.collectors import CollectorManager, build_collectors
from trimtab.node.informer import NodeInformer
from trimtab.node.prediction import Predictor
from trimtab.node.series import SeriesSnapshot, SeriesStore

LAYOUT = CgroupLayout(CgroupDriver.CGROUPFS)
STEP = 30
HOUR = 3600 // STEP
CPU_STAT = "usage_usec {usec}\nuser_usec 0\nsystem_usec 0\nnr_periods 10\nnr_throttled 1\nthrottled_usec 5\n"
MEMORY_STAT = (
    "anon 5\nfile 4096\nkernel 1\nshmem 0\ninactive_anon 4096\nactive_anon 8192\n"
    "inactive_file 1\nactive_file 1\nunevictable 0\n"
)
PRESSURE = "some avg10=1.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=1\n"


class CgroupTree:
    """Cgroups as plain files, which appear and vanish as the kernel's do."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root
        self._rng = rng
        self.pods: list[Path] = []
        (root / "cgroup.controllers").touch()
        for qos in QosClass:
            self._fill(root / LAYOUT.qos_path(qos), 0)

    def come(self) -> None:
        uid = f"{self._rng.getrandbits(32):08x}-0000-1111-2222-333344445555"
        pod = self.root / LAYOUT.pod_path(uid, self._rng.choice(list(QosClass)))
        self._fill(pod, 1)
        for _ in range(self._rng.randint(1, 3)):
            self._fill(pod / f"{self._rng.getrandbits(256):064x}", 1)
        self.pods.append(pod)

    def go(self) -> None:
        shutil.rmtree(self.pods.pop(self._rng.randrange(len(self.pods))))

    def _fill(self, folder: Path, usec: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.stat").write_text(CPU_STAT.format(usec=usec))
        (folder / "memory.stat").write_text(MEMORY_STAT)
        (folder / "cgroup.threads").touch()
        for name in ("cpu", "memory", "io"):
            (folder / f"{name}.pressure").write_text(PRESSURE)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.long
def test_agent_leaks_no_descriptors_series_or_memory_over_a_day(tmp_path: Path) -> None:
    rng = random.Random(9)
    tree = CgroupTree(tmp_path, rng)
    hierarchy = Hierarchy.detect(tmp_path)
    states = NodeInformer("node", hierarchy=hierarchy)
    series, predictor = SeriesStore(now=1e6), Predictor()
    advisor = CollectorManager(
        build_collectors(hierarchy, Path("/proc")), series, registry=CollectorRegistry()
    )
    snapshot = SeriesSnapshot(tmp_path / "series")
    now, sizes, held, most = 1e6, [], [], 0

    def rounds(count: int, churn: float) -> None:
        nonlocal now, most
        for _ in range(count):
            now += STEP
            if rng.random() < churn:
                tree.come()
            if tree.pods and (rng.random() < churn or len(tree.pods) > 6):
                tree.go()
            view = states.view(now)
            assert len(view.pods) == len(tree.pods)
            advisor.collect(view, now)
            predictor.learn(view, series, now)
            most = max(most, len(series))

    for _ in range(4):
        rounds(5 * HOUR, churn=0.1)
        while tree.pods:
            tree.go()
        rounds(HOUR, churn=0.0)  # until what the pods left has been swept
        snapshot.save(series, {"peaks": predictor.state()})
        sizes.append((len(series), len(predictor), (tmp_path / "series").stat().st_size))
        held.append((_descriptors(), sys.getallocatedblocks()))
    assert not advisor.failing
    assert now - 1e6 == 86400
    assert most > 100
    first, last = sizes[0], sizes[-1]
    assert last[:2] == first[:2]
    assert last[2] < first[2] * 1.02  # a histogram may have come to know another bucket
    assert held[-1][0] == held[0][0]
    assert held[-1][1] < held[0][1] * 1.01
    advisor.close()
    states.close()
