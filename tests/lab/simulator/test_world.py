"""A simulated cluster as time passes: placing, killing, rolling, resizing; and that it all adds up."""

import asyncio
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.simulator.scenes import GIB, MIB, STEP, flat, scene, sized, workload
from trimtab.actuation.port import ClusterPort
from trimtab.errors import TrimtabError
from trimtab.kube.errors import Conflict, DisruptionBlocked, Invalid
from trimtab.kube.kinds.pods import Pod, Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lab.simulator.fake_cluster import SimulatedCluster
from trimtab.lab.simulator.scenario import ContainerSpec, RunSchedule, Scenario, ServiceSpec, WorkloadSpec
from trimtab.lab.simulator.scheduler import count_packed_nodes
from trimtab.lab.simulator.world import SimulatedWorld

WEB = WorkloadKey("Deployment", "default", "web")


def reasons(world: SimulatedWorld) -> Counter[str]:
    return Counter(happening.reason for happening in world.events)


async def pods_of(cluster: ClusterPort, key: WorkloadKey = WEB) -> list[Pod]:
    found = await cluster.get_workload(key)
    assert found is not None
    return list(await cluster.list_pods(found))


def test_pods_are_placed_by_their_requests_and_wait_when_nothing_is_left() -> None:
    world = SimulatedWorld(scene([workload("web", sized(1500, GIB), replicas=6)], flat((0.1, GIB / 2))))
    assert Counter(pod.node for pod in world.pods.values()) == {0: 2, 1: 2, -1: 2}
    assert reasons(world) == {"FailedScheduling": 2}
    world.scale_workload(WEB, 4)
    world.step(STEP)
    assert not world.pending


def test_world_places_a_pending_pod_at_the_first_free_place() -> None:
    two = [workload("web", sized(3000, GIB), replicas=2), workload("late", sized(3000, GIB))]
    world = SimulatedWorld(scene(two, flat((0.1, GIB / 2))))
    assert [pod.workload.spec.name for pod in world.pending.values()] == ["late"]
    world.scale_workload(WEB, 1)
    world.step(STEP)
    assert not world.pending


def test_load_goes_to_the_pods_that_are_ready() -> None:
    world = SimulatedWorld(scene([workload("web", sized(500, GIB), replicas=4)], flat((0.4, GIB / 2))))
    world.step(STEP)
    world.step(STEP)
    assert world.container_arrays.containers.cpu.sum() == pytest.approx(1.6)
    world.scale_workload(WEB, 2)
    world.step(STEP)
    assert world.container_arrays.containers.cpu.sum() == pytest.approx(1.6)
    assert world.container_arrays.containers.cpu.max() == pytest.approx(0.8)


def test_world_reports_a_killed_container_like_a_kubelet() -> None:
    world = SimulatedWorld(scene([workload("web", sized(100, GIB, None, GIB))], flat((0.1, 2.0 * GIB))))
    world.step(STEP)
    world.step(STEP)
    (pod,) = world.pods.values()
    (state,) = pod.to_record("node-0").container_statuses
    assert state.last_termination is not None
    assert (state.last_termination.reason, state.last_termination.finished_at) == (
        "OOMKilled",
        int(world.start + 2 * STEP),
    )
    assert (state.restarts, state.waiting_reason, pod.ready) == (2, "CrashLoopBackOff", False)


def test_world_evicts_by_excess_over_the_request_under_memory_pressure() -> None:
    two = [workload("web", sized(100, 8 * GIB)), workload("greedy", sized(100, GIB), series=1)]
    world = SimulatedWorld(scene(two, flat((0.1, 7.95 * GIB), (0.1, 8.0 * GIB)), nodes=1))
    world.step(STEP)
    world.step(STEP)
    evicted = [each for each in world.events if each.reason in {"Evicted", "OOMKilled"}]
    assert {each.workload.name for each in evicted} == {"greedy"}


async def test_world_rolls_out_a_quarter_at_a_time_while_serving() -> None:
    world = SimulatedWorld(scene([workload("web", sized(200, GIB), replicas=8)], flat((0.1, GIB / 2))))
    cluster = SimulatedCluster(world)
    world.step(STEP)
    found = await cluster.get_workload(WEB)
    assert found is not None
    await cluster.patch_template(found, {"main": sized(100, GIB)}, take_ownership=False)
    least, most, now = 8, 0, world.now
    rolling = await cluster.get_workload(WEB)
    while rolling and rolling.is_rolling_out:
        now += 5
        world.process_due(now)
        rolling = await cluster.get_workload(WEB)
        assert rolling is not None
        least, most = min(least, rolling.ready_replicas), max(most, len(world.pods))
    assert (least, most) == (6, 10)
    assert {pod.containers[0].resources.cpu_request for pod in world.pods.values()} == {100}


