"""An emergency stop in the simulator: nothing is written to the cluster while it is in effect, and work goes on after it."""

import msgspec
import pytest

from lab.simulator.test_whole_operator import HOUR, POLICY, WEB, oversized_service, requested_cpu
from trimtab.api import Duration
from trimtab.kube.cache.informer_set import GRANT_RIGHTS, NOT_SERVED
from trimtab.kube.kinds.emergency_stop import STOP_NAME, EmergencyStop, EmergencyStopWire
from trimtab.kube.rest.resources import CONFIG_MAPS, Resource
from trimtab.lab.simulator.metrics import ClusterMetrics
from trimtab.lab.simulator.simulated_informers import SimulatedInformerSet
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


class UnreadableStop:
    """Makes the ConfigMap of the emergency stop unreadable, as for an account without the right."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, why: str = "") -> None:
        self.why = why
        self._was_synced = not why
        monkeypatch.setattr(SimulatedInformerSet, "unsynced_reason", self._unsynced_reason)
        monkeypatch.setattr(SimulatedInformerSet, "errors_by_resource", self._errors_by_resource)

    def _unsynced_reason(self, resource: Resource, _: str) -> str:
        return self.why if resource == CONFIG_MAPS and not self._was_synced else ""

    def _errors_by_resource(self) -> dict[str, str]:
        return {str(CONFIG_MAPS): self.why} if self.why else {}


@pytest.mark.parametrize("why", [f"forbidden; {GRANT_RIGHTS}", "the server did not answer", NOT_SERVED])
async def test_operator_changes_nothing_until_it_has_read_the_emergency_stop(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable = UnreadableStop(monkeypatch, why=why)
    async with Simulation(oversized_service(), policies={"all": POLICY}, step=MINUTE) as simulation:
        observer = Observer(simulation)
        before = observer.state()
        await simulation.run(4 * HOUR)
        assert observer.state() == before
        conditions = {each["type"]: each for each in (await simulation.status("all"))["conditions"]}
        assert f"trimtab-stop cannot be read: {why}" in conditions["Stopped"]["message"]
        assert ("EmergencyStopUnreadable" in conditions) == (GRANT_RIGHTS in why)
        assert "PermissionsMissing" not in conditions
        assert simulation.metrics.registry.get_sample_value("trimtab_emergency_stop_unreadable") == 1
        unreadable.why = ""
        await simulation.run(4 * HOUR)
        assert max(filter(None, requested_cpu(simulation))) < 2000
        assert simulation.metrics.registry.get_sample_value("trimtab_emergency_stop_unreadable") == 0


async def test_changes_go_on_at_once_when_the_emergency_stop_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No event tells that there is none: workloads waited for their next interval."""
    unreadable = UnreadableStop(monkeypatch, why=f"forbidden; {GRANT_RIGHTS}")
    policy = POLICY.model_copy(update={"reconciliation_interval": Duration.parse("24h")})
    async with Simulation(oversized_service(), policies={"all": policy}, step=MINUTE) as simulation:
        await simulation.run(25 * HOUR)
        observer = Observer(simulation)
        unreadable.why = ""
        await simulation.run(HOUR)
        assert observer.changes
        assert max(filter(None, requested_cpu(simulation))) < 2000


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_operator_keeps_the_last_known_state_of_an_emergency_stop_that_is_no_longer_readable(
    monkeypatch: pytest.MonkeyPatch, *, is_stopped: bool
) -> None:
    unreadable = UnreadableStop(monkeypatch)
    async with Simulation(oversized_service(), policies={"all": POLICY}, step=MINUTE) as simulation:
        await simulation.run(10 * MINUTE)
        if is_stopped:
            simulation.informers.put(CONFIG_MAPS, emergency_stop(simulation.now))
        unreadable.why = f"forbidden; {GRANT_RIGHTS}"
        await simulation.run(4 * HOUR)
        assert (max(filter(None, requested_cpu(simulation))) == 2000) == is_stopped
        conditions = {each["type"]: each for each in (await simulation.status("all"))["conditions"]}
        assert "what was read last holds" in conditions["EmergencyStopUnreadable"]["message"]
        assert ("Stopped" in conditions) == is_stopped


@pytest.mark.parametrize("data", [None, "text", [1], {"reason": 5}, {"reason": None, "by": ["ann"]}])
def test_emergency_stop_holds_whatever_its_data_are(data: object) -> None:
    text = msgspec.json.encode({"metadata": {"name": STOP_NAME, "namespace": "home"}, "data": data})
    assert str(msgspec.json.decode(text, type=EmergencyStopWire).to_stop()).startswith(
        "Trimtab was stopped at"
    )
