"""The work of a reconcile that changes nothing: what depends on the same inputs is computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from lab.simulator.scenes import GIB, flat, scene, sized, workload
from trimtab.actuation import effective_size
from trimtab.api import Duration
from trimtab.api.optimizationpolicy import MetricsConfig, OptimizationPolicySpec, PolicyMode
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lab.simulator.simulation import Simulation
from trimtab.operator import views
from trimtab.recommender import cohort
from trimtab.sizing import recommend

HOUR = 3600.0
WEB = WorkloadKey("Deployment", "default", "web")


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
        count(views, "effective_containers")
        count(effective_size.Assignment, "synced_size")
        await reconciler.reconcile(WEB, now)
        # Both resources once; the sizes in effect for the OOM kills and for the recommendation, of one pod for all.
        assert counts == {"list_floors": 2, "synced_size": 2}
        after = simulation.controllers.status_writer.get_outcome(WEB)
        assert after
        assert after.recommendations == outcome.recommendations
