"""Learning: from the recorded states of an Intent to its effects, and from effects to stored data.

A learned model includes all inputs of an objective, because replicas, CPU and load cannot be separated; it is
stored under the group `learned`. A user's model for one group of actions is stored as static and takes precedence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trimtab.api.kpiprofile import KPIType
from trimtab.errors import TrimtabError
from trimtab.intents.effects import availability_model, latency_model, power_law_model
from trimtab.intents.effects.availability_model import AvailabilityModel
from trimtab.intents.effects.latency_model import LatencyModel
from trimtab.intents.effects.model import EffectModel, EffectModels
from trimtab.intents.effects.power_law_model import PowerLawModel
from trimtab.intents.effects.samples import EffectSample, extract_sample, extract_samples
from trimtab.intents.effects.user_models import decode_user_model
from trimtab.intents.objective import Goal, Objective
from trimtab.intents.state import TargetState
from trimtab.store.planner_records import Effect

TARGET_KEY = "target"
"""The key of the workload in the data of effects and events."""
LEARNED_GROUP = "learned"
"""The group of models that are not for one group of actions."""


def learn_effects(goal: Goal, history: Sequence[tuple[float, TargetState]], *, now: float) -> EffectModels:
    """Fit the effects to the states, which are given with their times, oldest first."""
    learned: dict[str, EffectModel] = {}
    for objective in goal.objectives:
        if objective.kind is KPIType.AVAILABILITY:
            learned[objective.name] = AvailabilityModel.fit_states(state for _, state in history)
        elif samples := extract_samples(history, objective.name):
            learned[objective.name] = _fit_model(objective, samples, now=now)
    return EffectModels(learned_models=learned)


def add_priors(effects: EffectModels, goal: Goal, state: TargetState) -> EffectModels:
    """Return the effects, with a prior from the current state for each objective without a model."""
    learned = dict(effects.learned_models)
    for objective in goal.objectives:
        if objective.name in learned:
            continue
        if objective.kind is KPIType.AVAILABILITY:
            learned[objective.name] = AvailabilityModel()
        elif sample := extract_sample(0.0, state, objective.name):
            # A prior is needed even while pods are starting: without one, removing pods would seem harmless.
            learned[objective.name] = (
                LatencyModel.from_prior(sample)
                if objective.kind is KPIType.LATENCY
                else PowerLawModel.from_prior(objective.kind, sample)
            )
    return EffectModels(learned_models=learned, user_models=effects.user_models)


def encode_effects(goal: Goal, effects: EffectModels, *, cluster: str, now: float) -> list[Effect]:
    """Encode the effects for the store, which keeps each as a new version."""
    profiles = {objective.name: objective.measured_by or objective.name for objective in goal.objectives}
    return [
        Effect(
            cluster=cluster,
            name=goal.intent,
            group=LEARNED_GROUP,
            profile_name=profiles[name],
            data={**model.encode(), TARGET_KEY: goal.target},
            timestamp=now,
        )
        for name, model in effects.learned_models.items()
        if name in profiles
    ]


def decode_effects(goal: Goal, kept: Iterable[Effect]) -> tuple[EffectModels, list[str]]:
    """Decode stored effects, newest first; also return a description of each that cannot be read."""
    learned: dict[str, EffectModel] = {}
    by_group: dict[tuple[str, str], EffectModel] = {}
    troubles = []
    names = {objective.measured_by or objective.name: objective.name for objective in goal.objectives}
    for effect in kept:
        name = names.get(effect.profile_name)
        if name is None:
            continue
        try:
            if effect.group == LEARNED_GROUP:
                if name not in learned and effect.data.get(TARGET_KEY, "") == goal.target:
                    learned[name] = _decode_model(effect)
            elif (name, effect.group) not in by_group:
                by_group[name, effect.group] = decode_user_model(effect.group, effect.data)
        except (TrimtabError, KeyError, TypeError, ValueError) as error:
            troubles.append(f"{effect.name}, {effect.profile_name}: {error}")
    return EffectModels(learned_models=learned, user_models=by_group), troubles


def _fit_model(objective: Objective, samples: Sequence[EffectSample], *, now: float) -> EffectModel:
    if objective.kind is KPIType.LATENCY:
        return LatencyModel.fit_samples(samples, now=now)
    return PowerLawModel.fit_samples(objective.kind, samples, now=now)


def _decode_model(effect: Effect) -> EffectModel:
    kinds: dict[str, Callable[[Mapping[str, Any]], EffectModel]] = {
        latency_model.KIND: LatencyModel.decode,
        power_law_model.KIND: PowerLawModel.decode,
        availability_model.KIND: AvailabilityModel.decode,
    }
    kind = str(effect.data.get("model"))
    if kind not in kinds:
        raise TrimtabError(f"model {kind!r} is not known; there are: {', '.join(sorted(kinds))}")
    return kinds[kind](effect.data)
