"""Building of an Intent's status from the observation, the outcome and the previous status. Pure.

The status is also the persistent memory of the controller: times of verdicts and executed plans survive restarts
and leader changes there. A time changes only if its subject does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.actuation.deadlines import DEADLINES
from trimtab.api.fields import format_time, parse_time
from trimtab.api.intent import ObjectiveVerdict
from trimtab.api.meta import Document, build_condition, set_conditions
from trimtab.intents.actuator import IntentAction
from trimtab.intents.planner import Plan
from trimtab.kube.kinds.custom import IntentRecord
from trimtab.operator.intents.observer import IntentObservation

_MAX_TEXT_LENGTH = 4096
_MAX_LISTED = 16


@dataclass(frozen=True, slots=True)
class IntentOutcome:
    """The outcome of one cycle for an Intent."""

    plan: Plan | None = None
    planner: str = ""
    done: tuple[IntentAction, ...] = ()
    blocked_reason: str = ""
    """The reason why the plan's actions, or some of them, were not executed."""
    is_cooling_down: bool = False
    """True if the effect of the last actions cannot be evaluated yet."""
    remarks: tuple[str, ...] = ()
    """Additional remarks for users, such as the fields that an autoscaler controls."""
    oom_message: str = ""
    """A message about recent OOM kills and the resulting memory; empty if there were none."""


def build_intent_status(
    observation: IntentObservation, outcome: IntentOutcome, *, before: Document, now: float
) -> Document:
    """Build the status of an Intent; `before` is the current one."""
    objectives = _build_objectives(observation, before, now)
    conditions = [
        _ready_condition(observation),
        _met_condition(objectives, outcome.oom_message),
        _acting_condition(observation, outcome),
    ]
    generation = observation.intent.generation
    found: Document = {
        "observedGeneration": generation,
        "conditions": set_conditions(
            conditions, before.get("conditions") or (), now=now, generation=generation
        ),
        "objectives": objectives,
    }
    if plan := _build_plan(observation, outcome, before, now):
        found["plan"] = plan
    return found


def build_invalid_status(intent: IntentRecord, *, before: Document, now: float) -> Document:
    """Build the status of an Intent with an invalid spec."""
    ready = build_condition("Ready", holds=False, reason="SpecInvalid", message=intent.problem)
    return {
        "observedGeneration": intent.generation,
        "conditions": set_conditions(
            [ready], before.get("conditions") or (), now=now, generation=intent.generation
        ),
    }


def plan_executed_at(status: Mapping[str, Any], *, now: float) -> float | None:
    """Return the time at which the plan in a status was executed."""
    return _parse_past_time((status.get("plan") or {}).get("executedAt"), now)


def objectives_met_since(status: Mapping[str, Any], *, now: float) -> float | None:
    """Return the time since which all objectives are met; None if one is not."""
    objectives = status.get("objectives") or ()
    if not objectives or any(each.get("verdict") != ObjectiveVerdict.MET for each in objectives):
        return None
    return max(_parse_past_time(each.get("since"), now) or now for each in objectives)


def stable_fields(status: Document) -> Document:
    """Return a status without values that change all the time; the message of Met has none."""
    objectives = [
        {key: value for key, value in each.items() if key != "current"}
        for each in status.get("objectives") or ()
    ]
    conditions = [
        {key: value for key, value in each.items() if key != "message" or each["type"] == "Met"}
        for each in status.get("conditions") or ()
    ]
    return {**status, "objectives": objectives, "conditions": conditions}


def _build_objectives(observation: IntentObservation, before: Document, now: float) -> list[Document]:
    known = {each["name"]: each for each in before.get("objectives") or ()}
    found = []
    for objective in observation.goal.objectives:
        reading = observation.readings[objective.name]
        verdict = objective.evaluate(reading.value)
        old = known.get(objective.name, {})
        same = old.get("verdict") == verdict and _parse_past_time(old.get("since"), now) is not None
        entry: Document = {
            "name": objective.name,
            "target": objective.value,
            "verdict": verdict.value,
            "since": old["since"] if same else format_time(now),
        }
        if reading.value is not None:
            entry["current"] = _round_value(reading.value)
        if reading.reason:
            entry["reason"] = reading.reason[:_MAX_TEXT_LENGTH]
        found.append(entry)
    return found


def _ready_condition(observation: IntentObservation) -> Document:
    if observation.problem:
        reason, message = "TargetNotFound", observation.problem
    elif not observation.spec.active:
        reason, message = "Inactive", "The Intent only reports, because active is false."
    else:
        reason, message = "Observed", "The objectives are measured and planned for."
    return build_condition("Ready", holds=not observation.problem, reason=reason, message=message)


