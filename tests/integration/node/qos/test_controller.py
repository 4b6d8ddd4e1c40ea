"""Whole rounds over real cgroups: strategies of a test's own, the real arbiter, executor and journal."""

import os
import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from harness.cluster.kubepods import Kubepods
from trimtab.api.nodeqospolicy import NodeQoSPolicySpec, SystemSpec
from trimtab.kube.errors import DisruptionBlocked, InternalError, KubeError, Status, Unreachable
from trimtab.node.arbiter import BoundType, KnobRef, KnobRequest, Precedence
from trimtab.node.arbiter.host_knobs import MIN_FREE_KBYTES
from trimtab.node.cgroups import UNLIMITED, CgroupVersion, QosClass
from trimtab.node.cgroups.knobs import CPU_QUOTA, CPUSET_CPUS, MEMORY_HIGH
from trimtab.node.executor import Executor, KnobFiles
from trimtab.node.metrics import QosMetrics
from trimtab.node.model import Metric, NodeView, PodView, Tier, WindowStats
from trimtab.node.qos.controller import QosController
from trimtab.node.restore_journal import RestoreJournal
from trimtab.node.strategies import Eviction, StrategyInput, StrategyOutput


class Unknowing:
    """Nothing is known of the near past."""

    def latest(self, subject: str, metric: Metric) -> float | None:
        return None

    def average(self, subject: str, metric: Metric, seconds: float) -> float | None:
        return None

    def spread(self, subject: str, metric: Metric, seconds: float) -> WindowStats | None:
        return None


class Wanting:
    """Asks for one plan while the policy's system block is on."""

    name: ClassVar[str] = "wanting"
    settings_type: ClassVar[type[Any]] = SystemSpec

    def __init__(self, plan: StrategyOutput) -> None:
        self.answer: StrategyOutput | Exception = plan
        self.staying: frozenset[str] = frozenset()

    def plan(self, scene: StrategyInput) -> StrategyOutput:
        self.staying = scene.eviction_blocked
        if not scene.policy.system.enable:
            return StrategyOutput()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


AWAY = Unreachable("the API server is away", sent=False)
BLOCKED = DisruptionBlocked(Status(message="its budget says no"))
TWO_BUDGETS = InternalError(Status(message="This pod has more than one PodDisruptionBudget"))
ON = NodeQoSPolicySpec(system=SystemSpec(enable=True))
NODE = NodeView(name="n", cpus=(), memory=1 << 30)
POD = PodView(
    uid="u",
    namespace="ns",
    name="p",
    tier=Tier.BE,
    qos=QosClass.BEST_EFFORT,
    priority=0,
    cgroup="c",
    containers=(),
)


class Floor:
    """An enforcer of given strategies, with what it counted and whom it sent away."""

    def __init__(
        self, kubepods: Kubepods, folder: Path, *, dry_run: bool = False, **strategies: Wanting
    ) -> None:
        self.registry = CollectorRegistry()
        self.surface = KnobFiles(kubepods.hierarchy, sysctls=folder / "sysctls")
        self.sent: list[str] = []
        self.failure: KubeError | None = None
        executor = Executor(self.surface, RestoreJournal(folder / "journal", boot="b"), dry_run=dry_run)
        tally = QosMetrics(self.registry, dry_run=dry_run)
        self.enforcer = QosController(executor, strategies, evict=self._evict, metrics=tally)

    async def _evict(self, eviction: Eviction) -> None:
        if self.failure:
            raise self.failure
        self.sent.append(eviction.pod.name)

    def metric_value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"trimtab_node_{name}_total", labels) or 0.0


def _quota(path: str, value: int, strategy: str, **more: Any) -> KnobRequest:
    return KnobRequest(ref=KnobRef(path, CPU_QUOTA), value=value, strategy=strategy, reason="a test", **more)


async def test_qos_controller_resolves_counts_and_restores_conflicting_requests(
    kubepods: Kubepods, tmp_path: Path
) -> None:
    _, [path] = kubepods.pod()
    bold = Wanting(StrategyOutput((_quota(path, 90_000, "bold", precedence=Precedence.PRIORITY),)))
    careful = Wanting(
        StrategyOutput(
            (_quota(path, 50_000, "careful", precedence=Precedence.SAFETY, bound=BoundType.AT_MOST),)
        )
    )
    floor = Floor(kubepods, tmp_path, bold=bold, careful=careful)
    for now in range(3):
        found = await floor.enforcer.run_round(NODE, Unknowing(), ON, now=float(now))
        assert [request.strategy for each in found.conflicts for request in each.overruled] == ["bold"]
    assert floor.surface.read(KnobRef(path, CPU_QUOTA)) == 50_000
    assert [request.strategy for request in floor.enforcer.active_requests()] == ["careful"]
    assert floor.metric_value("knob_requests_overruled", strategy="bold") == 3
    assert floor.metric_value("writes", knob="cpu.quota") == 1
    await floor.enforcer.run_round(NODE, Unknowing(), None, now=3.0)
    assert floor.surface.read(KnobRef(path, CPU_QUOTA)) == UNLIMITED
    assert floor.metric_value("knobs_restored", knob="cpu.quota") == 1
    assert floor.enforcer.active_requests() == []


