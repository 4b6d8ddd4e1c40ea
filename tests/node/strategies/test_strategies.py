"""Each strategy against numbers worked out by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.nodeqospolicy import (
    CACHE_CLASS,
    BlkIOSpec,
    BlockDeviceSpec,
    BlockType,
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
from trimtab.node.arbiter import KnobRef, Value, resolve_requests
from trimtab.node.arbiter.host_knobs import CACHE_SHARES, MIN_FREE_KBYTES, WATERMARK_SCALE_FACTOR
from trimtab.node.cgroups import Knob, QosClass
from trimtab.node.cgroups.knobs import (
    CPU_PERIOD,
    CPU_QUOTA,
    CPUSET_CPUS,
    CPUSET_EFFECTIVE,
    IO_READ_BPS,
    IO_WEIGHT,
    MEMORY_HIGH,
    MEMORY_LOW,
    MEMORY_MIN,
    THREADS,
)
from trimtab.node.model import (
    BEST_EFFORT,
    NODE,
    SYSTEM,
    ContainerView,
    Cpu,
    Metric,
    NodeView,
    PodView,
    Tier,
    WindowStats,
    container_subject,
    pod_subject,
)
from trimtab.node.series import SeriesRetention, SeriesStore
from trimtab.node.strategies import STRATEGIES, NodeStrategy, StrategyInput, StrategyOutput
from trimtab.node.strategies.cpuburst import TokenBucket
from trimtab.node.strategies.cpuset import order_cpus
from trimtab.node.strategies.cpusuppress import next_count, next_quota, share_out
from trimtab.node.strategies.resctrl import build_ways_mask, compute_bandwidth

MIB = 1 << 20
BE_CGROUP = "kubepods/besteffort"


@dataclass
class FixedSamples:
    """Samples of the recent past, the same for any window."""

    values: Mapping[tuple[str, Metric], float] = field(default_factory=dict)

    def latest(self, subject: str, metric: Metric) -> float | None:
        return self.values.get((subject, metric))

    def average(self, subject: str, metric: Metric, seconds: float) -> float | None:
        return self.values.get((subject, metric))

    def spread(self, subject: str, metric: Metric, seconds: float) -> WindowStats | None:
        return None


def _pod(name: str, tier: Tier, *, priority: int = 0, deleting: bool = False, **resources: int) -> PodView:
    qos = QosClass.BEST_EFFORT if tier is Tier.BE else QosClass.BURSTABLE
    cgroup = f"kubepods/{qos.value.lower()}/pod{name}"
    container = ContainerView(
        name="c", id=f"id-{name}", resources=Resources(**resources), cgroup=f"{cgroup}/c"
    )
    return PodView(
        uid=name,
        namespace="default",
        name=name,
        tier=tier,
        qos=qos,
        priority=priority,
        cgroup=cgroup,
        containers=(container,),
        deleting=deleting,
    )


def _node(*pods: PodView, cpus: int = 10, **more: Any) -> NodeView:
    return NodeView(
        name="n",
        cpus=tuple(Cpu(id=n, core=n, socket=0, numa=0) for n in range(cpus)),
        memory=1000 * MIB,
        pods=pods,
        **more,
    )


def _scene(
    view: NodeView,
    policy: NodeQoSPolicySpec,
    samples: Mapping[tuple[str, Metric], float] | None = None,
    *,
    now: float = 0.0,
    held: Mapping[tuple[str, Knob[Any]], Any] | None = None,
) -> StrategyInput:
    def look(ref: KnobRef) -> Value | None:
        return (held or {}).get((ref.path, ref.knob))

    return StrategyInput(
        view=view, windows=FixedSamples(samples or {}), policy=policy, now=now, read_knob=look
    )


def _of(plan: StrategyOutput) -> dict[tuple[str, str], Value]:
    return {request.ref.key: request.value for request in plan.requests}


def _new(name: str) -> NodeStrategy:
    return STRATEGIES.load_type(name)()


@pytest.mark.parametrize("name", STRATEGIES.names())
def test_strategy_without_policy_or_data_requests_nothing(name: str) -> None:
    node = _node(_pod("a", Tier.LS, cpu_limit=1000), _pod("b", Tier.BE))
    assert _new(name).plan(_scene(node, NodeQoSPolicySpec())) == StrategyOutput()
    knowing_nothing = NodeQoSPolicySpec(
        cpu_suppress=CPUSuppressSpec(enable=True),
        cpu_evict=CPUEvictSpec(enable=True),
        memory_evict=MemoryEvictSpec(enable=True),
        resctrl=ResctrlSpec(enable=True),
        blkio=BlkIOSpec(enable=True),
        memory_qos=MemoryQoSSpec(enable=True),
    )
    assert replace(_new(name).plan(_scene(node, knowing_nothing)), unsupported=()) == StrategyOutput()


def test_strategy_reports_what_the_node_does_not_support() -> None:
    disks = BlkIOSpec(
        enable=True, be=(BlockDeviceSpec(name="sda", read_bps=1), BlockDeviceSpec(name="sdx", read_bps=1))
    )
    policy = NodeQoSPolicySpec(resctrl=ResctrlSpec(enable=True), blkio=disks)
    scene = replace(
        _scene(_node(LS, BE), policy), find_devices=lambda block: ("8:0",) if block.name == "sda" else ()
    )
    assert _new("blkio").plan(scene).unsupported == ("the node has no device sdx",)
    [line] = _new("resctrl").plan(scene).unsupported
    assert "/sys/fs/resctrl" in line


# CPU suppress

LS, BE = _pod("ls", Tier.LS), _pod("be", Tier.BE)
BY_QUOTA = CPUSuppressSpec(enable=True, policy=CPUSuppressPolicy.CFS_QUOTA)


def _suppressed_value(
    strategy: NodeStrategy, settings: CPUSuppressSpec, *, used: float, system: float = 1.0, **node: Any
) -> Value | None:
    samples = {(pod_subject("ls"), Metric.CPU): used, (SYSTEM, Metric.CPU): system}
    plan = strategy.plan(_scene(_node(LS, BE, **node), NodeQoSPolicySpec(cpu_suppress=settings), samples))
    return plan.requests[0].value if plan.requests else None


@pytest.mark.parametrize(
    ("settings", "used", "system", "node", "quota"),
    [
        pytest.param({}, 2.0, 1.0, {}, 350_000, id="65 % of 10 - 2 - 1 = 3.5 cores"),
        pytest.param({"threshold_percent": 90}, 2.0, 1.0, {}, 600_000, id="another threshold"),
        pytest.param({}, 2.0, 0.5, {"allocatable_cpu": 8000}, 250_000, id="2 reserved and not 0.5 used"),
        pytest.param({}, 9.0, 1.0, {}, 2000, id="never under 2 ms"),
        pytest.param({"min_percent": 5}, 9.0, 1.0, {}, 50_000, id="the minimum percent"),
    ],
)
def test_cpusuppress_gives_best_effort_the_safe_amount(
    settings: dict[str, Any], used: float, system: float, node: dict[str, Any], quota: int
) -> None:
    chosen = BY_QUOTA.model_copy(update=settings)
    assert _suppressed_value(_new("cpusuppress"), chosen, used=used, system=system, **node) == quota


def test_cpusuppress_lowers_quota_at_once_and_raises_it_by_a_tenth() -> None:
    strategy = _new("cpusuppress")
    used = [2.0, 6.0, 2.0, 2.0, 2.0, 2.0, 1.95]
    quotas = [_suppressed_value(strategy, BY_QUOTA, used=each) for each in used]
    assert quotas == [350_000, 2000, 102_000, 202_000, 302_000, 350_000, 350_000]


@given(cores=st.floats(-5, 64), last=st.one_of(st.none(), st.integers(2000, 6_400_000)))
def test_cpusuppress_quota_respects_minimum_and_growth_rate(cores: float, last: int | None) -> None:
    quota = next_quota(cores, capacity=64, period=100_000, last=last)
    assert quota >= 2000
    assert last is None or quota <= last + 640_000


def test_cpusuppress_lowers_cpuset_at_once_and_raises_it_by_one() -> None:
    strategy, settings = _new("cpusuppress"), CPUSuppressSpec(enable=True)
    values = [_suppressed_value(strategy, settings, used=each) for each in (2.0, 6.0, 2.0, 2.0, 2.0)]
    assert [len(value) for value in values if isinstance(value, frozenset)] == [4, 2, 3, 4, 4]


@pytest.mark.parametrize(
    ("tier", "cpu", "sets", "given"),
    [
        (Tier.LSR, 0, [{2, 3}], {0, 1}),
        (Tier.LS, 2000, [{2, 3}], {0, 1}),
        (Tier.LS, 1500, [{2, 3}], {0, 1, 2, 3}),  # a kubelet gives whole CPUs away
        (Tier.LS, 2000, [set[int]()], {0, 1, 2, 3}),  # it gives none away here
        (Tier.LSR, 0, [{1, 2, 3}, {0}], {1, 2, 3}),  # the first shares what the second leaves
        (Tier.LSR, 0, [{1, 2, 3}], {0, 1, 2, 3}),  # one CPU would be too few
    ],
)
def test_cpusuppress_excludes_exclusive_cpus_of_pods(
    tier: Tier, cpu: int, sets: list[set[int]], given: set[int]
) -> None:
    pod = replace(_pod("own", tier, cpu_request=cpu), qos=QosClass.GUARANTEED)
    [container] = pod.containers
    pod = replace(pod, containers=tuple(replace(container, cgroup=str(n)) for n in range(len(sets))))
    samples = {(SYSTEM, Metric.CPU): 0.0, (pod_subject("own"), Metric.CPU): 0.0}
    policy = NodeQoSPolicySpec(cpu_suppress=CPUSuppressSpec(enable=True, threshold_percent=100))
    held = {(str(n), CPUSET_CPUS): frozenset(own) for n, own in enumerate(sets)}
    plan = _new("cpusuppress").plan(_scene(_node(pod, cpus=4), policy, samples, held=held))
    assert plan.requests[0].value == frozenset(given)


def test_cpusuppress_excludes_cpus_assigned_by_the_kubelet() -> None:
    large = replace(_pod("large", Tier.LS, cpu_request=5000), qos=QosClass.GUARANTEED)
    pods = [_pod("small", Tier.LSR, cpu_request=500), large]
    samples = {(SYSTEM, Metric.CPU): 0.0} | {(pod_subject(pod.uid), Metric.CPU): 0.0 for pod in pods}
    policy = NodeQoSPolicySpec(cpu_suppress=CPUSuppressSpec(enable=True, threshold_percent=100))
    held = {
        (pod.containers[0].cgroup, CPUSET_CPUS): frozenset(own)
        for pod, own in zip(pods, (range(3), range(3, 8)), strict=True)
    }
    plan = _new("cpusuppress").plan(_scene(_node(*pods, cpus=8), policy, samples, held=held))
    assert plan.requests[0].value == frozenset({0, 1, 2})


def test_cpusuppress_excludes_isolated_cpus() -> None:
    """On these it does not share tasks out: all would be on the first."""
    node = _node(LS, cpus=4)
    node = replace(node, cpus=tuple(replace(cpu, isolated=cpu.id > 1) for cpu in node.cpus))
    samples = {(SYSTEM, Metric.CPU): 0.0, (pod_subject("ls"), Metric.CPU): 0.0}
    policy = NodeQoSPolicySpec(cpu_suppress=CPUSuppressSpec(enable=True, threshold_percent=100))
    plan = _new("cpusuppress").plan(_scene(node, policy, samples))
    assert plan.requests[0].value == frozenset({0, 1})


@given(cores=st.floats(-5, 64), last=st.one_of(st.none(), st.integers(2, 64)))
def test_cpusuppress_keeps_at_least_two_cpus(cores: float, last: int | None) -> None:
    count = next_count(cores, capacity=64, last=last)
    assert 2 <= count <= 64
    assert last is None or count <= last + 7


def test_cpusuppress_keeps_its_value_while_usage_is_unknown() -> None:
    strategy, policy = _new("cpusuppress"), NodeQoSPolicySpec(cpu_suppress=BY_QUOTA)
    assert _suppressed_value(strategy, BY_QUOTA, used=2.0) == 350_000
    assert _of(strategy.plan(_scene(_node(LS, BE), policy))) == {(BE_CGROUP, "cpu.quota"): 350_000}


@pytest.mark.parametrize(("used", "quota"), [(4.0, 150_000), (1.0, 350_000)])
def test_cpusuppress_does_not_raise_while_a_pod_has_no_samples(used: float, quota: int) -> None:
    """On a node where pods start every second there always is one."""
    strategy, policy = _new("cpusuppress"), NodeQoSPolicySpec(cpu_suppress=BY_QUOTA)
    assert _suppressed_value(strategy, BY_QUOTA, used=2.0) == 350_000
    samples = {(pod_subject("ls"), Metric.CPU): used, (SYSTEM, Metric.CPU): 1.0}
    plan = strategy.plan(_scene(_node(LS, _pod("new", Tier.LS), BE), policy, samples))
    assert _of(plan) == {(BE_CGROUP, "cpu.quota"): quota}


def test_cpusuppress_after_a_restart_gives_only_the_safe_amount() -> None:
    policy, samples = NodeQoSPolicySpec(cpu_suppress=BY_QUOTA), {(SYSTEM, Metric.CPU): 1.0}
    plan = _new("cpusuppress").plan(_scene(_node(_pod("new", Tier.LS), BE), policy, samples))
    assert _of(plan) == {(BE_CGROUP, "cpu.quota"): 550_000}


def test_cpusuppress_limits_best_effort_pods_outside_the_tier_cgroup() -> None:
    labelled = replace(BE, cgroup="kubepods/burstable/podbe")
    samples = {(SYSTEM, Metric.CPU): 1.0}
    plan = _new("cpusuppress").plan(
        _scene(_node(labelled), NodeQoSPolicySpec(cpu_suppress=BY_QUOTA), samples)
    )
    assert [*_of(plan)] == [(BE_CGROUP, "cpu.quota"), ("kubepods/burstable/podbe", "cpu.quota")]


def test_cpusuppress_ignores_exclusive_cpus_and_their_usage() -> None:
    """10 cores of work would end up on the other 8 CPUs."""
    own = replace(_pod("dpdk", Tier.LSR, cpu_request=8000), qos=QosClass.GUARANTEED)
    sidecar = replace(own.containers[0], name="sidecar", cgroup="sidecar", resources=Resources())
    beside = replace(own, containers=(*own.containers, sidecar))
    held = {(own.containers[0].cgroup, CPUSET_CPUS): frozenset(range(8))}

    def quota(*pods: PodView, isolated: int = 0, cpus: int = 16) -> Value:
        node = _node(LS, *pods, cpus=cpus)
        node = replace(node, cpus=tuple(replace(cpu, isolated=cpu.id < isolated) for cpu in node.cpus))
        samples = {(SYSTEM, Metric.CPU): 0.2, (pod_subject("ls"), Metric.CPU): 3.0}
        samples |= {(pod_subject("dpdk"), Metric.CPU): 7.5, (container_subject("dpdk", "c"), Metric.CPU): 7.0}
        policy = NodeQoSPolicySpec(cpu_suppress=BY_QUOTA)
        return _new("cpusuppress").plan(_scene(node, policy, samples, held=held)).requests[0].value

    assert quota(cpus=8) == 200_000  # 65 % of 8 are 5.2, of which 3.2 are used
    assert quota(isolated=8) == 200_000
    assert quota(own) == 200_000
    assert quota(beside) == 150_000  # whose sidecar runs beside the others, and uses half a core


@pytest.mark.parametrize(("own", "state"), [(frozenset(range(8)), None), (frozenset[int](), 120_000)])
def test_cpuburst_measures_load_of_shared_cpus_only(own: frozenset[int], state: int | None) -> None:
    dpdk = replace(_pod("dpdk", Tier.LS, cpu_request=8000), qos=QosClass.GUARANTEED)
    samples = {
        (NODE, Metric.CPU): 1.8,
        (pod_subject("dpdk"), Metric.CPU): 0.1,
        (CONTAINER, Metric.THROTTLED): 0.5,
    }
    policy = NodeQoSPolicySpec(cpu_burst=CPUBurstSpec(policy=CPUBurstPolicy.CFS_QUOTA_BURST_ONLY))
    held = {(dpdk.containers[0].cgroup, CPUSET_CPUS): own}
    plan = _new("cpuburst").plan(_scene(_node(BURSTING, dpdk, cpus=10), policy, samples, held=held))
    assert (
        _of(plan).get(("kubepods/burstable/podp/c", "cpu.quota")) == state
    )  # 1.7 of 2 are busy, 1.8 of 10 are not


@given(st.floats(0.0, 1e7), st.lists(st.one_of(st.floats(0.0, 1e7), st.just(float("inf"))), min_size=1))
def test_share_out_distributes_everything_fairly(total: float, wanted: list[float]) -> None:
    shares = share_out(total, wanted)
    assert sum(shares) == pytest.approx(total, abs=1e-3)
    lacking = [share for share, demand in zip(shares, wanted, strict=True) if share < demand - 1e-3]
    richest = max(
        (share for share, demand in zip(shares, wanted, strict=True) if share >= demand), default=0.0
    )
    assert not lacking or min(lacking) >= richest - 1e-3


def test_cpusuppress_exempts_critical_and_relabelled_pods() -> None:
    """Pods of kube-proxy, CNI and CSI have no requests and share a cgroup with all batch pods."""
    proxy = replace(_pod("kube-proxy", Tier.BE, priority=2_000_001_000), tier=Tier.BE)
    labelled = replace(_pod("labelled", Tier.BE), tier=Tier.LS)
    assert proxy.tier is Tier.LS
    for beside in (proxy, labelled):
        node = _node(LS, BE, beside, _pod("be2", Tier.BE))
        samples = {(SYSTEM, Metric.CPU): 1.0, (pod_subject("ls"), Metric.CPU): 9.0}
        samples |= {(pod_subject(name), Metric.CPU): 0.1 for name in ("be", "be2", beside.uid)}
        for settings in (BY_QUOTA, CPUSuppressSpec(enable=True)):
            plan = _new("cpusuppress").plan(_scene(node, NodeQoSPolicySpec(cpu_suppress=settings), samples))
            assert [path for path, _ in _of(plan)] == [BE.cgroup, f"{BE_CGROUP}/podbe2"]
        # Each of them has half of what there is, which is the least that a kernel takes.
        assert _of(
            _new("cpusuppress").plan(_scene(node, NodeQoSPolicySpec(cpu_suppress=BY_QUOTA), samples))
        ) == {
            (BE.cgroup, "cpu.quota"): 1000,
            (f"{BE_CGROUP}/podbe2", "cpu.quota"): 1000,
        }


def test_cpuset_takes_whole_cores_from_numa_nodes_in_turn() -> None:
    """Two nodes of two cores of two threads, numbered as Linux does: the second threads after all first ones."""
    cpus = [Cpu(id=n, core=n % 4, socket=n % 4 // 2, numa=n % 4 // 2) for n in range(8)]
    assert order_cpus(cpus) == [1, 5, 3, 7, 0, 4, 2, 6]


# CPU burst

BURSTING = _pod("p", Tier.LS, cpu_limit=1000, cpu_request=500)
CONTAINER = container_subject("p", "c")


def _burst(
    strategy: NodeStrategy, settings: CPUBurstSpec, *, node: float = 1.0, now: float = 0.0, **metrics: float
) -> dict[tuple[str, str], Value]:
    samples = {(NODE, Metric.CPU): node} | {
        (CONTAINER, Metric(name)): value for name, value in metrics.items()
    }
    scene = _scene(_node(BURSTING), NodeQoSPolicySpec(cpu_burst=settings), samples, now=now)
    return _of(strategy.plan(scene))


@pytest.mark.parametrize(("percent", "saved"), [(50, 50_000), (1000, 100_000)])
def test_cpuburst_burst_is_a_share_of_the_limit_at_most_the_limit(percent: int, saved: int) -> None:
    """Though the quota is raised: the kubelet may write that of the limit at any time, which no kernel takes below a burst."""
    settings = CPUBurstSpec(policy=CPUBurstPolicy.AUTO, cpu_burst_percent=percent)
    found = _burst(_new("cpuburst"), settings, throttled=0.5)
    assert found == {
        ("kubepods/burstable/podp/c", "cpu.burst"): saved,
        ("kubepods/burstable/podp", "cpu.burst"): saved,
        ("kubepods/burstable/podp/c", "cpu.quota"): 120_000,
        ("kubepods/burstable/podp", "cpu.quota"): 120_000,
    }


def test_cpuburst_sets_both_cgroups_of_a_crun_container() -> None:
    """As crun does, whose inner cgroup would still be throttled."""
    [container] = BURSTING.containers
    pod = replace(BURSTING, containers=(replace(container, inner_cgroup=f"{container.cgroup}/container"),))
    policy = NodeQoSPolicySpec(cpu_burst=CPUBurstSpec(policy=CPUBurstPolicy.AUTO))
    plan = _new("cpuburst").plan(
        _scene(_node(pod), policy, {(NODE, Metric.CPU): 1.0, (CONTAINER, Metric.THROTTLED): 0.5})
    )
    for path in (container.cgroup, f"{container.cgroup}/container"):
        assert (_of(plan)[path, "cpu.quota"], _of(plan)[path, "cpu.burst"]) == (120_000, 100_000)
        assert plan.external_values[KnobRef(path, CPU_QUOTA)] == 100_000
    assert _of(plan)[pod.cgroup, "cpu.quota"] == 120_000


def test_cpuburst_of_a_shrinking_container_respects_the_new_limit() -> None:
    """Or the kernel refuses the kubelet the smaller quota."""
    [container] = BURSTING.containers
    shrinking = replace(BURSTING, containers=(replace(container, spec_resources=Resources(cpu_limit=400)),))
    policy = NodeQoSPolicySpec(cpu_burst=CPUBurstSpec(policy=CPUBurstPolicy.CPU_BURST_ONLY))
    plan = _new("cpuburst").plan(_scene(_node(shrinking), policy))
    assert {*_of(plan).values()} == {40_000}


def test_cpuburst_raises_throttled_container_and_lowers_it_under_load() -> None:
    strategy, settings = _new("cpuburst"), CPUBurstSpec(policy=CPUBurstPolicy.CFS_QUOTA_BURST_ONLY)
    path = ("kubepods/burstable/podp/c", "cpu.quota")
    up = [_burst(strategy, settings, throttled=0.5).get(path) for _ in range(7)]
    assert up == [120_000, 144_000, 172_800, 207_360, 248_832, 298_598, 300_000]
    assert _burst(strategy, settings, throttled=0.5, node=4.7)[path] == 300_000  # held between 45 and 50 %
    down = [_burst(strategy, settings, throttled=0.5, node=5.0).get(path) for _ in range(6)]
    assert down == [240_000, 192_000, 153_600, 122_880, None, None]  # none: what the limit says


def test_cpuburst_reports_kubelet_values_so_that_a_resize_is_noticed() -> None:
    policy = NodeQoSPolicySpec(cpu_burst=CPUBurstSpec(policy=CPUBurstPolicy.AUTO))
    external_values = (
        _new("cpuburst").plan(_scene(_node(_pod("ls", Tier.LS, cpu_limit=1500)), policy)).external_values
    )
    quotas = {ref.key: value for ref, value in external_values.items()}
    assert quotas == {
        ("kubepods/burstable/podls", "cpu.quota"): 150_000,
        ("kubepods/burstable/podls/c", "cpu.quota"): 150_000,
    }


@pytest.mark.parametrize(("whole", "quota"), [(None, 120_000), (800, 100_000)])
def test_cpuburst_raises_the_pod_quota_along_with_its_container(whole: int | None, quota: int) -> None:
    pod = replace(_pod("ls", Tier.LS, cpu_limit=1000), pod_level_resources=Resources(cpu_limit=whole))
    policy = NodeQoSPolicySpec(cpu_burst=CPUBurstSpec(policy=CPUBurstPolicy.CFS_QUOTA_BURST_ONLY))
    samples = {(NODE, Metric.CPU): 1.0, (container_subject("ls", "c"), Metric.THROTTLED): 0.5}
    requests = _of(_new("cpuburst").plan(_scene(_node(pod), policy, samples)))
    assert requests == {
        ("kubepods/burstable/podls/c", "cpu.quota"): 120_000,
        ("kubepods/burstable/podls", "cpu.quota"): quota,
    }


@given(
    st.lists(
        st.tuples(st.sampled_from([200, 1000, 2500, 4000]), st.booleans(), st.floats(0.0, 10.0)), min_size=1
    )
)
def test_cpuburst_raises_quota_only_when_throttled_under_the_current_limit(
    seconds: list[tuple[int, bool, float]],
) -> None:
    """A limit that is lowered, as the operator does, is the limit from then on."""
    strategy, settings = _new("cpuburst"), CPUBurstSpec(policy=CPUBurstPolicy.CFS_QUOTA_BURST_ONLY)
    policy, ceiling, last = NodeQoSPolicySpec(cpu_burst=settings), 0, 0
    for now, (limit, throttled, busy) in enumerate(seconds):
        pod = _pod("p", Tier.LS, cpu_limit=limit)
        samples = {(NODE, Metric.CPU): busy, (CONTAINER, Metric.THROTTLED): float(throttled)}
        quota = _of(strategy.plan(_scene(_node(pod), policy, samples, now=float(now)))).get(
            ("kubepods/burstable/podp/c", "cpu.quota"), limit * 100
        )
        ceiling = limit * 100 if limit != last else ceiling
        ceiling, last = min(int(ceiling * 1.2) if throttled else ceiling, limit * 300), limit
        assert isinstance(quota, int)
        assert limit * 100 <= quota <= ceiling


def test_cpuburst_keeps_quota_of_unthrottled_container() -> None:
    strategy, settings = _new("cpuburst"), CPUBurstSpec(policy=CPUBurstPolicy.CFS_QUOTA_BURST_ONLY)
    assert _burst(strategy, settings, throttled=0.0) == {}
    _burst(strategy, settings, throttled=0.1)
    assert _burst(strategy, settings, throttled=0.0)["kubepods/burstable/podp", "cpu.quota"] == 120_000


def test_cpuburst_token_bucket_ends_long_bursts() -> None:
    """Ten seconds at the ceiling of 300 % are 2000 tokens: at 200 % they last twenty seconds."""
    bucket = TokenBucket(capacity=2000, tokens=2000, at=0.0)
    assert [bucket.consume(float(now), 200.0) for now in (1, 19, 20, 21)] == [True, True, False, False]
    assert bucket.consume(31.0, 0.0)  # a hundred a second come back
    strategy = _new("cpuburst")
    settings = CPUBurstSpec(policy=CPUBurstPolicy.CFS_QUOTA_BURST_ONLY, cfs_quota_burst_period_seconds=10)
    burst = [_burst(strategy, settings, now=float(now), throttled=0.5, cpu=2.0) for now in range(0, 25, 4)]
    assert [bool(each) for each in burst] == [True, True, True, True, True, False, False]


def test_cpuburst_applies_a_longer_burst_duration_to_known_containers() -> None:
    strategy, without_end = _new("cpuburst"), CPUBurstSpec(policy=CPUBurstPolicy.CFS_QUOTA_BURST_ONLY)
    assert _burst(strategy, without_end, now=0.0, throttled=0.5)
    bounded = without_end.model_copy(update={"cfs_quota_burst_period_seconds": 10})
    burst = [_burst(strategy, bounded, now=float(now), throttled=0.5, cpu=2.0) for now in range(1, 26, 4)]
    assert [bool(each) for each in burst] == [True, True, True, True, True, False, False]


# Evictions


def _starve(strategy: NodeStrategy, scene: StrategyInput, *, seconds: float = 20.0) -> None:
    """Let it see the same for as long as it looks back, without a chance to evict anybody."""
    guarded = replace(scene, eviction_blocked=frozenset(pod.uid for pod in scene.view.pods))
    for second in range(int(seconds), 0, -1):
        assert not strategy.plan(replace(guarded, now=scene.now - second)).evictions


def test_cpuevict_evicts_starved_pods_until_the_rest_is_satisfied() -> None:
    pods = [_pod(name, Tier.BE, priority=n, cpu_request=2000) for n, name in enumerate("abcd")]
    held: dict[tuple[str, Knob[Any]], Any] = {
        (BE_CGROUP, CPU_QUOTA): 400_000,
        (BE_CGROUP, CPU_PERIOD): 100_000,
        (BE_CGROUP, CPUSET_EFFECTIVE): frozenset(range(10)),
    }
    policy = NodeQoSPolicySpec(cpu_evict=CPUEvictSpec(enable=True))

    def evicted_pods(strategy: NodeStrategy, used: float, now: float = 0.0) -> list[str]:
        samples = {(BEST_EFFORT, Metric.CPU): used}
        plan = strategy.plan(_scene(_node(*pods), policy, samples, held=held, now=now))
        return [eviction.pod.name for eviction in plan.evictions]

    strategy = _new("cpuevict")
    _starve(strategy, _scene(_node(*pods), policy, {(BEST_EFFORT, Metric.CPU): 3.9}, held=held))
    assert evicted_pods(strategy, used=3.5) == []  # under 90 % of the 4 cores that they get
    # They get 4 of 8 cores, 50 %; for 80 % no more than 5 may be asked for, so 3 have to go.
    found = [evicted_pods(strategy, used=3.9, now=float(now)) for now in range(21)]
    assert found == [["a", "b"], *[[]] * 19, ["a", "b"]]


@given(
    limits=st.lists(st.floats(0.02, 8.0), min_size=60, max_size=60),
    uses=st.lists(st.floats(0.0, 1.0), min_size=60, max_size=60),
    cool_down=st.integers(1, 90),
)
def test_cpuevict_requires_starvation_now_and_over_the_whole_window(
    limits: list[float], uses: list[float], cool_down: int
) -> None:
    policy = NodeQoSPolicySpec(cpu_evict=CPUEvictSpec(enable=True, cool_down_seconds=cool_down))
    node = _node(*(_pod(name, Tier.BE, cpu_request=1000) for name in "abcdef"))
    strategy, series = _new("cpuevict"), SeriesStore()
    for second, (limit, share) in enumerate(zip(limits, uses, strict=True)):
        series.now = float(second)
        series.add(BEST_EFFORT, Metric.CPU, limit * share, period=1.0)
        held: dict[tuple[str, Knob[Any]], Any] = {
            (BE_CGROUP, CPU_QUOTA): round(limit * 100_000),
            (BE_CGROUP, CPU_PERIOD): 100_000,
        }
        plan = strategy.plan(replace(_scene(node, policy, held=held, now=series.now), windows=series))
        window = min(max(cool_down, 20), 60)
        past = limits[max(0, second - window + 1) : second + 1]
        if plan.evictions:
            assert second >= window / 2
            assert max(limit, sum(past) / len(past)) <= 0.6 * 6 + 1e-3
            assert (series.average(BEST_EFFORT, Metric.CPU, window) or 0.0) >= 0.9 * sum(past) / len(
                past
            ) - 1e-3


@pytest.mark.parametrize("production", [5000, 7500, 8000])
def test_cpuevict_by_allocatable_evicts_no_idle_pod_however_much_others_request(production: int) -> None:
    """Requested but unused CPU of others keeps no pod from running."""
    idle = [_pod(f"idle-{n}", Tier.BE, cpu_request=500) for n in range(4)]
    busy, web = _pod("busy", Tier.BE, cpu_request=500), _pod("web", Tier.LS, cpu_request=production)
    settings = CPUEvictSpec(enable=True, policy=CPUEvictPolicy.EVICT_BY_ALLOCATABLE)
    policy = NodeQoSPolicySpec(cpu_evict=settings)

    def evicted_pods(*pods: PodView, used: float) -> list[str]:
        samples = {(pod_subject(pod.uid), Metric.CPU): 0.001 for pod in idle}
        samples |= {(pod_subject("busy"), Metric.CPU): used, (BEST_EFFORT, Metric.CPU): used + 0.004}
        scene, strategy = _scene(_node(web, *pods, allocatable_cpu=7500), policy, samples), _new("cpuevict")
        _starve(strategy, scene)
        return [eviction.pod.name for eviction in strategy.plan(scene).evictions]

    assert evicted_pods(*idle, used=0.0) == []
    assert evicted_pods(*idle, busy, used=0.01) == []
    assert evicted_pods(*idle, busy, used=0.5) == ([] if production == 5000 else ["busy"])


def test_cpuevict_counts_only_cpus_that_best_effort_pods_can_run_on() -> None:
    own = replace(_pod("own", Tier.LS, cpu_request=8000), qos=QosClass.GUARANTEED)
    node = _node(own, _pod("batch", Tier.BE, cpu_request=4000), cpus=10)
    held: dict[tuple[str, Knob[Any]], Any] = {
        (own.containers[0].cgroup, CPUSET_CPUS): frozenset(range(8)),
        (BE_CGROUP, CPUSET_EFFECTIVE): frozenset(range(10)),
    }
    policy = NodeQoSPolicySpec(cpu_evict=CPUEvictSpec(enable=True))
    scene, strategy = _scene(node, policy, {(BEST_EFFORT, Metric.CPU): 2.0}, held=held), _new("cpuevict")
    _starve(strategy, scene)
    [eviction] = strategy.plan(scene).evictions
    assert (
        eviction.reason
        == "best-effort pods got 2.00 of 4.00 requested cores and used 2.00, on average over 20 s"
    )


def test_cpuevict_averages_at_most_the_last_minute_of_the_cool_down() -> None:
    series = SeriesStore(SeriesRetention(node=60.0))
    for second in range(120):
        series.now = float(second)
        series.add(BEST_EFFORT, Metric.CPU, 4.0, period=1.0)
    policy = NodeQoSPolicySpec(cpu_evict=CPUEvictSpec(enable=True, cool_down_seconds=7200))
    scene = _scene(_node(_pod("a", Tier.BE, cpu_request=8000), cpus=4), policy)
    strategy, scene = _new("cpuevict"), replace(scene, windows=series)
    evicted = [bool(strategy.plan(replace(scene, now=float(now))).evictions) for now in range(31)]
    assert evicted == [*[False] * 30, True]  # half a minute is enough to know


def test_cpuevict_skips_pods_that_cannot_be_evicted() -> None:
    pods = [
        replace(_pod("nameless", Tier.BE), name=""),
        replace(_pod("static", Tier.BE), is_node_bound=True),
        _pod("kube-proxy", Tier.BE, priority=2_000_001_000),
        _pod("batch", Tier.BE, priority=9),
    ]
    samples = {(pod_subject(pod.uid), Metric.MEMORY): 300.0 * MIB for pod in pods}
    samples[NODE, Metric.MEMORY] = 990.0 * MIB
    policy = NodeQoSPolicySpec(memory_evict=MemoryEvictSpec(enable=True))
    plan = _new("memoryevict").plan(_scene(_node(*pods), policy, samples))
    assert [eviction.pod.name for eviction in plan.evictions] == ["batch"]


def test_eviction_order_continues_after_a_blocked_pod() -> None:
    pods = [_pod("guarded", Tier.BE, cpu_request=9000), _pod("batch", Tier.BE, cpu_request=1000, priority=9)]
    samples = {(pod_subject(pod.uid), Metric.MEMORY): 300.0 * MIB for pod in pods}
    samples |= {(NODE, Metric.MEMORY): 710.0 * MIB, (BEST_EFFORT, Metric.CPU): 2.0}
    policy = NodeQoSPolicySpec(memory_evict=MemoryEvictSpec(enable=True), cpu_evict=CPUEvictSpec(enable=True))
    scene = _scene(_node(*pods, cpus=2), policy, samples)
    for name in ("memoryevict", "cpuevict"):
        for staying, goes in ((frozenset[str](), "guarded"), (frozenset({"guarded"}), "batch")):
            strategy = _new(name)
            _starve(strategy, scene)
            evictions = strategy.plan(replace(scene, eviction_blocked=staying)).evictions
            assert [eviction.pod.name for eviction in evictions] == [goes]


def test_eviction_order_starts_no_cool_down_after_a_rejection() -> None:
    """Or all who are guarded would be asked again before anybody else, who could go, ever is."""
    pods = [_pod(name, Tier.BE, priority=n, cpu_request=8000) for n, name in enumerate("abcd")]
    settings = CPUEvictSpec(enable=True, satisfaction_lower_percent=70, cool_down_seconds=300)
    policy, strategy = NodeQoSPolicySpec(cpu_evict=settings), _new("cpuevict")
    scene = _scene(_node(*pods, cpus=22), policy, {(BEST_EFFORT, Metric.CPU): 22.0})

    def evicted_pods(now: float, *staying: str) -> list[str]:
        plan = strategy.plan(replace(scene, now=now, eviction_blocked=frozenset(staying)))
        return [eviction.pod.name for eviction in plan.evictions]

    _starve(strategy, scene, seconds=60.0)
    assert evicted_pods(0.0) == ["a"]
    assert evicted_pods(1.0) == []  # no answer yet
    assert evicted_pods(2.0, "a") == ["b"]
    assert evicted_pods(3.0, "a", "b") == ["c"]
    assert evicted_pods(4.0, "a", "b") == []
    assert not any(evicted_pods(float(now)) for now in range(5, 303))
    assert evicted_pods(303.0) == ["a"]


def test_memoryevict_frees_to_the_lower_percent_by_priority_and_usage() -> None:
    pods = [
        _pod("important", Tier.BE, priority=9),
        _pod("small", Tier.BE),
        _pod("large", Tier.BE),
        _pod("leaving", Tier.BE, deleting=True),
    ]
    used = {"important": 300, "small": 30, "large": 60, "leaving": 10}

    def evicted_pods(strategy: NodeStrategy, node: int, now: float = 0.0) -> list[str]:
        samples = {(pod_subject(name), Metric.MEMORY): amount * MIB for name, amount in used.items()}
        samples[NODE, Metric.MEMORY] = node * MIB
        policy = NodeQoSPolicySpec(memory_evict=MemoryEvictSpec(enable=True))
        return [
            each.pod.name for each in strategy.plan(_scene(_node(*pods), policy, samples, now=now)).evictions
        ]

    strategy = _new("memoryevict")
    assert evicted_pods(strategy, 699) == []
    assert evicted_pods(strategy, 740) == ["large"]  # 60 to free, of which 10 are on their way
    assert evicted_pods(strategy, 760, now=3.9) == []
    assert evicted_pods(strategy, 760, now=4.0) == ["large", "small"]


@given(
    node=st.integers(0, 1000),
    pods=st.lists(st.tuples(st.integers(0, 400), st.booleans(), st.booleans()), max_size=5),
)
def test_memoryevict_evicts_nobody_if_all_would_not_free_enough(
    node: int, pods: list[tuple[int, bool, bool]]
) -> None:
    """A leaking production pod fills the node again, and evicted pods would come back only to be evicted again."""
    views = [
        replace(_pod(str(n), Tier.BE, deleting=deleting), is_node_bound=of_node)
        for n, (_, deleting, of_node) in enumerate(pods)
    ]
    samples = {(pod_subject(str(n)), Metric.MEMORY): float(used * MIB) for n, (used, _, _) in enumerate(pods)}
    samples[NODE, Metric.MEMORY] = float(node * MIB)
    policy = NodeQoSPolicySpec(memory_evict=MemoryEvictSpec(enable=True))
    plan = _new("memoryevict").plan(_scene(_node(*views), policy, samples))
    going = sum(used for used, deleting, _ in pods if deleting)
    able = sum(used for used, deleting, of_node in pods if not deleting and not of_node)
    reachable = node - going - able < 700
    assert bool(plan.evictions) == (node >= 700 and reachable and node - going > 680 and able > 0)
    assert bool(plan.unsupported) == (node >= 700 and not reachable)


def test_memoryevict_replaces_a_pod_that_terminates_for_over_a_minute() -> None:
    pods = [_pod("stuck", Tier.BE, deleting=True), _pod("batch", Tier.BE)]
    samples = {(pod_subject(pod.uid), Metric.MEMORY): 300.0 * MIB for pod in pods}
    samples[NODE, Metric.MEMORY] = 710.0 * MIB
    strategy, policy = _new("memoryevict"), NodeQoSPolicySpec(memory_evict=MemoryEvictSpec(enable=True))
    evicted = [
        [each.pod.name for each in strategy.plan(_scene(_node(*pods), policy, samples, now=now)).evictions]
        for now in (100.0, 159.0, 160.0)
    ]
    assert evicted == [[], [], ["batch"]]


def test_cpuevict_counts_requests_of_terminating_pods_as_freed() -> None:
    """Some have ten minutes to save what they did, and CPU does not run out meanwhile."""
    pods = [
        _pod("saving", Tier.BE, deleting=True, cpu_request=4000),
        _pod("batch", Tier.BE, cpu_request=4000),
    ]
    policy = NodeQoSPolicySpec(cpu_evict=CPUEvictSpec(enable=True))
    scene, strategy = _scene(_node(*pods, cpus=4), policy, {(BEST_EFFORT, Metric.CPU): 4.0}), _new("cpuevict")
    _starve(strategy, scene)
    assert [strategy.plan(replace(scene, now=now)).evictions for now in (0.0, 60.0, 300.0)] == [(), (), ()]


# Memory, cache, disks, watermarks


def test_memoryqos_sets_whole_pages_from_request_and_limit() -> None:
    pod = _pod("p", Tier.LS, memory_request=10 * MIB + 5, memory_limit=20 * MIB + 5)
    protection = MemoryProtection(min_limit_percent=50, low_limit_percent=100, throttling_percent=80)
    policy = NodeQoSPolicySpec(memory_qos=MemoryQoSSpec(enable=True, ls=protection))
    requests = _of(_new("memoryqos").plan(_scene(_node(pod), policy)))
    way = ["kubepods/burstable/podp/c", "kubepods/burstable/podp", "kubepods/burstable", "kubepods"]
    assert {path: requests[path, MEMORY_MIN.name] for path in way} == dict.fromkeys(way, 5 * MIB)
    assert {path: requests[path, MEMORY_LOW.name] for path in way} == dict.fromkeys(way, 10 * MIB)
    assert requests[way[0], MEMORY_HIGH.name] == 18 * MIB
    assert len(requests) == 9


def test_memoryqos_protects_pod_level_requests() -> None:
    pod = replace(
        _pod("p", Tier.LS), pod_level_resources=Resources(memory_request=10 * MIB, memory_limit=20 * MIB)
    )
    protection = MemoryProtection(min_limit_percent=50, throttling_percent=80)
    policy = NodeQoSPolicySpec(memory_qos=MemoryQoSSpec(enable=True, ls=protection))
    assert _of(_new("memoryqos").plan(_scene(_node(pod), policy))) == {
        ("kubepods/burstable/podp/c", MEMORY_HIGH.name): 16 * MIB,
        ("kubepods/burstable/podp", MEMORY_MIN.name): 5 * MIB,
        ("kubepods/burstable", MEMORY_MIN.name): 5 * MIB,
        ("kubepods", MEMORY_MIN.name): 5 * MIB,
    }


def test_memoryqos_protects_all_parents_and_never_lowers_protection() -> None:
    pod = _pod("p", Tier.LS, memory_request=10 * MIB)
    inside = "kubelet/kubepods/burstable/podp"
    containers = (replace(pod.containers[0], cgroup=f"{inside}/c"),)
    node = replace(_node(replace(pod, cgroup=inside, containers=containers)), pods_cgroup="kubelet/kubepods")
    policy = NodeQoSPolicySpec(
        memory_qos=MemoryQoSSpec(enable=True, ls=MemoryProtection(min_limit_percent=50))
    )
    before = {"kubelet": 0, "kubelet/kubepods": 7 * MIB, f"{inside}/c": 7 * MIB}
    decided, _ = resolve_requests(
        _new("memoryqos").plan(_scene(node, policy)).requests, lambda ref: before.get(ref.path, 0)
    )
    assert {ref.path: value for ref, value in decided.items()} == {
        "kubelet": 5 * MIB,
        "kubelet/kubepods": 7 * MIB,
        "kubelet/kubepods/burstable": 5 * MIB,
        inside: 5 * MIB,
        f"{inside}/c": 5 * MIB,  # whose own protection is what the policy says
    }


@pytest.mark.parametrize(
    ("ways", "start", "end", "mask"),
    [(11, 0, 100, 0x7FF), (11, 0, 30, 0xF), (20, 0, 30, 0x3F), (12, 50, 100, 0xFC0), (8, 99, 100, 0x80)],
)
def test_resctrl_cache_share_is_a_contiguous_mask(ways: int, start: int, end: int, mask: int) -> None:
    assert build_ways_mask(ways, start, end) == mask


@given(ways=st.integers(1, 32), start=st.integers(0, 99), length=st.integers(1, 100))
def test_resctrl_mask_is_contiguous_within_the_cache(ways: int, start: int, length: int) -> None:
    mask = build_ways_mask(ways, start, min(start + length, 100))
    assert 0 < mask < 1 << ways
    assert "0" not in f"{mask:b}".rstrip("0")


def test_resctrl_assigns_tier_threads_every_ten_seconds() -> None:
    strategy, policy = _new("resctrl"), NodeQoSPolicySpec(resctrl=ResctrlSpec(enable=True))
    held: dict[tuple[str, Knob[Any]], Any] = {
        ("", CACHE_SHARES): {"L3:0": 0x7FF, "MB:0": 100},
        (f"{BE_CGROUP}/podbe/c", THREADS): (7, 8),
    }
    plans = [strategy.plan(_scene(_node(LS, BE), policy, held=held, now=now)) for now in (0.0, 5.0, 10.0)]
    assert _of(plans[0])["BE", CACHE_SHARES.name] == {"L3:0": 0xF, "MB:0": 100}
    assert _of(plans[0])["LS", CACHE_SHARES.name] == {"L3:0": 0x7FF, "MB:0": 100}
    assert [dict(plan.resctrl_tasks).get("BE") for plan in plans] == [{7, 8}, None, {7, 8}]


def test_resctrl_assigns_pod_to_its_annotated_class() -> None:
    strategy, policy = _new("resctrl"), NodeQoSPolicySpec(resctrl=ResctrlSpec(enable=True))
    held: dict[tuple[str, Knob[Any]], Any] = {
        ("", CACHE_SHARES): {"L3:0": 0x7FF},
        (f"{BE_CGROUP}/podbe/c", THREADS): (7, 8),
    }
    chosen = replace(BE, annotations=((CACHE_CLASS, "guaranteed"),))
    members = strategy.plan(_scene(_node(LS, chosen), policy, held=held, now=0.0)).resctrl_tasks
    assert (members["LSR"], members["BE"]) == (frozenset({7, 8}), frozenset())


def test_resctrl_bandwidth_uses_steps_of_ten_percent() -> None:
    """In percent on Intel's processors; on AMD's in a unit of which the root class has 2048."""
    assert [compute_bandwidth(100, percent) for percent in (1, 10, 11, 95, 100)] == [10, 10, 20, 100, 100]
    assert [compute_bandwidth(2048, percent) for percent in (1, 50, 100)] == [30, 1030, 2048]


def test_blkio_throttles_the_tier_and_pods_of_other_tiers() -> None:
    disk = BlockDeviceSpec(name="/dev/sda", read_bps=1000, io_weight_percent=40)
    policy = NodeQoSPolicySpec(blkio=BlkIOSpec(enable=True, be=(disk,), ls=(disk,)))
    scene = replace(_scene(_node(LS, BE), policy), find_devices=lambda block: ("8:0",))
    requests = _of(_new("blkio").plan(scene))
    paths = (BE_CGROUP, "kubepods/burstable/podls")
    assert {path: requests[path, IO_READ_BPS.name] for path in paths} == {key: {"8:0": 1000} for key in paths}
    assert {path: requests[path, IO_WEIGHT.name] for path in paths} == {key: {"default": 40} for key in paths}
    assert len(requests) == 4


def test_blkio_looks_devices_up_once_per_round() -> None:
    """A volume group takes a look at all volumes of the node, each second."""
    asked: list[str] = []

    def find(block: BlockDeviceSpec) -> tuple[str, ...]:
        asked.append(block.name)
        return ("8:0",)

    disk = BlockDeviceSpec(name="data", type=BlockType.VOLUME_GROUP, read_bps=1000, write_bps=1000)
    policy = NodeQoSPolicySpec(blkio=BlkIOSpec(enable=True, ls=(disk,)))
    view = _node(*(_pod(str(number), Tier.LS) for number in range(10)))
    scene = replace(_scene(view, policy), find_devices=find)
    assert len(_new("blkio").plan(scene).requests) == 20
    assert asked == ["data"]


def test_system_watermarks_are_in_ten_thousandths_of_memory() -> None:
    policy = NodeQoSPolicySpec(system=SystemSpec(enable=True))
    requests = _of(_new("system").plan(_scene(_node(), policy)))
    assert requests == {("", MIN_FREE_KBYTES.name): 10_240, ("", WATERMARK_SCALE_FACTOR.name): 150}
