"""A day of pods that come and go at random, in fast time: nothing is left of them in memory, journal or descriptors."""

import random
import shutil
from pathlib import Path

from prometheus_client import CollectorRegistry

from trimtab.api.nodeqospolicy import (
    CPUBurstPolicy,
    CPUBurstSpec,
    CPUSuppressPolicy,
    CPUSuppressSpec,
    MemoryEvictSpec,
    NodeQoSPolicySpec,
)
from trimtab.kube.kinds.pods import Resources
from trimtab.node.cgroups import CgroupVersion, Hierarchy, QosClass
from trimtab.node.executor import Executor, KnobFiles
from trimtab.node.metrics import QosMetrics
from trimtab.node.model import ContainerView, Cpu, Metric, NodeView, PodView, Tier, WindowStats
from trimtab.node.qos.controller import QosController, load_strategies
from trimtab.node.restore_journal import RestoreJournal
from trimtab.node.strategies import Eviction

FILES = {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n", "cpu.cfs_burst_us": "0\n"}
SIZE = Resources(cpu_request=100, cpu_limit=200, memory_request=1 << 24, memory_limit=1 << 25)
POLICIES: tuple[NodeQoSPolicySpec | None, ...] = (
    None,
    NodeQoSPolicySpec(
        cpu_suppress=CPUSuppressSpec(enable=True, policy=CPUSuppressPolicy.CFS_QUOTA),
        cpu_burst=CPUBurstSpec(policy=CPUBurstPolicy.AUTO, cfs_quota_burst_period_seconds=60),
        memory_evict=MemoryEvictSpec(enable=True),
    ),
    NodeQoSPolicySpec(cpu_burst=CPUBurstSpec(policy=CPUBurstPolicy.CPU_BURST_ONLY)),
)


class Guesses:
    """Some value for whatever is asked."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def latest(self, subject: str, metric: Metric) -> float | None:
        scale = 1 << 30 if metric is Metric.MEMORY else 1
        return self._rng.random() * scale if self._rng.random() < 0.95 else None

    def average(self, subject: str, metric: Metric, seconds: float) -> float | None:
        return self.latest(subject, metric)

    def spread(self, subject: str, metric: Metric, seconds: float) -> WindowStats | None:
        return None


def _cgroup(root: Path, path: str) -> None:
    (root / "cpu" / path).mkdir()
    for name, content in FILES.items():
        (root / "cpu" / path / name).write_text(content)


def _pod(root: Path, number: int, rng: random.Random) -> PodView:
    tier = rng.choice([Tier.LS, Tier.BE])
    qos = QosClass.BEST_EFFORT if tier is Tier.BE else QosClass.BURSTABLE
    path = f"kubepods/{qos.value.lower()}/pod{number}"
    for each in (path, f"{path}/c"):
        _cgroup(root, each)
    container = ContainerView(name="c", id=str(number), resources=SIZE, cgroup=f"{path}/c")
    return PodView(
        uid=str(number),
        namespace="ns",
        name=str(number),
        tier=tier,
        qos=qos,
        priority=0,
        cgroup=path,
        containers=(container,),
    )


async def test_agent_leaks_nothing_over_a_day_of_pod_churn(tmp_path: Path) -> None:
    rng, root = random.Random(7), tmp_path / "cgroup"
    (root / "cpu").mkdir(parents=True)
    for path in ("kubepods", "kubepods/besteffort", "kubepods/burstable"):
        _cgroup(root, path)
    journal = RestoreJournal(tmp_path / "journal", boot="b")
    executor = Executor(KnobFiles(Hierarchy(root, CgroupVersion.V1), tmp_path, tmp_path), journal)
    leaving: set[str] = set()

    async def evict(eviction: Eviction) -> None:
        leaving.add(eviction.pod.uid)

    enforcer, windows = (
        QosController(executor, load_strategies(), evict=evict, metrics=QosMetrics(CollectorRegistry())),
        Guesses(rng),
    )
    pods: list[PodView] = []
    policy = POLICIES[1]
    descriptors = _descriptors()
    for minute in range(0, 24 * 60, 4):
        for pod in [pod for pod in pods if pod.uid in leaving or rng.random() < 0.05]:
            pods.remove(pod)
            shutil.rmtree(root / "cpu" / pod.cgroup)  # under the agent, which learns of it only now
        if len(pods) < 12:
            pods.append(_pod(root, minute, rng))
        if rng.random() < 0.05:
            policy = rng.choice(POLICIES)
        view = NodeView(
            name="n", cpus=tuple(Cpu(n, n, 0, 0) for n in range(4)), memory=1 << 30, pods=tuple(pods)
        )
        await enforcer.run_round(view, windows, policy, now=minute * 60.0)
        await enforcer.wait_evictions()
        alive = {"kubepods", "kubepods/besteffort", "kubepods/burstable"}
        alive |= {path for pod in pods for path in (pod.cgroup, f"{pod.cgroup}/c")}
        assert {ref.path for ref in journal.originals} <= alive
        assert len(executor._last_seen) <= len(FILES) * len(alive)
    assert leaving
    assert (tmp_path / "journal").stat().st_size < 100_000
    await enforcer.run_round(NodeView(name="n", cpus=(), memory=1), windows, None, now=1e6)
    assert not journal.originals
    assert not executor._last_seen
    for pod in pods:
        folder = root / "cpu" / pod.cgroup / "c"
        assert {name: (folder / name).read_text() for name in FILES} == FILES
    assert _descriptors() <= descriptors


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