async def test_world_applies_a_resize_after_a_delay() -> None:
    world = SimulatedWorld(scene([workload("web", sized(200, GIB))], flat((0.1, GIB / 2))))
    cluster = SimulatedCluster(world)
    (pod,) = await pods_of(cluster)
    await cluster.resize(pod, {"main": sized(400, GIB)})
    (asked,) = await pods_of(cluster)
    assert asked.resize is not None
    assert asked.resize.condition == "PodResizeInProgress"
    world.process_due(world.now + 5)
    (done,) = await pods_of(cluster)
    assert done.resize is None
    assert done.container_statuses[0].actual_resources == sized(400, GIB)
    with pytest.raises(Conflict):
        await cluster.resize(pod, {"main": sized(500, GIB)})


@pytest.mark.parametrize(
    ("wanted", "answer"),
    [
        (sized(3000, GIB, None, 2 * GIB), ("PodResizePending", "Deferred")),
        (sized(30000, GIB, None, 2 * GIB), ("PodResizePending", "Infeasible")),
        (sized(1000, MIB, None, MIB), ("PodResizeInProgress", "Error")),
    ],
)
async def test_world_kubelet_rejects_resizes_that_do_not_fit(
    wanted: Resources, answer: tuple[str, str]
) -> None:
    two = [workload("web", sized(1000, GIB, None, 2 * GIB)), workload("other", sized(2000, GIB), series=1)]
    world = SimulatedWorld(scene(two, flat((0.1, GIB / 2), (0.1, GIB / 2)), nodes=1))
    world.step(STEP)
    cluster = SimulatedCluster(world)
    (pod,) = await pods_of(cluster)
    await cluster.resize(pod, {"main": wanted})
    world.process_due(world.now + 5)
    (refused,) = await pods_of(cluster)
    assert refused.resize is not None
    assert (refused.resize.condition, refused.resize.reason) == answer
    assert refused.container_statuses[0].actual_resources == sized(1000, GIB, None, 2 * GIB)


async def test_world_applies_a_deferred_resize_when_capacity_is_free() -> None:
    two = [workload("web", sized(1000, GIB)), workload("other", sized(2000, GIB), series=1)]
    world = SimulatedWorld(scene(two, flat((0.1, GIB / 2), (0.1, GIB / 2)), nodes=1))
    cluster = SimulatedCluster(world)
    (pod,) = await pods_of(cluster)
    await cluster.resize(pod, {"main": sized(3000, GIB)})
    world.process_due(world.now + 5)
    world.scale_workload(WorkloadKey("Deployment", "default", "other"), 0)
    world.process_due(world.now + 60)
    (done,) = await pods_of(cluster)
    assert done.resize is None
    assert done.container_statuses[0].actual_resources == sized(3000, GIB)


async def test_world_rejects_what_the_api_server_rejects() -> None:
    spec = WorkloadSpec(
        name="web",
        replicas=2,
        max_unavailable=1,
        containers=(ContainerSpec(demand_series=0, resources=sized(100, GIB, 100, GIB)),),
    )
    world = SimulatedWorld(scene([spec], flat((0.05, GIB / 2))))
    world.step(STEP)
    cluster = SimulatedCluster(world)
    first, second = await pods_of(cluster)
    with pytest.raises(Invalid, match="QOS"):
        await cluster.resize(first, {"main": sized(50, GIB, 100, GIB)})
    with pytest.raises(Invalid, match="limit"):
        await cluster.resize(first, {"main": sized(200, GIB, 100, GIB)})
    await cluster.evict(first)
    with pytest.raises(DisruptionBlocked):
        await cluster.evict(second)
    pods = set(world.pods)
    await cluster.evict(first)
    assert set(world.pods) == pods, "a second eviction of a pod has no further effect"


def test_world_answers_slower_with_less_cpu() -> None:
    def slowest(limit: int | None) -> float:
        spec = workload(
            "web", sized(500, GIB, limit), service=ServiceSpec(cpu_seconds=0.02, latency_objective=0.2)
        )
        world = SimulatedWorld(scene([spec], flat((0.5, GIB / 2))))
        world.step(STEP)
        world.step(STEP)
        return float(world.latencies[0, -1])

    free, tight, short = slowest(None), slowest(600), slowest(400)
    assert free < tight < short
    assert short == pytest.approx(10.0)


