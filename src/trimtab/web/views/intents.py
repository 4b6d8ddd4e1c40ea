"""Intents as the pages show them: where objectives stand, what is planned, and what deeds are thought to do.

The curves are the models that plans are made by: each shows one objective over one knob, all else as it is now, with
the range in which the model expects it nine times of ten, and the states behind it as points.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from trimtab.api.intent import IntentSpec
from trimtab.intents.effects.model import Effects
from trimtab.intents.effects.samples import observed
from trimtab.intents.state import State
from trimtab.kube.kinds.custom import Intent, IntentKey
from trimtab.operator.state import Desk, IntentDesk
from trimtab.store import PlannerEvent, StoreError
from trimtab.web.model import Curve, EffectView, Factor, IntentView, ObjectiveView, Plot, Role, Values

MOST_EVENTS = 500
PLACES = 24
NINE_OF_TEN = 1.645
"""Standard deviations."""

Dated = tuple[float, State]


@dataclass(frozen=True, slots=True)
class _Past:
    """What was seen of an intent, as curves."""

    at: float
    generation: int
    over_time: Mapping[str, Plot]
    """By objective."""
    effects: tuple[EffectView, ...]


class IntentViews:
    """All intents that are looked after. What was seen of each is slow to read, and is kept for a while."""

    def __init__(self, *, fresh: float) -> None:
        """`fresh` is for how many seconds a past is shown before it is read again."""
        self._fresh = fresh
        self._pasts: dict[IntentKey, _Past] = {}
        self._turn = asyncio.Lock()

    async def of(self, desk: Desk, *, now: float) -> tuple[IntentView, ...]:
        known = desk.intents
        if known is None:
            return ()
        found = sorted(known.roll.intents, key=lambda intent: intent.key)
        async with self._turn:  # a page asks for its words and for its curves at the same time
            self._pasts = {intent.key: await self._past(desk, known, intent, now) for intent in found}
            return tuple(_view(intent, self._pasts[intent.key]) for intent in found)

    def forget_stale(self, now: float) -> None:
        """Let go of what would be read again anyway: of hundreds of intents it is tens of MiB, and nobody may be looking."""
        self._pasts = {key: past for key, past in self._pasts.items() if self._is_fresh(past, now)}

    def _is_fresh(self, past: _Past, now: float) -> bool:
        return now - past.at < self._fresh

    async def _past(self, desk: Desk, known: IntentDesk, intent: Intent, now: float) -> _Past:
        before = self._pasts.get(intent.key)
        if before and before.generation == intent.generation and self._is_fresh(before, now):
            return before
        spec = intent.spec
        if spec is None:
            return _Past(now, intent.generation, {}, ())
        try:
            events = await desk.store.events.find(cluster=desk.name, name=str(intent), limit=MOST_EVENTS)
        except StoreError:
            return _Past(float("-inf"), intent.generation, {}, ())
        states = _states(events)
        over_time = {
            each.name: _over_time(each.name, each.value, states) for each in spec.objectives if states
        }
        return _Past(now, intent.generation, over_time, _effects(known, intent, spec, states))


def _view(intent: Intent, past: _Past) -> IntentView:
    status: dict[str, Any] = msgspec.json.decode(intent.status) or {}
    spec = intent.spec
    if spec is None:
        return IntentView(namespace=intent.namespace, name=intent.name, state=intent.problem)
    plan = status.get("plan") or {}
    return IntentView(
        namespace=intent.namespace,
        name=intent.name,
        workload=str(intent.target),
        priority=spec.priority,
        state="active" if spec.active else "paused",
        objectives=_objectives(spec, status, past.over_time),
        plan=_plan(plan),
        effects=past.effects,
        planned=_seconds(plan.get("madeAt")),
    )


def _states(events: Sequence[PlannerEvent]) -> list[Dated]:
    """Oldest first; what cannot be read says nothing."""
    found = []
    for event in reversed(events):
        try:
            found.append((event.timestamp, observed(event)))
        except (TypeError, ValueError, msgspec.ValidationError):
            continue
    return found


def _objectives(
    spec: IntentSpec, status: dict[str, Any], over_time: Mapping[str, Plot]
) -> tuple[ObjectiveView, ...]:
    said = {each["name"]: each for each in status.get("objectives") or ()}
    met = {"Met": True, "Missed": False}
    return tuple(
        ObjectiveView(
            name=each.name,
            target=each.value,
            now=said.get(each.name, {}).get("current"),
            met=met.get(said.get(each.name, {}).get("verdict", "")),
            plot=over_time.get(each.name),
        )
        for each in spec.objectives
    )


def _over_time(name: str, target: float, states: Sequence[Dated]) -> Plot:
    return Plot(
        unit="",
        times=tuple(at for at, _ in states),
        curves=(
            Curve(role=Role.USED, name=name, values=tuple(state.objectives.get(name) for _, state in states)),
            Curve(role=Role.TARGET, name="wanted", values=(target,) * len(states)),
        ),
    )


def _plan(plan: dict[str, Any]) -> tuple[Factor, ...]:
    why = "; ".join(plan.get("why") or ()) or plan.get("withheld") or ""
    deeds = plan.get("deeds") or ()
    if not deeds:
        return (Factor(name=plan["purpose"], detail="nothing is to be done", source=why),) if plan else ()
    return tuple(
        Factor(
            name=each["actuator"],
            detail=(each.get("what") or "").removeprefix(each["actuator"]).strip(),
            source=why,
        )
        for each in deeds
    )


def _effects(
    known: IntentDesk, intent: Intent, spec: IntentSpec, states: Sequence[Dated]
) -> tuple[EffectView, ...]:
    if not states:
        return ()
    state = states[-1][1]
    effects = known.lessons.effects(known.observer.goal(intent, spec), state)
    found = []
    for objective in spec.objectives:
        name = objective.name
        if state.objectives.get(name) is None or name not in effects.learned:
            continue
        if state.cpu:
            amounts = [state.cpu * (0.3 + 2.2 * place / PLACES) for place in range(PLACES + 1)]
            found.append(_effect(effects, name, "cores a pod", states, amounts, _cpu, _with_cpu))
        most = max(4, 2 * state.replicas)
        counts = [float(count) for count in range(1, most + 1)]
        found.append(_effect(effects, name, "pods", states, counts, _pods, _with_pods))
    return tuple(found)


def _effect(
    effects: Effects,
    name: str,
    along: str,
    states: Sequence[Dated],
    amounts: Sequence[float],
    amount_of: Callable[[State], float | None],
    changed: Callable[[State, float], State],
) -> EffectView:
    state = states[-1][1]
    expected = effects.after(state, [changed(state, amount) for amount in amounts], group="")
    curve = {
        amount: (after.objectives.get(name), after.spread.get(name, 0.0))
        for amount, after in zip(amounts, expected, strict=True)
    }
    points: dict[float, float] = {}
    for _, seen in states:
        place, value = amount_of(seen), seen.objectives.get(name)
        if place is not None and value is not None and amounts[0] <= place <= amounts[-1]:
            points[place + len(points) * 1e-9] = value  # several at one amount are several points
    along_all = sorted({*curve, *points})

    def line(deviations: float) -> Values:
        return tuple(
            None if value is None else value * math.exp(deviations * spread)
            for value, spread in (curve.get(each, (None, 0.0)) for each in along_all)
        )

    return EffectView(
        name=f"{along} on {name}",
        points=len(points),
        plot=Plot(
            unit="",
            along=along,
            times=tuple(along_all),
            curves=(
                Curve(role=Role.LOW, name="low", values=line(-NINE_OF_TEN)),
                Curve(role=Role.HIGH, name="high", values=line(NINE_OF_TEN)),
                Curve(role=Role.ESTIMATE, name="expected", values=line(0.0)),
                Curve(role=Role.DATA, name="seen", values=tuple(points.get(each) for each in along_all)),
            ),
        ),
    )


def _cpu(state: State) -> float | None:
    return state.cpu


def _pods(state: State) -> float | None:
    return float(state.replicas)


def _with_cpu(state: State, cores: float) -> State:
    size = state.sizes[state.main]
    wanted = msgspec.structs.replace(
        size, cpu_request=cores, cpu_limit=None if size.cpu_limit is None else cores
    )
    return msgspec.structs.replace(
        state, sizes=(*state.sizes[: state.main], wanted, *state.sizes[state.main + 1 :])
    )


def _with_pods(state: State, count: float) -> State:
    return msgspec.structs.replace(state, replicas=int(count))


def _seconds(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None
