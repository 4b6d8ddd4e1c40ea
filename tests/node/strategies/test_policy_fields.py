"""Each field of a NodeQoSPolicy that bounds or shapes a strategy changes what the strategy requests."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from node.strategies.test_strategies import BE_CGROUP, _new, _node, _pod, _scene, _starve
from trimtab.api.nodeqospolicy import (
    BlockDeviceSpec,
    BlockType,
    NodeQoSPolicySpec,
    TierNamespacesSpec,
)
from trimtab.node.arbiter.host_knobs import CACHE_SHARES, MIN_FREE_KBYTES, WATERMARK_SCALE_FACTOR
from trimtab.node.cgroups import Knob
from trimtab.node.cgroups.knobs import CPU_PERIOD, CPU_QUOTA, CPUSET_EFFECTIVE
from trimtab.node.model import (
    BEST_EFFORT,
    NODE,
    Metric,
    Tier,
    container_subject,
    pod_subject,
    resolve_cache_tier,
)
from trimtab.node.strategies import NodeStrategy, StrategyInput

MIB = 1 << 20
Held = Mapping[tuple[str, Knob[Any]], Any]


def policy(**settings: object) -> NodeQoSPolicySpec:
    """Return a policy with these settings, as a manifest spells them."""
    return NodeQoSPolicySpec.model_validate(settings)


# CPU burst


def burst_quotas(samples: Mapping[Metric, float], *, seconds: int = 1, **settings: object) -> list[object]:
    pod = _pod("p", Tier.LS, cpu_limit=1000)
    spec = policy(cpuBurst={"policy": "cfsQuotaBurstOnly", **settings})
    found = {(NODE, Metric.CPU): samples[Metric.CPU]}
    found[container_subject("p", "c"), Metric.THROTTLED] = samples[Metric.THROTTLED]
    strategy, scene = _new("cpuburst"), _scene(_node(pod), spec, found)
    plans = [strategy.plan(replace(scene, now=float(now))).requests for now in range(seconds)]
    return [each.value for plan in plans for each in plan if each.ref.path.endswith("/c")]


def test_cpuburst_raises_the_quota_up_to_its_ceiling() -> None:
    throttled = {Metric.CPU: 1.0, Metric.THROTTLED: 0.5}
    assert burst_quotas(throttled, seconds=9)[-1] == 300_000
    assert burst_quotas(throttled, seconds=9, cfsQuotaBurstPercent=200)[-1] == 200_000


def test_cpuburst_stops_above_the_threshold_of_the_shared_cpus() -> None:
    busy = {Metric.CPU: 4.0, Metric.THROTTLED: 0.5}
    assert burst_quotas(busy) == [120_000]
    assert burst_quotas(busy, sharePoolThresholdPercent=40) == []


# Evictions


def evicted_for_cpu(used: float, **settings: object) -> list[str]:
    pods = [_pod(name, Tier.BE, priority=n, cpu_request=2000) for n, name in enumerate("abcd")]
    held: Held = {
        (BE_CGROUP, CPU_QUOTA): 400_000,
        (BE_CGROUP, CPU_PERIOD): 100_000,
        (BE_CGROUP, CPUSET_EFFECTIVE): frozenset(range(10)),
    }
    spec = policy(cpuEvict={"enable": True, **settings})
    strategy: NodeStrategy = _new("cpuevict")
    scene: StrategyInput = _scene(_node(*pods), spec, {(BEST_EFFORT, Metric.CPU): used}, held=held)
    _starve(strategy, scene)
    return [eviction.pod.name for eviction in strategy.plan(scene).evictions]


def test_cpuevict_evicts_until_the_rest_has_the_upper_percent() -> None:
    assert evicted_for_cpu(3.9) == ["a", "b"]
    assert evicted_for_cpu(3.9, satisfactionUpperPercent=65) == ["a"]


def test_cpuevict_starts_only_above_the_usage_threshold() -> None:
    assert evicted_for_cpu(3.0) == []
    assert evicted_for_cpu(3.0, usageThresholdPercent=70) == ["a", "b"]


def evicted_for_memory(node: int, *times: float, **settings: object) -> list[list[str]]:
    used = {"large": 60, "middle": 50, "small": 30}
    samples = {(pod_subject(name), Metric.MEMORY): float(amount * MIB) for name, amount in used.items()}
    samples[NODE, Metric.MEMORY] = float(node * MIB)
    spec = policy(memoryEvict={"enable": True, **settings})
    strategy = _new("memoryevict")
    scene = _scene(_node(*(_pod(name, Tier.BE) for name in used)), spec, samples)
    return [
        [each.pod.name for each in strategy.plan(replace(scene, now=now)).evictions]
        for now in (times or (0.0,))
    ]


def test_memoryevict_starts_at_the_threshold() -> None:
    assert evicted_for_memory(720) == [["large"]]
    assert evicted_for_memory(720, thresholdPercent=80) == [[]]


def test_memoryevict_frees_to_the_lower_percent() -> None:
    assert evicted_for_memory(710, lowerPercent=60) == [["large", "middle"]]


def test_memoryevict_waits_for_the_cool_down() -> None:
    assert evicted_for_memory(720, 0.0, 5.0) == [["large"], ["large"]]
    assert evicted_for_memory(720, 0.0, 5.0, coolDownSeconds=6) == [["large"], []]


# Cache and bandwidth

TIERS = {"lsr": "LSR", "ls": "LS", "be": "BE"}


def cache_share(tier: str, **settings: object) -> object:
    held: Held = {("", CACHE_SHARES): {"L3:0": 0x3FF, "MB:0": 100}}
    spec = policy(resctrl={"enable": True, tier: settings})
    requests = _new("resctrl").plan(_scene(_node(), spec, held=held)).requests
    return next(each.value for each in requests if each.ref.path == TIERS[tier])


def test_resctrl_gives_a_reserved_tier_its_range_and_bandwidth() -> None:
    assert cache_share("lsr", catRangeStartPercent=40, catRangeEndPercent=80) == {"L3:0": 0xF0, "MB:0": 100}
    assert cache_share("lsr", mbaPercent=50) == {"L3:0": 0x3FF, "MB:0": 50}


def test_resctrl_gives_the_latency_sensitive_tier_its_range_and_bandwidth() -> None:
    assert cache_share("ls", catRangeStartPercent=40, catRangeEndPercent=80) == {"L3:0": 0xF0, "MB:0": 100}
    assert cache_share("ls", mbaPercent=50) == {"L3:0": 0x3FF, "MB:0": 50}


def test_resctrl_gives_the_best_effort_tier_its_range_and_bandwidth() -> None:
    assert cache_share("be", catRangeStartPercent=10, catRangeEndPercent=50) == {"L3:0": 0x1E, "MB:0": 100}
    assert cache_share("be", mbaPercent=20) == {"L3:0": 0x7, "MB:0": 20}


# Disk I/O


def io_limits(**device: object) -> tuple[dict[str, object], list[BlockType]]:
    asked: list[BlockType] = []

    def find(block: BlockDeviceSpec) -> tuple[str, ...]:
        asked.append(block.type)
        return ("8:0",)

    spec = policy(blkio={"enable": True, "be": [{"name": "data", **device}]})
    requests = _new("blkio").plan(replace(_scene(_node(), spec), find_devices=find)).requests
    return {each.ref.knob.name: each.value for each in requests}, asked


def test_blkio_limits_operations_of_reads_and_writes() -> None:
    found, _ = io_limits(readIOPS=100, writeIOPS=200)
    assert list(found.values()) == [{"8:0": 100}, {"8:0": 200}]


def test_blkio_looks_for_the_type_of_device() -> None:
    assert io_limits(readIOPS=1, type="volumegroup")[1] == [BlockType.VOLUME_GROUP]


# Node-wide settings


def test_system_sets_both_watermarks() -> None:
    spec = policy(system={"enable": True, "minFreeKbytesFactor": 200, "watermarkScaleFactor": 300})
    requests = _new("system").plan(_scene(_node(), spec)).requests
    found = {each.ref.knob.name: each.value for each in requests}
    assert found == {MIN_FREE_KBYTES.name: 20_480, WATERMARK_SCALE_FACTOR.name: 300}


@pytest.mark.parametrize(("namespace", "tier"), [("payments", Tier.LSR), ("shop", Tier.BE)])
def test_tier_namespaces_restrict_reserved_cache_classes(namespace: str, tier: Tier) -> None:
    allowed = TierNamespacesSpec.model_validate({"lsr": ["payments"]})
    annotations = {"trimtab.io/cache-class": "guaranteed"}
    assert resolve_cache_tier(annotations, Tier.BE, namespace, allowed) is tier


@pytest.mark.parametrize(("namespace", "tier"), [("payments", Tier.LS), ("shop", Tier.BE)])
def test_tier_namespaces_restrict_better_cache_classes(namespace: str, tier: Tier) -> None:
    allowed = TierNamespacesSpec.model_validate({"ls": ["payments"]})
    annotations = {"trimtab.io/cache-class": "burstable"}
    assert resolve_cache_tier(annotations, Tier.BE, namespace, allowed) is tier
