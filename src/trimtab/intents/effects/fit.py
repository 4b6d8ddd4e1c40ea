"""Learning: from what was recorded of an intent to its effects, and from effects to what the store keeps.

A learned model is one of everything that moves an objective, since replicas, CPU and load cannot be told apart: it
is kept under the group `learned`. A model that a person gave for one group of deeds is kept as static, and wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trimtab.api.kpiprofile import KPIType
from trimtab.errors import TrimtabError
from trimtab.intents.effects import availability_model, latency_model, power_law_model
from trimtab.intents.effects.availability_model import Serving
from trimtab.intents.effects.latency_model import Service
from trimtab.intents.effects.model import Effects, Model
from trimtab.intents.effects.power_law_model import Elastic
from trimtab.intents.effects.samples import Sample, sample, samples
from trimtab.intents.effects.user_models import given
from trimtab.intents.objective import Goal, Objective
from trimtab.intents.state import State
from trimtab.store.effects import Effect

TARGET = "target"
"""In the data of effects and events: the workload that they are about."""
LEARNED = "learned"
"""The group of models that are not of one group of deeds."""


def learn(goal: Goal, history: Sequence[tuple[float, State]], *, now: float) -> Effects:
    """The effects that were seen: states with the time that each was measured at, oldest first."""
    learned: dict[str, Model] = {}
    for objective in goal.objectives:
        if objective.kind is KPIType.AVAILABILITY:
            learned[objective.name] = Serving.learn(state for _, state in history)
        elif seen := samples(history, objective.name):
            learned[objective.name] = _learned(objective, seen, now=now)
    return Effects(learned=learned)


def complete(effects: Effects, goal: Goal, state: State) -> Effects:
    """These effects, with a guess from the present for each objective of which nothing is known yet."""
    learned = dict(effects.learned)
    for objective in goal.objectives:
        if objective.name in learned:
            continue
        if objective.kind is KPIType.AVAILABILITY:
            learned[objective.name] = Serving()
        elif seen := sample(0.0, state, objective.name):
            # Also while pods are coming up: without any guess, taking pods away would seem to do no harm.
            learned[objective.name] = (
                Service.guess(seen)
                if objective.kind is KPIType.LATENCY
                else Elastic.guess(objective.kind, seen)
            )
    return Effects(learned=learned, given=effects.given)


def remembered(goal: Goal, effects: Effects, *, cluster: str, now: float) -> list[Effect]:
    """What the store is to keep of them: each time it is kept is a version."""
    profiles = {objective.name: objective.measured_by or objective.name for objective in goal.objectives}
    return [
        Effect(
            cluster=cluster,
            name=goal.intent,
            group=LEARNED,
            profile_name=profiles[name],
            data={**model.data(), TARGET: goal.target},
            timestamp=now,
        )
        for name, model in effects.learned.items()
        if name in profiles
    ]


def recalled(goal: Goal, kept: Iterable[Effect]) -> tuple[Effects, list[str]]:
    """The effects that the store kept, newest first; and what of them could not be read, in words for people."""
    learned: dict[str, Model] = {}
    by_group: dict[tuple[str, str], Model] = {}
    troubles = []
    names = {objective.measured_by or objective.name: objective.name for objective in goal.objectives}
    for effect in kept:
        name = names.get(effect.profile_name)
        if name is None:
            continue
        try:
            if effect.group == LEARNED:
                if name not in learned and effect.data.get(TARGET, "") == goal.target:
                    learned[name] = _read(effect)
            elif (name, effect.group) not in by_group:
                by_group[name, effect.group] = given(effect.group, effect.data)
        except (TrimtabError, KeyError, TypeError, ValueError) as error:
            troubles.append(f"{effect.name}, {effect.profile_name}: {error}")
    return Effects(learned=learned, given=by_group), troubles


def _learned(objective: Objective, seen: Sequence[Sample], *, now: float) -> Model:
    if objective.kind is KPIType.LATENCY:
        return Service.learn(seen, now=now)
    return Elastic.learn(objective.kind, seen, now=now)


def _read(effect: Effect) -> Model:
    kinds: dict[str, Callable[[Mapping[str, Any]], Model]] = {
        latency_model.KIND: Service.read,
        power_law_model.KIND: Elastic.read,
        availability_model.KIND: Serving.read,
    }
    kind = str(effect.data.get("model"))
    if kind not in kinds:
        raise TrimtabError(f"model {kind!r} is not known; there are: {', '.join(sorted(kinds))}")
    return kinds[kind](effect.data)
