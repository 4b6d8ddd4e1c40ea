"""A sudden change of usage is reported once, in an Event, a counter, a gauge and the status, and nothing is lowered then."""

from __future__ import annotations

import numpy as np
import pytest

from lab.simulator.scenes import GIB, STEP, scene, sized, workload
from trimtab.api.optimizationpolicy import ChangePolicy, OptimizationPolicySpec, PolicyMode, UsageShiftMode
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lab.simulator.simulation import Simulation
from trimtab.operator.audit import AuditRecorder
from trimtab.sizing.tracking import usage_shifts
from trimtab.usage.trace import Trace

HOUR, DAY = 3600.0, 86400.0
WEB = WorkloadKey("Deployment", "default", "web")
BEGINS = 30 * HOUR
"""The seconds after which usage drops to a tenth."""


def falling() -> Trace:
    steps = int(6 * DAY / STEP)
    cpu = np.where(np.arange(steps) * STEP < BEGINS, 1.0, 0.1)[:, None]
    return Trace(("s0",), 4 * DAY, STEP, cpu, np.full((steps, 1), 3e8))


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(usage_shifts, "MATURE_SECONDS", DAY)
    monkeypatch.setattr(usage_shifts, "PERIOD_DAYS", 1)
    found: list[str] = []
    monkeypatch.setattr(
        AuditRecorder, "record_usage_shifts", lambda _self, _workload, description: found.append(description)
    )
    return found


def simulation(mode: UsageShiftMode) -> Simulation:
    spec = OptimizationPolicySpec(mode=PolicyMode.AUTO, changes=ChangePolicy(usage_shift=mode))
    world = scene([workload("web", sized(2000, GIB), replicas=2)], falling())
    return Simulation(world, policies={"p": spec})


def sample(simulated: Simulation, name: str, **labels: str) -> float | None:
    registry = simulated.metrics.registry
    return registry.get_sample_value(name, {**labels, "policy": "trimtab-system/p"})


def target_cpu(simulated: Simulation) -> int:
    outcome = simulated.controllers.status_writer.get_outcome(WEB)
    assert outcome
    return outcome.recommendations[0].target.cpu_request or 0


async def test_shift_is_reported_once_and_holds_decreases_until_it_is_learned(reported: list[str]) -> None:
    async with simulation(UsageShiftMode.HOLD_DECREASES) as simulated:
        await simulated.run(BEGINS)
        before = target_cpu(simulated)
        await simulated.run(30 * HOUR)
        assert len(reported) == 1
        assert "CPU usage was 0.1 times the lowest" in reported[0]
        outcome = simulated.controllers.status_writer.get_outcome(WEB)
        assert outcome
        assert "nothing is lowered until it is learned" in outcome.reason
        assert any(factor.name == "usage shift" for factor in outcome.recommendations[0].explanation)
        assert sample(simulated, "trimtab_usage_shifts_total") == 1
        assert sample(simulated, "trimtab_workloads_shifted", namespace="default") == 1
        assert target_cpu(simulated) == before
        await simulated.run(24 * HOUR)
        assert target_cpu(simulated) < before
        assert sample(simulated, "trimtab_workloads_shifted", namespace="default") is None
    assert len(reported) == 1


@pytest.mark.parametrize(
    ("mode", "reports"),
    [(UsageShiftMode.REPORT, 1), pytest.param(UsageShiftMode.IGNORE, 0, marks=pytest.mark.long)],
)
async def test_shift_holds_nothing_where_the_policy_says_so(
    reported: list[str], mode: UsageShiftMode, reports: int
) -> None:
    async with simulation(mode) as simulated:
        await simulated.run(BEGINS)
        before = target_cpu(simulated)
        await simulated.run(30 * HOUR)
        assert target_cpu(simulated) < before
    assert len(reported) == reports


async def test_restarted_operator_does_not_report_an_old_shift_again(reported: list[str]) -> None:
    async with simulation(UsageShiftMode.HOLD_DECREASES) as simulated:
        await simulated.run(BEGINS + 16 * HOUR)
        controllers = simulated.controllers
        controllers.status_writer.remove_workload(WEB)
        await controllers.reconciler.reconcile(WEB, simulated.world.now)
        after = controllers.status_writer.get_outcome(WEB)
    assert after
    assert after.usage_shifts
    assert len(reported) == 1
