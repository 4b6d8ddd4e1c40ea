"""Plugins over real gRPC: how they come, what they are asked, and that none of them can do harm."""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import grpc
import msgspec
import pytest
from grpc_tools import protoc

from harness.process import wait_for
from trimtab.api.kpiprofile import KPIType
from trimtab.errors import TrimtabError
from trimtab.intents.actuator import Actuator, IntentAction, actuator
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.fit import learn_effects
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.effects.user_models import decode_user_model
from trimtab.intents.objective import Goal, Objective
from trimtab.intents.planner import Plan, Purpose, SearchBudget, create_planner
from trimtab.intents.plugins import messages
from trimtab.intents.plugins.client import RemoteActuator, RemotePlanner, TimeBudget
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.protocol import (
    CANDIDATES,
    INFO,
    PLAN,
    VERSION,
    CallRefusedError,
    listen,
)
from trimtab.intents.plugins.registry import CHECK_BACKOFF, MAX_FAILURES, MAX_PLUGINS, PluginRegistry
from trimtab.intents.plugins.server import ActuatorService, PlannerService, serve_plugin
from trimtab.intents.state import ContainerSize, PodState, TargetState
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.plugins import Settings

ACTUATOR, PLANNER = pb.PLUGIN_TYPE_ACTUATOR, pb.PLUGIN_TYPE_PLANNER
KEY = WorkloadKey("Deployment", "shop", "web")
GOAL = Goal(
    intent="shop/web",
    objectives=(
        Objective(name="p99", value=0.03, kind=KPIType.LATENCY),
        Objective(name="availability", value=0.999, kind=KPIType.AVAILABILITY, less_is_better=False),
    ),
)
STATE = TargetState(
    objectives={"p99": 0.04, "availability": 0.998},
    pods=(PodState(name="pod_0", availability=0.9), PodState(name="pod_1", availability=0.98)),
    replicas=2,
    load=4800.0,
)
"""The case that the seed's own planner is measured by: it takes 10 s for it through gRPC."""
SCALING = decode_user_model(
    "scaling",
    {
        "popt": [0.306355135, 0.193240314, 53.0816499, 0.0147372746],
        "throughputScale": [0.002143905536223758, 0.9993568283391329],
        "throughputRange": [0.0, 5000.0],
        "replicaRange": [1.0, 12.0],
    },
)
EFFECTS = EffectModels(user_models={("p99", "scaling"): SCALING})


class Lever:
    """An actuator that halves the latency."""

    settings_type: ClassVar[type[Settings]] = Settings
    name = "lever"
    group = "levers"
    diminishing = False
    disruption = 0.0

    def candidates(
        self, state: TargetState, *, goal: Goal, effects: EffectModels, limits: PlanConstraints
    ) -> Sequence[IntentAction]:
        latency = state.objectives["p99"]
        assert latency is not None
        after = msgspec.structs.replace(state, objectives={**state.objectives, "p99": latency / 2})
        return [IntentAction(actuator=self.name, parameters={"pulled": True}, after=after)]


@pytest.fixture
def registry() -> Iterator[PluginRegistry]:
    registry = PluginRegistry(timeout=2.0)
    yield registry
    registry.close()


