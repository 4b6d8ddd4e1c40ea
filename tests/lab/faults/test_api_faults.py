"""The simulated API server answers as the client of a real one does."""

from __future__ import annotations

import asyncio

import pytest

from trimtab.kube.errors import Invalid
from trimtab.kube.kinds.pods import Resources
from trimtab.lab.faults.api_faults import ApiFaults, FaultyCluster
from trimtab.lab.faults.gate import ProcessGate
from trimtab.lab.faults.plan import Fault, FaultInjector, FaultPlan
from trimtab.lab.faults.records import Write
from trimtab.lab.faults.trace import RunTrace
from trimtab.lab.faults.worlds import MIB, draw_world
from trimtab.lab.simulator.fake_cluster import SimulatedCluster
from trimtab.lab.simulator.world import SimulatedWorld


def test_resize_that_admission_changes_is_rejected_and_not_sent_for_ever() -> None:
    spec = draw_world(0)
    world = SimulatedWorld(spec.build_scenario(), seed=spec.seed, start=spec.start)
    key, workload = next(iter(world.workloads.items()))
    fault = Fault(kind="admission-mutates", target=str(key), share=1.0, start=0.0, end=60.0)
    injector = FaultInjector(
        FaultPlan(faults=(fault,)), elapsed=lambda: 1.0, trace=RunTrace(lambda: world.now)
    )
    api = ApiFaults(injector, ProcessGate("operator-1", on_kill=lambda _: None))
    writes: list[Write] = []
    cluster = FaultyCluster(
        SimulatedCluster(world), world, api, now=lambda: world.now, on_write=writes.append
    )
    pod = next(iter(workload.pods.values())).to_record("node-0")
    wanted = {pod.containers[0].name: Resources(cpu_request=100, memory_request=65 * MIB)}
    with pytest.raises(Invalid, match="an admission webhook or another controller"):
        asyncio.run(cluster.resize(pod, wanted))
    assert [each.verb for each in writes] == ["resize"], "the pod has got another size"
