"""Goal: what an intent wants, as its profiles measure it and as far as the administrators let it be urgent."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.api.intent import IntentSpec
from trimtab.intents.kpi.measure import Measure
from trimtab.intents.objective import Goal, Objective
from trimtab.operator.intents.settings import IntentSettings


def goal_of(
    name: str,
    spec: IntentSpec,
    *,
    namespace: str,
    measure: Callable[[str], Measure],
    settings: IntentSettings,
    target_uid: str = "",
) -> Goal:
    """Make the goal of an intent by its full name; `measure` says how what a KPIProfile names is measured."""
    objectives = []
    for each in spec.objectives:
        how = measure(each.measured_by)
        objectives.append(
            Objective(
                name=each.name,
                value=each.value,
                kind=how.type,
                less_is_better=how.less_is_better,
                tolerance=each.tolerance,
                weight=settings.utilities.get(how.type, 1.0),
                measured_by=each.measured_by,
            )
        )
    most = min((each.max_priority for each in settings.guardrails_of(namespace)), default=1.0)
    return Goal(
        intent=name,
        target=f"{spec.target_ref.kind}/{spec.target_ref.name} {target_uid}",
        objectives=tuple(objectives),
        priority=min(spec.priority, most),
    )
