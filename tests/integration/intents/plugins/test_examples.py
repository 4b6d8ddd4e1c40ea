"""The example plugins work as they are: the one in Python, and the one in Go where there is Go."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import UnavailableError
from harness.build import Program
from harness.process import Process, wait_for
from trimtab.api.kpiprofile import KPIType
from trimtab.intents.actuator import actuator
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal, Objective
from trimtab.intents.planner import SearchBudget, create_planner
from trimtab.intents.plugins.client import RemoteActuator, RemotePlanner
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.registry import PluginRegistry, RegisteredPlugin
from trimtab.intents.state import ContainerSize, TargetState
from trimtab.kube.kinds.workloads import WorkloadKey

EXAMPLES = Path(__file__).parents[4] / "examples" / "plugins"
GOAL = Goal(intent="shop/web", objectives=(Objective(name="p99", value=0.1, kind=KPIType.LATENCY),))
STATE = TargetState(
    objectives={"p99": 0.12},
    replicas=2,
    sizes=(ContainerSize(container="web", cpu_request=0.5, cpu_limit=0.5),),
    cpu_used=0.8,
)


@pytest.fixture
def registry() -> PluginRegistry:
    return PluginRegistry(timeout=10)


@pytest.fixture
def port(registry: PluginRegistry) -> Iterator[int]:
    with registry.serve("127.0.0.1:0") as port:
        yield port


def there(registry: PluginRegistry, type_: pb.PluginType, name: str) -> RegisteredPlugin:
    wait_for(lambda: bool(registry.list_available(type_)), what=f"{name} to register", timeout=120)
    known = registry.get(type_, name)
    assert known is not None
    return known


def test_python_example_planner_plans_one_step(registry: PluginRegistry, port: int, tmp_path: Path) -> None:
    command: list[str | Path] = [
        sys.executable,
        EXAMPLES / "python" / "one_step.py",
        f"--register=127.0.0.1:{port}",
    ]
    process = Process("one-step", command, log=tmp_path / "log")
    process.start()
    try:
        known = there(registry, pb.PLUGIN_TYPE_PLANNER, "one-step")
        remote = RemotePlanner(known, create_planner("astar"), settings={}, timeout=60)
        plan = remote.plan(
            STATE,
            GOAL,
            actuators=[actuator("scaleOut"), actuator("resizeCPU")],
            effects=EffectModels(),
            limits=PlanConstraints(),
            now=0.0,
            budget=SearchBudget(),
        )
        assert len(plan.actions) == 1
        assert not known.last_error
    finally:
        process.kill()


def test_go_example_actuator_is_planned_and_executes(
    registry: PluginRegistry, port: int, tmp_path: Path
) -> None:
    try:
        program = Program(name="go", version="example", minutes=0.5, home=EXAMPLES).built() / "go"
    except UnavailableError as why:
        pytest.skip(str(why))
    command: list[str | Path] = [program, "-register", f"127.0.0.1:{port}", "-levels", tmp_path]
    process = Process("brownout", command, log=tmp_path / "log")
    process.start()
    try:
        remote = RemoteActuator(there(registry, pb.PLUGIN_TYPE_ACTUATOR, "brownout"), timeout=60)
        plan = create_planner("astar").plan(
            STATE,
            GOAL,
            actuators=[remote],
            effects=EffectModels(),
            limits=PlanConstraints(),
            now=0.0,
            budget=SearchBudget(),
        )
        (action,) = plan.actions
        assert action.actuator == "brownout"
        assert action.after.objectives["p99"] == pytest.approx(0.09)
        refused = remote.execute(action, target=WorkloadKey("Deployment", "shop", "web"), state=STATE)
        assert refused == ""
        assert (tmp_path / "shop_Deployment_web").read_text() == "1"
    finally:
        process.kill()
