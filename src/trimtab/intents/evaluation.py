"""Evaluation: replay recorded events one by one, each with what was learned until then.

At each event the next measurement is predicted from the next state: by the learned model, by the prior, and by the
assumption that nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from trimtab.api.kpiprofile import KPIType
from trimtab.intents.actuator import Actuator
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.fit import add_priors, learn_effects
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.ido_import import RecordedEvent
from trimtab.intents.planner import Plan, Planner


class LatencyForecast(NamedTuple):
    """Predictions of the next measurement of a latency, and its measured value."""

    learned: float
    guessed: float
    unchanged: float
    measured: float


class ReplayedEvent(NamedTuple):
    event: RecordedEvent
    plan: Plan
    samples: int
    """The number of events that were learned from."""
    forecasts: tuple[LatencyForecast, ...]


def replay(
    events: Sequence[RecordedEvent],
    *,
    planner: Planner,
    actuators: Sequence[Actuator],
    limits: PlanConstraints | None = None,
    given: EffectModels | None = None,
) -> list[ReplayedEvent]:
    """Plan for each event; `given` are users' effects."""
    given = given or EffectModels()
    replayed = []
    for index, event in enumerate(events):
        known = [(each.at, each.state) for each in events[: index + 1]]
        learned = learn_effects(event.goal, known, now=event.at)
        effects = EffectModels(
            learned_models={**given.learned_models, **learned.learned_models}, user_models=given.user_models
        )
        plan = planner.plan(
            event.state,
            event.goal,
            actuators=actuators,
            effects=effects,
            limits=limits or PlanConstraints(),
            now=event.at,
        )
        after = events[index + 1] if index + 1 < len(events) else None
        replayed.append(ReplayedEvent(event, plan, len(known), _forecast_next(event, after, effects)))
    return replayed


def median_error(forecasts: Sequence[LatencyForecast], which: int) -> float:
    """Return the median relative error of forecasts."""
    off = [abs(log(each[which] / each.measured)) for each in forecasts]
    return exp(float(np.median(off))) - 1 if off else float("nan")


def _forecast_next(
    event: RecordedEvent, after: RecordedEvent | None, effects: EffectModels
) -> tuple[LatencyForecast, ...]:
    if after is None:
        return ()
    state = event.state
    changed = replace(after.state, objectives=state.objectives)
    (learned,) = add_priors(effects, event.goal, state).predict(state, [changed], group="")
    (guessed,) = add_priors(EffectModels(), event.goal, state).predict(state, [changed], group="")
    found = []
    for objective in event.goal.objectives:
        now, then = (each.objectives.get(objective.name) for each in (state, after.state))
        if objective.kind is KPIType.LATENCY and now and then:
            found.append(
                LatencyForecast(
                    learned.objectives[objective.name] or now,
                    guessed.objectives[objective.name] or now,
                    now,
                    then,
                )
            )
    return tuple(found)