def _met_condition(objectives: Sequence[Document], killed: str) -> Document:
    """Build the Met condition from the measured objectives; OOM kills are always mentioned."""
    by_verdict = {
        verdict: [each["name"] for each in objectives if each["verdict"] == verdict]
        for verdict in ObjectiveVerdict
    }
    if missed := by_verdict[ObjectiveVerdict.MISSED]:
        message = _with_kills(f"Missed: {', '.join(missed)}", killed)
        return build_condition("Met", holds=False, reason="Missed", message=message)
    if unknown := by_verdict[ObjectiveVerdict.UNKNOWN]:
        message = _with_kills(f"Unknown: {', '.join(unknown)}", killed)
        return build_condition("Met", holds=None, reason="Unknown", message=message)
    if killed:
        message = _with_kills("All objectives are met as measured", killed)
        return build_condition("Met", holds=True, reason="AllMetButOOMKilled", message=message)
    return build_condition("Met", holds=True, reason="AllMet", message="All objectives are met.")


def _with_kills(message: str, killed: str) -> str:
    return f"{message}, but {killed}." if killed else f"{message}."


def _acting_condition(observation: IntentObservation, outcome: IntentOutcome) -> Document:
    if outcome.blocked_reason:
        reason = "Blocked"
    elif outcome.plan is None:
        reason = "NotPlanned"
    else:
        reason = outcome.plan.purpose.value
    words = [*(outcome.plan.why if outcome.plan else ()), *outcome.remarks]
    if outcome.blocked_reason:
        words.insert(0, outcome.blocked_reason)
    if not words:
        words = [observation.problem or "no action is needed"]
    is_acting = observation.spec.active and bool(outcome.done)
    return build_condition("Acting", holds=is_acting, reason=reason, message="; ".join(words))


def _build_plan(
    observation: IntentObservation, outcome: IntentOutcome, before: Document, now: float
) -> Document | None:
    """Return the last plan with actions: the new one, or the previous one with its observed effects."""
    plan = outcome.plan
    old: Document | None = before.get("plan")
    if plan is not None and plan.actions:
        made = _build_new_plan(plan, outcome, now)
        if not outcome.done and old and _plan_identity(old) == _plan_identity(made):
            return {**made, "madeAt": old["madeAt"]}
        return made if outcome.done or not _awaits_observation(old) else old
    if old is None or "executedAt" not in old:
        return None
    return _add_observed_effects(old, observation, outcome, now)


def _build_new_plan(plan: Plan, outcome: IntentOutcome, now: float) -> Document:
    found: Document = {
        "purpose": plan.purpose.value,
        "madeAt": format_time(now),
        "planner": outcome.planner,
        "actions": [
            {"actuator": action.actuator, "description": action.describe()[:_MAX_TEXT_LENGTH]}
            for action in plan.actions[:_MAX_LISTED]
        ],
        "reasons": [words[:_MAX_TEXT_LENGTH] for words in plan.why[:_MAX_LISTED]],
        "effects": [
            _without_none(
                objective=each.objective,
                before=each.now,
                expected=each.expected,
                low=each.low,
                high=each.high,
            )
            for each in plan.outcomes
        ],
    }
    if outcome.done:
        found["executedAt"] = format_time(now)
    if outcome.blocked_reason:
        found["blockedReason"] = outcome.blocked_reason[:_MAX_TEXT_LENGTH]
    return found


def _add_observed_effects(
    plan: Document, observation: IntentObservation, outcome: IntentOutcome, now: float
) -> Document:
    """Add the observed effects to a plan once the cool-down is over."""
    if "evaluatedAt" in plan or outcome.is_cooling_down or not observation.is_known:
        return plan
    observed = {name: reading.value for name, reading in observation.readings.items()}
    effects = [
        {**each, "observed": _round_value(observed[each["objective"]])}
        if each["objective"] in observed
        else each
        for each in plan.get("effects") or ()
    ]
    return {**plan, "effects": effects, "evaluatedAt": format_time(now)}


def _awaits_observation(plan: Document | None) -> bool:
    return plan is not None and "executedAt" in plan and "evaluatedAt" not in plan


def _plan_identity(plan: Document) -> object:
    return plan.get("purpose"), plan.get("actions"), plan.get("blockedReason")


def _without_none(**fields: Any) -> Document:
    return {
        name: _round_value(value) if isinstance(value, float) else value
        for name, value in fields.items()
        if value is not None
    }


def _round_value(value: float | None) -> float | None:
    """Round to four significant digits."""
    return None if value is None else float(f"{value:.4g}")


def _parse_past_time(text: str | None, now: float) -> float | None:
    """Parse a time; None for a time in the future, which a wrong clock has written."""
    moment = parse_time(text)
    return moment if moment is not None and moment <= now + DEADLINES.clock_skew else None
