"""The built-in planner: the cheapest actions by A*, the best compromise, or a release of unneeded resources.

Missed objectives are planned for first. If none is missed, resources are released as far as it is nearly certain
that no objective will be missed. Unknown objectives allow only safeguards.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import exp
from statistics import NormalDist
from typing import Annotated, ClassVar

import msgspec
from pydantic import AliasChoices, Field

from trimtab.api.intent import ObjectiveVerdict
from trimtab.api.kpiprofile import KPIType
from trimtab.intents.actuator import Actuator, Safeguard
from trimtab.intents.constraints import ALL_ACTUATORS, PlanConstraints
from trimtab.intents.effects.fit import add_priors
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal
from trimtab.intents.planner import ExpectedOutcome, Plan, PlanAlternative, Purpose, SearchBudget
from trimtab.intents.planners.search import ResourceCosts, Search, SearchNode, SearchProblem, SearchResult
from trimtab.intents.state import TargetState
from trimtab.plugins import Settings

_MAX_ALTERNATIVES = 3
Fraction = Annotated[float, Field(gt=0, lt=1)]


class AStarSettings(Settings):
    confidence: Annotated[float, Field(ge=0.5, lt=1)] = 0.7
    """The confidence that a plan meets the missed objectives. A higher confidence costs more."""
    release_confidence: Annotated[float, Field(ge=0.5, lt=1)] = 0.9
    """The confidence that no objective is missed after a release."""
    headroom: Fraction = 0.25
    """The margin from a miss that objectives must keep during a release."""
    min_saving: Fraction = Field(
        default=0.05, validation_alias=AliasChoices("min_saving", "least_saving"), gt=0, lt=1
    )
    """The share of a workload's cost that a release must save at least to be worth the disruption."""
    full_utility_cost: float = Field(
        default=20.0, validation_alias=AliasChoices("full_utility_cost", "worth"), gt=0
    )
    """The cost that meeting all objectives is worth when not all can be met, in multiples of the workload's cost."""


