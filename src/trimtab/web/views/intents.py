"""Build the views of Intents: the state of objectives, the plan, and the learned effects of actions.

The curves are the effect models of the planner: each shows one objective over one setting, everything else unchanged,
with the 90 % range of the prediction and the observed states as points.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from trimtab.api.fields import parse_time
from trimtab.api.intent import IntentSpec
from trimtab.intents.effects.fit import add_priors
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.effects.samples import decode_state
from trimtab.intents.objective import Objective
from trimtab.intents.state import TargetState
from trimtab.kube.kinds.custom import IntentKey
from trimtab.operator.views import OperatorViews, PublishedIntent
from trimtab.store import PlannerEvent, StoreError
from trimtab.timing import is_recent
from trimtab.web.model import (
    Curve,
    CurveRole,
    CurveValues,
    EffectView,
    FactorView,
    IntentView,
    ObjectiveView,
    Plot,
)

MAX_EVENTS = 500
CURVE_POINTS = 24
STDDEVS_90 = 1.645
"""The standard deviations of a 90 % range."""

TimedState = tuple[float, TargetState]


@dataclass(frozen=True, slots=True)
class _CachedIntent:
    """The cached curves of an Intent."""

    at: float
    generation: int
    objective_plots: Mapping[str, Plot]
    """The plots over time, by objective."""
    effects: tuple[EffectView, ...]


class IntentViewCache:
    """Builds the views of all Intents; caches their observed states, which are slow to read."""

    def __init__(self, *, fresh: float) -> None:
        """Create a cache; `fresh` is the number of seconds for which curves are cached."""
        self._ttl = fresh
        self._cache: dict[IntentKey, _CachedIntent] = {}
        self._lock = asyncio.Lock()

    async def get_all(self, views: OperatorViews, *, now: float) -> tuple[IntentView, ...]:
        found = views.intents.read()
        async with self._lock:  # a page requests its text and its curves at the same time
            self._cache = {each.record.key: await self._load(views, each, now) for each in found}
            return tuple(_build_view(each, self._cache[each.record.key]) for each in found)

    def drop_stale(self, now: float) -> None:
        """Drop expired curves: for hundreds of Intents they take tens of MiB, and maybe nobody is watching."""
        self._cache = {key: cached for key, cached in self._cache.items() if self._is_fresh(cached, now)}

    def _is_fresh(self, cached: _CachedIntent, now: float) -> bool:
        return is_recent(cached.at, now, within=self._ttl)

    async def _load(self, views: OperatorViews, published: PublishedIntent, now: float) -> _CachedIntent:
        intent = published.record
        before = self._cache.get(intent.key)
        if before and before.generation == intent.generation and self._is_fresh(before, now):
            return before
        spec = intent.spec
        if spec is None:
            return _CachedIntent(now, intent.generation, {}, ())
        try:
            events = await views.store.events.find(
                cluster=views.cluster_name, name=str(intent), limit=MAX_EVENTS
            )
        except StoreError:
            # Expired at once, so that the next page asks the store again.
            return _CachedIntent(float("-inf"), intent.generation, {}, ())
        states = _parse_states(events)
        known = _list_objectives(published)
        objective_plots = {
            each.name: _plot_objective(
                each.name, each.value, states, unit=known.get(each.name, _UNKNOWN).unit
            )
            for each in spec.objectives
            if states
        }
        return _CachedIntent(now, intent.generation, objective_plots, _build_effects(published, spec, states))


_UNKNOWN = Objective(name="", value=0.0)


def _list_objectives(published: PublishedIntent) -> dict[str, Objective]:
    """List the objectives of the goal by their names; they have the units and descriptions of their KPIs."""
    return {each.name: each for each in published.goal.objectives} if published.goal else {}


def _build_view(published: PublishedIntent, cached: _CachedIntent) -> IntentView:
    intent = published.record
    status, spec = intent.read_status(), intent.spec
    if spec is None:
        return IntentView(namespace=intent.namespace, name=intent.name, state=intent.problem)
    plan = status.get("plan") or {}
    return IntentView(
        namespace=intent.namespace,
        name=intent.name,
        workload=str(intent.target),
        priority=spec.priority,
        state="active" if spec.active else "paused",
        objectives=_build_objectives(spec, status, cached.objective_plots, _list_objectives(published)),
        plan=_build_plan(plan),
        effects=cached.effects,
        planned=parse_time(plan.get("madeAt")),
    )


def _parse_states(events: Sequence[PlannerEvent]) -> list[TimedState]:
    """Parse the states, oldest first; unreadable ones are skipped."""
    found = []
    for event in reversed(events):
        try:
            found.append((event.timestamp, decode_state(event)))
        except (TypeError, ValueError, msgspec.ValidationError):
            continue
    return found


def _build_objectives(
    spec: IntentSpec,
    status: dict[str, Any],
    objective_plots: Mapping[str, Plot],
    known: Mapping[str, Objective],
) -> tuple[ObjectiveView, ...]:
    statuses = {each["name"]: each for each in status.get("objectives") or ()}
    met = {"Met": True, "Missed": False}
    return tuple(
        ObjectiveView(
            name=each.name,
            unit=known.get(each.name, _UNKNOWN).unit,
            description=known.get(each.name, _UNKNOWN).description,
            target=each.value,
            now=statuses.get(each.name, {}).get("current"),
            met=met.get(statuses.get(each.name, {}).get("verdict", "")),
            plot=objective_plots.get(each.name),
        )
        for each in spec.objectives
    )


def _plot_objective(name: str, target: float, states: Sequence[TimedState], *, unit: str) -> Plot:
    return Plot(
        unit=unit,
        times=tuple(at for at, _ in states),
        curves=(
            Curve(
                role=CurveRole.USED,
                name=name,
                values=tuple(state.objectives.get(name) for _, state in states),
            ),
            Curve(role=CurveRole.TARGET, name="target", values=(target,) * len(states)),
        ),
    )


def _build_plan(plan: dict[str, Any]) -> tuple[FactorView, ...]:
    why = "; ".join(plan.get("reasons") or ()) or plan.get("blockedReason") or ""
    actions = plan.get("actions") or ()
    if not actions:
        return (FactorView(name=plan["purpose"], detail="no action needed", source=why),) if plan else ()
    return tuple(
        FactorView(
            name=each["actuator"],
            detail=(each.get("description") or "").removeprefix(each["actuator"]).strip(),
            source=why,
        )
        for each in actions
    )


def _build_effects(
    published: PublishedIntent, spec: IntentSpec, states: Sequence[TimedState]
) -> tuple[EffectView, ...]:
    if not states or published.goal is None:
        return ()
    state = states[-1][1]
    effects = add_priors(published.effects, published.goal, state)
    known = _list_objectives(published)
    found = []
    for objective in spec.objectives:
        name, unit = objective.name, known.get(objective.name, _UNKNOWN).unit
        if state.objectives.get(name) is None or name not in effects.learned_models:
            continue
        if state.cpu:
            amounts = [state.cpu * (0.3 + 2.2 * place / CURVE_POINTS) for place in range(CURVE_POINTS + 1)]
            found.append(
                _plot_effect(effects, name, "cores per pod", unit, states, amounts, _get_cpu, _with_cpu)
            )
        most = max(4, 2 * state.replicas)
        counts = [float(count) for count in range(1, most + 1)]
        found.append(_plot_effect(effects, name, "pods", unit, states, counts, _get_pods, _with_pods))
    return tuple(found)


def _plot_effect(
    effects: EffectModels,
    name: str,
    along: str,
    unit: str,
    states: Sequence[TimedState],
    amounts: Sequence[float],
    get_amount: Callable[[TargetState], float | None],
    with_amount: Callable[[TargetState, float], TargetState],
) -> EffectView:
    state = states[-1][1]
    expected = effects.predict(state, [with_amount(state, amount) for amount in amounts], group="")
    curve = {
        amount: (after.objectives.get(name), after.log_spread.get(name, 0.0))
        for amount, after in zip(amounts, expected, strict=True)
    }
    points: dict[float, float] = {}
    for _, observed in states:
        place, value = get_amount(observed), observed.objectives.get(name)
        if place is not None and value is not None and amounts[0] <= place <= amounts[-1]:
            points[place + len(points) * 1e-9] = value  # keep several points at the same amount
    along_all = sorted({*curve, *points})

    def line(deviations: float) -> CurveValues:
        return tuple(
            None if value is None else value * math.exp(deviations * spread)
            for value, spread in (curve.get(each, (None, 0.0)) for each in along_all)
        )

    return EffectView(
        name=f"{along} on {name}",
        points=len(points),
        plot=Plot(
            unit=unit,
            along=along,
            times=tuple(along_all),
            curves=(
                Curve(role=CurveRole.LOW, name="low", values=line(-STDDEVS_90)),
                Curve(role=CurveRole.HIGH, name="high", values=line(STDDEVS_90)),
                Curve(role=CurveRole.ESTIMATE, name="expected", values=line(0.0)),
                Curve(
                    role=CurveRole.DATA, name="observed", values=tuple(points.get(each) for each in along_all)
                ),
            ),
        ),
    )


def _get_cpu(state: TargetState) -> float | None:
    return state.cpu


def _get_pods(state: TargetState) -> float | None:
    return float(state.replicas)


def _with_cpu(state: TargetState, cores: float) -> TargetState:
    size = state.sizes[state.main]
    wanted = msgspec.structs.replace(
        size, cpu_request=cores, cpu_limit=None if size.cpu_limit is None else cores
    )
    return msgspec.structs.replace(
        state, sizes=(*state.sizes[: state.main], wanted, *state.sizes[state.main + 1 :])
    )


def _with_pods(state: TargetState, count: float) -> TargetState:
    return msgspec.structs.replace(state, replicas=int(count))
