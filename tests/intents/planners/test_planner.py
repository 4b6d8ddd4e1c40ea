"""One intent: what is planned for it, and why."""

from typing import Any

import pytest
from msgspec.structs import replace

from intents.services import GIB, availability, done, goal, latency, make_plan, power, service, throughput
from trimtab.api.intent import ObjectiveVerdict
from trimtab.intents.actuator import IntentAction
from trimtab.intents.actuators.scaling import ScaleOut
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.fit import add_priors, learn_effects
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.effects.user_models import decode_user_model
from trimtab.intents.objective import Objective
from trimtab.intents.planner import Plan, Purpose
from trimtab.intents.planners.astar import AStar, AStarSettings
from trimtab.intents.state import PodState, TargetState


def actions(plan: Plan) -> dict[str, Any]:
    return {action.actuator: dict(action.parameters) for action in plan.actions}


def test_planner_solves_case_of_original_planner() -> None:
    scaling = {
        "popt": [0.306355135, 0.193240314, 53.0816499, 0.0147372746],
        "throughputScale": [0.002143905536223758, 0.9993568283391329],
        "replicaRange": [1, 12],
    }
    state = TargetState(
        objectives={"p99": 0.04, "availability": 0.998},
        pods=(PodState(name="bad", availability=0.9), PodState(name="good", availability=0.98)),
        replicas=2,
        load=4800.0,
    )
    plan = make_plan(
        state,
        goal(latency(0.03), availability(0.999)),
        by=("scaleOut", "rmPod"),
        effects=EffectModels(user_models={("p99", "scaling"): decode_user_model("scaling", scaling)}),
        limits=PlanConstraints(max_replicas=128),
    )
    assert actions(plan) == {"scaleOut": {"replicas": 4, "from": 2}}
    assert plan.purpose is Purpose.REACH
    assert plan.is_optimal
    assert all(outcome.verdict is ObjectiveVerdict.MET for outcome in plan.outcomes)


def test_planner_meets_missed_latency_with_confidence() -> None:
    plan = make_plan(service(p99=0.1, used=0.7), goal(latency(0.06)))
    assert plan.purpose is Purpose.REACH
    assert plan.actions
    (outcome,) = plan.outcomes
    assert outcome.expected is not None
    assert outcome.high is not None
    assert outcome.expected < outcome.high <= 0.06
    assert plan.saved < 0
    assert any("p99 is 0.1, wanted 0.06" in why for why in plan.why)


def test_planner_keeps_state_within_tolerance() -> None:
    state = service(p99=0.104)
    assert make_plan(state, goal(latency(0.1, tolerance=0.05))).purpose is Purpose.KEEP
    assert make_plan(state, goal(latency(0.1, tolerance=0.03))).purpose is Purpose.REACH


def test_planner_aims_at_value_without_tolerance() -> None:
    plan = make_plan(service(p99=0.2, used=0.7), goal(latency(0.1, tolerance=0.2)))
    assert plan.outcomes[0].expected is not None
    assert plan.outcomes[0].expected <= 0.1


def test_planner_keeps_state_when_one_objective_is_unknown() -> None:
    state = service(p99=9.0, throughput=None)
    plan = make_plan(state, goal(latency(0.1), throughput(50.0)))
    assert plan.purpose is Purpose.KEEP
    assert not plan.actions
    assert "unknown: throughput" in plan.why[0]


def test_planner_releases_nothing_when_objective_is_unknown() -> None:
    state = service(p99=None, replicas=10, used=0.01)
    assert not make_plan(state, goal(latency(0.1))).actions


def test_planner_raises_memory_before_oom_kill_despite_unknown_objectives() -> None:
    plan = make_plan(service(p99=None, memory_used=0.97 * GIB), goal(latency(0.1)))
    assert list(actions(plan)) == ["resizeMemory"]
    assert actions(plan)["resizeMemory"]["limit"] >= 1.15 * GIB
    assert not make_plan(
        service(p99=None, memory_used=0.97 * GIB), goal(latency(0.1)), limits=PlanConstraints(freeze="sale")
    ).actions


