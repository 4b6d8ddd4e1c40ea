"""Conversion between records and protocol messages, with validation of what plugins send.

A message with an impossible value is rejected as a whole, with the reason: a number that is not finite, an unknown
objective, a negative replica count. The constraints are checked elsewhere. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from google.protobuf.struct_pb2 import ListValue, Struct

from trimtab.api.intent import ObjectiveVerdict
from trimtab.api.kpiprofile import KPIType
from trimtab.errors import TrimtabError
from trimtab.intents.actuator import IntentAction
from trimtab.intents.capacity import additional_requests
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal, Objective
from trimtab.intents.planner import ExpectedOutcome, Plan, Purpose
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.state import ContainerSize, PodState, TargetState, count_unplaced
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.printable import shorten

MAX_REPLICAS = 1_000_000
MAX_TEXT_LENGTH = 1000
MAX_PARAMETER_BYTES = 4096
"""The most bytes of an action's parameters, which are stored and go into the status."""
_OPTIONAL_LIMITS = ("max_cpu", "max_memory", "extra_pods", "extra_cpu", "extra_memory", "extra_cpu_in_place",
              "extra_memory_in_place")  # fmt: skip


class InvalidMessageError(TrimtabError):
    """A plugin sent an invalid message."""


# Messages that we send


def state_to_message(state: TargetState) -> pb.State:
    # protobuf has no null in a map of numbers: as 0, an unknown objective would look met.
    known = {name: value for name, value in state.objectives.items() if value is not None}
    return pb.State(
        objectives=known,
        unknown=[name for name in state.objectives if name not in known],
        pods=[pb.PodState(**msgspec.structs.asdict(pod)) for pod in state.pods],
        replicas=state.replicas,
        unplaced=state.unplaced,
        sizes=[pb.Size(**msgspec.structs.asdict(size)) for size in state.sizes],
        main=state.main,
        load=state.load,
        cpu_used=state.cpu_used,
        memory_used=state.memory_used,
        cache_class=state.cache_class,
        power_profile=state.power_profile,
        annotations=state.annotations,
        data=_dict_to_struct(state.data),
        log_spread=state.log_spread,
    )


def _objective_to_message(objective: Objective) -> pb.Objective:
    fields = msgspec.structs.asdict(objective)
    for name in ("unit", "description"):  # for people, who do not read a plugin's messages
        del fields[name]
    return pb.Objective(**{**fields, "kind": objective.kind.value})


def goal_to_message(goal: Goal) -> pb.Goal:
    return pb.Goal(
        intent=goal.intent,
        objectives=[_objective_to_message(each) for each in goal.objectives],
        priority=goal.priority,
        z_score=goal.z_score,
        is_release=goal.is_release,
    )


def constraints_to_message(limits: PlanConstraints) -> pb.Constraints:
    fields = msgspec.structs.asdict(limits)
    # A plugin does not need the reason of a cool-down.
    fields["cooldown_until"] = {**limits.cooldown_until, **fields.pop("refused_until")}
    del fields["max_safeguard_memory"]  # safeguards are not for plugins
    bounded = {
        name: value for name, value in fields.items() if name not in _OPTIONAL_LIMITS or math.isfinite(value)
    }
    return pb.Constraints(**{**bounded, "forbidden": sorted(limits.forbidden)})


def action_to_message(action: IntentAction) -> pb.Action:
    return pb.Action(
        actuator=action.actuator,
        parameters=_dict_to_struct(action.parameters),
        after=state_to_message(action.after),
        disruption=action.disruption,
    )


def effects_to_messages(effects: EffectModels) -> list[pb.Effect]:
    learned = [
        pb.Effect(objective=name, data=_dict_to_struct(model.encode()))
        for name, model in effects.learned_models.items()
    ]
    given = [
        pb.Effect(objective=name, group=group, data=_dict_to_struct(model.encode()))
        for (name, group), model in effects.user_models.items()
    ]
    return learned + given


def plan_to_message(plan: Plan) -> pb.PlanResponse:
    return pb.PlanResponse(
        purpose=plan.purpose.value,
        actions=[action_to_message(action) for action in plan.actions],
        why=plan.why,
        outcomes=[
            pb.Outcome(**{**msgspec.structs.asdict(each), "verdict": each.verdict.value})
            for each in plan.outcomes
        ],
        cost=plan.cost,
        saved=plan.saved,
        utility=plan.utility,
        is_optimal=plan.is_optimal,
        expanded_states=plan.expanded_states,
    )


