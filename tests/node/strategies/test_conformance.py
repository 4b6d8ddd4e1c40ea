"""The contract of every node strategy, ours and others', for any input."""

import random
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.nodeqospolicy import (
    BlkIOSpec,
    BlockDeviceSpec,
    CPUBurstPolicy,
    CPUBurstSpec,
    CPUEvictPolicy,
    CPUEvictSpec,
    CPUSuppressPolicy,
    CPUSuppressSpec,
    MemoryEvictSpec,
    MemoryProtection,
    MemoryQoSSpec,
    NodeQoSPolicySpec,
    ResctrlSpec,
    SystemSpec,
)
from trimtab.kube.kinds.pods import Resources
from trimtab.node.arbiter import KnobRef, Value
from trimtab.node.arbiter.host_knobs import ALL_KNOBS, CACHE_SHARES
from trimtab.node.cgroups import QosClass
from trimtab.node.model import ContainerView, Cpu, Metric, NodeView, PodView, Tier, WindowStats
from trimtab.node.strategies import NO_OUTPUT, STRATEGIES, NodeStrategy, StrategyInput

ON = NodeQoSPolicySpec(
    cpu_suppress=CPUSuppressSpec(enable=True),
    cpu_burst=CPUBurstSpec(policy=CPUBurstPolicy.AUTO, cfs_quota_burst_period_seconds=5),
    cpu_evict=CPUEvictSpec(enable=True),
    memory_evict=MemoryEvictSpec(enable=True),
    memory_qos=MemoryQoSSpec(enable=True, ls=MemoryProtection(min_limit_percent=50, throttling_percent=80)),
    resctrl=ResctrlSpec(enable=True),
    blkio=BlkIOSpec(enable=True, be=(BlockDeviceSpec(name="/dev/sda", read_bps=1000),)),
    system=SystemSpec(enable=True),
)
POLICIES = (
    ON,
    ON.model_copy(
        update={
            "cpu_suppress": CPUSuppressSpec(enable=True, policy=CPUSuppressPolicy.CFS_QUOTA),
            "cpu_evict": CPUEvictSpec(enable=True, policy=CPUEvictPolicy.EVICT_BY_ALLOCATABLE),
        }
    ),
    NodeQoSPolicySpec(),
)


class Samples:
    """Random, but the same whenever asked again; often nothing is known."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def latest(self, subject: str, metric: Metric) -> float | None:
        rng = random.Random(f"{self._seed} {subject} {metric}")
        scale = 1 << 30 if metric is Metric.MEMORY else 2
        return None if rng.random() < 0.2 else rng.random() * scale

    def average(self, subject: str, metric: Metric, seconds: float) -> float | None:
        return self.latest(subject, metric)

    def spread(self, subject: str, metric: Metric, seconds: float) -> WindowStats | None:
        return None


def _held(ref: KnobRef) -> Value | None:
    return {"L3:0": 0x7FF, "MB:0": 100} if ref == KnobRef("", CACHE_SHARES) else None


def _pod(rng: random.Random, number: int) -> PodView:
    tier = rng.choice(list(Tier))
    qos = QosClass.BEST_EFFORT if tier is Tier.BE else QosClass.BURSTABLE
    cgroup = f"kubepods/{qos.value.lower()}/pod{number}"

    def some(most: int) -> int | None:
        return rng.choice([None, rng.randint(1, most)])

    size = Resources(some(2000), some(4000), some(1 << 28), some(1 << 29))
    container = ContainerView(name="c", id=str(number), resources=size, cgroup=f"{cgroup}/c")
    return PodView(
        uid=str(number),
        namespace="ns",
        name=str(number),
        tier=tier,
        qos=qos,
        priority=rng.randint(0, 2),
        cgroup=cgroup,
        containers=(container,),
        deleting=rng.random() < 0.1,
    )


def _scenes(seed: int) -> Iterator[StrategyInput]:
    """A while on a node: pods come and go, policies change, samples are missing."""
    rng, now = random.Random(seed), 0.0
    for second in range(8):
        now += rng.choice([1.0, 30.0])
        pods = tuple(_pod(random.Random(f"{seed} {number}"), number) for number in rng.sample(range(9), 5))
        view = NodeView(
            name="n",
            cpus=tuple(Cpu(id=n, core=n // 2, socket=0, numa=n // 4) for n in range(8)),
            memory=1 << 30,
            pods=pods,
            allocatable_cpu=rng.choice([None, 7000]),
        )
        yield StrategyInput(
            view=view,
            windows=Samples(seed + second),
            policy=rng.choice(POLICIES),
            now=now,
            read_knob=_held,
            find_devices=lambda _: ("8:0",),
        )


def _new() -> dict[str, NodeStrategy]:
    return {name: STRATEGIES.load_type(name)() for name in STRATEGIES.names()}


seeds = st.integers(0, 1 << 30)


@given(seed=seeds)
def test_strategy_output_is_deterministic(seed: int) -> None:
    one, other = _new(), _new()
    for scene in _scenes(seed):
        for name in one:
            assert one[name].plan(scene) == other[name].plan(scene)


@given(seed=seeds)
def test_strategy_requests_known_knobs_with_valid_values_in_its_name(seed: int) -> None:
    strategies = _new()
    for scene in _scenes(seed):
        for name, strategy in strategies.items():
            plan = strategy.plan(scene)
            for request in plan.requests:
                assert request.strategy == name
                assert request.reason
                assert ALL_KNOBS[request.ref.knob.name] is request.ref.knob
                assert not request.ref.knob.find_problem(request.value)
            for eviction in plan.evictions:
                assert eviction.pod in scene.view.pods_in_tier(Tier.BE)
                assert not eviction.pod.deleting


@given(seed=seeds)
def test_disabled_strategy_requests_nothing_and_resets(seed: int) -> None:
    used, scenes = _new(), list(_scenes(seed))
    for scene in scenes:
        for strategy in used.values():
            strategy.plan(scene)
    off, again = (
        replace(scenes[-1], policy=policy, now=scenes[-1].now + later)
        for policy, later in ((NodeQoSPolicySpec(), 1000.0), (ON, 2000.0))
    )
    fresh = _new()
    for name, strategy in used.items():
        assert strategy.plan(off) == NO_OUTPUT
        assert strategy.plan(again) == fresh[name].plan(again)
