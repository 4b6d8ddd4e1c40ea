"""Between our records and the messages: what we say as it is, what a plugin says with suspicion.

A number that is none, an objective that nobody asked about, a replica count below zero: such a message is refused
whole, with what is wrong with it. Whether what it proposes is allowed is not for here, but for the limits. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from google.protobuf.struct_pb2 import ListValue, Struct

from trimtab.api.intent import Verdict
from trimtab.api.kpiprofile import KPIType
from trimtab.errors import TrimtabError
from trimtab.intents.action import Deed
from trimtab.intents.capacity import taken
from trimtab.intents.constraints import Limits
from trimtab.intents.effects.model import Effects
from trimtab.intents.objective import Goal, Objective
from trimtab.intents.plan import Outcome, Plan, Purpose
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.state import PodState, Size, State, without_a_place
from trimtab.kube.kinds.workloads import WorkloadKey

MOST_REPLICAS = 1_000_000
MOST_WORDS = 1000
_LIMITLESS = ("max_cpu", "max_memory", "more_pods", "more_cpu", "more_memory", "more_cpu_in_place",
              "more_memory_in_place")  # fmt: skip


class NonsenseError(TrimtabError):
    """A plugin said something that cannot be."""


# What we say


def state_message(state: State) -> pb.State:
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
        data=_struct(state.data),
        spread=state.spread,
    )


def goal_message(goal: Goal) -> pb.Goal:
    return pb.Goal(
        intent=goal.intent,
        objectives=[
            pb.Objective(**{**msgspec.structs.asdict(each), "kind": each.kind.value})
            for each in goal.objectives
        ],
        priority=goal.priority,
        sureness=goal.sureness,
        gives_back=goal.gives_back,
    )


def limits_message(limits: Limits) -> pb.Limits:
    said = msgspec.structs.asdict(limits)
    # A plugin need not know why an actuator rests.
    said["resting"] = {**limits.resting, **said.pop("refused")}
    del said["max_safeguard_memory"]  # safeguards are not a plugin's
    bounded = {name: value for name, value in said.items() if name not in _LIMITLESS or math.isfinite(value)}
    return pb.Limits(**{**bounded, "forbidden": sorted(limits.forbidden)})


def deed_message(deed: Deed) -> pb.Deed:
    return pb.Deed(
        actuator=deed.actuator,
        parameters=_struct(deed.parameters),
        after=state_message(deed.after),
        disruption=deed.disruption,
    )


def effects_messages(effects: Effects) -> list[pb.Effect]:
    learned = [
        pb.Effect(objective=name, data=_struct(model.data())) for name, model in effects.learned.items()
    ]
    given = [
        pb.Effect(objective=name, group=group, data=_struct(model.data()))
        for (name, group), model in effects.given.items()
    ]
    return learned + given


def plan_message(plan: Plan) -> pb.Planned:
    return pb.Planned(
        purpose=plan.purpose.value,
        deeds=[deed_message(deed) for deed in plan.deeds],
        why=plan.why,
        outcomes=[
            pb.Outcome(**{**msgspec.structs.asdict(each), "verdict": each.verdict.value})
            for each in plan.outcomes
        ],
        cost=plan.cost,
        saved=plan.saved,
        utility=plan.utility,
        proven=plan.proven,
        expanded=plan.expanded,
    )


def target_message(key: WorkloadKey) -> pb.Target:
    return pb.Target(kind=key.kind, namespace=key.namespace, name=key.name)


# What we are told


def state_of(said: pb.State) -> State:
    if not 0 <= said.replicas <= MOST_REPLICAS:
        raise NonsenseError(f"{said.replicas} replicas cannot be")
    objectives: dict[str, float | None] = dict.fromkeys(said.unknown)
    objectives |= {name: _finite(value, name) for name, value in said.objectives.items()}
    return State(
        objectives=objectives,
        pods=tuple(
            PodState(
                name=pod.name,
                node=pod.node,
                state=pod.state,
                qos=pod.qos,
                availability=_share(pod.availability),
            )
            for pod in said.pods
        ),
        replicas=said.replicas,
        unplaced=max(0, said.unplaced),
        sizes=tuple(_size(each) for each in said.sizes),
        main=max(0, said.main),
        load=_optional(said, "load"),
        cpu_used=_optional(said, "cpu_used"),
        memory_used=_optional(said, "memory_used"),
        cache_class=said.cache_class if said.HasField("cache_class") else None,
        power_profile=said.power_profile if said.HasField("power_profile") else None,
        annotations=dict(said.annotations),
        data=plain(said.data),
        spread={name: _at_least_0(value, "spread") for name, value in said.spread.items()},
    )


def goal_of(said: pb.Goal) -> Goal:
    return Goal(
        intent=said.intent,
        objectives=tuple(
            Objective(
                name=each.name,
                value=_finite(each.value, each.name),
                kind=KPIType(each.kind),
                less_is_better=each.less_is_better,
                tolerance=each.tolerance,
                weight=each.weight,
                measured_by=each.measured_by,
            )
            for each in said.objectives
        ),
        priority=said.priority,
        sureness=said.sureness,
        gives_back=said.gives_back,
    )


def limits_of(said: pb.Limits) -> Limits:
    given = {name: getattr(said, name) for name in _LIMITLESS if said.HasField(name)}
    return Limits(
        min_replicas=said.min_replicas,
        max_replicas=said.max_replicas,
        min_cpu=said.min_cpu,
        min_cpu_together=said.min_cpu_together,
        min_memory=said.min_memory,
        forbidden=frozenset(said.forbidden),
        freeze=said.freeze,
        resting=dict(said.resting),
        explore=said.explore,
        **given,
    )


def deed_of(said: pb.Deed, *, before: State) -> Deed:
    """A deed that a plugin proposes in a state. What is unknown there stays so, whatever it claims."""
    after = state_of(said.after)
    if invented := after.objectives.keys() - before.objectives.keys():
        raise NonsenseError(f"objective {min(invented)} is none of the intent's")
    objectives = {
        name: None if value is None else after.objectives.get(name, value)
        for name, value in before.objectives.items()
    }
    if [each.container for each in after.sizes] != [each.container for each in before.sizes]:
        raise NonsenseError("it proposes sizes for other containers than there are, or in another order")
    return Deed(
        actuator=said.actuator,
        parameters=plain(said.parameters),
        after=msgspec.structs.replace(
            after, objectives=objectives, main=before.main, unplaced=without_a_place(before, after.replicas)
        ),
        disruption=_at_least_0(said.disruption, "disruption"),
    )


def plan_of(said: pb.Planned, *, goal: Goal, before: State) -> Plan:
    """The plan that a plugin made."""
    try:
        purpose = Purpose(said.purpose)
    except ValueError:
        raise NonsenseError(f"a plan cannot be to {said.purpose!r}") from None
    deeds: list[Deed] = []
    state = before
    for each in said.deeds:
        deeds.append(deed_of(each, before=state))
        state = deeds[-1].after
    return Plan(
        intent=goal.intent,
        # By another name it would be given back at once, however short all has been met.
        purpose=Purpose.RELEASE if _gives_back(before, state, goal) else purpose,
        deeds=tuple(deeds),
        why=tuple(words[:MOST_WORDS] for words in said.why[:16]),
        outcomes=_outcomes(said.outcomes, goal),
        cost=_finite(said.cost, "cost"),
        saved=_finite(said.saved, "saved"),
        utility=_finite(said.utility, "utility"),
        proven=said.proven,
        expanded=said.expanded,
    )


def _gives_back(before: State, after: State, goal: Goal) -> bool:
    """Whether less is wanted and nothing is missed, which less could be meant to reach, as of power."""
    more = taken(before, after)
    missed = any(
        each.verdict(before.objectives.get(each.name)) is not Verdict.MET for each in goal.objectives
    )
    return max(more) <= 0 > min(more) and not missed


def target_of(said: pb.Target) -> WorkloadKey:
    return WorkloadKey(said.kind, said.namespace, said.name)


def _outcomes(said: Sequence[pb.Outcome], goal: Goal) -> tuple[Outcome, ...]:
    names = {each.name for each in goal.objectives}
    return tuple(
        Outcome(
            objective=each.objective,
            now=_optional(each, "now"),
            expected=_optional(each, "expected"),
            low=_optional(each, "low"),
            high=_optional(each, "high"),
            wanted=_finite(each.wanted, "wanted"),
            verdict=Verdict(each.verdict) if each.verdict in set(Verdict) else Verdict.UNKNOWN,
        )
        for each in said
        if each.objective in names
    )


def _size(said: pb.Size) -> Size:
    fields = ("cpu_request", "cpu_limit", "memory_request", "memory_limit")
    return Size(container=said.container, **{name: _amount(said, name) for name in fields})


def _amount(said: pb.Size, name: str) -> float | None:
    value = _optional(said, name)
    return None if value is None else _at_least_0(value, name)


def _optional(said: Any, name: str) -> float | None:
    return _finite(getattr(said, name), name) if said.HasField(name) else None


def _finite(value: float, what: str) -> float:
    if not math.isfinite(value):
        raise NonsenseError(f"{what} is {value}, which is no number")
    return value


def _at_least_0(value: float, what: str) -> float:
    if _finite(value, what) < 0:
        raise NonsenseError(f"{what} is {value:g}, which is less than nothing")
    return value


def _share(value: float) -> float:
    if not 0 <= _finite(value, "availability") <= 1:
        raise NonsenseError(f"an availability of {value:g} cannot be")
    return value


def _struct(data: Mapping[str, Any]) -> Struct:
    found = Struct()
    found.update(msgspec.to_builtins(dict(data)))
    return found


def plain(said: Struct) -> dict[str, Any]:
    """What a Struct holds; whole numbers, which it does not know, are such again."""
    return {name: _plain(value) for name, value in said.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return plain(value)
    if isinstance(value, ListValue):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