def target_to_message(key: WorkloadKey) -> pb.Target:
    return pb.Target(kind=key.kind, namespace=key.namespace, name=key.name)


# Messages that we receive


def state_from_message(message: pb.State) -> TargetState:
    if not 0 <= message.replicas <= MAX_REPLICAS:
        raise InvalidMessageError(f"{message.replicas} replicas: must be from 0 to {MAX_REPLICAS}")
    objectives: dict[str, float | None] = dict.fromkeys(message.unknown)
    objectives |= {name: _check_finite(value, name) for name, value in message.objectives.items()}
    return TargetState(
        objectives=objectives,
        pods=tuple(
            PodState(
                name=pod.name,
                node=pod.node,
                state=pod.state,
                qos=pod.qos,
                availability=_check_share(pod.availability),
            )
            for pod in message.pods
        ),
        replicas=message.replicas,
        unplaced=max(0, message.unplaced),
        sizes=tuple(_size_from_message(each) for each in message.sizes),
        main=max(0, message.main),
        load=_read_optional(message, "load"),
        cpu_used=_read_optional(message, "cpu_used"),
        memory_used=_read_optional(message, "memory_used"),
        cache_class=message.cache_class if message.HasField("cache_class") else None,
        power_profile=message.power_profile if message.HasField("power_profile") else None,
        annotations=dict(message.annotations),
        data=struct_to_dict(message.data),
        log_spread={name: _check_not_negative(value, "spread") for name, value in message.log_spread.items()},
    )


def goal_from_message(message: pb.Goal) -> Goal:
    return Goal(
        intent=message.intent,
        objectives=tuple(
            Objective(
                name=each.name,
                value=_check_finite(each.value, each.name),
                kind=KPIType(each.kind),
                less_is_better=each.less_is_better,
                tolerance=each.tolerance,
                weight=each.weight,
                measured_by=each.measured_by,
            )
            for each in message.objectives
        ),
        priority=message.priority,
        z_score=message.z_score,
        is_release=message.is_release,
    )


def constraints_from_message(message: pb.Constraints) -> PlanConstraints:
    given = {name: getattr(message, name) for name in _OPTIONAL_LIMITS if message.HasField(name)}
    return PlanConstraints(
        min_replicas=message.min_replicas,
        max_replicas=message.max_replicas,
        min_cpu=message.min_cpu,
        min_total_cpu=message.min_total_cpu,
        min_memory=message.min_memory,
        forbidden=frozenset(message.forbidden),
        freeze=message.freeze,
        cooldown_until=dict(message.cooldown_until),
        explore=message.explore,
        **given,
    )


def action_from_message(message: pb.Action, *, before: TargetState) -> IntentAction:
    """Convert an action that a plugin proposes in a state. Unknown objectives stay unknown, whatever it claims."""
    if (size := message.parameters.ByteSize()) > MAX_PARAMETER_BYTES:
        raise InvalidMessageError(
            f"the parameters of an action have {size} bytes, more than {MAX_PARAMETER_BYTES}"
        )
    after = state_from_message(message.after)
    if invented := after.objectives.keys() - before.objectives.keys():
        raise InvalidMessageError(f"objective {min(invented)} is not an objective of the Intent")
    objectives = {
        # A plugin cannot know what the operator could not measure, and no action is taken on an unknown
        # objective.
        name: None if value is None else after.objectives.get(name, value)
        for name, value in before.objectives.items()
    }
    if [each.container for each in after.sizes] != [each.container for each in before.sizes]:
        raise InvalidMessageError(
            "the proposed sizes are for other containers than those of the workload, or in another order"
        )
    return IntentAction(
        actuator=message.actuator,
        parameters=struct_to_dict(message.parameters),
        after=msgspec.structs.replace(
            # These follow from the state and the replicas; a plugin that sends others would make pods
            # schedulable by declaring them so.
            after,
            objectives=objectives,
            main=before.main,
            unplaced=count_unplaced(before, after.replicas),
        ),
        disruption=_check_not_negative(message.disruption, "disruption"),
    )


