"""Minutes of whole rounds in fast time: real strategies, arbiter, executor, journal and series, over plain files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from harness.builders.node_views import pod_view
from harness.cluster.plaincgroups import PlainCgroups
from trimtab.api.nodeqospolicy import NodeQoSPolicySpec
from trimtab.kube.kinds.pods import Resources
from trimtab.node.cgroups import QosClass
from trimtab.node.collectors.file_reader import PODS
from trimtab.node.collectors.node import RemainderCollector
from trimtab.node.executor import Executor, KnobFiles
from trimtab.node.metrics import QosMetrics
from trimtab.node.model import NODE, ContainerView, Cpu, Metric, NodeView, PodView, Tier, pod_subject
from trimtab.node.qos.controller import QosController, load_strategies
from trimtab.node.restore_journal import RestoreJournal
from trimtab.node.series import SeriesStore
from trimtab.node.strategies import Eviction

CPUS = 16
CRITICAL = 2_000_001_000


def _pod(name: str, qos: QosClass, *, request: int | None = None, priority: int = 0) -> PodView:
    """A production pod with a request; else one of class BestEffort that would like to have a core."""
    path = f"kubepods/{qos.value.lower()}/{name}"
    container = ContainerView(name="c", id=name, resources=Resources(cpu_request=request), cgroup=f"{path}/c")
    annotations = () if request else (("trimtab.io/cpu-request", "1"),)
    tier = Tier.LS if request else Tier.BE
    made = pod_view(path, uid=name, name=name, tier=tier, qos=qos, priority=priority, annotations=annotations)
    return PodView(**{**vars(made), "containers": (container,)})


WEB = _pod("web", QosClass.BURSTABLE, request=8000)
BATCH = tuple(_pod(f"batch-{number}", QosClass.BEST_EFFORT) for number in range(6))
PROXY = _pod("kube-proxy", QosClass.BEST_EFFORT, priority=CRITICAL)


class AgentBed:
    """A node of 16 CPUs whose best-effort pods want a core each and use what they are left."""

    def __init__(self, folder: Path, policy: dict[str, object], *pods: PodView) -> None:
        self.cgroups = PlainCgroups(folder / "cgroup", cpus=CPUS)
        for pod in pods:
            for path in (pod.cgroup, *(container.cgroup for container in pod.containers)):
                self.cgroups.make(path)
        self._policy = NodeQoSPolicySpec.model_validate(policy)
        self._view = NodeView(
            name="n",
            cpus=tuple(Cpu(n, n, 0, 0) for n in range(CPUS)),
            memory=1 << 36,
            pods=pods,
            allocatable_cpu=15_500,
        )
        self.evicted: list[str] = []
        self.allowed: list[float] = []
        """The CPU that all best-effort pods together could use, each second."""
        surface = KnobFiles(self.cgroups.hierarchy, folder / "sys", folder / "resctrl")
        self._enforcer = QosController(
            Executor(surface, RestoreJournal(folder / "journal", boot="b")),
            load_strategies(),
            evict=self._evict,
            metrics=QosMetrics(CollectorRegistry()),
        )
        self._series = SeriesStore(now=1_760_000_000.0)

    async def run(self, seconds: int, production: Callable[[int], float]) -> None:
        """Let so many seconds pass, in each of which production uses so much."""
        remainder = RemainderCollector()
        for second in range(seconds):
            self._series.now += 1.0
            used = self._limit_usage(production(second))
            for uid, cores in used.items():
                self._series.add(pod_subject(uid), Metric.CPU, cores, period=1.0)
            self._series.add(PODS, Metric.CPU, sum(used.values()), period=1.0)
            self._series.add(NODE, Metric.CPU, sum(used.values()) + 0.4, period=1.0)
            remainder.collect(self._view, self._series)
            await self._enforcer.run_round(self._view, self._series, self._policy, now=self._series.now)
            await self._enforcer.wait_evictions()
            for pod in self._view.pods:
                self.cgroups.follow(pod.cgroup)
            self.cgroups.follow("kubepods/besteffort")

    def _limit_usage(self, production: float) -> dict[str, float]:
        """Return the usage of pods; best-effort pods use no more than their cgroups and the tier's cgroup allow."""
        together = self.cgroups.cores("kubepods/besteffort")
        batch = [pod for pod in self._view.pods if pod.qos is QosClass.BEST_EFFORT]
        each = {pod.uid: min(1.0, self.cgroups.cores(pod.cgroup)) for pod in batch}
        self.allowed.append(min(together, sum(self.cgroups.cores(pod.cgroup) for pod in batch)))
        scale = min(1.0, together / (sum(each.values()) or 1.0))
        return {"web": production} | {uid: cores * scale for uid, cores in each.items()}

    async def _evict(self, eviction: Eviction) -> None:
        self.evicted.append(eviction.pod.name)
        pods = tuple(pod for pod in self._view.pods if pod.uid != eviction.pod.uid)
        self._view = replace(self._view, pods=pods)


