"""Status, Events, history, costs and pods tell the same after changes that were applied, held, reverted and refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.simulator.scenes import GIB, MIB, flat, scene, sized, workload
from lab.simulator.test_simulation import auto
from trimtab.actuation.hold import HOLD_ANNOTATION, HOLD_MANAGER
from trimtab.actuation.resources import to_manifest
from trimtab.api import Duration
from trimtab.api.optimizationpolicy import Canary, UpdateStrategy, WorkloadState
from trimtab.lab.simulator.metrics import ClusterMetrics
from trimtab.lab.simulator.scenario import Scenario
from trimtab.lab.simulator.simulation import Simulation
from trimtab.prices import CPU_HOUR, GIB_HOUR
from trimtab.store.history import HistoryRecord

HOUR = 3600.0
ENDINGS = {"applied": "Resized", "reverted": "Reverted"}
"""The Event at the end of a change, by its entry in the history."""


def mixed() -> Scenario:
    """Build a workload for each outcome: `reverted` soon needs its memory, and `refused` more CPU than its node has."""
    quiet = flat((0.3, 300 * MIB), (0.3, 400 * MIB), (0.02, 100 * MIB), (4.3, 500 * MIB), steps=144)
    memory = quiet.memory.copy()
    memory[36:, 0] = 900.0 * MIB
    workloads = [
        workload("reverted", sized(500, GIB, 1000, GIB + MIB), replicas=4),
        workload("applied", sized(2000, 2 * GIB, 4000, 4 * GIB), series=1, replicas=3),
        workload("held", sized(1000, GIB), series=2, replicas=2),
        workload("refused", sized(100, 600 * MIB), series=3),
    ]
    return scene(workloads, replace(quiet, memory=memory), nodes=3, cpu=4.5)


def last_ending(records: list[HistoryRecord], name: str) -> HistoryRecord | None:
    ended = [each for each in records if each.name == name and each.what in ENDINGS]
    return max(ended, key=lambda each: each.id, default=None)


def sizes_of_pods(simulation: Simulation, name: str) -> list[dict[str, Any]]:
    return [
        {container.name: to_manifest(container.resources) for container in pod.containers}
        for pod in simulation.world.pods.values()
        if pod.workload.spec.name == name
    ]


async def test_status_events_history_and_pods_agree() -> None:
    observed = UpdateStrategy(
        update_requests_only=False, canary=Canary(percent=50, observation=Duration.parse("2h"))
    )
    moments: list[ClusterMetrics] = []
    async with Simulation(mixed(), policies={"all": auto(strategy=observed)}) as simulation:
        simulation.subscribe(moments.append)
        (held,) = (each for each in simulation.world.workloads.values() if each.spec.name == "held")
        held.annotations[HOLD_MANAGER] = {HOLD_ANNOTATION: "until the sale is over"}
        held.version += 1
        seen: set[WorkloadState] = set()
        for _ in range(30):
            await simulation.run(HOUR)
            outcomes = {key.name: outcome for key, outcome in simulation.outcomes().items()}
            status = await simulation.status("all")
            records = list(await simulation.store.history.find())
            # The kubelets report the pods that they resized by the same word.
            events = [event for moment in moments for event in moment.events if not event.pod]
            states = {each["name"]: each["status"] for each in status["workloads"]}
            assert states == {name: outcome.state for name, outcome in outcomes.items()}
            assert status["counts"]["updated"] == list(states.values()).count("Applied")
            assert status["counts"]["skipped"] == list(states.values()).count("Skipped")
            seen |= {WorkloadState(state) for state in states.values()}
            for what, reason in ENDINGS.items():
                assert [each.what for each in records].count(what) == [each.reason for each in events].count(
                    reason
                )
            for name, state in states.items():
                ended = last_ending(records, name)
                if state == "Applied" and ended:
                    assert sizes_of_pods(simulation, name) == [ended.after] * len(
                        sizes_of_pods(simulation, name)
                    )
                if state == "Reverted":
                    assert ended
                    assert ended.what == "reverted"
        assert states["held"] != "Applied"
        assert "until the sale is over" in outcomes["held"].reason
        assert not last_ending(records, "held")
        final = status["monthlyCost"]
        requested = sum(
            (pod.containers[0].resources.cpu_request or 0) / 1000 * CPU_HOUR
            + (pod.containers[0].resources.memory_request or 0) / GIB * GIB_HOUR
            for pod in simulation.world.pods.values()
        )
    assert {WorkloadState.APPLIED, WorkloadState.REVERTED, WorkloadState.APPLYING} <= seen
    assert final["requested"] == pytest.approx(730 * requested, rel=0.01)