def plan_from_message(message: pb.PlanResponse, *, goal: Goal, before: TargetState) -> Plan:
    """Convert the plan of a plugin."""
    try:
        purpose = Purpose(message.purpose)
    except ValueError:
        raise InvalidMessageError(f"{message.purpose!r} is not a known purpose of a plan") from None
    actions: list[IntentAction] = []
    state = before
    for each in message.actions:
        actions.append(action_from_message(each, before=state))
        # Each action is checked against the state that the one before it leaves.
        state = actions[-1].after
    return Plan(
        intent=goal.intent,
        # Otherwise a release under another purpose would not wait until all objectives have been met for long enough.
        purpose=Purpose.RELEASE if _is_release(before, state, goal) else purpose,
        actions=tuple(actions),
        # The texts go into the status of the Intent, whose size is limited by the API server.
        why=tuple(shorten(words, MAX_TEXT_LENGTH) for words in message.why[:16]),
        outcomes=_outcomes_from_messages(message.outcomes, goal),
        cost=_check_finite(message.cost, "cost"),
        saved=_check_finite(message.saved, "saved"),
        utility=_check_finite(message.utility, "utility"),
        is_optimal=message.is_optimal,
        expanded_states=message.expanded_states,
    )


def _is_release(before: TargetState, after: TargetState, goal: Goal) -> bool:
    """Return whether the plan reduces resources while no objective is missed that a reduction could improve, such
    as power.
    """
    more = additional_requests(before, after)
    missed = any(
        each.evaluate(before.objectives.get(each.name)) is not ObjectiveVerdict.MET
        for each in goal.objectives
    )
    return max(more) <= 0 > min(more) and not missed


def target_from_message(message: pb.Target) -> WorkloadKey:
    return WorkloadKey(message.kind, message.namespace, message.name)


def _outcomes_from_messages(message: Sequence[pb.Outcome], goal: Goal) -> tuple[ExpectedOutcome, ...]:
    names = {each.name for each in goal.objectives}
    return tuple(
        ExpectedOutcome(
            objective=each.objective,
            now=_read_optional(each, "now"),
            expected=_read_optional(each, "expected"),
            low=_read_optional(each, "low"),
            high=_read_optional(each, "high"),
            wanted=_check_finite(each.wanted, "wanted"),
            verdict=ObjectiveVerdict(each.verdict)
            if each.verdict in set(ObjectiveVerdict)
            else ObjectiveVerdict.UNKNOWN,
        )
        for each in message
        if each.objective in names
    )


def _size_from_message(message: pb.Size) -> ContainerSize:
    fields = ("cpu_request", "cpu_limit", "memory_request", "memory_limit")
    return ContainerSize(
        container=message.container, **{name: _read_amount(message, name) for name in fields}
    )


def _read_amount(message: pb.Size, name: str) -> float | None:
    value = _read_optional(message, name)
    return None if value is None else _check_not_negative(value, name)


def _read_optional(message: Any, name: str) -> float | None:
    return _check_finite(getattr(message, name), name) if message.HasField(name) else None


def _check_finite(value: float, what: str) -> float:
    if not math.isfinite(value):
        raise InvalidMessageError(f"{what} is {value}, which is not a number")
    return value


def _check_not_negative(value: float, what: str) -> float:
    if _check_finite(value, what) < 0:
        raise InvalidMessageError(f"{what} is {value:g}, which is negative")
    return value


def _check_share(value: float) -> float:
    if not 0 <= _check_finite(value, "availability") <= 1:
        raise InvalidMessageError(f"an availability of {value:g} is not possible")
    return value


def _dict_to_struct(data: Mapping[str, Any]) -> Struct:
    found = Struct()
    found.update(msgspec.to_builtins(dict(data)))
    return found


def struct_to_dict(message: Struct) -> dict[str, Any]:
    """Convert a Struct, with whole numbers as integers again."""
    return {name: _struct_value(value) for name, value in message.items()}


def _struct_value(value: Any) -> Any:
    if isinstance(value, Struct):
        return struct_to_dict(value)
    if isinstance(value, ListValue):
        return [_struct_value(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
