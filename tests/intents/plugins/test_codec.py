"""Between our records and the messages: nothing is lost on the way, and nonsense is refused."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.kpiprofile import KPIType
from trimtab.intents.actuator import IntentAction
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.objective import Goal, Objective
from trimtab.intents.plugins.codec import (
    InvalidMessageError,
    action_from_message,
    action_to_message,
    constraints_from_message,
    constraints_to_message,
    goal_from_message,
    goal_to_message,
    plan_from_message,
    state_from_message,
    state_to_message,
)
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.protocol import CANDIDATES, INFO, OBSERVE, PERFORM, PLAN, REGISTER
from trimtab.intents.state import ContainerSize, PodState, TargetState

numbers = st.floats(0, 1e12)
maybe = st.none() | numbers
words = st.text(max_size=8)
sizes = st.builds(
    ContainerSize,
    container=words,
    cpu_request=maybe,
    cpu_limit=maybe,
    memory_request=maybe,
    memory_limit=maybe,
)
pods = st.builds(PodState, name=words, node=words, state=words, qos=words, availability=st.floats(0, 1))
data: Any = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers(-(2**50), 2**50) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
states = st.builds(
    TargetState,
    objectives=st.dictionaries(words, maybe, max_size=3),
    pods=st.lists(pods, max_size=3).map(tuple),
    replicas=st.integers(0, 500),
    sizes=st.lists(sizes, max_size=2).map(tuple),
    main=st.integers(0, 2),
    load=maybe,
    cpu_used=maybe,
    memory_used=maybe,
    cache_class=st.none() | words,
    power_profile=st.none() | words,
    annotations=st.dictionaries(words, words, max_size=2),
    data=st.dictionaries(words, data, max_size=2),
    log_spread=st.dictionaries(words, numbers, max_size=2),
)
limits = st.builds(
    PlanConstraints,
    max_replicas=st.integers(1, 500),
    max_cpu=numbers | st.just(math.inf),
    extra_pods=numbers | st.just(math.inf),
    forbidden=st.frozensets(words, max_size=2),
    freeze=words,
    cooldown_until=st.dictionaries(words, numbers, max_size=2),
    explore=st.booleans(),
)


@given(states)
def test_codec_round_trips_state(state: TargetState) -> None:
    assert state_from_message(pb.State.FromString(state_to_message(state).SerializeToString())) == state


@given(limits)
def test_codec_round_trips_constraints(some: PlanConstraints) -> None:
    assert (
        constraints_from_message(pb.Constraints.FromString(constraints_to_message(some).SerializeToString()))
        == some
    )


def test_codec_round_trips_goal() -> None:
    wanted = Objective(name="p99", value=0.03, kind=KPIType.LATENCY, tolerance=0.1, measured_by="m/p99")
    goal = Goal(intent="shop/web", objectives=(wanted,), priority=0.5, is_release=True, z_score=1.2)
    assert goal_from_message(goal_to_message(goal)) == goal


STATE = TargetState(
    objectives={"p99": 0.04, "dark": None}, replicas=2, sizes=(ContainerSize(container="web"),)
)
ACTION = IntentAction(actuator="lever", parameters={"by": 2}, after=STATE, disruption=0.1)


def changed(**after: Any) -> pb.Action:
    said = action_to_message(ACTION)
    for name, value in after.items():
        getattr(said.after, name).update(value) if isinstance(value, dict) else setattr(
            said.after, name, value
        )
    return said


def test_codec_round_trips_action() -> None:
    assert action_from_message(action_to_message(ACTION), before=STATE) == ACTION


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (changed(replicas=-1), "replicas"),
        (changed(objectives={"p99": math.nan}), "not a number"),
        (changed(objectives={"invented": 1.0}), "not an objective of the Intent"),
        (changed(load=math.inf), "not a number"),
        (pb.Action(after=pb.State(objectives={"p99": 1.0}), disruption=-1), "containers"),
        (pb.Action(after=action_to_message(ACTION).after, disruption=-1), "is negative"),
    ],
)
def test_action_from_message_rejects_impossible_action(said: pb.Action, words: str) -> None:
    with pytest.raises(InvalidMessageError, match=words):
        action_from_message(said, before=STATE)


def test_action_from_message_keeps_unknown_objectives_unknown() -> None:
    said = changed(objectives={"dark": 1.0, "p99": 0.01})
    assert action_from_message(said, before=STATE).after.objectives == {"p99": 0.01, "dark": None}


def test_plan_from_message_rejects_unknown_purpose() -> None:
    goal = Goal(intent="shop/web", objectives=())
    with pytest.raises(InvalidMessageError, match="conquer"):
        plan_from_message(pb.PlanResponse(purpose="conquer"), goal=goal, before=STATE)


@pytest.mark.parametrize(
    ("wanted", "replicas", "purpose"),
    [(0.05, 1, "Release"), (0.05, 3, "Reach"), (0.03, 1, "Reach")],
    ids=["fewer while all is met", "more", "fewer while something is missed"],
)
def test_plan_from_message_classifies_reduction_as_release(
    wanted: float, replicas: int, purpose: str
) -> None:
    goal = Goal(intent="shop/web", objectives=(Objective(name="p99", value=wanted, kind=KPIType.LATENCY),))
    said = pb.PlanResponse(purpose="Reach", actions=[changed(replicas=replicas)])
    assert plan_from_message(said, goal=goal, before=STATE).purpose == purpose


OLD_ACTION = (
    "0a046469616c1a320a0e0a03703939119a9999999999c93f1802220e0a0377656219000000000000e03f6a0e0a03703939119a"
    "9999999999b93f21000000000000e03f"
)
"""An action message, as the generated code of the first version serializes it."""


def test_protocol_decodes_messages_of_the_first_version() -> None:
    """Plugins that were compiled before messages and fields were renamed send and receive the same bytes."""
    action = pb.Action.FromString(bytes.fromhex(OLD_ACTION))
    assert (action.actuator, action.disruption, dict(action.after.log_spread)) == ("dial", 0.5, {"p99": 0.1})
    assert pb.PerformRequest.FromString(bytes.fromhex("0a43" + OLD_ACTION)).action == action
    assert pb.PerformResponse.FromString(bytes.fromhex("0a05737475636b")).blocked_reason == "stuck"
    response = pb.RegisterResponse.FromString(bytes.fromhex("0a027631110000000000003e40"))
    assert (response.version, response.register_again_seconds) == ("v1", 30)
    goal = pb.Goal.FromString(bytes.fromhex("0a0873686f702f77656221000000000000e03f2801"))
    assert (goal.intent, goal.z_score, goal.is_release) == ("shop/web", 0.5, True)
    plan = pb.PlanResponse.FromString(bytes.fromhex("0a0552656163681243" + OLD_ACTION + "40014807"))
    assert (plan.purpose, list(plan.actions), plan.is_optimal, plan.expanded_states) == (
        "Reach",
        [action],
        True,
        7,
    )
    request = pb.PlanRequest.FromString(bytes.fromhex("1a0210093832"))
    assert (request.constraints.max_replicas, request.max_states) == (9, 50)
    constraints = pb.Constraints.FromString(
        bytes.fromhex(
            "0801100939000000000000084041000000000000044049000000000000104051000000000000e03f59000000000000184"
            "0720c0a012a1100000000000059408101000000000000f83f"
        )
    )
    assert constraints == pb.Constraints(
        min_replicas=1,
        max_replicas=9,
        extra_pods=3,
        extra_cpu=2.5,
        extra_memory=4,
        extra_cpu_in_place=0.5,
        extra_memory_in_place=6,
        cooldown_until={"*": 100.0},
        min_total_cpu=1.5,
    )


def test_protocol_keeps_the_names_of_services_and_calls() -> None:
    calls = (REGISTER, INFO, CANDIDATES, PERFORM, OBSERVE, PLAN)
    assert [f"{call.service}/{call.name}" for call in calls] == [
        "Registration/Register",
        "Plugin/Info",
        "ActuatorPlugin/Candidates",
        "ActuatorPlugin/Perform",
        "ActuatorPlugin/Observe",
        "PlannerPlugin/Plan",
    ]