async def test_qos_controller_does_not_count_dry_run_writes(kubepods: Kubepods, tmp_path: Path) -> None:
    _, [path] = kubepods.pod()
    wanting = Wanting(
        StrategyOutput((_quota(path, 90_000, "wanting"),), (Eviction(POD, "wanting", "a test"),))
    )
    floor = Floor(kubepods, tmp_path, dry_run=True, wanting=wanting)
    await floor.enforcer.run_round(NODE, Unknowing(), ON, now=0.0)
    await floor.enforcer.wait_evictions()
    evicted = {"strategy": "wanting", "result": "evicted"}
    assert (floor.metric_value("writes", knob="cpu.quota"), floor.metric_value("evictions", **evicted)) == (
        0,
        0,
    )
    assert floor.metric_value("dry_run_writes", knob="cpu.quota") == 1
    assert floor.metric_value("dry_run_evictions", **evicted) == 1


async def test_qos_controller_keeps_values_that_the_kubelet_set(kubepods: Kubepods, tmp_path: Path) -> None:
    _, [path] = kubepods.pod()
    ref = KnobRef(path, CPU_QUOTA)
    wanting = Wanting(StrategyOutput((_quota(path, 90_000, "wanting"),)))
    floor = Floor(kubepods, tmp_path, wanting=wanting)
    await floor.enforcer.run_round(NODE, Unknowing(), ON, now=0.0)
    wanting.answer = StrategyOutput(external_values={ref: 90_000})
    await floor.enforcer.run_round(NODE, Unknowing(), ON, now=1.0)
    floor.enforcer.release(now=2.0)
    assert floor.surface.read(ref) == 90_000


async def test_qos_controller_logs_unsupported_settings_once(kubepods: Kubepods, tmp_path: Path) -> None:
    if kubepods.hierarchy.version is not CgroupVersion.V1:
        pytest.skip("cgroup v2 has every knob")
    _, [path] = kubepods.pod()
    slow = KnobRequest(ref=KnobRef(path, MEMORY_HIGH), value=1 << 20, strategy="wanting", reason="a test")
    floor = Floor(kubepods, tmp_path, wanting=Wanting(StrategyOutput((slow,), unsupported=("no such disk",))))
    with capture_logs() as logs:
        for now in (0.0, 1.0, 20.0):
            await floor.enforcer.run_round(NODE, Unknowing(), ON, now=now)
    assert [each["problem"] for each in logs] == [
        "wanting: cgroup v1 has no memory.high",
        "wanting: no such disk",
    ]


async def test_qos_controller_logs_a_rejecting_knob_once(kubepods: Kubepods, tmp_path: Path) -> None:
    """As where the node's cgroups are mounted for reading only."""
    wanting = Wanting(StrategyOutput())
    floor = Floor(kubepods, tmp_path, wanting=wanting)
    knob = floor.surface.sysctls / "vm" / "min_free_kbytes"
    knob.parent.mkdir(parents=True)
    knob.symlink_to("/proc/sys/kernel/cap_last_cap")  # a number that cannot be written
    with capture_logs() as logs:
        for now in range(3):
            request = KnobRequest(
                ref=KnobRef("", MIN_FREE_KBYTES), value=1000 + now, strategy="wanting", reason="a test"
            )
            wanting.answer = StrategyOutput((request,))
            await floor.enforcer.run_round(NODE, Unknowing(), ON, now=float(now))
    assert len(logs) == 1
    assert floor.metric_value("writes_rejected", knob="vm.min_free_kbytes") == 3
    assert floor.metric_value("writes", knob="vm.min_free_kbytes") == 0


async def test_qos_controller_does_not_count_removed_pods_as_restored(
    kubepods: Kubepods, tmp_path: Path
) -> None:
    _, [path] = kubepods.pod()
    wanting = Wanting(StrategyOutput((_quota(path, 50_000, "wanting"),)))
    floor = Floor(kubepods, tmp_path, wanting=wanting)
    await floor.enforcer.run_round(NODE, Unknowing(), ON, now=0.0)
    kubepods.remove(path)
    wanting.answer = StrategyOutput()
    await floor.enforcer.run_round(NODE, Unknowing(), ON, now=1.0)
    assert floor.metric_value("writes", knob="cpu.quota") == 1
    assert floor.metric_value("knobs_restored", knob="cpu.quota") == 0


