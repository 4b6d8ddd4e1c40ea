"""Properties of every plan, for any state and goal."""

from itertools import cycle, islice, product
from math import inf

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from intents.services import (
    ALL,
    GIB,
    actuators,
    availability,
    goal,
    latency,
    make_plan,
    power,
    service,
    throughput,
)
from trimtab.intents.actuator import IntentAction
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.fit import add_priors
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal
from trimtab.intents.planner import Purpose, SearchBudget
from trimtab.intents.planners.search import ResourceCosts, Search, SearchProblem
from trimtab.intents.state import TargetState

# Created once: a strategy created for each draw costs more than the draw.
seconds = st.floats(0.01, 2.0)
perhaps_seconds = st.none() | seconds
replica_counts = st.integers(1, 12)
cores = st.sampled_from([0.1, 0.25, 1.0, 2.0])
cpu_shares = st.none() | st.floats(0.05, 0.98)
loads = st.none() | st.floats(1, 1000)
memory_uses = st.none() | st.floats(0.1, 0.9).map(lambda share: share * GIB)
pod_shares = st.lists(st.floats(0.5, 1.0), min_size=1, max_size=4)
shares_of_time = st.floats(0.9, 0.9999)
amounts = st.floats(1, 1000)
tolerances = st.floats(0, 0.5)
choices = st.integers(1, 15)


@st.composite
def services(draw: st.DrawFn, *, may_be_unknown: bool = False) -> TargetState:
    replicas = draw(replica_counts)
    return service(
        p99=draw(perhaps_seconds if may_be_unknown else seconds),
        replicas=replicas,
        cpu=draw(cores),
        used=draw(cpu_shares),
        load=draw(loads),
        memory_used=draw(memory_uses),
        pods=tuple(islice(cycle(draw(pod_shares)), replicas)),
        availability=draw(shares_of_time),
        throughput=draw(amounts),
        power=draw(amounts),
    )


@st.composite
def goals(draw: st.DrawFn) -> Goal:
    objectives = [
        latency(draw(seconds), tolerance=draw(tolerances)),
        availability(draw(shares_of_time)),
        throughput(draw(amounts)),
        power(draw(amounts)),
    ]
    chosen = draw(choices)
    return goal(*(each for at, each in enumerate(objectives) if chosen >> at & 1))


limits = st.builds(
    PlanConstraints,
    min_replicas=st.integers(1, 3),
    max_replicas=st.integers(1, 40),
    min_cpu=st.sampled_from([0.01, 0.5]),
    max_cpu=st.sampled_from([0.5, 4.0, inf]),
    max_memory=st.sampled_from([GIB, 4 * GIB, inf]),
    extra_pods=st.integers(0, 20).map(float) | st.just(inf),
    extra_cpu=st.floats(0, 20) | st.just(inf),
    extra_memory=st.floats(0, 20).map(lambda gib: gib * GIB) | st.just(inf),
    extra_cpu_in_place=st.floats(0, 4) | st.just(inf),
    extra_memory_in_place=st.floats(0, 4).map(lambda gib: gib * GIB) | st.just(inf),
    forbidden=st.frozensets(st.sampled_from(ALL), max_size=3),
    freeze=st.sampled_from(["", "", "", "sale"]),
    cooldown_until=st.dictionaries(st.sampled_from([*ALL, "*"]), st.sampled_from([-1.0, 1.0]), max_size=2),
    explore=st.booleans(),
)


@given(services(may_be_unknown=True), goals(), limits)
def test_planner_never_violates_a_guardrail(
    state: TargetState, wanted: Goal, given_limits: PlanConstraints
) -> None:
    plan = make_plan(state, wanted, limits=given_limits, now=0.0)
    (cpu, memory), replicas = state.requests_per_pod(), state.replicas
    for action in plan.actions:
        after = action.after
        assert not given_limits.freeze
        assert action.actuator not in given_limits.forbidden
        assert (
            max(given_limits.cooldown_until.get(action.actuator, 0), given_limits.cooldown_until.get("*", 0))
            <= 0
        )
        assert after.replicas <= max(given_limits.max_replicas, replicas)
        assert after.replicas >= min(given_limits.min_replicas, replicas)
        assert after.replicas - replicas <= given_limits.extra_pods
        cpu_then, memory_then = after.requests_per_pod()
        assert cpu_then - cpu <= given_limits.extra_cpu_in_place + 1e-6
        assert memory_then - memory <= given_limits.extra_memory_in_place + 1
        assert cpu_then * after.replicas - cpu * replicas <= max(0.0, given_limits.extra_cpu) + 1e-6
        assert memory_then * after.replicas - memory * replicas <= max(0.0, given_limits.extra_memory) + 1
        assert (after.cpu or 0) <= max(given_limits.max_cpu, state.cpu or 0)
        assert (after.memory or 0) <= max(given_limits.max_memory, state.memory or 0)
        assert len({each.actuator for each in plan.actions}) == len(plan.actions)


@given(
    services(may_be_unknown=True), goals(), st.sampled_from(["availability", "throughput", "power", "p99"])
)
def test_planner_never_acts_on_unknown_objectives(state: TargetState, wanted: Goal, lost: str) -> None:
    blind = replace(state, objectives={**state.objectives, lost: None})
    plan = make_plan(blind, wanted)
    if any(blind.objectives[each.name] is None for each in wanted.objectives):
        assert plan.purpose is Purpose.KEEP
        assert not plan.actions


