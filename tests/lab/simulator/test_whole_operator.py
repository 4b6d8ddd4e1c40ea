"""The parts of the operator beside sizing, in the simulator: leadership, admission of pods, VPAs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lab.simulator.scenes import GIB, MIB, flat, scene, sized, workload
from trimtab.api import Duration
from trimtab.api.nodeqospolicy import NodeQoSPolicySpec
from trimtab.api.optimizationpolicy import MetricsConfig, OptimizationPolicySpec, PolicyMode
from trimtab.kube.kinds.custom import QosPolicy
from trimtab.kube.kinds.hpas import AutoscalerTarget
from trimtab.kube.kinds.vpas import VerticalPodAutoscaler
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import NODE_QOS_POLICIES, VPAS
from trimtab.lab.simulator.metrics import ClusterMetrics
from trimtab.lab.simulator.scenario import Scenario
from trimtab.lab.simulator.simulation import Simulation
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.vpa.status import RECOMMENDER

HOUR = 3600.0
WEB = WorkloadKey("Deployment", "default", "web")
POLICY = OptimizationPolicySpec(
    mode=PolicyMode.AUTO,
    metrics_config=MetricsConfig(minimum_history=Duration.parse("1h")),
    reconciliation_interval=Duration.parse("30m"),
)


def oversized_service() -> Scenario:
    """Build a cluster with one Deployment that requests far more than it uses."""
    return scene(
        [workload("web", sized(2000, 2 * GIB, 4000, 4 * GIB), replicas=4)],
        flat((0.3, 400.0 * MIB)),
        nodes=4,
        cpu=8.0,
    )


def requested_cpu(simulation: Simulation) -> set[int | None]:
    return {pod.containers[0].resources.cpu_request for pod in simulation.world.pods.values()}


def leads(simulation: Simulation) -> bool:
    return simulation.session is not None


async def test_simulation_changes_nothing_while_another_process_leads() -> None:
    changes: list[tuple[float, str]] = []

    def record(metrics: ClusterMetrics) -> None:
        changes.extend((each.at, each.reason) for each in metrics.events)

    async with Simulation(oversized_service(), policies={"all": POLICY}) as simulation:
        simulation.subscribe(record)
        await simulation.run(0.5 * HOUR)
        first = simulation.controllers
        assert leads(simulation)
        name = simulation.config.leader_election.name
        simulation.leases.take(name, holder="another", seconds=6 * HOUR)
        await simulation.run(5 * HOUR)
        assert not leads(simulation)
        assert requested_cpu(simulation) == {2000}
        assert not changes
        await simulation.run(12 * HOUR)
        assert leads(simulation), "the other process has not renewed the Lease"
        assert simulation.controllers is not first
        assert max(filter(None, requested_cpu(simulation))) < 2000
    assert min(at for at, _ in changes) >= simulation.world.start + 6.5 * HOUR


async def test_simulation_creates_pods_with_size_in_effect_only_if_webhook_sizes_pods() -> None:
    async def created_size(config: OperatorConfig) -> tuple[int | None, int | None]:
        async with Simulation(oversized_service(), policies={"all": POLICY}, config=config) as simulation:
            await simulation.run(10 * HOUR)
            (applied,) = requested_cpu(simulation)
            world = simulation.world
            before = set(world.pods)
            world.delete_pod(next(iter(world.pods.values())))
            world.process_due(world.control_time)
            (new,) = (pod for uid, pod in world.pods.items() if uid not in before)
            return applied, new.containers[0].resources.cpu_request

    applied, created = await created_size(OperatorConfig())
    assert applied is not None
    assert applied < 2000
    assert created == 2000, "the template keeps its size, and the operator resizes the pod afterwards"
    applied, created = await created_size(OperatorConfig.model_validate({"webhook": {"pods": True}}))
    assert created == applied


async def test_simulation_writes_statuses_of_policies() -> None:
    qos = QosPolicy("", "all", "uid-qos", 1, 1, 0, NodeQoSPolicySpec(), "", b"{}")
    async with Simulation(
        oversized_service(), policies={"all": POLICY}, objects=[(NODE_QOS_POLICIES, qos)]
    ) as simulation:
        await simulation.run(2 * HOUR)
        (seen,) = simulation.cluster_state.node_policies
        statuses = simulation._objects.statuses
    assert statuses["OptimizationPolicy", simulation.config.namespace, "all"]["observedGeneration"] == 1
    assert msgspec.json.decode(seen.status)["nodes"] == 4


async def test_simulation_recommends_for_vpa_without_a_policy() -> None:
    vpa = VerticalPodAutoscaler(
        namespace="default",
        name="web",
        uid="vpa-web",
        version=1,
        generation=1,
        created=0,
        target=AutoscalerTarget("Deployment", "apps", "web"),
        recommenders=(RECOMMENDER,),
        container_policies=(),
        status=b"{}",
        updates_pods=False,
    )
    async with Simulation(oversized_service(), objects=[(VPAS, vpa)]) as simulation:
        await simulation.run(6 * HOUR)
        (seen,) = simulation.cluster_state.vpas
        assert requested_cpu(simulation) == {2000}, "a VPA in mode Off only recommends"

    def recommended(status: bytes) -> Iterator[tuple[str, str]]:
        for each in msgspec.json.decode(status)["recommendation"]["containerRecommendations"]:
            yield each["containerName"], each["target"]["cpu"]

    ((container, cpu),) = recommended(seen.status)
    assert container == "main"
    assert 200 <= int(cpu.removesuffix("m")) < 1000