BOTH = ("cfsQuota", "cpuset")


def _policy(kind: str) -> dict[str, object]:
    return {"cpuSuppress": {"enable": True, "policy": kind}, "cpuEvict": {"enable": True}}


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("busy", [1, 3])
async def test_cpuevict_evicts_nobody_for_a_few_seconds_of_busy_production(
    tmp_path: Path, kind: str, busy: int
) -> None:
    agent_bed = AgentBed(tmp_path, _policy(kind), WEB, *BATCH)
    await agent_bed.run(180, lambda second: 11.0 if 120 <= second < 120 + busy else 3.0)
    assert min(agent_bed.allowed) <= 2.0  # they were squeezed
    assert agent_bed.allowed[-1] >= 6.0  # and released
    assert agent_bed.evicted == []


@pytest.mark.parametrize("kind", BOTH)
async def test_cpuevict_evicts_pods_that_production_starves_for_minutes(tmp_path: Path, kind: str) -> None:
    agent_bed = AgentBed(tmp_path, _policy(kind), WEB, *BATCH)
    await agent_bed.run(240, lambda second: 11.0 if second >= 120 else 3.0)
    # The floor of a cpuset is two CPUs, 80 % of two and a half cores; that of a quota satisfies no pod.
    assert len(agent_bed.evicted) == (6 if kind == "cfsQuota" else 4)


@pytest.mark.parametrize("kind", BOTH)
async def test_cpusuppress_exempts_a_critical_pod_beside_batch_pods(tmp_path: Path, kind: str) -> None:
    """Pods of kube-proxy, CNI and CSI without requests share a cgroup with batch pods."""
    agent_bed = AgentBed(tmp_path, _policy(kind), WEB, PROXY, *BATCH)
    await agent_bed.run(10, lambda _: 11.0)
    assert agent_bed.cgroups.cores("kubepods/besteffort") == CPUS
    assert agent_bed.cgroups.cores(PROXY.cgroup) == CPUS
    assert all(agent_bed.cgroups.cores(pod.cgroup) <= 2.0 for pod in BATCH)
    if kind == "cfsQuota":
        assert sum(agent_bed.cgroups.cores(pod.cgroup) for pod in BATCH) < 0.1


async def test_cpusuppress_divides_one_quota_between_individually_limited_pods(
    tmp_path: Path,
) -> None:
    agent_bed = AgentBed(
        tmp_path, {"cpuSuppress": {"enable": True, "policy": "cfsQuota"}}, WEB, PROXY, *BATCH
    )
    await agent_bed.run(30, lambda _: 6.0)
    # 65 % of 16 are 10.4, of which 6 + 1 (kube-proxy wants a core here) + 0.5 are used: 2.9 for six pods.
    shares = [agent_bed.cgroups.cores(pod.cgroup) for pod in BATCH]
    assert sum(shares) == pytest.approx(2.9, abs=0.2)
    assert max(shares) - min(shares) < 0.1