def test_planner_releases_resources_until_margin_is_used() -> None:
    wanted = goal(latency(0.5))
    state = service(p99=0.05, replicas=8, used=0.1)
    for _ in range(10):
        plan = make_plan(state, wanted)
        if not plan.actions:
            break
        assert plan.purpose is Purpose.RELEASE
        assert plan.saved > 0
        state = done(plan, state)
        # Load and use stay as they are: fewer pods are busier.
        state = replace(state, cpu_used=0.8)
    else:
        pytest.fail("it gives back for ever")
    assert state.replicas * (state.cpu or 0) < 8
    assert (state.objectives["p99"] or 0) <= 0.5 * 0.85


def test_planner_does_not_release_what_was_just_added() -> None:
    wanted = goal(latency(0.06))
    before = service(p99=0.1, used=0.7)
    after = done(make_plan(before, wanted), before)
    after = replace(after, cpu_used=before.cpu_used)
    assert make_plan(after, wanted).purpose is Purpose.KEEP


def test_planner_keeps_memory_above_usage_and_when_usage_is_unknown() -> None:
    wanted = goal(latency(10.0))
    taken = make_plan(service(p99=0.01, memory=8 * GIB, memory_used=3 * GIB), wanted, by=("resizeMemory",))
    assert actions(taken)["resizeMemory"]["limit"] >= 3 * 1.2 * GIB
    assert not make_plan(
        service(p99=0.01, memory=8 * GIB, memory_used=None), wanted, by=("resizeMemory",)
    ).actions


def test_planner_chooses_and_reports_compromise() -> None:
    plan = make_plan(
        service(p99=1.0, used=0.8), goal(latency(0.2)), limits=PlanConstraints(max_replicas=4, max_cpu=2.0)
    )
    assert plan.purpose is Purpose.COMPROMISE
    assert plan.actions
    assert 0 < plan.utility < 1
    assert any("compromise" in why and "still missed: p99" in why for why in plan.why)


def test_planner_weighs_objectives_in_compromise() -> None:
    state = service(p99=1.0, replicas=4, used=0.8, power=100.0)
    fast, frugal = (
        make_plan(
            state, goal(replace(latency(0.2), weight=a), replace(power(100.0), weight=b)), by=("resizeCPU",)
        )
        for a, b in ((10.0, 1.0), (1.0, 100.0))
    )
    assert actions(fast)["resizeCPU"]["limit"] > 1
    assert not frugal.actions


def test_planner_replaces_failing_pod_when_sufficient() -> None:
    state = service(p99=0.05, replicas=3, pods=(0.6, 0.9, 0.9), availability=0.996)
    plan = make_plan(state, goal(latency(0.1), availability(0.999)), by=("rmPod",))
    assert actions(plan) == {"rmPod": {"name": "shop-0", "availability": 0.6}}


def test_planner_handles_availability_close_to_one() -> None:
    state = service(p99=0.05, replicas=60, pods=(1.0,) * 60, availability=0.998)
    assert make_plan(state, goal(availability(0.999))).purpose is Purpose.REACH


@pytest.mark.parametrize(
    "invalid",
    [
        pytest.param(service(load=-5.0), id="a query that gives less than no load"),
        pytest.param(service(cpu=0.0, memory=0.0), id="pods that ask for 0"),
    ],
)
def test_planner_treats_invalid_sizes_as_unknown(invalid: TargetState) -> None:
    plan = make_plan(invalid, goal(latency(0.06)))
    assert "p99 is 0.1, wanted 0.06" in plan.why
    assert plan.alternatives


