"""Random lives of a node and its agent, with crashes: in the end everything is as it would be without an agent."""

import random
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from harness.cluster.plaincgroups import PlainCgroups
from trimtab.api.nodeqospolicy import NodeQoSPolicySpec
from trimtab.kube.kinds.pods import Resources
from trimtab.node.cgroups import QosClass
from trimtab.node.executor import Executor, KnobFiles
from trimtab.node.metrics import QosMetrics
from trimtab.node.model import (
    NODE,
    SYSTEM,
    ContainerView,
    Cpu,
    Metric,
    NodeView,
    PodView,
    Tier,
    WindowStats,
)
from trimtab.node.qos.controller import QosController, load_strategies
from trimtab.node.restore_journal import RestoreJournal
from trimtab.node.strategies import Eviction

CRITICAL = 2_000_001_000
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Each write is synced, which takes long on a disk."""
SYSCTLS = {"vm/min_free_kbytes": "67584\n", "vm/watermark_scale_factor": "10\n"}


class RandomNode:
    """A node with random events, and the agent that runs on it."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder, self._rng = folder, rng
        self._cgroups = PlainCgroups(folder / "cgroup", cpus=16)
        self._pods: dict[str, PodView] = {}
        self._count = 0
        self._now = 0.0
        self._policy: NodeQoSPolicySpec | None = None
        (folder / "sys/vm").mkdir(parents=True)
        for name, text in SYSCTLS.items():
            (folder / "sys" / name).write_text(text)
        for _ in range(3):
            self._come()
        self._agent = self._start()

    async def run(self) -> None:
        for _ in range(self._rng.randint(5, 60)):
            self._now += self._rng.choice([1, 1, 1, 5, 11])
            happens = self._rng.choices(
                [self._come, self._go, self._change_policy, self._resize, self._crash, self._rest],
                weights=[12, 8, 10, 10, 10, 50],
            )[0]
            happens()
            await self._round()
        for _ in range(2):  # long enough to look again at all that others may have written
            self._now += 11
            await self._round()
        self._agent.release(now=self._now + 11)

    def changed_values(self) -> dict[str, tuple[str, str]]:
        """Return the values that differ from those without the agent."""
        files = {name: (self._folder / "sys" / name).read_text() for name in SYSCTLS}
        wrong = {name: (SYSCTLS[name], text) for name, text in files.items() if text != SYSCTLS[name]}
        return self._cgroups.differences() | wrong

    def _start(self) -> QosController:
        surface = KnobFiles(self._cgroups.hierarchy, self._folder / "sys", self._folder / "resctrl")
        executor = Executor(surface, RestoreJournal(self._folder / "journal", boot="b"))
        return QosController(
            executor, load_strategies(), evict=_keep_pod, metrics=QosMetrics(CollectorRegistry())
        )

    async def _round(self) -> None:
        view = NodeView(
            name="n",
            cpus=tuple(Cpu(n, n // 2, 0, n // 8) for n in range(16)),
            memory=1 << 36,
            pods=tuple(self._pods.values()),
            allocatable_cpu=15_000,
        )
        await self._agent.run_round(view, Noise(self._rng), self._policy, now=self._now)

    def _come(self) -> None:
        self._count += 1
        name, rng = f"p{self._count}", self._rng
        qos = QosClass.BEST_EFFORT if rng.random() < 0.4 else QosClass.BURSTABLE
        tier = Tier.BE if qos is QosClass.BEST_EFFORT or rng.random() < 0.2 else Tier.LS
        limit = None if qos is QosClass.BEST_EFFORT else rng.choice([500, 1000, 2000, 4000])
        path = f"kubepods/{qos.value.lower()}/{name}"
        containers = tuple(
            ContainerView(
                name=f"c{n}",
                id=f"{name}-{n}",
                resources=Resources(cpu_request=limit, cpu_limit=limit),
                cgroup=f"{path}/c{n}",
                spec_resources=Resources(cpu_request=limit, cpu_limit=limit),
            )
            for n in range(rng.choice([1, 1, 2]))
        )
        for cgroup in (path, *(container.cgroup for container in containers)):
            self._cgroups.make(cgroup)
        self._pods[name] = PodView(
            uid=name,
            namespace="ns",
            name=name,
            tier=tier,
            qos=qos,
            priority=rng.choice([0, 0, 0, CRITICAL]),
            cgroup=path,
            containers=containers,
        )
        self._limit(name, limit)

    def _go(self) -> None:
        if self._pods:
            self._cgroups.remove(self._pods.pop(self._rng.choice([*self._pods])).cgroup)

    def _resize(self) -> None:
        limited = [name for name, pod in self._pods.items() if pod.resources.cpu_limit]
        if limited:
            self._limit(self._rng.choice(limited), self._rng.choice([300, 700, 1100, 1700, 2300]))

    def _limit(self, name: str, limit: int | None) -> None:
        """Do as the kubelet does for a limit of each container."""
        pod = self._pods[name]
        size = Resources(cpu_request=limit, cpu_limit=limit)
        containers = tuple(
            ContainerView(name=one.name, id=one.id, resources=size, cgroup=one.cgroup, spec_resources=size)
            for one in pod.containers
        )
        self._pods[name] = replace(pod, containers=containers)
        for container in containers:
            self._cgroups.set_quota(container.cgroup, -1 if limit is None else limit * 100)
        self._cgroups.set_quota(pod.cgroup, -1 if limit is None else limit * 100 * len(containers))

    def _change_policy(self) -> None:
        rng = self._rng
        policy = {
            "cpuSuppress": {"enable": rng.random() < 0.7, "policy": rng.choice(["cpuset", "cfsQuota"])},
            "cpuBurst": {"policy": rng.choice(["none", "auto", "cfsQuotaBurstOnly", "cpuBurstOnly"])},
            "system": {"enable": rng.random() < 0.5},
        }
        self._policy = None if rng.random() < 0.2 else NodeQoSPolicySpec.model_validate(policy)

    def _rest(self) -> None:
        """Most of the time nothing happens."""

    def _crash(self) -> None:
        self._agent = self._start()


class Noise:
    """Whatever is asked for was anything."""

    def __init__(self, rng: random.Random) -> None:
        self._seed = rng.random()

    def latest(self, subject: str, metric: Metric) -> float | None:
        rng = random.Random(f"{self._seed} {subject} {metric}")
        if metric is Metric.THROTTLED:
            return rng.choice([0.0, 0.5])
        return rng.uniform(*{NODE: (1, 14), SYSTEM: (0, 2)}.get(subject, (0, 4)))

    def average(self, subject: str, metric: Metric, seconds: float) -> float | None:
        return self.latest(subject, metric)

    def spread(self, subject: str, metric: Metric, seconds: float) -> WindowStats | None:
        return None


async def _keep_pod(eviction: Eviction) -> None:
    """Evict no pod."""


@given(seed=st.integers(0, 1 << 30))
@settings(max_examples=100, deadline=None)
async def test_executor_restores_everything_after_random_crashes(seed: int) -> None:
    """Pods come, go and are resized, policies change, and the agent is killed at any moment."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        node = RandomNode(Path(folder), random.Random(seed))
        await node.run()
        assert node.changed_values() == {}