def info(endpoint: str, *, name: str = "lever", type_: pb.PluginType = ACTUATOR) -> pb.PluginInfo:
    return pb.PluginInfo(type=type_, name=name, endpoint=endpoint, versions=[VERSION])


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serves whatever calls a test names, as a plugin that is up to no good; the answer is where."""
    servers: list[grpc.Server] = []

    def start(*calls: Any, says: pb.PluginInfo | None = None) -> str:
        said = says or info("x:1")
        server, port = listen("127.0.0.1:0", None, [(INFO, lambda _: said), *calls])
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(None)


def register_plugin(
    registry: PluginRegistry, endpoint: str, type_: pb.PluginType = ACTUATOR, name: str = "lever"
) -> Any:
    registry.register(info(endpoint, name=name, type_=type_))
    found = registry.get(type_, name)
    assert found is not None
    return found


def plan_with(planner_: Any, *actuators: Actuator, limits: PlanConstraints | None = None) -> Plan:
    made: Plan = planner_.plan(
        STATE,
        GOAL,
        actuators=actuators,
        effects=EFFECTS,
        limits=limits or PlanConstraints(),
        now=0.0,
        budget=SearchBudget(),
    )
    return made


# How they come


def test_registry_accepts_plugin_that_answers(registry: PluginRegistry) -> None:
    done: list[tuple[IntentAction, WorkloadKey]] = []

    def perform(action: IntentAction, target: WorkloadKey) -> str:
        done.append((action, target))
        return ""

    with (
        registry.serve("127.0.0.1:0") as port,
        serve_plugin(
            ActuatorService(Lever(), perform), name="lever", register_at=f"127.0.0.1:{port}"
        ) as plugin,
    ):
        assert plugin.registered.wait(30)
        (there,) = registry.list_available(ACTUATOR)
        remote = RemoteActuator(there, timeout=30)
        assert (remote.name, remote.group) == ("lever", "levers")
        (action,) = remote.candidates(STATE, goal=GOAL, effects=EffectModels(), limits=PlanConstraints())
        assert action.after.objectives == {"p99": 0.02, "availability": 0.998}
        assert remote.execute(action, target=KEY, state=STATE) == ""
        remote.observe(STATE, goal=GOAL, target=KEY)
        assert not there.last_error
    assert done == [(action, KEY)]


def test_registry_listens_on_all_addresses_without_host(registry: PluginRegistry) -> None:
    with (
        registry.serve(":0") as port,
        serve_plugin(
            ActuatorService(Lever(), lambda *_: ""), name="lever", register_at=f"127.0.0.1:{port}"
        ) as plugin,
    ):
        assert plugin.registered.wait(30)


def test_registry_reports_address_in_use(registry: PluginRegistry) -> None:
    with (
        registry.serve("127.0.0.1:0") as port,
        pytest.raises(TrimtabError, match=f"address 127.0.0.1:{port}: .*; choose another address"),
    ):
        listen(f"127.0.0.1:{port}", None, [])


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (pb.PluginInfo(type=ACTUATOR, name="lever", endpoint="h:1", versions=["v9"]), "speaks v1"),
        (pb.PluginInfo(type=ACTUATOR, name="Lever!", endpoint="h:1", versions=[VERSION]), "lower-case"),
        (pb.PluginInfo(type=ACTUATOR, name="lever", endpoint="http://h/", versions=[VERSION]), "HOST:PORT"),
        (pb.PluginInfo(name="lever", endpoint="h:1", versions=[VERSION]), "actuator or a planner"),
    ],
)
def test_registry_rejects_unreachable_plugin(
    registry: PluginRegistry, said: pb.PluginInfo, words: str
) -> None:
    with pytest.raises(CallRefusedError, match=words):
        registry.register(said)


def test_registry_rejects_plugin_with_other_name(registry: PluginRegistry, serve: Callable[..., str]) -> None:
    endpoint = serve(says=info("x:1", name="other"))
    with pytest.raises(CallRefusedError, match="other"):
        registry.register(info(endpoint))


def test_registry_keeps_known_plugin_when_replacement_does_not_answer(
    registry: PluginRegistry, serve: Callable[..., str]
) -> None:
    """Such as a copy with a wrong endpoint, or one that registers under ever new names."""
    there = register_plugin(registry, serve())
    for name in ("lever", "lever-2", "lever-3"):
        with pytest.raises(CallRefusedError, match="does not answer"):
            registry.register(info("127.0.0.1:1", name=name))
    assert registry.list_all() == registry.list_available(ACTUATOR) == [there]
    assert there.call(lambda channel: INFO.invoke(channel, pb.InfoRequest(), timeout=30.0)).name == "lever"


def test_registry_updates_endpoint_of_moved_plugin(
    registry: PluginRegistry, serve: Callable[..., str]
) -> None:
    register_plugin(registry, serve())
    moved = register_plugin(registry, serve())
    assert registry.list_all() == registry.list_available(ACTUATOR) == [moved]


def test_registry_limits_number_of_plugins(registry: PluginRegistry) -> None:
    for number in range(MAX_PLUGINS):
        registry.add_configured(info("127.0.0.1:1", name=f"lever-{number}"))
    with pytest.raises(CallRefusedError, match="64 plugins already"):
        registry.register(info("127.0.0.1:1"))


def test_registry_backs_off_and_removes_unavailable_plugin(
    registry: PluginRegistry, serve: Callable[..., str]
) -> None:
    service = ActuatorService(Lever(), lambda *_: "")
    with serve_plugin(service, name="lever") as plugin:
        there = register_plugin(registry, plugin.endpoint)
    waits, now = [], 0.0
    for _ in range(MAX_FAILURES):
        there.check_at = now
        registry.check(now)
        waits.append(there.check_at - now)
        now = there.check_at
    assert waits == sorted(waits)
    assert waits[-1] <= CHECK_BACKOFF.ceiling
    assert registry.get(ACTUATOR, "lever") is None


def test_registry_keeps_configured_plugin(registry: PluginRegistry) -> None:
    service = ActuatorService(Lever(), lambda *_: "")
    with serve_plugin(service, name="lever") as plugin:
        address = plugin.endpoint
    registry.add_configured(info(address))
    for now in range(0, 5000, 400):
        registry.check(float(now))
    assert registry.list_available(ACTUATOR) == []
    with serve_plugin(service, name="lever", address=address):
        there = registry.get(ACTUATOR, "lever")
        assert there is not None

        def answers() -> bool:
            there.check_at = 0.0
            registry.check(1e9)
            return registry.list_available(ACTUATOR) == [there]

        wait_for(answers, what="a plugin that is back")


# That none can do harm


def test_remote_actuator_is_skipped_while_it_hangs(
    registry: PluginRegistry, serve: Callable[..., str]
) -> None:
    free = threading.Event()

    def hang(_: Any) -> list[pb.Action]:
        free.wait(60)
        return []

    there = register_plugin(registry, serve((CANDIDATES, hang)))
    remote = RemoteActuator(there, timeout=0.2)
    assert remote.candidates(STATE, goal=GOAL, effects=EffectModels(), limits=PlanConstraints()) == ()
    assert "DEADLINE_EXCEEDED" in there.last_error
    plan = plan_with(create_planner("astar"), remote, actuator("scaleOut"))
    assert [action.actuator for action in plan.actions] == ["scaleOut"]
    free.set()
    there.check_at = 0.0
    registry.check(1.0)
    assert not there.last_error


def test_remote_actuator_is_skipped_when_time_budget_is_used_up(
    registry: PluginRegistry, serve: Callable[..., str]
) -> None:
    asked: list[str] = []

    def propose(_: Any) -> list[pb.Action]:
        asked.append("candidates")
        return []

    def keep(_: Any) -> pb.PlanResponse:
        asked.append("plan")
        return pb.PlanResponse(purpose="Keep")

    there = register_plugin(registry, serve((CANDIDATES, propose)))
    lever = RemoteActuator(there, timeout=30, time_budget=TimeBudget(1e-9))
    endpoint = serve((PLAN, keep), says=info("x:1", name="slow", type_=PLANNER))
    slow = RemotePlanner(
        register_plugin(registry, endpoint, PLANNER, "slow"),
        create_planner("astar"),
        settings={},
        timeout=30,
        time_budget=TimeBudget(1e-9),
    )
    for _ in range(2):
        assert not lever.candidates(STATE, goal=GOAL, effects=EffectModels(), limits=PlanConstraints())
        plan = plan_with(slow, actuator("scaleOut"))
    assert asked == ["candidates", "plan"]
    assert "used up its time" in plan.why[-1]
    assert [action.actuator for action in plan.actions] == ["scaleOut"]
    assert not there.last_error


def test_remote_actuator_drops_invalid_candidates(
    registry: PluginRegistry, serve: Callable[..., str]
) -> None:
    nonsense = pb.Action(after=pb.State(objectives={"p99": float("nan")}, replicas=2))
    there = register_plugin(registry, serve((CANDIDATES, lambda _: [nonsense])))
    remote = RemoteActuator(there, timeout=30)
    assert remote.candidates(STATE, goal=GOAL, effects=EffectModels(), limits=PlanConstraints()) == ()
    assert "not a number" in there.last_error


def test_planner_works_without_actuator_that_died(registry: PluginRegistry) -> None:
    with serve_plugin(ActuatorService(Lever(), lambda *_: ""), name="lever") as plugin:
        there = register_plugin(registry, plugin.endpoint)
        remote = RemoteActuator(there, timeout=30)
        (action,) = remote.candidates(STATE, goal=GOAL, effects=EffectModels(), limits=PlanConstraints())
    assert remote.candidates(STATE, goal=GOAL, effects=EffectModels(), limits=PlanConstraints()) == ()
    assert "plugin lever" in remote.execute(action, target=KEY, state=STATE)


def test_planner_rejects_remote_action_that_violates_guardrails(
    registry: PluginRegistry, serve: Callable[..., str]
) -> None:
    def greedy(asked: pb.CandidatesRequest) -> list[pb.Action]:
        after = pb.State()
        after.CopyFrom(asked.state)
        after.replicas = 100_000
        after.objectives["p99"] = 0.0001
        after.objectives["availability"] = 1.0
        return [pb.Action(actuator="lever", after=after)]

    remote = RemoteActuator(register_plugin(registry, serve((CANDIDATES, greedy))), timeout=30)
    plan = plan_with(create_planner("astar"), remote, limits=PlanConstraints(max_replicas=10))
    assert plan.actions == ()


# Planners


def remote_planner(there: Any, *, patience: float = 30.0) -> RemotePlanner:
    return RemotePlanner(there, create_planner("astar"), settings={}, timeout=patience)


def test_remote_planner_returns_same_plan_as_local_planner(registry: PluginRegistry) -> None:
    actuators = [actuator("scaleOut"), actuator("rmPod")]
    with serve_plugin(PlannerService(create_planner("astar")), name="far") as plugin:
        there = register_plugin(registry, plugin.endpoint, PLANNER, "far")
        far = plan_with(remote_planner(there), *actuators)
    here = plan_with(create_planner("astar"), *actuators)
    assert [(each.actuator, dict(each.parameters)) for each in far.actions] == [
        (each.actuator, dict(each.parameters)) for each in here.actions
    ]
    assert far.purpose is here.purpose is Purpose.REACH
    assert [action.after.replicas for action in far.actions if action.actuator == "scaleOut"] == [4]


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (pb.PlanResponse(purpose="Reach", utility=float("nan")), "not a number"),
        (pb.PlanResponse(purpose="Reach", actions=[pb.Action(actuator="format-disk")]), "not allowed now"),
        (
            pb.PlanResponse(
                purpose="Reach", actions=[pb.Action(actuator="scaleOut", after=pb.State(replicas=5000))]
            ),
            "more than the maximum of 128",
        ),
        (
            pb.PlanResponse(
                purpose="Reach",
                actions=[pb.Action(actuator="scaleOut", after=pb.State(replicas=n)) for n in (3, 4)],
            ),
            "two actions",
        ),
    ],
)
def test_remote_planner_falls_back_on_invalid_plan(
    registry: PluginRegistry, serve: Callable[..., str], lie: pb.PlanResponse, words: str
) -> None:
    endpoint = serve((PLAN, lambda _: lie), says=info("x:1", name="liar", type_=PLANNER))
    plan = plan_with(
        remote_planner(register_plugin(registry, endpoint, PLANNER, "liar")), actuator("scaleOut")
    )
    assert [action.after.replicas for action in plan.actions] == [4]
    assert words in plan.why[-1]


def test_remote_planner_falls_back_when_unavailable(registry: PluginRegistry) -> None:
    with serve_plugin(PlannerService(create_planner("astar")), name="far") as plugin:
        there = register_plugin(registry, plugin.endpoint, PLANNER, "far")
    plan = plan_with(remote_planner(there, patience=1.0), actuator("scaleOut"))
    assert plan.actions
    assert "returned no usable plan" in plan.why[-1]


def test_remote_planner_receives_learned_effects(registry: PluginRegistry) -> None:
    """On its way a map loses its order, by which a model knows its parameters."""
    wanted = msgspec.structs.replace(
        GOAL, objectives=(GOAL.objectives[0], Objective(name="queue", value=9.0))
    )
    seen = [
        (
            60.0 * at,
            TargetState(
                objectives={"p99": 0.04 / cpu, "queue": 5.0 * cpu},
                replicas=2,
                sizes=(ContainerSize(container="web", cpu_request=cpu, cpu_limit=cpu),),
                load=100.0 + at,
            ),
        )
        for at, cpu in enumerate((1.0, 2.0, 3.0) * 5)
    ]
    learned = learn_effects(wanted, seen, now=1000.0)
    received: list[EffectModels] = []

    class Listener:
        settings_type: ClassVar[type[Settings]] = Settings

        def plan(self, state: TargetState, goal: Goal, *, effects: EffectModels, **_: Any) -> Plan:
            received.append(effects)
            return Plan(intent=goal.intent, purpose=Purpose.KEEP)

    with serve_plugin(PlannerService(Listener()), name="listener") as plugin:
        remote = RemotePlanner(
            register_plugin(registry, plugin.endpoint, PLANNER, "listener"),
            create_planner("astar"),
            settings={},
            timeout=30,
        )
        remote.plan(seen[-1][1], wanted, actuators=[], effects=learned, limits=PlanConstraints(), now=0.0)
    now, then = seen[-1][1], seen[0][1]
    prediction, expected_prediction = (
        each.predict(now, [then], group="vertical_scaling") for each in (received[0], learned)
    )
    assert prediction == expected_prediction


# What is kept


def test_generated_messages_match_proto_file(tmp_path: Path) -> None:
    place = Path(messages.__file__).parent
    source = place.parents[3]
    known = Path(protoc.__file__).parent / "_proto"
    made = [
        "protoc",
        f"-I{source}",
        f"-I{known}",
        f"--python_out={tmp_path}",
        f"--pyi_out={tmp_path}",
    ]
    assert protoc.main([*made, str(place / "plugin.proto")]) == 0
    for name in ("plugin_pb2.py", "plugin_pb2.pyi"):
        fresh = tmp_path / place.relative_to(source) / name
        assert (place / name).read_text() == fresh.read_text(), f"generate it again: see {place}/__init__.py"
