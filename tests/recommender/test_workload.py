"""Recommendations for a workload: each effective container by its estimate."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actuation.builders import NOW, pod, workload
from actuation.world import KEY, World, run
from harness.builders.records import workload as manifest
from sizing.containers import rules
from trimtab.actuation.change_annotations import AppliedSizes, ChangeAnnotations
from trimtab.actuation.executor import ChangeExecutor
from trimtab.api import Duration
from trimtab.api.optimizationpolicy import (
    Canary,
    ChangePolicy,
    OptimizationPolicySpec,
    StrategyChoice,
    UpdateStrategy,
)
from trimtab.kube.kinds.heap_flags import HeapFlags
from trimtab.kube.kinds.pods import Container, ContainerTermination, Pod, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.resources import CRON_JOBS, DEPLOYMENTS, Resource
from trimtab.recommender.cohort import ContainerEstimate
from trimtab.recommender.oom_kills import find_oom_kills
from trimtab.recommender.workload import (
    POD_LEVEL_RESOURCES,
    RECENT_OOM_WINDOW,
    WorkloadRecommendation,
    list_sized_containers,
    recommend_workload,
    strategy_spec_from_policy,
)
from trimtab.sizing.constraints import Constraints
from trimtab.sizing.evidence import Evidence, OomKills
from trimtab.sizing.proposal import Proposal, ResourceTarget
from trimtab.usage.pod_ownership import WorkloadContainer

MIB = 1 << 20
GIB = 1024 * MIB
DAY = 86400.0
QUICK = Canary(percent=50, observation=Duration.from_seconds(30), evidence_timeout=Duration.from_seconds(30))
HAS = Resources(1000, None, 256 * MIB, 512 * MIB)
FEW = Resources(200, None, 256 * MIB, 512 * MIB)


def estimate_for(cpu: float = 400.0, memory: float = math.nan, **seen: object) -> ContainerEstimate:
    known: dict[str, object] = {
        "samples": 5000,
        "run_seconds": 14 * DAY,
        "first_sample_at": NOW - 14 * DAY,
        "last_sample_at": NOW,
        "cpu_peak": 300,
        "memory_peak": 100 * MIB,
    }
    return ContainerEstimate(
        Proposal(cpu=ResourceTarget(cpu), memory=ResourceTarget(memory), strategy="test"),
        Evidence(**(known | seen)),  # type: ignore[arg-type]
    )


def recommend(
    found: ContainerEstimate | None, *, sizes: Resources = HAS, template: Resources = HAS
) -> WorkloadRecommendation:
    return recommend_workload(
        workload(template={"web": template}),
        [pod(sizes={"web": sizes})],
        rules=rules(),
        estimate=lambda _: found,
        constraints=Constraints(),
        source="scripted",
        now=NOW,
    )


def test_recommend_workload_starts_from_the_effective_size() -> None:
    (found,) = recommend(estimate_for(400), sizes=HAS, template=FEW).recommendations
    assert found.resources.cpu_request == 500, "by half at a time"
    assert "5,000 samples since" in found.text
    assert "scripted" in found.text


def test_recommend_workload_without_estimate_explains_no_change() -> None:
    found = recommend(None)
    assert found.sizes == {}
    assert found.no_change_reason.startswith("web: ")
    desired = found.to_desired_change(UpdateStrategy(), can_resize_in_place=True, blocked_reason="")
    assert (desired.sizes, desired.no_sizes_reason) == ({}, found.no_change_reason)


def test_recommend_workload_skips_pod_level_resources() -> None:
    found = recommend_workload(
        workload(template={"web": HAS, "log": Resources()}, pod_resources=Resources(cpu_request=1000)),
        [],
        rules=rules(),
        estimate=lambda _: estimate_for(400),
        constraints=Constraints(),
        source="scripted",
        now=NOW,
    )
    assert found.sizes == {}
    assert found.no_change_reason == f"web, log: {POD_LEVEL_RESOURCES}"


def test_desired_change_names_excluded_containers() -> None:
    found = recommend_workload(
        workload(template={"web": HAS}),
        [pod(sizes={"web": HAS, "proxy": HAS, "agent": HAS})],
        rules=rules(
            containers=[
                {"name": "proxy", "controlledResources": []},
                {"name": "agent", "controlledResources": ["memory"]},
            ]
        ),
        estimate=lambda _: estimate_for(400),
        constraints=Constraints(),
        source="scripted",
        now=NOW,
    )
    desired = found.to_desired_change(UpdateStrategy(), can_resize_in_place=True, blocked_reason="")
    assert desired.excluded_containers == {"proxy"}
    assert desired.sizes.keys() == {"web"}


def test_desired_change_contains_needed_memory() -> None:
    desired = recommend(estimate_for(400)).to_desired_change(
        UpdateStrategy(), can_resize_in_place=False, blocked_reason="no"
    )
    assert desired.needed_memory == {"web": 110 * MIB}, "its peak and headroom"
    assert (desired.blocked_reason, desired.can_resize_in_place, desired.is_urgent) == ("no", False, False)


@pytest.mark.parametrize(("ago", "urgent"), [(60.0, True), (RECENT_OOM_WINDOW + 60, False)])
def test_memory_increase_is_urgent_after_a_recent_oom_kill(*, ago: float, urgent: bool) -> None:
    limited = Resources(1000, None, 128 * MIB, 128 * MIB)
    killed = estimate_for(memory=600.0 * MIB, kills=(OomKills(128 * MIB, 1, NOW - ago, NOW - ago),))
    found = recommend_workload(
        workload(template={"web": limited}),
        [pod(sizes={"web": limited})],
        rules=rules(
            updateStrategy={"updateRequestsOnly": False}, limitPolicy={"memory": {"mode": "KeepRatio"}}
        ),
        estimate=lambda _: killed,
        constraints=Constraints(),
        source="scripted",
        now=NOW,
    )
    assert found.is_urgent is urgent


def test_recommend_workload_skips_init_containers() -> None:
    on = workload()
    init = Container("setup", "init", HAS)
    found = recommend_workload(
        workload(containers=(*on.containers, init)),
        [],
        rules=rules(),
        estimate=lambda _: estimate_for(),
        constraints=Constraints(),
        source="scripted",
        now=NOW,
    )
    assert [each.container for each in found.recommendations] == ["web"]


def test_strategy_spec_passes_stabilization_to_strategies_with_that_setting() -> None:
    changes = ChangePolicy(stabilization=Duration.parse("6h"))
    specs = {
        name: OptimizationPolicySpec(changes=changes, strategy=StrategyChoice(name=name, settings=settings))
        for name, settings in {"trimtab": {"cpu_risk": 0.1}, "vpa": {}, "fortune": {}}.items()
    }
    assert strategy_spec_from_policy(specs["trimtab"]).decode_settings() == {
        "cpu_risk": 0.1,
        "stabilization": 6 * 3600.0,
    }
    assert (
        strategy_spec_from_policy(specs["vpa"]).decode_settings()
        == strategy_spec_from_policy(specs["fortune"]).decode_settings()
        == {}
    )


def test_find_kills_uses_the_memory_at_the_time_of_the_kill() -> None:
    name = WorkloadContainer("shop", "Deployment", "web", "web")
    killed = pod("web-1", sizes={"web": HAS}, exits={"web": ContainerTermination("OOMKilled", 137, NOW - 5)})
    failed = pod("web-2", sizes={"web": HAS}, exits={"web": ContainerTermination("Error", 1, NOW - 5)})
    (kill,) = find_oom_kills(name, [killed, failed, pod("web-3")])
    assert (kill.at, kill.limit, kill.request) == (NOW - 5, HAS.memory_limit, HAS.memory_request)
    assert find_oom_kills(name._replace(container="log"), [killed]) == []


@pytest.mark.parametrize(("until", "memory"), [(NOW - 3, 64 * MIB), (NOW - 9, 512 * MIB)])
def test_find_kills_before_a_raise_uses_the_earlier_memory(until: int, memory: int) -> None:
    """Otherwise the increase would be repeated after a restart, which loses the record of the first one."""
    name = WorkloadContainer("shop", "Deployment", "web", "web")
    raised = pod("web-1", sizes={"web": HAS}, exits={"web": ContainerTermination("OOMKilled", 137, NOW - 5)})
    had = {"web": Resources(memory_limit=64 * MIB)}
    applied = AppliedSizes(id="x", at=NOW, sizes={"web": HAS}, template={}, before=had, until=until)
    (kill,) = find_oom_kills(name, [raised], ChangeAnnotations(applied=applied))
    assert kill.limit == memory


def java(options: str) -> Workload:
    return manifest(
        containers=(
            {
                "name": "web",
                "args": ["-jar", "app.jar"],
                "env": [{"name": "JAVA_TOOL_OPTIONS", "value": options}],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
            },
        )
    )


def memory_for(found: Workload, *pods: Pod) -> int:
    small = estimate_for(100.0, 64.0 * MIB, memory_peak=60 * MIB)
    (recommendation,) = recommend_workload(
        found,
        pods,
        rules=rules(),
        estimate=lambda _: small,
        constraints=Constraints(),
        source="test",
        now=NOW,
    ).recommendations
    return recommendation.resources.memory_request or 0


@pytest.mark.parametrize("options", ["-Xmx700m", "-XX:MaxRAMPercentage=35"])
def test_java_container_stays_above_its_heap(options: str) -> None:
    assert memory_for(java(options)) >= 1.25 * 700 * MIB


def test_java_container_shrunk_in_place_keeps_the_heap_of_its_start() -> None:
    resized = pod(sizes={"web": Resources(1000, None, 900 * MIB, 1024 * MIB)})
    assert memory_for(java("-XX:MaxRAMPercentage=35"), resized) >= 1.25 * 700 * MIB


class JavaWorld:
    """Two pods of a Java workload that takes a share of its limit as heap, with the size that admission gave them."""

    def __init__(self, *, percent: int, template: int, started_with: int) -> None:
        self.percent = percent
        self.world = World(template={"web": Resources(500, None, template, template)}, replicas=2)
        self.world.heaps = (HeapFlags("web", f"-XX:MaxRAMPercentage={percent}", ()),)
        self.world.apply_size_earlier({"web": Resources(500, None, started_with, started_with)})
        for each in self.world.pods_by_name.values():
            each.created = self.world.now - 60  # made since then
        self.started = dict.fromkeys((each.number for each in self.world.pods_by_name.values()), started_with)
        self.actuator = ChangeExecutor(self.world, self.world.records, may_write=lambda: True)

    @property
    def limits(self) -> set[int]:
        return {each.spec["web"].memory_limit or 0 for each in self.world.pods_by_name.values()}

    def live_a_day(self) -> None:
        """Size the workload as the operator does, and let a day pass."""
        world = self.world
        for _ in range(12):
            for each in world.pods_by_name.values():
                self.started.setdefault(each.number, each.spec["web"].memory_limit or 0)
            known = estimate_for(500.0, 700.0 * MIB, memory_peak=600 * MIB, last_sample_at=world.now)
            found = recommend_workload(
                run(world.get_workload(KEY)),
                run(world.list_pods()),
                rules=rules(updateStrategy={"updateRequestsOnly": False}, changes={"minimum": 0.1}),
                estimate={"web": known}.get,
                constraints=Constraints(),
                source="test",
                now=world.now,
            )
            desired = found.to_desired_change(
                UpdateStrategy(canary=QUICK), can_resize_in_place=True, blocked_reason=""
            )
            run(self.actuator.reconcile(KEY, desired, now=world.now))
            world.pass_time(30)
            for each in world.pods_by_name.values():
                heap = self.started.get(each.number, 0) * self.percent // 100
                assert (each.spec["web"].memory_limit or 0) >= heap
        world.pass_time(int(DAY))


@given(
    percent=st.integers(20, 80),
    template=st.integers(1, 8),
    more=st.integers(0, 8),
    events=st.lists(st.sampled_from(["none", "replace", "add"]), min_size=3, max_size=6),
)
@settings(max_examples=100, deadline=None)
def test_recommend_workload_keeps_memory_above_the_heap_at_start(
    percent: int, template: int, more: int, events: list[str]
) -> None:
    java_world = JavaWorld(percent=percent, template=template * GIB, started_with=(template + more) * GIB)
    for event in events:
        if event == "replace":
            java_world.world.replace_pod(next(iter(java_world.world.pods_by_name)))
        elif event == "add":
            java_world.world.add_pod()
        java_world.live_a_day()


def test_recommend_workload_keeps_the_limit_at_start_through_decreases() -> None:
    """4Gi with a heap of half of it come down to 2560Mi in two steps, and there they stay while the pods run."""
    java_world = JavaWorld(percent=50, template=GIB, started_with=4 * GIB)
    seen = []
    for _ in range(4):
        java_world.live_a_day()
        seen.append(java_world.limits)
    assert seen == [{2868 * MIB}, {2560 * MIB}, {2560 * MIB}, {2560 * MIB}]


def test_recommend_workload_keeps_memory_if_the_limit_at_start_is_unknown() -> None:
    """Somebody else gave the pod more than its template: what its process started with is not known."""
    size = Resources(1000, None, 4 * GIB, 4 * GIB)
    for _ in range(4):
        assert memory_for(java("-XX:MaxRAMPercentage=35"), pod(sizes={"web": size})) == 4 * GIB
    assert memory_for(java("-Xmx700m"), pod(sizes={"web": size})) < 4 * GIB, "a size does not depend on it"


def test_container_without_heap_flags_is_sized_by_usage() -> None:
    assert memory_for(java("-server")) < 1.25 * 700 * MIB


@pytest.mark.parametrize(("kind", "sized"), [(DEPLOYMENTS, ["web", "proxy"]), (CRON_JOBS, ["web"])])
def test_list_sized_containers_includes_injected_ones_where_pods_can_be_resized(
    kind: Resource, sized: list[str]
) -> None:
    made = manifest("web", resource=kind, containers=({"name": "web"},))
    injected = pod(sizes={"web": HAS, "proxy": HAS})
    init = Container("setup", "init", HAS)
    pods = [
        pod("old", sizes={"web": HAS}),
        msgspec.structs.replace(injected, containers=(init, *injected.containers)),
    ]
    assert [each.container for each in list_sized_containers(made, pods)] == sized
    assert list_sized_containers(made, pods[::-1]) == list_sized_containers(made, pods)