async def test_qos_controller_keeps_requests_of_a_failing_strategy(
    kubepods: Kubepods, tmp_path: Path
) -> None:
    _, [one, other] = kubepods.pod(containers=2)
    failing = Wanting(StrategyOutput((_quota(one, 50_000, "failing"),)))
    sound = Wanting(StrategyOutput((_quota(other, 60_000, "sound"),)))
    floor = Floor(kubepods, tmp_path, failing=failing, sound=sound)
    await floor.enforcer.run_round(NODE, Unknowing(), ON, now=0.0)
    failing.answer, sound.answer = ValueError("what now"), StrategyOutput((_quota(other, 70_000, "sound"),))
    await floor.enforcer.run_round(NODE, Unknowing(), ON, now=1.0)
    assert [floor.surface.read(KnobRef(path, CPU_QUOTA)) for path in (one, other)] == [50_000, 70_000]
    assert floor.metric_value("strategy_failures", strategy="failing") == 1


async def test_qos_controller_evicts_although_the_journal_is_unwritable(
    kubepods: Kubepods, tmp_path: Path
) -> None:
    """A node whose disk is full may run out of memory too."""
    _, [path] = kubepods.pod()
    both = Wanting(StrategyOutput((_quota(path, 50_000, "both"),), (Eviction(POD, "both", "a test"),)))
    floor = Floor(kubepods, tmp_path / "state", both=both)
    shutil.rmtree(tmp_path / "state")
    found = await floor.enforcer.run_round(NODE, Unknowing(), ON, now=0.0)
    await floor.enforcer.wait_evictions()
    assert floor.sent == ["p"]
    ref = KnobRef(path, CPU_QUOTA)
    assert found.write_result.rejected == {ref: "cannot be written to the journal: No such file or directory"}
    assert floor.surface.read(ref) == UNLIMITED


async def test_qos_controller_evicts_once_and_counts_failures(kubepods: Kubepods, tmp_path: Path) -> None:
    sending = Wanting(
        StrategyOutput(evictions=(Eviction(POD, "sending", "a test"), Eviction(POD, "sending", "again")))
    )
    floor = Floor(kubepods, tmp_path, sending=sending)
    await floor.enforcer.run_round(NODE, Unknowing(), ON, now=0.0)
    await floor.enforcer.wait_evictions()
    assert floor.sent == ["p"]
    floor.failure = AWAY
    await floor.enforcer.run_round(NODE, Unknowing(), ON, now=1.0)
    await floor.enforcer.wait_evictions()
    assert floor.metric_value("evictions", strategy="sending", result="evicted") == 1
    assert floor.metric_value("evictions", strategy="sending", result="refused") == 1


@pytest.mark.parametrize("blocked", [BLOCKED, TWO_BUDGETS])
async def test_evictor_reports_blocked_pods_to_strategies_for_a_minute(
    kubepods: Kubepods, tmp_path: Path, blocked: KubeError
) -> None:
    sending = Wanting(StrategyOutput(evictions=(Eviction(POD, "sending", "a test"),)))
    floor = Floor(kubepods, tmp_path, sending=sending)
    blocked_pods = []
    for now, failure in ((0.0, AWAY), (1.0, blocked), (2.0, None), (60.0, None), (61.0, None)):
        floor.failure = failure
        await floor.enforcer.run_round(NODE, Unknowing(), ON, now=now)
        await floor.enforcer.wait_evictions()
        blocked_pods.append(sending.staying)
    assert blocked_pods == [frozenset(), frozenset(), {"u"}, {"u"}, frozenset()]


@pytest.mark.parametrize("let_go", [True, False])
async def test_qos_controller_restores_children_created_since_the_last_view(
    kubepods: Kubepods, tmp_path: Path, *, let_go: bool
) -> None:
    """With cgroup v1 a new cgroup has its parent's CPUs, of which the agent has removed some."""
    kubepods.pod(QosClass.BEST_EFFORT)
    tier = KnobRef(kubepods.layout.qos_path(QosClass.BEST_EFFORT), CPUSET_CPUS)
    every = frozenset(os.sched_getaffinity(0))
    wanting = Wanting(StrategyOutput())
    floor = Floor(kubepods, tmp_path, wanting=wanting)

    async def squeeze(cpus: frozenset[int], now: float) -> None:
        wanting.answer = StrategyOutput(
            (KnobRequest(ref=tier, value=cpus, strategy="wanting", reason="a test"),)
        )
        await floor.enforcer.run_round(NODE, Unknowing(), ON, now=now)

    await squeeze(frozenset({min(every)}), now=0.0)
    _, [started_at] = kubepods.pod(QosClass.BEST_EFFORT)
    if let_go:
        floor.enforcer.release(now=1.0)
    else:
        await squeeze(every, now=1.0)
    assert floor.surface.read(KnobRef(started_at, CPUSET_CPUS)) == floor.surface.read(tier) == every
