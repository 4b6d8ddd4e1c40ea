"""What an intent's status says: pure, from what was observed, planned and done, and what it said before.

The status is also the memory that matters: since when a verdict stands and when a plan was carried out outlive a
restart and another leader there. Times move only when what they are about does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trimtab.actuation.decide.clock_skew import AHEAD
from trimtab.api.fields import time_text
from trimtab.api.intent import Verdict
from trimtab.intents.action import Deed
from trimtab.intents.plan import Plan
from trimtab.kube.kinds.custom import Intent
from trimtab.operator.intents.observer import Observation

Document = dict[str, Any]

_LONGEST = 4096
_MOST = 16


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an intent in one turn."""

    plan: Plan | None = None
    planner: str = ""
    done: tuple[Deed, ...] = ()
    withheld: str = ""
    """Why the plan's deeds, or some of them, were not done."""
    rests: bool = False
    """Whether what was done before cannot be judged yet."""
    remarks: tuple[str, ...] = ()
    """What else people should know, such as what is left to an autoscaler."""
    killed: str = ""
    """Which of its containers were just OOM-killed, and what becomes of their memory; empty where none was."""


def status_of(observation: Observation, outcome: Outcome, *, before: Document, now: float) -> Document:
    """The status of an intent; `before` is the one that it has."""
    objectives = _objectives(observation, before, now)
    conditions = [
        _ready(observation),
        _met(objectives, outcome.killed),
        _condition("Acting", _acting(observation, outcome), *_told(observation, outcome)),
    ]
    found: Document = {
        "observedGeneration": observation.intent.generation,
        "conditions": _with_times(conditions, before, observation.intent, now),
        "objectives": objectives,
    }
    if plan := _plan(observation, outcome, before, now):
        found["plan"] = plan
    return found


def invalid_status(intent: Intent, *, before: Document, now: float) -> Document:
    """Of an intent that nothing can be made of."""
    ready = _condition("Ready", False, "SpecInvalid", intent.problem)
    return {
        "observedGeneration": intent.generation,
        "conditions": _with_times([ready], before, intent, now),
    }


def performed_at(status: Mapping[str, Any], *, now: float) -> float | None:
    """When the plan in a status was carried out."""
    return _moment((status.get("plan") or {}).get("performedAt"), now)


def met_since(status: Mapping[str, Any], *, now: float) -> float | None:
    """Since when all objectives are met; None where one is not."""
    objectives = status.get("objectives") or ()
    if not objectives or any(each.get("verdict") != Verdict.MET for each in objectives):
        return None
    return max(_moment(each.get("since"), now) or now for each in objectives)


def gist(status: Document) -> Document:
    """A status without the numbers that move all the time; the message of Met has none."""
    objectives = [
        {key: value for key, value in each.items() if key != "current"}
        for each in status.get("objectives") or ()
    ]
    conditions = [
        {key: value for key, value in each.items() if key != "message" or each["type"] == "Met"}
        for each in status.get("conditions") or ()
    ]
    return {**status, "objectives": objectives, "conditions": conditions}


def _objectives(observation: Observation, before: Document, now: float) -> list[Document]:
    known = {each["name"]: each for each in before.get("objectives") or ()}
    found = []
    for objective in observation.goal.objectives:
        reading = observation.readings[objective.name]
        verdict = objective.verdict(reading.value)
        old = known.get(objective.name, {})
        same = old.get("verdict") == verdict and _moment(old.get("since"), now) is not None
        entry: Document = {
            "name": objective.name,
            "wanted": objective.value,
            "verdict": verdict.value,
            "since": old["since"] if same else time_text(now),
        }
        if reading.value is not None:
            entry["current"] = _short(reading.value)
        if reading.why:
            entry["reason"] = reading.why[:_LONGEST]
        found.append(entry)
    return found


def _ready(observation: Observation) -> Document:
    if observation.trouble:
        return _condition("Ready", False, "TargetNotFound", observation.trouble)
    if not observation.spec.active:
        return _condition("Ready", True, "Inactive", "It only reports: active is false.")
    return _condition("Ready", True, "Observed", "Its objectives are looked after.")


