"""The views of a leader session: a reader keeps what it has read, and each workload has one."""

from __future__ import annotations

import pytest

from lab.simulator.scenes import GIB, flat, scene, sized, workload
from trimtab.api import Duration
from trimtab.api.optimizationpolicy import (
    MetricsConfig,
    NamespaceFilter,
    OptimizationPolicySpec,
    PolicyMode,
    PolicySelector,
    WorkloadState,
)
from trimtab.kube.kinds.pod_requests import pod_requests
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lab.simulator.simulation import Simulation
from trimtab.operator.views import ViewStore

HOUR = 3600.0
WEB = WorkloadKey("Deployment", "default", "web")


def test_view_store_reader_keeps_the_views_that_it_read() -> None:
    store: ViewStore[str, int] = ViewStore()
    store.publish("a", 1)
    before = store.read()
    store.publish("a", 2)
    store.publish("b", 3)
    assert dict(before) == {"a": 1}
    between = store.read()
    store.remove("a")
    store.remove("never published")
    assert dict(between) == {"a": 2, "b": 3}
    assert dict(store.read()) == {"b": 3}
    store.replace_all({"c": 4})
    assert ("b" in store, store.get("c")) == (False, 4)
    with pytest.raises(TypeError):
        store.read()["d"] = 5  # type: ignore[index]


def policy(mode: PolicyMode, namespace: str) -> OptimizationPolicySpec:
    return OptimizationPolicySpec(
        mode=mode,
        selector=PolicySelector(namespaces=NamespaceFilter(allow=(namespace,))),
        metrics_config=MetricsConfig(minimum_history=Duration.parse("1h")),
    )


@pytest.mark.parametrize(
    ("mode", "namespace", "state"),
    [
        (PolicyMode.RECOMMEND, "default", WorkloadState.RECOMMENDED),
        (PolicyMode.DISABLED, "default", WorkloadState.SKIPPED),
        (PolicyMode.AUTO, "elsewhere", None),
    ],
)
async def test_reconciler_publishes_a_view_of_each_workload(
    mode: PolicyMode, namespace: str, state: WorkloadState | None
) -> None:
    world = scene([workload("web", sized(2000, GIB), replicas=3)], flat((0.3, 1e8)))
    async with Simulation(world, policies={"p": policy(mode, namespace)}) as simulation:
        views = simulation.controllers.views.workloads
        first = views.read()[WEB]
        assert (len(first.pods), first.outcome, first.evidence) == (3, None, {})
        await simulation.run(3 * HOUR)
        found = views.read()[WEB]
        (container,) = found.containers
        assert len(found.pods) == 3
        assert container.resources.cpu_request == 2000
        if state is None:
            assert (found.policy, found.outcome, found.evidence) == (None, None, {})
            return
        assert found.policy
        assert found.policy.spec.mode is mode
        assert found.outcome
        assert found.outcome.state is state
        # A workload that is not changed has risks all the same, and the dashboard shows them.
        assert found.evidence[container.name].samples > 10


async def test_view_publisher_removes_views_of_adopted_workloads() -> None:
    world = scene([workload("web", sized(2000, GIB))], flat((0.3, 1e8)))
    async with Simulation(world, policies={"p": policy(PolicyMode.AUTO, "default")}) as simulation:
        before = simulation.controllers.views.workloads.read()
        assert before.keys() == {WEB}
        simulation.controllers.view_publisher.sync([])
        assert before.keys() == {WEB}
        assert not simulation.controllers.views.workloads.read()


async def test_view_counts_what_the_pods_of_a_canary_request() -> None:
    """The size in effect stays that before the change while canaries have the new one, for hours."""
    world = scene([workload("web", sized(400, GIB // 4), replicas=10)], flat((0.03, 2e7)))
    canaries = 0
    async with Simulation(world, policies={"p": policy(PolicyMode.AUTO, "default")}) as simulation:
        views = simulation.controllers.views
        for _ in range(36):
            await simulation.run(HOUR / 6)
            found = views.workloads.read()[WEB]
            (container,), requests = found.paid_containers, [pod_requests(pod) for pod in views.pods]
            for mine, theirs in (
                (container.resources.cpu_request, [each.cpu for each in requests]),
                (container.resources.memory_request, [each.memory for each in requests]),
            ):
                assert mine == pytest.approx(sum(theirs) / 10, abs=1)
            (in_effect,) = found.containers
            canaries += container.resources.cpu_request != in_effect.resources.cpu_request
    assert canaries