def test_with_headroom_keeps_margin_for_negative_values() -> None:
    assert Objective(name="level", value=-10.0).with_headroom(0.25, -20.0).value == -12.5
    assert Objective(name="level", value=-10.0, less_is_better=False).with_headroom(0.25, 0.0).value == -7.5


def test_remove_pod_keeps_last_pod() -> None:
    state = service(p99=0.05, replicas=1, pods=(0.6,), availability=0.6)
    assert not make_plan(state, goal(availability(0.9)), by=("rmPod",)).actions


@pytest.mark.parametrize(
    "limits",
    [
        PlanConstraints(freeze="end of the quarter"),
        PlanConstraints(
            forbidden=frozenset({"scaleOut", "resizeCPU", "resizeMemory", "cacheClass", "powerProfile"})
        ),
        PlanConstraints(cooldown_until={"*": 100.0}),
        PlanConstraints(max_replicas=2, max_cpu=1.0, forbidden=frozenset({"cacheClass", "powerProfile"})),
        PlanConstraints(extra_pods=0, extra_cpu=0.0, forbidden=frozenset({"cacheClass", "powerProfile"})),
    ],
    ids=["frozen", "forbidden", "resting", "at its caps", "no capacity"],
)
def test_planner_uses_no_forbidden_actuator(limits: PlanConstraints) -> None:
    plan = make_plan(service(p99=0.5), goal(latency(0.1)), limits=limits, now=50.0)
    assert not plan.actions
    assert plan.why


def test_planner_uses_actuator_again_after_cooldown() -> None:
    limits = PlanConstraints(cooldown_until={"scaleOut": 100.0})
    state, wanted = service(p99=0.12), goal(latency(0.1))
    assert not make_plan(state, wanted, by=("scaleOut",), limits=limits, now=99.0).actions
    assert make_plan(state, wanted, by=("scaleOut",), limits=limits, now=100.0).actions


def test_planner_explores_small_uncertain_release() -> None:
    state, wanted = service(p99=0.05, replicas=3, used=0.45), goal(latency(0.088))
    down = ("scaleIn", "resizeCPU")
    assert make_plan(state, wanted, by=down).purpose is Purpose.KEEP
    plan = make_plan(state, wanted, by=down, limits=PlanConstraints(explore=True))
    assert plan.purpose is Purpose.RELEASE
    assert len(plan.actions) == 1
    assert 0 < plan.saved <= 1.0


def test_planner_explores_uncertain_increase() -> None:
    """CPU helped little in a few samples, so that its effect is probably small but not certain."""
    seen = [(60.0 * at, service(p99=0.3, cpu=cpu, used=0.1)) for at, cpu in enumerate([1.0, 1.2, 1.5] * 4)]
    wanted, state = goal(latency(0.1)), seen[-1][1]
    effects = learn_effects(wanted, seen, now=200.0)
    assert make_plan(state, wanted, by=("resizeCPU",), effects=effects).purpose is Purpose.KEEP
    plan = make_plan(state, wanted, by=("resizeCPU",), effects=effects, limits=PlanConstraints(explore=True))
    assert plan.purpose is Purpose.COMPROMISE
    (action,) = plan.actions
    assert (action.after.cpu or 0) > (state.cpu or 0)


def test_planner_releases_unplaced_pods_when_objectives_are_met() -> None:
    state = service(p99=0.09, replicas=2, used=0.6)
    pending = tuple(PodState(name=f"shop-{at}", state="Pending") for at in (7, 8))
    state = replace(state, replicas=4, pods=(*pending, *state.pods), unplaced=2)
    plan = make_plan(state, goal(latency(0.1)), by=("scaleIn",))
    assert plan.purpose is Purpose.RELEASE
    assert actions(plan)["scaleIn"]["replicas"] == 2
    assert {pod.name for pod in plan.actions[-1].after.pods} == {"shop-0", "shop-1"}