def _met(objectives: Sequence[Document], killed: str) -> Document:
    """Whether the objectives are met as measured; OOM kills are told whether an objective shows them or not."""
    by_verdict = {
        verdict: [each["name"] for each in objectives if each["verdict"] == verdict] for verdict in Verdict
    }
    if missed := by_verdict[Verdict.MISSED]:
        return _condition("Met", False, "Missed", _with_kills(f"Missed: {', '.join(missed)}", killed))
    if unknown := by_verdict[Verdict.UNKNOWN]:
        message = _with_kills(f"Unknown: {', '.join(unknown)}", killed)
        return {**_condition("Met", False, "Unknown", message), "status": "Unknown"}
    if killed:
        message = _with_kills("All objectives are met as measured", killed)
        return _condition("Met", True, "AllMetButOOMKilled", message)
    return _condition("Met", True, "AllMet", "All objectives are met.")


def _with_kills(message: str, killed: str) -> str:
    return f"{message}, but {killed}."[:_LONGEST] if killed else f"{message}."


def _acting(observation: Observation, outcome: Outcome) -> bool:
    return observation.spec.active and bool(outcome.done)


def _told(observation: Observation, outcome: Outcome) -> tuple[str, str]:
    """Why something is done, or is not."""
    if outcome.withheld:
        reason = "Withheld"
    elif outcome.plan is None:
        reason = "NotPlanned"
    else:
        reason = outcome.plan.purpose.value
    words = [*(outcome.plan.why if outcome.plan else ()), *outcome.remarks]
    if outcome.withheld:
        words.insert(0, outcome.withheld)
    if not words:
        words = [observation.trouble or "there is nothing to do"]
    return reason, "; ".join(words)[:_LONGEST]


def _plan(observation: Observation, outcome: Outcome, before: Document, now: float) -> Document | None:
    """The last plan that had deeds: this one, or the one from before with what it brought."""
    plan = outcome.plan
    old: Document | None = before.get("plan")
    if plan is not None and plan.deeds:
        made = _made(plan, outcome, now)
        if not outcome.done and old and _says(old) == _says(made):
            return {**made, "madeAt": old["madeAt"]}
        return made if outcome.done or not _unjudged(old) else old
    if old is None or "performedAt" not in old:
        return None
    return _judged(old, observation, outcome, now)


def _made(plan: Plan, outcome: Outcome, now: float) -> Document:
    found: Document = {
        "purpose": plan.purpose.value,
        "madeAt": time_text(now),
        "planner": outcome.planner,
        "deeds": [{"actuator": deed.actuator, "what": deed.told()[:_LONGEST]} for deed in plan.deeds[:_MOST]],
        "why": [words[:_LONGEST] for words in plan.why[:_MOST]],
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
        found["performedAt"] = time_text(now)
    if outcome.withheld:
        found["withheld"] = outcome.withheld[:_LONGEST]
    return found


def _judged(plan: Document, observation: Observation, outcome: Outcome, now: float) -> Document:
    """With what its deeds brought, once the time to judge has come."""
    if "judgedAt" in plan or outcome.rests or not observation.is_known:
        return plan
    brought = {name: reading.value for name, reading in observation.readings.items()}
    effects = [
        {**each, "brought": _short(brought[each["objective"]])} if each["objective"] in brought else each
        for each in plan.get("effects") or ()
    ]
    return {**plan, "effects": effects, "judgedAt": time_text(now)}


def _unjudged(plan: Document | None) -> bool:
    return plan is not None and "performedAt" in plan and "judgedAt" not in plan


def _says(plan: Document) -> object:
    return plan.get("purpose"), plan.get("deeds"), plan.get("withheld")


def _condition(type_: str, holds: bool, reason: str, message: str) -> Document:  # noqa: FBT001 - as it reads
    return {"type": type_, "status": "True" if holds else "False", "reason": reason, "message": message}


def _with_times(
    conditions: Iterable[Document], before: Document, intent: Intent, now: float
) -> list[Document]:
    known = {each["type"]: each for each in before.get("conditions") or ()}
    found = []
    for condition in conditions:
        old = known.get(condition["type"])
        same = old is not None and old["status"] == condition["status"]
        since = old["lastTransitionTime"] if old and same else time_text(now)
        found.append({**condition, "lastTransitionTime": since, "observedGeneration": intent.generation})
    return found


def _without_none(**fields: Any) -> Document:
    return {
        name: _short(value) if isinstance(value, float) else value
        for name, value in fields.items()
        if value is not None
    }


def _short(value: float | None) -> float | None:
    """To as many digits as anybody reads."""
    return None if value is None else float(f"{value:.4g}")


def _moment(text: str | None, now: float) -> float | None:
    """None also for what has yet to come: a clock that was ahead has said so, and nobody waits for that."""
    moment = None if text is None else datetime.fromisoformat(text).timestamp()
    return moment if moment is not None and moment <= now + AHEAD else None