@given(services(), goals())
def test_planner_is_deterministic(state: TargetState, wanted: Goal) -> None:
    assert make_plan(state, wanted) == make_plan(state, wanted)


@given(services(), goals(), st.lists(st.integers(0, 400), min_size=2, max_size=4).map(sorted))
def test_planner_is_never_worse_with_larger_budget(
    state: TargetState, wanted: Goal, budgets: list[int]
) -> None:
    problem = _problem(state, wanted)
    ranks = [Search(problem, SearchBudget(max_states=states)).run().best.rank for states in budgets]
    assert ranks == sorted(ranks, reverse=True)


@given(services(), goals(), st.integers(0, 30))
def test_planner_returns_best_plan_when_budget_expires(state: TargetState, wanted: Goal, asks: int) -> None:
    left = iter(range(asks))
    problem = _problem(state, wanted)
    hurried = Search(problem, SearchBudget(is_expired=lambda: next(left, None) is None)).run()
    calm = Search(problem, SearchBudget()).run()
    assert calm.best.rank <= hurried.best.rank


@given(state=services(), wanted=goals(), gives_back=st.booleans())
def test_astar_matches_exhaustive_search(state: TargetState, wanted: Goal, *, gives_back: bool) -> None:
    if gives_back:
        wanted = _release_goal(wanted, state)
    problem = _problem(state, wanted, by=("scaleOut", "scaleIn", "rmPod", "resizeCPU", "cacheClass"))
    found = Search(problem, SearchBudget(max_states=10**6)).run()
    assert found.is_optimal
    best = min(_all_ranks(problem))
    assert abs(found.best.rank[1] - best[1]) < 1e-6
    assert found.best.rank[0] == best[0]


@given(services(), goals())
def test_actuators_have_diminishing_gains(state: TargetState, wanted: Goal) -> None:
    """The lower bound of A* relies on this property."""
    problem = _problem(state, wanted, by=("scaleOut", "rmPod", "resizeCPU", "cacheClass"))
    for first, second in product(problem.actuators, repeat=2):
        if first.group == second.group:
            continue
        before = {
            _key(action): _gains(problem, state, action)
            for action in _candidate_actions(problem, second.name, state)
        }
        for start in _candidate_actions(problem, first.name, state)[::3]:
            for action in _candidate_actions(problem, second.name, start.after):
                bound = before.get(_key(action))
                if bound is not None:
                    gains = _gains(problem, start.after, action)
                    assert all(
                        late <= max(0.0, early) + 1e-6 for late, early in zip(gains, bound, strict=True)
                    )


def _release_goal(wanted: Goal, state: TargetState) -> Goal:
    """Return the goal for a state that meets all objectives: keep them met, with some headroom."""
    objectives = tuple(
        each.with_headroom(0.15, state.objectives[each.name] or 0.0) for each in wanted.objectives
    )
    return replace(wanted, objectives=objectives, is_release=True)


def _problem(state: TargetState, wanted: Goal, *, by: tuple[str, ...] = ALL) -> SearchProblem:
    effects = add_priors(EffectModels(), wanted, state)
    return SearchProblem(
        state,
        wanted,
        actuators(*by),
        effects,
        PlanConstraints(max_replicas=30, max_cpu=8.0),
        ResourceCosts(),
        10.0,
    )


def _candidate_actions(problem: SearchProblem, name: str, state: TargetState) -> list[IntentAction]:
    (chosen,) = (each for each in problem.actuators if each.name == name)
    return list(
        chosen.candidates(state, goal=problem.goal, effects=problem.effects, limits=problem.constraints)
    )


def _key(action: IntentAction) -> str:
    return f"{action.actuator}{action.parameters}"


def _gains(problem: SearchProblem, before: TargetState, action: IntentAction) -> list[float]:
    return [
        each.deficit(before.objectives[each.name] or 0.0)
        - each.deficit(action.after.objectives[each.name] or 0.0)
        for each in problem.goal.objectives
    ]


def _all_ranks(problem: SearchProblem) -> list[tuple[bool, float]]:
    """Return the ranks of all combinations of actions, by exhaustive search."""
    from trimtab.intents.planner import compute_utility

    found = []

    def go(state: TargetState, at: int, disruption: float, groups: frozenset[str]) -> None:
        deficits = problem.goal.deficits(state)
        reached = max(deficits) <= 1e-9
        cost = problem.costs.cost(state) - problem.costs.cost(problem.state) + disruption
        missed = (
            0.0
            if reached
            else problem.full_utility_cost * (1 - compute_utility(problem.goal.objectives, deficits))
        )
        found.append((not reached, cost + missed))
        for place in range(at, len(problem.actuators)):
            actuator = problem.actuators[place]
            if actuator.group in groups:
                continue
            for action in _candidate_actions(problem, actuator.name, state):
                if problem.constraints.find_violation(problem.state, action.after) is None:
                    go(action.after, place + 1, disruption + action.disruption, groups | {actuator.group})

    go(problem.state, 0, 0.0, frozenset())
    return found
