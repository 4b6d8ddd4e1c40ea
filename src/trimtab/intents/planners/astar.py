"""The planner that comes with Trimtab: cheapest deeds by A*, best compromise, and giving back what is not needed.

What is missed is planned for; when nothing is missed, what can be spared is given back, but only as far as it is
nearly certain that nothing will be missed by it. What is unknown is not planned on: then only what keeps pods alive
is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import exp
from statistics import NormalDist
from typing import Annotated, ClassVar

import msgspec
from pydantic import Field

from trimtab.api.intent import Verdict
from trimtab.api.kpiprofile import KPIType
from trimtab.intents.actuator import Actuator, Safeguard
from trimtab.intents.constraints import EVERY, Limits
from trimtab.intents.cost import Prices
from trimtab.intents.effects.fit import complete
from trimtab.intents.effects.model import Effects
from trimtab.intents.objective import Goal
from trimtab.intents.plan import Alternative, Outcome, Plan, Purpose
from trimtab.intents.planner import Budget
from trimtab.intents.planners.search import Found, Problem, Search, Way
from trimtab.intents.state import State
from trimtab.plugins import Settings

_ALTERNATIVES = 3
Share = Annotated[float, Field(gt=0, lt=1)]


class AStarSettings(Settings):
    confidence: Annotated[float, Field(ge=0.5, lt=1)] = 0.7
    """How sure it must be that a plan meets what is missed. More sure is dearer."""
    release_confidence: Annotated[float, Field(ge=0.5, lt=1)] = 0.9
    """How sure it must be that nothing is missed when resources are given back."""
    headroom: Share = 0.25
    """How far from a miss objectives must stay when resources are given back."""
    least_saving: Share = 0.05
    """How much of its cost a workload must save by giving back; less is not worth the disturbance."""
    worth: Annotated[float, Field(gt=0)] = 20.0
    """What all of what is wanted is worth where not all can be had, in multiples of what the workload costs."""


class AStar:
    settings_type: ClassVar[type[AStarSettings]] = AStarSettings

    def __init__(self, settings: AStarSettings | None = None, *, prices: Prices | None = None) -> None:
        self._settings = settings or AStarSettings()
        self._prices = prices or Prices()

    def plan(  # noqa: PLR0911 - one return a reason
        self,
        state: State,
        goal: Goal,
        *,
        actuators: Sequence[Actuator],
        effects: Effects,
        limits: Limits,
        now: float,
        budget: Budget | None = None,
    ) -> Plan:
        budget = budget or Budget()
        if limits.freeze:
            return self._keep(state, goal, f"frozen: {limits.freeze}")
        allowed = [each for each in actuators if limits.allows(each.name, now=now)]
        alive = [each for each in actuators if limits.allows_safeguard(each.name, now=now)]
        if endangered := self._safeguards(state, goal, alive, limits, is_deadly=True):
            return endangered
        verdicts = {each.name: each.verdict(state.objectives.get(each.name)) for each in goal.objectives}
        unknown = [name for name, verdict in verdicts.items() if verdict is Verdict.UNKNOWN]
        if unknown:
            return self._keep(
                state, goal, f"unknown: {', '.join(unknown)}; nothing is done on what is not known"
            )
        if not allowed:
            rests = limits.resting.get(EVERY, now) > now
            why = "what was done last is yet to be judged" if rests else "no actuator may act now"
            return self._keep(state, goal, why)
        if starved := self._safeguards(state, goal, allowed, limits, is_deadly=False):
            return starved
        effects = complete(effects, goal, state)
        missed = [name for name, verdict in verdicts.items() if verdict is Verdict.MISSED]
        if missed:
            return self._reach(state, goal, allowed, effects, limits, budget)
        return self._release(state, goal, allowed, effects, limits, budget)

    def _reach(
        self,
        state: State,
        goal: Goal,
        actuators: Sequence[Actuator],
        effects: Effects,
        limits: Limits,
        budget: Budget,
    ) -> Plan:
        goal = msgspec.structs.replace(goal, sureness=_sureness(self._settings.confidence))
        found = self._search(state, goal, actuators, effects, limits, budget)
        why = [_told(each) for each in self._outcomes(state, goal) if each.verdict is not Verdict.MET]
        best = found.best
        if best.reached:
            return self._made(
                state,
                goal,
                found,
                Purpose.REACH,
                [*why, f"it is the cheapest of {found.looked_at} looked at"],
            )
        if not best.deeds:
            tried = self._try_more(state, goal, actuators, effects, limits) if limits.explore else None
            if tried is not None:
                why.append(
                    "nothing is sure to bring it nearer; a step that may is tried, to learn what it does"
                )
                found = Found(tried, (), found.looked_at, True)
                return self._made(state, goal, found, Purpose.COMPROMISE, why)
            why.append("nothing that may be done brings it nearer at a cost that is worth it")
            return self._made(state, goal, found, Purpose.KEEP, why)
        short = [_told(each) for each in self._outcomes(best.state, goal) if each.verdict is not Verdict.MET]
        why.append(f"a compromise: not everything can be met; still short: {'; '.join(short)}")
        return self._made(state, goal, found, Purpose.COMPROMISE, why)

    def _release(
        self,
        state: State,
        goal: Goal,
        actuators: Sequence[Actuator],
        effects: Effects,
        limits: Limits,
        budget: Budget,
    ) -> Plan:
        settings = self._settings
        sure = msgspec.structs.replace(
            goal,
            objectives=tuple(
                each.tightened(settings.headroom, _known(state, each.name)) for each in goal.objectives
            ),
            sureness=_sureness(settings.release_confidence),
            gives_back=True,
        )
        # A model moves in proportion, and of nothing there is none: how far that is from a miss cannot be told.
        blind = [each.name for each in goal.objectives if _known(state, each.name) <= 0]
        found = self._search(state, sure, actuators, effects, limits, budget)
        enough = settings.least_saving * self._prices.of(state)
        best = found.best
        if best.deeds and best.reached and not blind and -best.cost >= enough:
            why = [f"all is met with room to spare; {-best.cost:.3g} cores' worth is given back"]
            return self._made(state, goal, found, Purpose.RELEASE, why)
        # Where nothing tells, it would be taken down until it misses, and nobody know what helps against that; an availability
        # tells of pods that fail, and not of those that have too little.
        telling = [
            each
            for each in goal.objectives
            if each.name not in blind and each.kind is not KPIType.AVAILABILITY
        ]
        if limits.explore or (blind and telling):
            hopeful = msgspec.structs.replace(sure, sureness=0.0) if limits.explore else sure
            tried = self._try_a_little(state, hopeful, actuators, effects, limits)
            if tried is not None:
                why = ["all is met; a small step down is tried, to learn what it does"]
                return self._made(state, goal, Found(tried, (), found.looked_at, True), Purpose.RELEASE, why)
        return self._keep(
            state, goal, "all is met, and nothing can surely be spared", looked_at=found.looked_at
        )

    def _try_a_little(
        self, state: State, goal: Goal, actuators: Sequence[Actuator], effects: Effects, limits: Limits
    ) -> Way | None:
        """The smallest single step down that does no harm, as far as can be told."""
        problem = self._problem(state, goal, actuators, effects, limits)
        ways = Search(problem, Budget(states=0)).single_steps()
        saving = [way for way in ways if way.reached and way.cost < 0]
        return max(saving, key=lambda way: way.cost, default=None)

    def _try_more(
        self, state: State, goal: Goal, actuators: Sequence[Actuator], effects: Effects, limits: Limits
    ) -> Way | None:
        """The single step that is worth most if things are as good as they may be; None: even then none is worth it."""
        hopeful = msgspec.structs.replace(goal, sureness=-_sureness(self._settings.release_confidence))
        problem = self._problem(state, hopeful, actuators, effects, limits)
        best = Search(problem, Budget(states=0)).best_step()
        return best if best.deeds else None

    def _search(
        self,
        state: State,
        goal: Goal,
        actuators: Sequence[Actuator],
        effects: Effects,
        limits: Limits,
        budget: Budget,
    ) -> Found:
        return Search(self._problem(state, goal, actuators, effects, limits), budget).run()

    def _problem(
        self, state: State, goal: Goal, actuators: Sequence[Actuator], effects: Effects, limits: Limits
    ) -> Problem:
        worth = self._settings.worth * max(self._prices.of(state), 0.1)
        return Problem(state, goal, actuators, effects, limits, self._prices, worth)

    def _safeguards(
        self, state: State, goal: Goal, actuators: Sequence[Actuator], limits: Limits, *, is_deadly: bool
    ) -> Plan | None:
        found = [
            emergency
            for each in actuators
            if isinstance(each, Safeguard)
            and (emergency := each.safeguard(state, goal=goal, limits=limits)) is not None
            and emergency.is_deadly is is_deadly
            and limits.breach(state, emergency.deed.after) is None
        ]
        if not found:
            return None
        deed, why, _ = found[-1]
        return Plan(
            intent=goal.intent,
            purpose=Purpose.REACH,
            deeds=(deed,),
            urgent=is_deadly,
            why=(f"{why}: that comes before any objective",),
            outcomes=self._outcomes(deed.after, goal, before=state),
            cost=self._prices.of(deed.after) + deed.disruption,
            saved=self._prices.of(state) - self._prices.of(deed.after),
        )

    def _made(self, state: State, goal: Goal, found: Found, purpose: Purpose, why: Sequence[str]) -> Plan:
        price, best = self._prices.of(state), found.best
        return Plan(
            intent=goal.intent,
            purpose=purpose,
            deeds=best.deeds,
            why=tuple(why),
            outcomes=self._outcomes(best.state, goal, before=state),
            cost=price + best.cost,
            saved=-best.cost,
            utility=1.0 - best.missed / (self._settings.worth * max(price, 0.1)),
            proven=found.proven,
            alternatives=tuple(
                Alternative(
                    deeds=way.deeds,
                    outcomes=self._outcomes(way.state, goal, before=state),
                    cost=price + way.cost,
                    utility=1.0 - way.missed / (self._settings.worth * max(price, 0.1)),
                    meets=way.reached,
                )
                for way in found.others[:_ALTERNATIVES]
            ),
            expanded=found.looked_at,
        )

    def _keep(self, state: State, goal: Goal, why: str, *, looked_at: int = 0) -> Plan:
        return Plan(
            intent=goal.intent,
            purpose=Purpose.KEEP,
            why=(why,),
            outcomes=self._outcomes(state, goal),
            cost=self._prices.of(state),
            expanded=looked_at,
        )

    def _outcomes(self, state: State, goal: Goal, *, before: State | None = None) -> tuple[Outcome, ...]:
        found = []
        for each in goal.objectives:
            value = state.objectives.get(each.name)
            doubt = exp(goal.sureness * state.spread.get(each.name, 0.0))
            low, high = (None, None) if value is None else (value / doubt, value * doubt)
            found.append(
                Outcome(
                    objective=each.name,
                    now=(before or state).objectives.get(each.name),
                    expected=value,
                    low=low,
                    high=high,
                    wanted=each.value,
                    verdict=each.verdict(high if each.less_is_better else low),
                )
            )
        return tuple(found)


def _told(outcome: Outcome) -> str:
    return f"{outcome.objective} is {outcome.expected:.4g}, wanted {outcome.wanted:.4g}"


def _known(state: State, name: str) -> float:
    value = state.objectives[name]
    assert value is not None
    return value


@cache
def _sureness(confidence: float) -> float:
    """Standard deviations that a confidence is."""
    return NormalDist().inv_cdf(confidence)