class AStar:
    settings_type: ClassVar[type[AStarSettings]] = AStarSettings

    def __init__(self, settings: AStarSettings | None = None, *, costs: ResourceCosts | None = None) -> None:
        self._settings = settings or AStarSettings()
        self._costs = costs or ResourceCosts()

    def plan(  # noqa: PLR0911 - one return a reason
        self,
        state: TargetState,
        goal: Goal,
        *,
        actuators: Sequence[Actuator],
        effects: EffectModels,
        limits: PlanConstraints,
        now: float,
        budget: SearchBudget | None = None,
    ) -> Plan:
        budget = budget or SearchBudget()
        if limits.freeze:
            return self._keep(state, goal, f"frozen: {limits.freeze}")
        allowed = [each for each in actuators if limits.allows(each.name, now=now)]
        safeguard_actuators = [each for each in actuators if limits.allows_safeguard(each.name, now=now)]
        # Before objectives and cool-downs: a pod that is about to run out of memory is killed whatever the
        # objectives say, and its metrics may be unknown just because it crashes.
        if safeguard := self._plan_safeguard(state, goal, safeguard_actuators, limits, is_deadly=True):
            return safeguard
        verdicts = {each.name: each.evaluate(state.objectives.get(each.name)) for each in goal.objectives}
        unknown = [name for name, verdict in verdicts.items() if verdict is ObjectiveVerdict.UNKNOWN]
        if unknown:
            return self._keep(
                state,
                goal,
                f"unknown: {', '.join(unknown)}, as the status of the Intent explains; no action is taken while an objective is unknown",
            )
        if not allowed:
            is_cooling_down = limits.cooldown_until.get(ALL_ACTUATORS, now) > now
            reason = (
                "the effect of the last action is not known yet (cool-down)"
                if is_cooling_down
                else "every actuator is blocked at the moment"
            )
            return self._keep(state, goal, reason)
        # Only with known objectives: saturated CPU slows pods down and kills none, so it can wait for a
        # measurement.
        if cpu_safeguard := self._plan_safeguard(state, goal, allowed, limits, is_deadly=False):
            return cpu_safeguard
        effects = add_priors(effects, goal, state)
        missed = [name for name, verdict in verdicts.items() if verdict is ObjectiveVerdict.MISSED]
        if missed:
            return self._reach(state, goal, allowed, effects, limits, budget)
        return self._release(state, goal, allowed, effects, limits, budget)

    def _reach(
        self,
        state: TargetState,
        goal: Goal,
        actuators: Sequence[Actuator],
        effects: EffectModels,
        limits: PlanConstraints,
        budget: SearchBudget,
    ) -> Plan:
        # Expected values alone would take an action that helps in half of all cases.
        goal = msgspec.structs.replace(goal, z_score=_z_score(self._settings.confidence))
        found = self._search(state, goal, actuators, effects, limits, budget)
        reason = [
            _format_outcome(each)
            for each in self._expected_outcomes(state, goal)
            if each.verdict is not ObjectiveVerdict.MET
        ]
        best = found.best
        if best.is_reached:
            return self._build_plan(
                state,
                goal,
                found,
                Purpose.REACH,
                [*reason, f"this plan is the cheapest of {found.expanded_states} that were examined"],
            )
        if not best.actions:
            tried = (
                self._best_exploration(state, goal, actuators, effects, limits) if limits.explore else None
            )
            if tried is not None:
                reason.append(
                    "no action is certain to improve the objectives; an uncertain action is tried, to learn its effect"
                )
                found = SearchResult(tried, (), found.expanded_states, True)
                return self._build_plan(state, goal, found, Purpose.COMPROMISE, reason)
            reason.append("no allowed action improves the objectives at an acceptable cost")
            return self._build_plan(state, goal, found, Purpose.KEEP, reason)
        still_missed = [
            _format_outcome(each)
            for each in self._expected_outcomes(best.state, goal)
            if each.verdict is not ObjectiveVerdict.MET
        ]
        reason.append(
            f"a compromise, because not all objectives can be met; still missed: {'; '.join(still_missed)}"
        )
        return self._build_plan(state, goal, found, Purpose.COMPROMISE, reason)

    def _release(
        self,
        state: TargetState,
        goal: Goal,
        actuators: Sequence[Actuator],
        effects: EffectModels,
        limits: PlanConstraints,
        budget: SearchBudget,
    ) -> Plan:
        settings = self._settings
        release_goal = msgspec.structs.replace(
            goal,
            objectives=tuple(
                each.with_headroom(settings.headroom, _measured_value(state, each.name))
                for each in goal.objectives
            ),
            z_score=_z_score(settings.release_confidence),
            is_release=True,
        )
        # Models predict relative changes, so the distance of a zero value from a miss is unknown.
        zero_valued = [each.name for each in goal.objectives if _measured_value(state, each.name) <= 0]
        found = self._search(state, release_goal, actuators, effects, limits, budget)
        enough = settings.min_saving * self._costs.cost(state)
        best = found.best
        # Small savings are not worth the disruption.
        if best.actions and best.is_reached and not zero_valued and -best.cost >= enough:
            reason = [
                f"all objectives are met with a margin; resources worth {-best.cost:.3g} cores are released"
            ]
            return self._build_plan(state, goal, found, Purpose.RELEASE, reason)
        # Without an informative objective, releases would continue until a miss that no model explains. An
        # availability shows failing pods, but not pods that have too little.
        informative = [
            each
            for each in goal.objectives
            if each.name not in zero_valued and each.kind is not KPIType.AVAILABILITY
        ]
        if limits.explore or (zero_valued and informative):
            optimistic = (
                msgspec.structs.replace(release_goal, z_score=0.0) if limits.explore else release_goal
            )
            tried = self._smallest_release(state, optimistic, actuators, effects, limits)
            if tried is not None:
                reason = ["all objectives are met; a small reduction is tried, to learn its effect"]
                return self._build_plan(
                    state, goal, SearchResult(tried, (), found.expanded_states, True), Purpose.RELEASE, reason
                )
        return self._keep(
            state,
            goal,
            "all objectives are met, and no resources can be released with confidence",
            looked_at=found.expanded_states,
        )

    def _smallest_release(
        self,
        state: TargetState,
        goal: Goal,
        actuators: Sequence[Actuator],
        effects: EffectModels,
        limits: PlanConstraints,
    ) -> SearchNode | None:
        """Return the smallest single reduction that is predicted to do no harm."""
        problem = self._build_problem(state, goal, actuators, effects, limits)
        nodes = Search(problem, SearchBudget(max_states=0)).single_steps()
        saving = [node for node in nodes if node.is_reached and node.cost < 0]
        return max(saving, key=lambda node: node.cost, default=None)

    def _best_exploration(
        self,
        state: TargetState,
        goal: Goal,
        actuators: Sequence[Actuator],
        effects: EffectModels,
        limits: PlanConstraints,
    ) -> SearchNode | None:
        """Return the best single step under optimistic predictions; None if even then none is worth it."""
        optimistic = msgspec.structs.replace(goal, z_score=-_z_score(self._settings.release_confidence))
        problem = self._build_problem(state, optimistic, actuators, effects, limits)
        best = Search(problem, SearchBudget(max_states=0)).best_step()
        return best if best.actions else None

    def _search(
        self,
        state: TargetState,
        goal: Goal,
        actuators: Sequence[Actuator],
        effects: EffectModels,
        limits: PlanConstraints,
        budget: SearchBudget,
    ) -> SearchResult:
        return Search(self._build_problem(state, goal, actuators, effects, limits), budget).run()

    def _build_problem(
        self,
        state: TargetState,
        goal: Goal,
        actuators: Sequence[Actuator],
        effects: EffectModels,
        limits: PlanConstraints,
    ) -> SearchProblem:
        full_utility_cost = self._settings.full_utility_cost * max(self._costs.cost(state), 0.1)
        return SearchProblem(state, goal, actuators, effects, limits, self._costs, full_utility_cost)

    def _plan_safeguard(
        self,
        state: TargetState,
        goal: Goal,
        actuators: Sequence[Actuator],
        limits: PlanConstraints,
        *,
        is_deadly: bool,
    ) -> Plan | None:
        found = [
            proposal
            for each in actuators
            if isinstance(each, Safeguard)
            and (proposal := each.safeguard(state, goal=goal, limits=limits)) is not None
            and proposal.is_deadly is is_deadly
            and limits.find_violation(state, proposal.action.after) is None
        ]
        if not found:
            return None
        action, reason, _ = found[-1]
        return Plan(
            intent=goal.intent,
            purpose=Purpose.REACH,
            actions=(action,),
            is_urgent=is_deadly,
            why=(f"{reason}, which comes before any objective",),
            outcomes=self._expected_outcomes(action.after, goal, before=state),
            cost=self._costs.cost(action.after) + action.disruption,
            saved=self._costs.cost(state) - self._costs.cost(action.after),
        )

    def _build_plan(
        self, state: TargetState, goal: Goal, found: SearchResult, purpose: Purpose, reason: Sequence[str]
    ) -> Plan:
        cost, best = self._costs.cost(state), found.best
        return Plan(
            intent=goal.intent,
            purpose=purpose,
            actions=best.actions,
            why=tuple(reason),
            outcomes=self._expected_outcomes(best.state, goal, before=state),
            cost=cost + best.cost,
            saved=-best.cost,
            utility=1.0 - best.missed_cost / (self._settings.full_utility_cost * max(cost, 0.1)),
            is_optimal=found.is_optimal,
            alternatives=tuple(
                PlanAlternative(
                    actions=node.actions,
                    outcomes=self._expected_outcomes(node.state, goal, before=state),
                    cost=cost + node.cost,
                    utility=1.0 - node.missed_cost / (self._settings.full_utility_cost * max(cost, 0.1)),
                    meets_all=node.is_reached,
                )
                for node in found.alternatives[:_MAX_ALTERNATIVES]
            ),
            expanded_states=found.expanded_states,
        )

    def _keep(self, state: TargetState, goal: Goal, reason: str, *, looked_at: int = 0) -> Plan:
        return Plan(
            intent=goal.intent,
            purpose=Purpose.KEEP,
            why=(reason,),
            outcomes=self._expected_outcomes(state, goal),
            cost=self._costs.cost(state),
            expanded_states=looked_at,
        )

    def _expected_outcomes(
        self, state: TargetState, goal: Goal, *, before: TargetState | None = None
    ) -> tuple[ExpectedOutcome, ...]:
        found = []
        for each in goal.objectives:
            value = state.objectives.get(each.name)
            factor = exp(goal.z_score * state.log_spread.get(each.name, 0.0))
            low, high = (None, None) if value is None else (value / factor, value * factor)
            found.append(
                ExpectedOutcome(
                    objective=each.name,
                    now=(before or state).objectives.get(each.name),
                    expected=value,
                    low=low,
                    high=high,
                    wanted=each.value,
                    verdict=each.evaluate(high if each.less_is_better else low),
                )
            )
        return tuple(found)


def _format_outcome(outcome: ExpectedOutcome) -> str:
    return f"{outcome.objective} is {outcome.expected:.4g}, wanted {outcome.wanted:.4g}"


def _measured_value(state: TargetState, name: str) -> float:
    value = state.objectives[name]
    assert value is not None
    return value


@cache
def _z_score(confidence: float) -> float:
    """Return the standard deviations of a confidence."""
    return NormalDist().inv_cdf(confidence)
