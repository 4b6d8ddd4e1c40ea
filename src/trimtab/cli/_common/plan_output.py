"""Render the preview of a plan for people and for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trimtab.api.quantity import format_short
from trimtab.intents.actuator import IntentAction
from trimtab.intents.planner import ExpectedOutcome, Purpose
from trimtab.operator.intents.preview import PlanPreview
from trimtab.plural import pluralize

_PURPOSES = {
    Purpose.REACH: "meet the missed objectives",
    Purpose.RELEASE: "release resources that are not needed",
    Purpose.COMPROMISE: "best effort: not all objectives can be met",
    Purpose.YIELD: "yield to an Intent with a higher priority",
    Purpose.KEEP: "no change",
}


def render_preview(found: PlanPreview, *, width: int) -> Iterator[RenderableType]:
    """Render the preview for a terminal."""
    goal, plan, state = found.goal, found.plan, found.state
    yield Text(f"Intent {goal.intent}, priority {goal.priority:g}", style="bold")
    yield Text(f"now: {_format_size(found)}" + (f", load {state.load:.4g}" if state.load is not None else ""))
    yield _build_objective_table(found)
    yield Text(f"Plan: {_PURPOSES[plan.purpose]}", style="bold")
    for action in plan.actions:
        yield Text(f"  {action.describe()}"[:width])
    for why in (*plan.why, *found.unknown, *found.remarks):
        yield Text(f"  because {why}")
    yield Text(
        f"  costs {plan.cost:.3g} cores an hour, {abs(plan.saved):.3g} {'less' if plan.saved >= 0 else 'more'} than now;"
        f" {plan.expanded_states} states examined in {found.duration * 1000:.1f} ms"
        + ("" if plan.is_optimal else "; a better one may exist")
    )
    if plan.alternatives:
        yield Text("Alternatives", style="bold")
        yield _build_alternative_table(found)


def build_document(found: PlanPreview) -> dict[str, Any]:
    """Build the document for programs."""
    made: dict[str, Any] = {
        "intent": found.goal.intent,
        "priority": found.goal.priority,
        "state": msgspec.to_builtins(found.state),
        "constraints": {
            name: value
            for name, value in msgspec.to_builtins(found.constraints).items()
            if not (isinstance(value, float) and math.isinf(value))
        },
        "plan": msgspec.to_builtins(found.plan),
        "unknown": list(found.unknown),
        "remarks": list(found.remarks),
        "seconds": found.duration,
    }
    return made


def _build_objective_table(found: PlanPreview) -> Table:
    table = Table("objective", "now", "target", "verdict", "expected", "range", box=None, pad_edge=False)
    outcomes = {each.objective: each for each in found.plan.outcomes}
    for objective in found.goal.objectives:
        now = found.state.objectives.get(objective.name)
        outcome = outcomes.get(objective.name)
        sign = "≤" if objective.less_is_better else "≥"
        table.add_row(
            objective.name,
            _format_number(now),
            f"{sign} {objective.value:g}",
            objective.evaluate(now).value,
            _format_number(outcome.expected if outcome else None),
            _format_range(outcome),
        )
    return table


def _build_alternative_table(found: PlanPreview) -> Table:
    table = Table("actions", "expected", "cost", "meets all", box=None, pad_edge=False)
    for each in found.plan.alternatives:
        table.add_row(
            Text(_format_actions(each.actions)),
            _format_expected(each.outcomes),
            f"{each.cost:.3g}",
            "yes" if each.meets_all else "no",
        )
    return table


def _format_actions(actions: Sequence[IntentAction]) -> str:
    return "; ".join(action.describe() for action in actions) or "none"


def _format_expected(outcomes: Iterable[ExpectedOutcome]) -> str:
    return ", ".join(f"{each.objective} {_format_number(each.expected)}" for each in outcomes)


def _format_range(outcome: ExpectedOutcome | None) -> str:
    if outcome is None or outcome.low is None or outcome.high is None:
        return ""
    return f"{outcome.low:.4g} … {outcome.high:.4g}"


def _format_number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _format_size(found: PlanPreview) -> str:
    state = found.state
    cpu, memory = state.cpu, state.memory
    size = [format_short("cpu", cpu * 1000) if cpu else "", format_short("memory", memory) if memory else ""]
    each = " and ".join(part for part in size if part)
    return pluralize(state.replicas, "pod") + (f" of {each}" if each else "")
