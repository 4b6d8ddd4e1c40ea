"""The simulated API server answers as the client of a real one does."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from trimtab.api.quantity import MIB
from trimtab.kube.errors import ApiError, FieldManagerConflict, Invalid, NotFound
from trimtab.kube.kinds.pods import Pod, Resources
from trimtab.kube.rest.capabilities import KubeVersion
from trimtab.lab.faults.api_faults import ApiFaults, FaultyCluster
from trimtab.lab.faults.gate import ProcessGate
from trimtab.lab.faults.plan import Fault, FaultInjector, FaultPlan
from trimtab.lab.faults.records import Write
from trimtab.lab.faults.trace import RunTrace
from trimtab.lab.faults.worlds import draw_world
from trimtab.lab.simulator.fake_cluster import SimulatedCluster
from trimtab.lab.simulator.simulation import SimulatedFeatures
from trimtab.lab.simulator.world import SimulatedWorld

HIGH, LOW = (Resources(100, None, 64 * MIB, limit * MIB) for limit in (256, 128))


class Server:
    """The simulated server of one process, with its world and the writes that it took."""

    def __init__(self, *faults: Fault, version: str = "1.35") -> None:
        spec = draw_world(0)
        self.world = world = SimulatedWorld(spec.build_scenario(), seed=spec.seed, start=spec.start)
        self.workload = next(iter(world.workloads.values()))
        injector = FaultInjector(
            FaultPlan(faults=faults), elapsed=lambda: 1.0, trace=RunTrace(lambda: world.now)
        )
        self.writes: list[Write] = []
        self.cluster = FaultyCluster(
            SimulatedCluster(world),
            world,
            ApiFaults(injector, ProcessGate("operator-1", on_kill=lambda _: None)),
            features=SimulatedFeatures(KubeVersion.parse(version)),
            now=lambda: world.now,
            on_write=self.writes.append,
        )

    @property
    def pod(self) -> Pod:
        return next(iter(self.workload.pods.values())).to_record("node-0")


def fail(kind: str) -> Fault:
    """Make a fault of the first workload of the world."""
    return Fault(kind=kind, target=str(draw_world(0).workloads[0].key), start=0.0, end=60.0)


def test_resize_that_admission_changes_is_rejected_and_not_sent_for_ever() -> None:
    server = Server(fail("admission-mutates"))
    wanted = {server.pod.containers[0].name: Resources(cpu_request=100, memory_request=65 * MIB)}
    with pytest.raises(Invalid, match="an admission webhook or another controller"):
        asyncio.run(server.cluster.resize(server.pod, wanted))
    assert [each.verb for each in server.writes] == ["resize"], "the pod has got another size"


def test_template_of_another_field_manager_is_kept_unless_it_is_taken_over() -> None:
    server = Server(fail("template-owned"))
    record = server.workload.to_record()
    wanted = {record.containers[0].name: Resources(cpu_request=100)}
    with pytest.raises(FieldManagerConflict):
        asyncio.run(server.cluster.patch_template(record, wanted, take_ownership=False))
    asyncio.run(server.cluster.patch_template(record, wanted, take_ownership=True))
    assert server.workload.containers[0].resources == Resources(cpu_request=100)


@pytest.mark.parametrize(("version", "error"), [("1.32", NotFound), ("1.33", Invalid), ("1.34", None)])
def test_memory_limit_is_lowered_in_place_since_its_version(
    version: str, error: type[ApiError] | None
) -> None:
    server = Server(version=version)
    made = next(iter(server.workload.pods.values()))
    made.containers = tuple(
        msgspec.structs.replace(each, resources=HIGH, restart_on_memory_resize=False)
        for each in made.containers
    )
    resize = server.cluster.resize(server.pod, {each.name: LOW for each in made.containers})
    if error:
        with pytest.raises(error):
            asyncio.run(resize)
    else:
        assert all(each.resources == LOW for each in asyncio.run(resize).containers)
