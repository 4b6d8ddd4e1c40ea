"""Arbitration of many intents: who gets the capacity, and that none waits forever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from intents.services import GIB, actuators, goal, latency, service
from trimtab.intents.arbitration import (
    YIELD_DIVISOR,
    PlanDecision,
    PlanRequest,
    arbitrate,
    select_preempted,
    sort_by_priority,
)
from trimtab.intents.capacity import Capacity, FreeResources, additional_requests
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.objective import Objective
from trimtab.intents.planner import Plan, Purpose
from trimtab.intents.planners.astar import AStar
from trimtab.intents.state import PodState, TargetState

ACTUATORS = actuators("scaleOut", "scaleIn", "resizeCPU")
PLANNER = AStar()


def make(request: PlanRequest, limits: PlanConstraints) -> Plan:
    return PLANNER.plan(
        request.state, request.goal, actuators=ACTUATORS, effects=request.effects, limits=limits, now=0.0
    )


def keep(request: PlanRequest, _: PlanConstraints) -> Plan:
    return Plan(intent=request.goal.intent, purpose=Purpose.KEEP)


def request(
    name: str,
    *,
    priority: float,
    node: str = "node",
    p99: float = 0.2,
    wanted: float = 0.1,
    waiting_since: float | None = None,
    replicas: int = 1,
) -> PlanRequest:
    state = service(p99=p99, replicas=replicas, used=0.7)
    pods = tuple(PodState(name=f"{name}-{at}", node=node) for at in range(replicas))
    return PlanRequest(
        goal=goal(latency(wanted), priority=priority, intent=f"shop/{name}"),
        state=replace(state, pods=pods),
        waiting_since=waiting_since,
    )


def cpu_increase(decision: PlanDecision, request: PlanRequest) -> float:
    plan = decision.plan
    return additional_requests(request.state, plan.actions[-1].after)[0] if plan.actions else 0.0


def test_arbitrate_gives_remaining_node_capacity_to_higher_priority() -> None:
    low, high = request("a", priority=0.1, p99=0.15), request("b", priority=0.9, p99=0.15)
    capacity = Capacity({"node": FreeResources(0.6, 8 * GIB, 10)})
    decisions = arbitrate([low, high], capacity=capacity, make=make, now=0.0)
    assert decisions["shop/b"].plan.purpose is Purpose.REACH
    assert cpu_increase(decisions["shop/b"], high) > 0
    assert decisions["shop/b"].waiting_since is None
    assert decisions["shop/a"].waiting_since == 0.0
    assert "waits for capacity" in decisions["shop/a"].plan.why[-1]


def test_arbitrate_gives_remaining_quota_to_higher_priority() -> None:
    low, high = request("a", priority=0.1, node="one"), request("b", priority=0.9, node="two")
    nodes = {name: FreeResources(100.0, 100 * GIB, 100) for name in ("one", "two")}
    decisions = arbitrate(
        [low, high], capacity=Capacity(nodes, {"shop": FreeResources(cpu=1.2)}), make=make, now=0.0
    )
    assert cpu_increase(decisions["shop/b"], high) > 0
    assert cpu_increase(decisions["shop/a"], low) <= 1.2 - cpu_increase(decisions["shop/b"], high) + 1e-9


def test_arbitrate_serves_both_intents_when_capacity_suffices() -> None:
    capacity = Capacity({"node": FreeResources(64.0, 64 * GIB, 100)})
    decisions = arbitrate(
        [request("a", priority=0.1), request("b", priority=0.9)], capacity=capacity, make=make, now=0.0
    )
    assert all(decision.plan.purpose is Purpose.REACH for decision in decisions.values())


def test_effective_priority_grows_with_waiting_time() -> None:
    old, new = request("a", priority=0.01, waiting_since=0.0), request("b", priority=1.0)
    assert [each.goal.intent for each in sort_by_priority([old, new], now=3500.0)] == ["shop/b", "shop/a"]
    assert [each.goal.intent for each in sort_by_priority([old, new], now=3600.0)] == ["shop/a", "shop/b"]


def test_arbitrate_preempts_intent_with_slack_for_more_important_one() -> None:
    rich = request("a", priority=0.05, p99=0.07, wanted=0.1, replicas=10)
    poor = request("b", priority=0.9, p99=0.5)
    capacity = Capacity({"node": FreeResources(0.0, 8 * GIB, 10)})
    decisions = arbitrate([rich, poor], capacity=capacity, make=make, now=0.0)
    assert decisions["shop/b"].waiting_since == 0.0
    assert decisions["shop/a"].plan.purpose is Purpose.YIELD
    assert cpu_increase(decisions["shop/a"], rich) < 0


def test_arbitrate_preempts_for_unplaced_pods_with_unknown_objectives() -> None:
    rich = request("a", priority=0.05, p99=0.02, wanted=0.1, replicas=6)
    dark = request("b", priority=0.9, replicas=1)
    pending = (PodState(name="b-0", state="Pending"),)
    dark = replace(dark, state=replace(dark.state, objectives={"p99": None}, pods=pending, unplaced=1))
    decisions = arbitrate(
        [rich, dark], capacity=Capacity({"node": FreeResources(0.0, 8 * GIB, 10)}), make=make, now=5.0
    )
    assert not decisions["shop/b"].plan.actions, "nothing is done on what is not known"
    assert decisions["shop/b"].waiting_since == 5.0
    assert cpu_increase(decisions["shop/a"], rich) < 0


def test_arbitrate_ignores_excluded_nodes() -> None:
    nodes = {"full": FreeResources(0.0, 8 * GIB, 10), "tainted": FreeResources(64.0, 64 * GIB, 100)}
    poor = request("b", priority=0.9, p99=0.5, node="full")
    kept_off = replace(poor, state=replace(poor.state, excluded_nodes=frozenset({"tainted", "gone"})))
    for each, slots in ((poor, True), (kept_off, False)):
        assert bool(Capacity(nodes).constrain(PlanConstraints(), each.state, "shop").extra_pods) is slots
        more = replace(each.state, replicas=2)
        assert Capacity(nodes).fits(each.state, more, "shop") is slots

    rich = request("a", priority=0.05, p99=0.02, wanted=0.1, replicas=6, node="tainted")
    pending = (PodState(name="b-0", state="Pending"),)
    busy = {"full": FreeResources(0.0, 8 * GIB, 10), "tainted": FreeResources(0.0, 8 * GIB, 10)}
    for each, gives in ((poor, True), (kept_off, False)):
        waits = replace(each, state=replace(each.state, pods=pending, unplaced=1))
        decisions = arbitrate([rich, waits], capacity=Capacity(busy), make=keep, now=5.0)
        assert decisions["shop/b"].waiting_since == 5.0
        assert bool(select_preempted([rich, waits], decisions, capacity=Capacity(busy))) is gives


def test_arbitrate_preempts_only_intents_of_the_exhausted_quota() -> None:
    """Capacity on a node would not help: without quota the pods are not even created."""
    rich = request("a", priority=0.05, p99=0.02, wanted=0.1, replicas=6, node="full")
    elsewhere = replace(rich, goal=replace(rich.goal, intent="bank/a"))
    poor = request("b", priority=0.9, p99=0.5, node="free")
    poor = replace(poor, state=replace(poor.state, replicas=3, unplaced=2))
    nodes = {"full": FreeResources(0.0, 8 * GIB, 10), "free": FreeResources(64.0, 64 * GIB, 100)}
    for giver, gives in ((elsewhere, False), (rich, True)):
        capacity = Capacity(nodes, {"shop": FreeResources(cpu=0.0)})
        decisions = arbitrate([giver, poor], capacity=capacity, make=keep, now=5.0)
        assert decisions["shop/b"].waiting_since == 5.0
        ways = select_preempted([giver, poor], decisions, capacity=capacity)
        assert bool(ways) is gives


def test_preempted_intent_may_miss_objective_by_a_fifth_also_for_negative_values() -> None:
    wanted = {"p99": 0.1, "score": -10.0, "rate": 50.0}
    objectives = tuple(
        Objective(name=name, value=value, less_is_better=name != "rate") for name, value in wanted.items()
    )
    rich, poor = request("a", priority=0.05, replicas=10), request("b", priority=0.9)
    rich = replace(rich, goal=replace(rich.goal, objectives=objectives))
    keep = Plan(intent="", purpose=Purpose.KEEP)
    decisions = {"shop/a": PlanDecision(keep, None), "shop/b": PlanDecision(keep, 0.0)}
    (giving,) = select_preempted(
        [rich, poor], decisions, capacity=Capacity({"node": FreeResources(0.0, 8 * GIB, 10)})
    )
    loosened = {each.name: each.value for each in giving.goal.objectives}
    assert loosened == pytest.approx({"p99": 0.12, "score": -8.0, "rate": 40.0})


@pytest.mark.parametrize(("memory", "gives"), [(8 * GIB, True), (0.0, False)])
def test_preemption_releases_no_cpu_when_memory_is_missing(memory: float, *, gives: bool) -> None:
    """Released cores do not help a pod whose memory the node does not have."""
    rich = request("a", priority=0.05, p99=0.02, wanted=0.1, replicas=6)
    poor = request("b", priority=0.9, p99=0.5)
    size = replace(poor.state.sizes[0], memory_request=1.0 * GIB)
    pending = (PodState(name="b-0", state="Pending"),)
    poor = replace(poor, state=replace(poor.state, sizes=(size,), pods=pending, unplaced=1))
    capacity = Capacity({"node": FreeResources(0.0, memory, 10)})
    decisions = arbitrate([rich, poor], capacity=capacity, make=keep, now=5.0)
    assert bool(select_preempted([rich, poor], decisions, capacity=capacity)) is gives


def test_preemption_does_not_happen_when_it_frees_too_little() -> None:
    rich = request("a", priority=0.05, p99=0.09, wanted=0.1, replicas=6)
    poor = request("b", priority=0.9, p99=0.5)
    huge = tuple(replace(each, cpu_request=40.0, cpu_limit=40.0) for each in poor.state.sizes)
    poor = replace(poor, state=replace(poor.state, sizes=huge))
    decisions = arbitrate(
        [rich, poor], capacity=Capacity({"node": FreeResources(0.0, 8 * GIB, 10)}), make=make, now=0.0
    )
    assert decisions["shop/b"].waiting_since == 0.0
    assert decisions["shop/a"].plan.purpose is not Purpose.YIELD


@pytest.mark.parametrize(("priority", "giving"), [(0.1, 3), (0.3, 0)])
def test_preemption_compares_sum_of_priorities(priority: float, giving: int) -> None:
    many = [request(name, priority=priority, p99=0.07, wanted=0.1, replicas=10) for name in ("a", "b", "c")]
    poor = request("d", priority=0.9, p99=0.5)
    factor = 2.2 * 10 / YIELD_DIVISOR  # more than two of them are thought to give
    large = tuple(replace(each, cpu_request=factor * (each.cpu_request or 0)) for each in poor.state.sizes)
    poor = replace(poor, state=replace(poor.state, sizes=large))
    decisions = arbitrate(
        [*many, poor], capacity=Capacity({"node": FreeResources(0.0, 8 * GIB, 10)}), make=make, now=0.0
    )
    assert decisions["shop/d"].waiting_since == 0.0
    assert sum(decisions[each.goal.intent].plan.purpose is Purpose.YIELD for each in many) == giving


def test_preemption_does_not_happen_between_equal_priorities() -> None:
    rich = request("a", priority=0.8, p99=0.09, wanted=0.1, replicas=6)
    poor = request("b", priority=0.9, p99=0.5)
    decisions = arbitrate(
        [rich, poor], capacity=Capacity({"node": FreeResources(0.0, 8 * GIB, 10)}), make=make, now=0.0
    )
    assert not decisions["shop/a"].plan.actions


@given(
    st.lists(
        st.tuples(
            st.floats(0.01, 1.0), st.sampled_from(["one", "two"]), st.floats(0.05, 1.0), st.integers(1, 4)
        ),
        min_size=1,
        max_size=6,
    ),
    st.floats(0, 8),
    st.floats(0, 8),
    st.floats(0, 8),
)
def test_arbitrate_never_exceeds_capacity_with_all_plans_together(
    wanted: list[tuple[float, str, float, int]], one: float, two: float, quota: float
) -> None:
    requests = [
        request(f"i{at}", priority=priority, node=node, p99=p99, replicas=replicas)
        for at, (priority, node, p99, replicas) in enumerate(wanted)
    ]
    nodes = {"one": FreeResources(one, 16 * GIB, 4), "two": FreeResources(two, 16 * GIB, 4)}
    decisions = arbitrate(
        requests, capacity=Capacity(nodes, {"shop": FreeResources(cpu=quota)}), make=make, now=0.0
    )
    all_taken = [max(0.0, cpu_increase(decisions[each.goal.intent], each)) for each in requests]
    assert sum(all_taken) <= quota + 1e-6
    assert sum(all_taken) <= one + two + 1e-6
    for node, free in (("one", one), ("two", two)):
        in_place = 0.0
        for each in requests:
            plan = decisions[each.goal.intent].plan
            if plan.actions and each.state.pods[0].node == node:
                growth = plan.actions[-1].after.requests_per_pod()[0] - each.state.requests_per_pod()[0]
                in_place += max(0.0, growth) * len(each.state.pods)
        assert in_place <= free + 1e-6


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=8), st.integers(0, 2**32))
def test_arbitrate_starves_no_intent(priorities: list[float], seed: int) -> None:
    """One place a cycle, for which all ask in every cycle: everybody gets one in bounded time."""
    cycle, patience = 60.0, 3600.0
    waiting: dict[str, float | None] = {f"shop/i{at}": None for at in range(len(priorities))}
    served: dict[str, float] = {}
    bound = patience + cycle * (len(priorities) + 1)
    now = float(seed % 1000)
    end = now + bound
    while now <= end:
        requests = [
            PlanRequest(
                goal=goal(latency(0.1), priority=priority, intent=f"shop/i{at}"),
                state=TargetState(objectives={"p99": 0.2}),
                waiting_since=waiting[f"shop/i{at}"],
            )
            for at, priority in enumerate(priorities)
        ]
        first, *others = sort_by_priority(requests, now=now, aging_period=patience)
        served[first.goal.intent] = now
        waiting[first.goal.intent] = None
        for each in others:
            waiting[each.goal.intent] = each.waiting_since if each.waiting_since is not None else now
        now += cycle
    assert set(served) == set(waiting)
