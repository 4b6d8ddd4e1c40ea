"""Changes that no policy and no Intent continues are reported, but only where both are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from lab.simulator.scenes import GIB, flat, scene, sized, workload
from trimtab.actuation.change_annotations import CHANGE_ANNOTATION
from trimtab.api import Duration
from trimtab.api.optimizationpolicy import (
    Canary,
    MetricsConfig,
    OptimizationPolicySpec,
    PolicyMode,
    StrategyChoice,
    UpdateStrategy,
    WorkloadState,
)
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import DEPLOYMENTS, INTENTS, OPTIMIZATION_POLICIES, Resource
from trimtab.lab.simulator.simulation import Simulation
from trimtab.operator.config.org_limits import OrganisationLimits
from trimtab.operator.wiring import FixedConfig

HOUR = 3600.0
WEB = WorkloadKey("Deployment", "default", "web")
SCENARIO = scene([workload("web", sized(200, GIB), replicas=3)], flat((0.5, 1e8)))
POLICY = OptimizationPolicySpec(
    mode=PolicyMode.AUTO,
    metrics_config=MetricsConfig(minimum_history=Duration.parse("1h")),
    update_strategy=UpdateStrategy(canary=Canary(observation=Duration.parse("6h"))),
)


@asynccontextmanager
async def _change_without_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[Simulation, Counter[str]]]:
    """Simulate a change until its canary observes, delete its policy, and count the Events by reason."""
    emitted: Counter[str] = Counter()
    async with Simulation(SCENARIO, policies={"p": POLICY}) as simulation:
        monkeypatch.setattr(simulation.cluster, "emit", lambda *_, reason, **__: emitted.update([reason]))
        await simulation.run(2 * HOUR)
        (policy,) = simulation.cluster_state.policies
        simulation.informers.remove(OPTIMIZATION_POLICIES, policy)
        yield simulation, emitted


@pytest.mark.parametrize("unread", [OPTIMIZATION_POLICIES, INTENTS], ids=["policies", "Intents"])
@pytest.mark.parametrize("is_outdated", [False, True], ids=["never read", "outdated"])
async def test_change_is_reported_as_abandoned_only_where_policies_and_intents_are_known(
    monkeypatch: pytest.MonkeyPatch,
    unread: Resource,
    is_outdated: bool,  # noqa: FBT001 - a case
) -> None:
    async with _change_without_policy(monkeypatch) as (simulation, emitted):
        reconciler, now = simulation.controllers.reconciler, simulation.world.now

        def explain(resource: Resource, namespace: str) -> str:
            return "forbidden" if (resource, namespace) == (unread, "default") else ""

        def list_errors() -> dict[str, str]:
            return {str(unread): "forbidden"}

        with monkeypatch.context() as patch:
            replaced: Any = list_errors if is_outdated else explain
            patch.setattr(
                simulation.informers, "errors_by_resource" if is_outdated else "unsynced_reason", replaced
            )
            again = await reconciler.reconcile(WEB, now)
            assert emitted["ChangeAbandoned"] == 0
            assert again is not None, "the next reconcile may know more"
        assert await reconciler.reconcile(WEB, now) is None
        assert emitted["ChangeAbandoned"] == 1


async def test_abandoned_change_of_a_deleted_workload_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _change_without_policy(monkeypatch) as (simulation, emitted):
        reconciler, now = simulation.controllers.reconciler, simulation.world.now
        found = simulation.cluster_state.get(WEB)
        for _ in range(2):
            await reconciler.reconcile(WEB, now)
            await reconciler.reconcile(WEB, now)
            simulation.informers.remove(DEPLOYMENTS, found)
            await reconciler.reconcile(WEB, now)
            simulation.informers.put(DEPLOYMENTS, found)
    assert emitted["ChangeAbandoned"] == 2, "once for each of its lives"


@pytest.mark.parametrize("forbidden", [False, True])
async def test_change_is_finished_after_its_policy_became_invalid(
    *,
    forbidden: bool,
) -> None:
    """Some pods would keep another size, and nobody would see whether it harms them. An organisation's ban holds."""
    async with Simulation(SCENARIO, policies={"p": POLICY}) as simulation:
        await simulation.run(2 * HOUR)
        (policy,) = simulation.cluster_state.policies
        before = _sizes(simulation)
        assert len(set(before)) == 2, "only the canary has the new size"
        choice = StrategyChoice(name="luck")
        invalid = msgspec.structs.replace(
            policy,
            spec=policy.spec.model_copy(update={"strategy": choice}),
            generation=policy.generation + 1,
            version=policy.version + 1,
        )
        simulation.informers.put(OPTIMIZATION_POLICIES, invalid)
        if forbidden:
            limits = OrganisationLimits(forbidden_modes=(PolicyMode.AUTO,))
            configuration = simulation.operator.ports.config
            assert isinstance(configuration, FixedConfig)
            configuration.current = configuration.current.model_copy(update={"limits": limits})
        await simulation.run(0.25 * HOUR)
        (entry,) = (await simulation.status("p"))["workloads"]
        if not forbidden:
            assert entry["status"] == "Applying"
            assert "; the change that began before is finished: observing pods" in entry["reason"]
        await simulation.run(11.75 * HOUR)
        after = _sizes(simulation)
        assert (after == before) if forbidden else (set(after) == {max(before)})
        (entry,) = (await simulation.status("p"))["workloads"]
        assert entry["status"] == "Skipped"
        found = simulation.cluster_state.get(WEB)
        assert found is not None
        assert (CHANGE_ANNOTATION in dict(found.annotations)) == forbidden


@pytest.mark.parametrize("default", [False, True], ids=["its own policy", "the default policy"])
async def test_change_waits_while_policies_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
    default: bool,  # noqa: FBT001 - a case
) -> None:
    """It was finished by the default policy, without the canary and the windows of its own, which may now be Disabled."""
    async with Simulation(SCENARIO, policies={"p": POLICY}) as simulation:
        await simulation.run(2 * HOUR)
        (policy,) = simulation.cluster_state.policies
        before = _sizes(simulation)
        assert len(set(before)) == 2, "only the canary has the new size"
        if default:
            simulation.informers.remove(OPTIMIZATION_POLICIES, policy)
            configuration = simulation.operator.ports.config
            assert isinstance(configuration, FixedConfig)
            spec = OptimizationPolicySpec(mode=PolicyMode.AUTO)
            configuration.current = configuration.current.model_copy(update={"default_policy": spec})
        with monkeypatch.context() as patch:
            patch.setattr(
                simulation.informers,
                "unsynced_reason",
                lambda resource, _: "forbidden" if resource == OPTIMIZATION_POLICIES else "",
            )
            await simulation.run(14 * HOUR)
            assert _sizes(simulation) == before
            outcome = simulation.controllers.status_writer.get_outcome(WEB)
            assert outcome is not None
            assert outcome.state is WorkloadState.SKIPPED
            assert "cannot be read: forbidden" in outcome.reason
        await simulation.run(0.25 * HOUR)
        assert len(set(_sizes(simulation))) == 1, "the change is finished at once"


def _sizes(simulation: Simulation) -> list[int]:
    return sorted(pod.containers[0].resources.cpu_request or 0 for pod in simulation.world.pods.values())
