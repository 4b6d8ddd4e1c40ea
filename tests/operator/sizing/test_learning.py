"""The status of a workload tells how far it was learned, and what is not lowered before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.simulator.scenes import GIB, flat, scene, sized, workload
from trimtab.api.optimizationpolicy import OptimizationPolicySpec, PolicyMode
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lab.simulator.simulation import Simulation

SLOW = "decreases leave more above the peak until then"


@pytest.mark.parametrize(
    ("restarts", "end"),
    [
        (False, SLOW),
        (True, f"{SLOW}; where a change of memory restarts its container, it is not lowered before"),
    ],
)
async def test_status_names_the_resource_whose_decreases_wait_for_a_restart(
    restarts: bool,  # noqa: FBT001 - a case
    end: str,
) -> None:
    web = workload("web", sized(2000, GIB), replicas=2)
    web = replace(web, containers=(replace(web.containers[0], restart_on_memory_resize=restarts),))
    spec = OptimizationPolicySpec(mode=PolicyMode.AUTO)
    async with Simulation(scene([web], flat((1.9, 9e8), steps=12 * 24)), policies={"p": spec}) as simulated:
        await simulated.run(6 * 3600.0)
        outcome = simulated.controllers.status_writer.get_outcome(WorkloadKey("Deployment", "default", "web"))
        assert outcome
        assert outcome.reason.endswith(end), outcome