def test_pods_need_as_many_nodes_as_packing_them_takes() -> None:
    cpu, memory = np.array([3.0, 3.0, 1.0, 1.0]), np.array([1.0, 1.0, 1.0, 1.0])
    assert count_packed_nodes(cpu, memory, node_cpu=4.0, node_memory=16.0, node_pods=110) == 2
    assert count_packed_nodes(cpu, memory, node_cpu=4.0, node_memory=16.0, node_pods=1) == 4
    assert count_packed_nodes(cpu[:0], memory[:0], node_cpu=4.0, node_memory=16.0, node_pods=1) == 0


def test_scenario_that_makes_no_sense_is_rejected() -> None:
    web = workload("web", sized(100, GIB))
    with pytest.raises(TrimtabError, match="series 0 does not exist"):
        scene([web], flat())
    with pytest.raises(TrimtabError, match="occurs twice"):
        scene([web, web], flat((0.1, 1.0)))
    with pytest.raises(TrimtabError, match="at least one"):
        Scenario(pools=(), workloads=(), demand=flat((0.1, 1.0)))


@st.composite
def worlds(draw: st.DrawFn) -> SimulatedWorld:
    many = draw(st.integers(1, 5))
    specs = []
    for place in range(many):
        cpu, memory = draw(st.integers(10, 3000)), draw(st.integers(64, 4096)) * MIB
        limited = draw(st.booleans())
        resources = sized(cpu, memory, 2 * cpu if limited else None, 2 * memory if limited else None)
        spec = WorkloadSpec(
            name=f"w{place}",
            kind=draw(st.sampled_from(["Deployment", "StatefulSet"])),
            replicas=draw(st.integers(0, 6)),
            containers=(ContainerSpec(demand_series=place, resources=resources),) * 1,
        )
        specs.append(spec)
    wants = st.tuples(st.floats(0, 6), st.floats(0, 9.0 * GIB))
    demand = flat(*draw(st.lists(wants, min_size=many, max_size=many)))
    return SimulatedWorld(scene(specs, demand, nodes=draw(st.integers(1, 3))), seed=draw(st.integers(0, 9)))


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["resize", "evict", "scale", "patch", "wait"]),
        st.integers(0, 30),
        st.integers(1, 4000),
        st.integers(1, 4096),
    ),
    max_size=8,
)


@given(worlds(), ACTIONS)
@settings(max_examples=120)
def test_world_capacity_usage_and_time_always_add_up(
    world: SimulatedWorld, actions: list[tuple[str, int, int, int]]
) -> None:
    import asyncio

    asyncio.run(_act(world, actions))


async def _act(world: SimulatedWorld, actions: list[tuple[str, int, int, int]]) -> None:
    cluster = SimulatedCluster(world)
    for number, (what, whom, cpu, memory) in enumerate(actions, start=1):
        keys = sorted(world.workloads)
        found = await cluster.get_workload(keys[whom % len(keys)])
        assert found is not None
        pods = await cluster.list_pods(found)
        had = found.containers[0].resources
        wanted = sized(cpu, memory * MIB, had.cpu_limit and 2 * cpu, had.memory_limit and 2 * memory * MIB)
        if what == "resize" and pods:
            await cluster.resize(pods[whom % len(pods)], {"main": wanted})
        elif what == "evict" and pods:
            await cluster.evict(pods[whom % len(pods)])
        elif what == "scale":
            await cluster.scale(found, whom % 7)
        elif what == "patch":
            await cluster.patch_template(found, {"main": wanted}, take_ownership=False)
        world.step(STEP)
        assert world.now == world.start + number * STEP
        _adds_up(world)


