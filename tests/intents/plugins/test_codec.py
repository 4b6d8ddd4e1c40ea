"""Between our records and the messages: nothing is lost on the way, and nonsense is refused."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.kpiprofile import KPIType
from trimtab.intents.action import IntentAction
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
    spread=st.dictionaries(words, numbers, max_size=2),
)
limits = st.builds(
    PlanConstraints,
    max_replicas=st.integers(1, 500),
    max_cpu=numbers | st.just(math.inf),
    more_pods=numbers | st.just(math.inf),
    forbidden=st.frozensets(words, max_size=2),
    freeze=words,
    resting=st.dictionaries(words, numbers, max_size=2),
    explore=st.booleans(),
)


@given(states)
def test_a_state_comes_back_as_it_went(state: TargetState) -> None:
    assert state_from_message(pb.State.FromString(state_to_message(state).SerializeToString())) == state


@given(limits)
def test_limits_come_back_as_they_went(some: PlanConstraints) -> None:
    assert (
        constraints_from_message(pb.Limits.FromString(constraints_to_message(some).SerializeToString()))
        == some
    )


def test_a_goal_comes_back_as_it_went() -> None:
    wanted = Objective(name="p99", value=0.03, kind=KPIType.LATENCY, tolerance=0.1, measured_by="m/p99")
    goal = Goal(intent="shop/web", objectives=(wanted,), priority=0.5, is_release=True, z_score=1.2)
    assert goal_from_message(goal_to_message(goal)) == goal


STATE = TargetState(
    objectives={"p99": 0.04, "dark": None}, replicas=2, sizes=(ContainerSize(container="web"),)
)
DEED = IntentAction(actuator="lever", parameters={"by": 2}, after=STATE, disruption=0.1)


def changed(**after: Any) -> pb.Deed:
    said = action_to_message(DEED)
    for name, value in after.items():
        getattr(said.after, name).update(value) if isinstance(value, dict) else setattr(
            said.after, name, value
        )
    return said


def test_a_deed_comes_back_as_it_went() -> None:
    assert action_from_message(action_to_message(DEED), before=STATE) == DEED


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (changed(replicas=-1), "replicas"),
        (changed(objectives={"p99": math.nan}), "no number"),
        (changed(objectives={"invented": 1.0}), "none of the intent's"),
        (changed(load=math.inf), "no number"),
        (pb.Deed(after=pb.State(objectives={"p99": 1.0}), disruption=-1), "containers"),
        (pb.Deed(after=action_to_message(DEED).after, disruption=-1), "less than nothing"),
    ],
)
def test_a_deed_that_cannot_be_is_refused(said: pb.Deed, words: str) -> None:
    with pytest.raises(InvalidMessageError, match=words):
        action_from_message(said, before=STATE)


def test_what_is_unknown_stays_so_whatever_a_plugin_claims() -> None:
    said = changed(objectives={"dark": 1.0, "p99": 0.01})
    assert action_from_message(said, before=STATE).after.objectives == {"p99": 0.01, "dark": None}


def test_a_plan_for_no_known_purpose_is_refused() -> None:
    goal = Goal(intent="shop/web", objectives=())
    with pytest.raises(InvalidMessageError, match="conquer"):
        plan_from_message(pb.Planned(purpose="conquer"), goal=goal, before=STATE)


@pytest.mark.parametrize(
    ("wanted", "replicas", "purpose"),
    [(0.05, 1, "Release"), (0.05, 3, "Reach"), (0.03, 1, "Reach")],
    ids=["fewer while all is met", "more", "fewer while something is missed"],
)
def test_what_takes_less_while_all_is_met_is_given_back_whatever_a_planner_calls_it(
    wanted: float, replicas: int, purpose: str
) -> None:
    goal = Goal(intent="shop/web", objectives=(Objective(name="p99", value=wanted, kind=KPIType.LATENCY),))
    said = pb.Planned(purpose="Reach", deeds=[changed(replicas=replicas)])
    assert plan_from_message(said, goal=goal, before=STATE).purpose == purpose