def test_planner_keeps_total_cpu_above_usage() -> None:
    """Each alone would be: eight pods of 0.3 cores, or three of 1."""
    errors = Objective(name="errors", value=0.01)
    state = replace(service(replicas=8, used=0.25), objectives={"errors": 0.0001})
    limits = PlanConstraints(min_replicas=3, min_cpu=0.275, min_total_cpu=2.2)
    after = done(make_plan(state, goal(errors), by=("scaleIn", "resizeCPU"), limits=limits), state)
    assert after.replicas < 8
    assert (after.cpu or 0) * after.replicas >= 2.2


def test_planner_makes_small_steps_for_custom_objective_without_model() -> None:
    state = replace(service(replicas=8, used=0.25), objectives={"queue": 5.0})
    assert make_plan(state, goal(Objective(name="queue", value=7.0))).purpose is Purpose.KEEP
    plan = make_plan(state, goal(Objective(name="queue", value=10.0)), by=("scaleIn", "resizeCPU"))
    after = done(plan, state)
    assert (after.cpu or 0) * after.replicas >= 8 / 1.5


def test_planner_does_not_release_options_with_unknown_effects() -> None:
    queue, by = Objective(name="queue", value=7.0), ("cacheClass", "powerProfile")
    had = replace(service(replicas=4, cpu=0.1, used=0.3), objectives={"queue": 5.0})
    for state in (had, replace(had, cache_class="guaranteed"), replace(had, power_profile="performance")):
        assert make_plan(state, goal(queue), by=by).purpose is Purpose.KEEP


def test_planner_makes_single_small_release_when_objective_is_zero() -> None:
    """Without errors, the distance to the first error is unknown. Without another objective, the planner would release
    resources until errors occur, without a model of what helps against them.
    """
    errors, by = Objective(name="errors", value=0.01), ("scaleIn", "resizeCPU")
    alone = replace(service(replicas=8, used=0.25), objectives={"errors": 0.0})
    assert make_plan(alone, goal(errors), by=by).purpose is Purpose.KEEP
    serving = replace(alone, objectives={"errors": 0.0, "availability": 0.9999})
    assert make_plan(serving, goal(errors, availability(0.99)), by=by).purpose is Purpose.KEEP
    beside = service(p99=0.02, replicas=8, used=0.25, errors=0.0)
    for plan in (
        make_plan(alone, goal(errors), by=by, limits=PlanConstraints(explore=True)),
        make_plan(beside, goal(latency(0.1), errors), by=by),
    ):
        assert plan.purpose is Purpose.RELEASE
        (action,) = plan.actions
        assert (action.after.cpu or 0) * action.after.replicas >= 8 / 1.2


def test_planner_keeps_other_objectives_when_one_is_zero() -> None:
    errors, by = Objective(name="errors", value=0.01), ("scaleIn", "resizeCPU")
    state = service(p99=0.0565, replicas=4, used=0.5, errors=0.0)
    assert make_plan(state, goal(latency(0.1)), by=by).purpose is Purpose.KEEP
    assert make_plan(state, goal(latency(0.1), errors), by=by).purpose is Purpose.KEEP
    assert (
        make_plan(state, goal(latency(0.1)), by=by, limits=PlanConstraints(explore=True)).purpose
        is Purpose.RELEASE
    )


def test_planner_releases_nothing_that_is_not_certainly_met() -> None:
    wanted, state = goal(latency(0.1)), service(p99=0.07, load=100.0, used=0.6)
    effects = add_priors(EffectModels(), wanted, state)
    careless = AStar(AStarSettings(full_utility_cost=0.01))
    (ahead,) = effects.predict(state, [replace(state, load=110.0)], group="load")
    plan = make_plan(
        ahead,
        wanted,
        by=("scaleIn", "resizeCPU"),
        planner=careless,
        effects=effects,
    )
    assert plan.purpose is Purpose.KEEP