def _adds_up(world: SimulatedWorld) -> None:
    containers, ground, rows = world.container_arrays.containers, world.nodes, world.container_arrays
    standing = [pod for pod in world.pods.values() if pod.node >= 0]
    assert (
        sorted(row for pod in world.pods.values() for row in pod.rows)
        == np.flatnonzero(rows.demand_column >= 0).tolist()
    )
    assert len({pod.name for pod in world.pods.values()}) == len(world.pods)
    for pod in world.pods.values():
        assert {int(containers.node[row]) for row in pod.rows} == {pod.node}
    for node in range(len(ground.names)):
        here = [pod for pod in standing if pod.node == node]
        cpu = sum(pod.applied[0].cpu_request or 0 for pod in here)
        memory = sum(pod.applied[0].memory_request or 0 for pod in here)
        assert ground.allocatable_cpu[node] - ground.cpu_left[node] == cpu <= ground.allocatable_cpu[node]
        assert ground.allocatable_memory[node] - ground.memory_left[node] == memory
        assert memory <= ground.allocatable_memory[node]
        assert ground.pods_left[node] == 110 - len(here)
    assert (ground.physical.cpu <= ground.physical.cpu_capacity * (1 + 1e-9)).all()
    assert (ground.physical.memory <= ground.physical.memory_capacity).all()
    for spec in world.scenario.workloads:
        sim = world.workloads[spec.key]
        settled = len(sim.pods) == sim.replicas
        rolling = bool(sim.outdated_pods)
        assert settled or (rolling and len(sim.pods) <= math.ceil(sim.replicas * 1.25))


async def test_world_pod_resized_while_starting_becomes_ready() -> None:
    world = SimulatedWorld(scene([workload("web", sized(200, GIB))], flat((0.1, GIB / 2))))
    cluster = SimulatedCluster(world)
    (pod,) = await pods_of(cluster)
    await cluster.resize(pod, {"main": sized(400, GIB)})
    world.step(STEP)
    (ready,) = await pods_of(cluster)
    assert ready.ready
    assert ready.container_statuses[0].actual_resources == sized(400, GIB)


def test_daemon_set_has_a_pod_on_each_node_and_replaces_one_after_another() -> None:
    agent = replace(workload("agent", sized(100, MIB), replicas=3), kind="DaemonSet")
    world = SimulatedWorld(scene([agent], flat((0.1, MIB)), nodes=3))
    world.step(STEP)
    found = world.workloads[agent.key]
    assert sorted(pod.node for pod in found.pods.values()) == [0, 1, 2]
    world.scale_workload(agent.key, 7)
    found.start_revision()
    world.enqueue(found)
    world.process_due(world.control_time)
    assert len(found.outdated_pods) == 2, "the second is replaced once the first is ready"
    for _ in range(4):
        world.step(STEP)
    assert not found.outdated_pods
    assert sorted(pod.node for pod in found.pods.values()) == [0, 1, 2]
    lost = next(pod for pod in found.pods.values() if pod.node == 1)
    world.nodes.deactivate(1)
    world.delete_pod(lost)
    world.step(STEP)
    assert (found.replicas, len(found.pods)) == (2, 2)
    world.nodes.activate(1)
    world.retry_pending()
    assert len(found.pods) == 3


def test_cron_job_has_pods_only_during_its_runs() -> None:
    schedule = RunSchedule(lasts=2 * STEP, every=4 * STEP)
    report = replace(workload("report", sized(100, MIB), replicas=2), kind="CronJob", schedule=schedule)
    world = SimulatedWorld(scene([report], flat((0.1, MIB))))
    counts = []
    for _ in range(8):
        world.step(STEP)
        counts.append(len(world.workloads[report.key].pods))
    assert counts == [2, 2, 0, 0, 2, 2, 0, 0]
    found = world.workloads[report.key].to_record()
    assert (found.kind, found.replicas, found.is_rolling_out, found.finished) == ("CronJob", 2, False, False)


def test_job_runs_once_and_its_template_is_immutable() -> None:
    load = replace(workload("load", sized(100, MIB)), kind="Job", schedule=RunSchedule(lasts=2 * STEP))
    world = SimulatedWorld(scene([load], flat((0.1, MIB))))
    world.step(STEP)
    record = world.workloads[load.key].to_record()
    with pytest.raises(Invalid, match="immutable"):
        asyncio.run(
            SimulatedCluster(world).patch_template(record, {"main": sized(200, MIB)}, take_ownership=False)
        )
    for _ in range(3):
        world.step(STEP)
    found = world.workloads[load.key]
    assert found.to_record().finished
    assert not found.pods


def test_deployment_that_recreates_ends_all_pods_before_it_creates_others() -> None:
    web = replace(workload("web", sized(100, MIB), replicas=3), update="Recreate")
    world = SimulatedWorld(scene([web], flat((0.1, MIB))))
    world.step(STEP)
    found = world.workloads[web.key]
    found.start_revision()
    world.enqueue(found)
    world.process_due(world.control_time)
    assert not found.outdated_pods
    assert len(found.pods) == 3
    assert found.ready == 0
