"""An emergency stop in the simulator: nothing is written to the cluster while it is in effect, and work goes on after it."""

import pytest

from lab.simulator.test_whole_operator import HOUR, POLICY, WEB, oversized_service, requested_cpu
from trimtab.kube.kinds.emergency_stop import STOP_NAME, EmergencyStop
from trimtab.kube.rest.resources import CONFIG_MAPS
from trimtab.lab.simulator.metrics import ClusterMetrics
from trimtab.lab.simulator.simulation import Simulation
from trimtab.operator.config.model import OperatorConfig

MINUTE = 60.0


def emergency_stop(created: float, *, reason: str = "checkout is slow") -> EmergencyStop:
    return EmergencyStop(
        namespace=OperatorConfig().namespace,
        name=STOP_NAME,
        uid="stop",
        version=1,
        created=int(created),
        author="ann",
        reason=reason,
    )


class Observer:
    """Counts what happened to the pods, and notes their sizes and the annotations of the workload."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.changes: list[str] = []
        simulation.subscribe(self._record)

    def _record(self, metrics: ClusterMetrics) -> None:
        self.changes += [each.reason for each in metrics.events]

    def state(self) -> object:
        world = self._simulation.world
        sizes = {uid: [each.resources for each in pod.containers] for uid, pod in world.pods.items()}
        workload = self._simulation.cluster_state.get(WEB)
        assert workload is not None
        return sizes, workload.annotations


@pytest.mark.parametrize("minutes", [0, 55, 62, 68])
async def test_emergency_stop_freezes_changes_at_any_moment_until_it_ends(minutes: int) -> None:
    """Without a stop the change begins after an hour, first on a canary, and takes some twenty minutes."""
    async with Simulation(oversized_service(), policies={"all": POLICY}, step=MINUTE) as simulation:
        observer = Observer(simulation)
        await simulation.run(minutes * MINUTE)
        stop = emergency_stop(simulation.now)
        simulation.informers.put(CONFIG_MAPS, stop)
        before = observer.state()
        observer.changes.clear()
        await simulation.run(2 * HOUR)
        assert observer.state() == before
        assert observer.changes == []
        conditions = {each["type"]: each for each in (await simulation.status("all"))["conditions"]}
        assert "Trimtab was stopped by ann" in conditions["Stopped"]["message"]
        assert simulation.controllers.views.stop_reason() == str(stop)
        simulation.informers.remove(CONFIG_MAPS, stop)
        await simulation.run(4 * HOUR)
        conditions = {each["type"]: each for each in (await simulation.status("all"))["conditions"]}
        assert "Stopped" not in conditions
        assert max(filter(None, requested_cpu(simulation))) < 2000
        assert simulation.controllers.views.stop_reason() == ""


async def test_emergency_stop_creates_pods_as_their_template_says() -> None:
    config = OperatorConfig.model_validate({"webhook": {"pods": True}})
    async with Simulation(oversized_service(), policies={"all": POLICY}, config=config) as simulation:
        await simulation.run(10 * HOUR)
        simulation.informers.put(CONFIG_MAPS, emergency_stop(simulation.now))
        world = simulation.world
        before = set(world.pods)
        world.delete_pod(next(iter(world.pods.values())))
        world.process_due(world.control_time)
        (new,) = (pod for uid, pod in world.pods.items() if uid not in before)
        assert new.containers[0].resources.cpu_request == 2000
