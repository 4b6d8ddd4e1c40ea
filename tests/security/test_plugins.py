"""Attacks by plugins: on the registration, and by the texts of their answers."""

from collections.abc import Callable

import pytest

from intents.plugins.test_plugins import (
    ACTUATOR,
    EFFECTS,
    GOAL,
    KEY,
    STATE,
    info,
    register_plugin,
    registry,
    serve,
)
from trimtab.intents.actuator import IntentAction
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.planner import Purpose
from trimtab.intents.plugins.client import RemoteActuator
from trimtab.intents.plugins.codec import (
    InvalidMessageError,
    action_from_message,
    plan_from_message,
    state_to_message,
)
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.protocol import CANDIDATES, PERFORM, VERSION, Caller, CallRefusedError
from trimtab.intents.plugins.registry import MAX_ENDPOINT, PluginRegistry, find_registration_problem

__all__ = ["registry", "serve"]

ALLOWED = ("*.plugins.svc:9000",)


@pytest.mark.parametrize(
    ("caller", "endpoint"),
    [
        ("10.1.2.3", "10.1.2.3:9000"),
        ("::ffff:10.1.2.3", "10.1.2.3:9000"),
        ("fd00::7", "[fd00:0::7]:9000"),
        ("127.0.0.1", "localhost:9000"),
        ("127.0.0.1", "unix:/run/lever.sock"),
        ("", "unix:/run/lever.sock"),
        ("10.1.2.3", "lever.plugins.svc:9000"),
    ],
)
def test_plugin_may_register_its_own_address_and_allowed_endpoints(caller: str, endpoint: str) -> None:
    assert find_registration_problem(info(endpoint), Caller(caller, frozenset({"lever"})), ALLOWED) == ""


@pytest.mark.parametrize(
    ("caller", "endpoint"),
    [
        ("10.1.2.3", "10.1.2.4:9000"),
        ("10.1.2.3", "localhost:9000"),
        ("10.1.2.3", "127.0.0.1:9000"),
        ("10.1.2.3", "unix:/var/run/containerd.sock"),
        ("10.1.2.3", "kubernetes.default.svc:443"),
        ("10.1.2.3", "lever.plugins.svc:9001"),
        ("", "10.1.2.3:9000"),
    ],
)
def test_plugin_may_not_register_the_address_of_another_server(caller: str, endpoint: str) -> None:
    problem = find_registration_problem(info(endpoint), Caller(caller, frozenset({"lever"})), ALLOWED)
    assert problem.startswith("endpoint: ")


@pytest.mark.parametrize(
    "endpoint",
    [
        "dns:169.254.169.254:80#.plugins.svc:9000",
        "dns:10.0.0.9:443?lever.plugins.svc:9000",
        "10.0.0.9:443#.plugins.svc:9000",
        "ipv4:10.0.0.9:443,lever.plugins.svc:9000",
        "unix-abstract:lever.plugins.svc:9000",
        "xds:lever.plugins.svc:9000",
        "dns:lever.plugins.svc:9000",
        "user@lever.plugins.svc:9000",
        "10.0.0.9%3A443%23.plugins.svc:9000",
        "10.0.0.9:443\n.plugins.svc:9000",
    ],
)
def test_plugin_may_not_reach_around_the_allowed_endpoints_by_the_syntax_of_grpc(endpoint: str) -> None:
    """The end fits an allowed pattern, and gRPC connects to what stands before it."""
    problem = find_registration_problem(info(endpoint), Caller("10.1.2.3", frozenset({"lever"})), ALLOWED)
    assert problem.startswith("endpoint: ")


@pytest.mark.parametrize("names", [frozenset[str](), frozenset({"other"}), frozenset({"*", "lever.svc"})])
def test_plugin_may_register_only_the_name_of_its_certificate(names: frozenset[str]) -> None:
    problem = find_registration_problem(info("10.1.2.3:9000"), Caller("10.1.2.3", names), ())
    assert problem.startswith("name: ")


def test_plugin_refusal_does_not_repeat_endpoints_of_any_length() -> None:
    problem = find_registration_problem(info("a" * 100_000 + ":1"), Caller("10.1.2.3", None), ())
    assert len(problem) < MAX_ENDPOINT + 100


HOSTILE = "\x1b[2J\n" + "x" * 500_000


def test_texts_of_plugins_are_short_and_printable(
    registry: PluginRegistry, serve: Callable[..., str]
) -> None:
    calls = (
        (PERFORM, lambda _: pb.PerformResponse(blocked_reason=HOSTILE)),
        (CANDIDATES, lambda _: [pb.Action(after=pb.State(objectives={HOSTILE: 1.0}))]),
    )
    says = pb.PluginInfo(type=ACTUATOR, name="lever", versions=[VERSION], group=HOSTILE)
    plugin = register_plugin(registry, serve(*calls, says=says))
    remote = RemoteActuator(plugin)
    action = IntentAction(actuator="lever", parameters={}, after=STATE)
    texts = [remote.group, remote.execute(action, target=KEY, state=STATE)]
    assert remote.candidates(STATE, goal=GOAL, effects=EFFECTS, limits=PlanConstraints()) == ()
    texts.append(plugin.last_error)
    with pytest.raises(CallRefusedError) as refused:
        registry.register(info(serve(says=pb.PluginInfo(name=HOSTILE, versions=[HOSTILE])), name="other"))
    texts.append(str(refused.value))
    assert [len(text) <= 1100 and text.isprintable() and bool(text) for text in texts] == [True] * 4


def test_parameters_of_a_plugin_are_few_and_printable() -> None:
    message = pb.Action(actuator="lever", after=state_to_message(STATE))
    message.parameters.update({"a\x1b[2J": "b\n"})
    assert action_from_message(message, before=STATE).describe() == r"lever a\x1b[2J b\n"
    message.parameters.update({"long": HOSTILE})
    with pytest.raises(InvalidMessageError, match=r"parameters of an action have .* bytes, more than 4096"):
        action_from_message(message, before=STATE)


def test_plan_of_a_plugin_explains_itself_in_short_printable_lines() -> None:
    plan = plan_from_message(
        pb.PlanResponse(purpose=Purpose.REACH.value, why=[HOSTILE] * 100), goal=GOAL, before=STATE
    )
    assert len(plan.why) == 16
    assert all(len(line) <= 1000 and line.isprintable() for line in plan.why)