def test_scale_out_adds_no_pods_while_some_are_unplaced() -> None:
    """As where a node selector or a quota keeps them out: their number would grow turn by turn."""
    state = replace(service(p99=0.5, replicas=6, used=0.9), unplaced=4)
    assert not make_plan(state, goal(latency(0.1)), by=("scaleOut", "scaleIn")).actions
    larger = make_plan(state, goal(latency(0.1)), by=("scaleOut", "resizeCPU"))
    assert [action.actuator for action in larger.actions] == ["resizeCPU"]


def test_action_describes_set_parameters_only() -> None:
    action = IntentAction(
        actuator="resizeMemory",
        parameters={"container": "web", "request": 2.0**27, "limit": None, "from": 2.0**26},
        after=service(),
    )
    assert action.describe() == "resizeMemory container web, request 128Mi, from 64Mi"


def test_planner_releases_nothing_from_workload_without_requests() -> None:
    free = replace(service(p99=0.01), sizes=())
    assert make_plan(free, goal(latency(0.1)), by=("resizeCPU",)).purpose is Purpose.KEEP


def test_constraints_count_only_placed_pods_for_usage() -> None:
    """Two pods use 1.8 cores, and two more that have no place are of no help to them."""
    state = replace(service(replicas=4), unplaced=2)
    limits = PlanConstraints(min_total_cpu=1.98)
    half = tuple(replace(each, cpu_request=0.5, cpu_limit=0.5) for each in state.sizes)
    assert limits.find_violation(state, replace(state, sizes=half))
    assert limits.find_violation(state, replace(state, replicas=2, unplaced=0)) is None


def test_planner_accepts_availability_of_one() -> None:
    """It would be missed for ever, with nothing to be done about it."""
    wanted = availability(1.0)
    assert wanted.evaluate(0.99) is ObjectiveVerdict.MISSED
    assert wanted.evaluate(1.0 - 1e-10) is ObjectiveVerdict.MET


def test_planner_explains_cooldown() -> None:
    plan = make_plan(
        service(p99=0.5), goal(latency(0.1)), limits=PlanConstraints(cooldown_until={"*": 100.0}), now=50.0
    )
    assert plan.why == ("the effect of the last action is not known yet (cool-down)",)


def test_scale_out_does_not_start_workload_scaled_to_zero() -> None:
    state = replace(service(p99=0.3), replicas=0, pods=())
    assert not make_plan(state, goal(latency(0.1)), by=("scaleOut", "scaleIn")).actions


def test_planner_prepares_for_forecast_load() -> None:
    wanted, state = goal(latency(0.1)), service(p99=0.08, load=100.0, used=0.6)
    assert not make_plan(state, wanted, by=("scaleOut", "resizeCPU")).actions
    effects = add_priors(EffectModels(), wanted, state)
    (ahead,) = effects.predict(state, [replace(state, load=125.0)], group="load")
    plan = make_plan(ahead, wanted, by=("scaleOut", "resizeCPU"), effects=effects)
    assert plan.purpose is Purpose.REACH
    assert plan.actions


def test_plan_lists_alternatives_with_costs() -> None:
    plan = make_plan(service(p99=0.12, used=0.6), goal(latency(0.1)))
    meeting = [each for each in plan.alternatives if each.meets_all]
    assert meeting
    assert all(each.cost >= plan.cost for each in meeting)
    assert plan.expanded_states > 0


def test_planner_rejects_candidates_that_violate_constraints() -> None:
    class Greedy(ScaleOut):
        name = "greedy"

        def candidates(self, state: TargetState, **given: Any) -> Any:
            return super().candidates(state, **{**given, "limits": PlanConstraints()})

    plan = AStar().plan(
        service(p99=0.5, used=0.9),
        goal(latency(0.1)),
        actuators=[Greedy()],
        effects=EffectModels(),
        limits=PlanConstraints(max_replicas=3),
        now=0.0,
    )
    assert all(action.after.replicas <= 3 for action in plan.actions)
