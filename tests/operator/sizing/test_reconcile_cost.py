"""The work of a reconcile that changes nothing: what depends on the same inputs is computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lab.simulator.scenes import GIB, flat, scene, sized, workload
from trimtab.actuation import effective_size
from trimtab.api import Duration
from trimtab.api.optimizationpolicy import MetricsConfig, OptimizationPolicySpec, PolicyMode
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import OPTIMIZATION_POLICIES
from trimtab.lab.simulator.simulation import Simulation
from trimtab.operator.audit import AuditRecorder
from trimtab.recommender import cohort, oom_kills
from trimtab.sizing import recommend
from trimtab.sizing.evidence import EARLY_STEPS
from trimtab.sizing.recommendation import have_same_targets

HOUR = 3600.0
WEB = WorkloadKey("Deployment", "default", "web")


async def test_constant_usage_is_recommended_once_for_each_step_of_the_first_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded: list[bool] = []
    original = AuditRecorder.record_recommendation

    async def record(self: AuditRecorder, *given: Any, changed: bool, **more: Any) -> None:
        recorded.append(changed)
        await original(self, *given, changed=changed, **more)

    monkeypatch.setattr(AuditRecorder, "record_recommendation", record)
    world = scene([workload("web", sized(2000, 4 * GIB), replicas=3)], flat((0.1, 4e8)))
    async with Simulation(
        world, policies={"p": OptimizationPolicySpec(mode=PolicyMode.RECOMMEND)}
    ) as simulation:
        await simulation.run(26 * HOUR)
    assert 2 <= sum(recorded) <= 1 + len(EARLY_STEPS) + 1


@pytest.mark.parametrize(
    "changed",
    [{"name": "q", "uid": "another"}, {"generation": 2}],
    ids=["another policy", "a changed policy"],
)
async def test_equal_sizes_are_explained_again_under_another_policy(changed: dict[str, Any]) -> None:
    spec = OptimizationPolicySpec(mode=PolicyMode.RECOMMEND)
    world = scene([workload("web", sized(2000, GIB), replicas=3)], flat((0.05, 1e8)))
    async with Simulation(world, policies={"p": spec}) as simulation:
        await simulation.run(3 * HOUR)
        controllers, now = simulation.controllers, simulation.world.now
        await controllers.reconciler.reconcile(WEB, now)
        before = controllers.status_writer.get_outcome(WEB)
        (policy,) = simulation.cluster_state.policies
        # The same sizes for another reason: 3 hours are too few.
        stricter = spec.model_copy(
            update={"metrics_config": MetricsConfig(minimum_history=Duration.parse("48h"))}
        )
        renewed = msgspec.structs.replace(policy, spec=stricter, **changed)
        simulation.informers.remove(OPTIMIZATION_POLICIES, policy)
        simulation.informers.put(OPTIMIZATION_POLICIES, renewed)
        await controllers.reconciler.reconcile(WEB, now)
        after = controllers.status_writer.get_outcome(WEB)
    assert before
    assert after
    assert have_same_targets(before.recommendations, after.recommendations)
    assert "start after 4.0 h" in before.recommendations[0].text
    assert "start after 48.0 h" in after.recommendations[0].text


async def test_first_reconcile_collects_the_evidence_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = scene([workload("web", sized(2000, GIB), replicas=3)], flat((0.05, 1e8)))
    spec = OptimizationPolicySpec(mode=PolicyMode.RECOMMEND)
    async with Simulation(world, policies={"p": spec}) as simulation:
        await simulation.run(3 * HOUR)
        controllers = simulation.controllers
        before = controllers.status_writer.get_outcome(WEB)
        assert before
        controllers.status_writer.remove_workload(WEB)
        collected: list[float] = []
        original = cohort.EvidenceCohort.collect_evidence

        def collect(self: cohort.EvidenceCohort, *given: Any, now: float, **more: Any) -> Any:
            collected.append(now)
            return original(self, *given, now=now, **more)

        monkeypatch.setattr(cohort.EvidenceCohort, "collect_evidence", collect)
        await controllers.reconciler.reconcile(WEB, simulation.world.now)
        after = controllers.status_writer.get_outcome(WEB)
    assert collected == [simulation.world.now]
    assert after
    assert have_same_targets(before.recommendations, after.recommendations)
    assert after.recommendations[0].explanation[0].name == "usage"
    assert any(factor.source.startswith("strategy") for factor in after.recommendations[0].explanation)


async def test_reconcile_without_a_change_explains_nothing_and_runs_the_floors_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = OptimizationPolicySpec(
        mode=PolicyMode.RECOMMEND, metrics_config=MetricsConfig(minimum_history=Duration.parse("1h"))
    )
    # The target is several steps away, so that the recommendation has a next step beside its target.
    world = scene([workload("web", sized(2000, GIB), replicas=3)], flat((0.05, 1e8)))
    async with Simulation(world, policies={"p": spec}) as simulation:
        await simulation.run(3 * HOUR)
        reconciler, now = simulation.controllers.reconciler, simulation.world.now
        await reconciler.reconcile(WEB, now)
        outcome = simulation.controllers.status_writer.get_outcome(WEB)
        assert outcome
        (before,) = outcome.recommendations
        assert before.final_resources is not None
        assert any("forecast" in factor.name for factor in before.explanation)
        counts: Counter[str] = Counter()

        def count(owner: Any, name: str) -> None:
            original: Callable[..., Any] = getattr(owner, name)

            def counted(*arguments: Any, **keywords: Any) -> Any:
                counts[name] += 1
                return original(*arguments, **keywords)

            monkeypatch.setattr(owner, name, counted)

        count(cohort.StrategyCohort, "_explain")
        count(recommend, "list_floors")
        count(oom_kills, "read_pod_status")
        count(effective_size, "effective_containers")
        count(effective_size.Assignment, "synced_size")
        await reconciler.reconcile(WEB, now)
        # Both resources once; what depends on records alone is kept.
        assert counts == {"list_floors": 2}
        after = simulation.controllers.status_writer.get_outcome(WEB)
        assert after
        assert after.recommendations == outcome.recommendations
        # A record that was replaced is read again: for the OOM kills, and for the recommendation and the view.
        pod = next(each for each in simulation.cluster_state.pods if each.owner)
        simulation.cluster_state.update(msgspec.structs.replace(pod, version=pod.version + 1))
        counts.clear()
        await reconciler.reconcile(WEB, now)
        assert counts["read_pod_status"] == 1
        assert counts["effective_containers"] >= 1
