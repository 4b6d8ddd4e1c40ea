"""Users of one namespace must neither overrule the administrator nor take resources of other namespaces."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actuation.builders import pod
from actuation.builders import workload as build_workload
from harness.builders.records import policy, workload
from harness.e2e.intent_loop import ScalableWorld, bed, intent, profile
from intents.services import goal, latency, service
from trimtab.actuation.change_annotations import AppliedSizes, ChangeAnnotations, encode_change_annotations
from trimtab.actuation.decide.pod_admission import admission_size
from trimtab.actuation.hold import HOLD_ANNOTATION, read_hold
from trimtab.actuation.resources import SizeLimits
from trimtab.api import OptimizationPolicy
from trimtab.api.intent import IntentSpec
from trimtab.api.kpiprofile import KPIType
from trimtab.intents.arbitration import PlanRequest, arbitrate, sort_by_priority
from trimtab.intents.capacity import Capacity, FreeResources
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.kpi.client import LABEL, PromqlKpiClient
from trimtab.intents.kpi.measurement import KpiDefinition
from trimtab.intents.kpi.query import KpiQuery
from trimtab.intents.objective import Goal
from trimtab.intents.planner import Plan, Planner, Purpose, SearchBudget
from trimtab.intents.plugins.registry import PluginRegistry
from trimtab.intents.state import PodState
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.rest.resources import INTENTS, KPI_PROFILES, OPTIMIZATION_POLICIES
from trimtab.namespace_cache import NamespaceBudget
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.guardrails import guardrail_constraints
from trimtab.operator.intents.observer import WAITS_FOR_CHECK
from trimtab.operator.intents.planning import PlanningService
from trimtab.operator.intents.state_builder import build_goal
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.resolver import PolicyResolver, build_default_policy, build_effective_policy
from trimtab.operator.policy.validation import GUARDRAIL_ANNOTATION, review_policy
from trimtab.operator.policy_matching import PolicyMatcher
from trimtab.testing import FakeInformerSet
from trimtab.usage.source import PromqlClient, Vector

HOME = "trimtab-system"
GIB = 1 << 30


def _winner(*policies: Policy, **options: int) -> str:
    matcher = PolicyMatcher(policies, namespaces={}, operator_namespace=HOME, **options)
    return str(matcher.match(workload("web", namespace="app"))[0])


@pytest.mark.parametrize("mode", ["Auto", "Disabled"])
def test_policy_of_the_administrator_wins_ties_with_tenants(mode: str) -> None:
    """The namespace `app` sorts before `trimtab-system`, so a tenant's policy won every tie by its name."""
    assert _winner(policy("a", namespace="app", mode=mode), policy("z", namespace=HOME)) == f"{HOME}/z"


@pytest.mark.parametrize("mode", ["Auto", "Disabled"])
def test_tenant_cannot_outweigh_a_reserved_weight(mode: str) -> None:
    tenant = policy("a", namespace="app", weight=1000, mode=mode)
    administrator = policy("z", namespace=HOME, weight=900)
    assert _winner(tenant, administrator) == "app/a"
    assert _winner(tenant, administrator, reserved_weight=900) == f"{HOME}/z"
    assert _winner(tenant, policy("z", namespace=HOME, weight=899), reserved_weight=900) == f"{HOME}/z"
    assert _winner(tenant, policy("z", namespace=HOME, weight=898), reserved_weight=900) == "app/a"


@pytest.mark.parametrize(("namespace", "denied"), [("app", True), (HOME, False)])
def test_webhook_denies_a_reserved_weight_outside_the_operators_namespace(
    namespace: str, *, denied: bool
) -> None:
    metadata = {"name": "web", "namespace": namespace}
    spec = {"weight": 900, "mode": "Disabled"}
    stated = OptimizationPolicy.read({"kind": "OptimizationPolicy", "metadata": metadata, "spec": spec})
    config = OperatorConfig.model_validate({"limits": {"reservedWeight": 900}})
    problems = review_policy(stated, others=(), config=config).problems
    assert any(problem.startswith("spec.weight: 900 is reserved") for problem in problems) is denied


def _request(intent: str, *, priority: float, outside: float = 0.0, p99: float = 0.5) -> PlanRequest:
    pods = tuple(PodState(name=f"{intent}-{number}", node="node") for number in range(6))
    state = replace(service(p99=p99, replicas=6, used=0.7), pods=pods)
    wanted = goal(latency(0.1), priority=priority, intent=intent)
    return PlanRequest(goal=replace(wanted, priority_outside=outside) if outside else wanted, state=state)


def _plan(request: PlanRequest, limits: PlanConstraints) -> Plan:
    purpose = Purpose.RELEASE if limits.explore else Purpose.KEEP
    return Plan(intent=request.goal.intent, purpose=purpose)


@pytest.mark.parametrize(
    ("victim", "outside", "yields"),
    [("bank/web", 0.0, False), ("bank/web", 0.04, False), ("bank/web", 1.0, True), ("shop/web", 0.0, True)],
)
def test_intent_takes_resources_from_another_namespace_only_if_allowed(
    victim: str, outside: float, *, yields: bool
) -> None:
    attacker = _request("shop/greedy", priority=1.0, outside=outside)
    pending = (PodState(name="greedy-0", state="Pending"),)
    attacker = replace(attacker, state=replace(attacker.state, pods=pending, unplaced=1))
    rich = _request(victim, priority=0.05, p99=0.02)
    full = Capacity({"node": FreeResources(0.0, 64 * GIB, 10)})
    decisions = arbitrate([rich, attacker], capacity=full, make=_plan, now=0.0)
    assert (decisions[victim].plan.purpose is Purpose.YIELD) is yields


@given(st.permutations(range(8)), st.floats(0.01, 1.0))
def test_namespaces_take_turns_for_free_capacity(order: list[int], priority: float) -> None:
    """With many Intents of priority 1 a tenant planned first with all free capacity, in every cycle."""
    greedy = [_request(f"shop/greedy{number}", priority=1.0) for number in range(7)]
    requests = [*greedy, _request("bank/web", priority=priority)]
    found = sort_by_priority([requests[number] for number in order], now=0.0)
    assert found[0].goal.intent == "bank/web"


def _build_goal(priority: float, *guardrails: dict[str, Any]) -> Goal:
    spec = IntentSpec.model_validate(
        {
            "targetRef": {"name": "web"},
            "priority": priority,
            "objectives": [{"name": "p99", "value": 1, "measuredBy": "p99"}],
        }
    )
    return build_goal(
        "shop/web",
        spec,
        namespace="shop",
        resolve_kpi=lambda _: KpiDefinition(KPIType.LATENCY, less_is_better=True),
        settings=IntentSettings.model_validate({"guardrails": list(guardrails)} if guardrails else {}),
    )


def test_priority_outside_is_zero_unless_the_administrator_raises_it() -> None:
    assert _build_goal(1.0).priority_outside == 0.0
    everyone, payments = {"maxPriorityOutside": 0.5}, {"namespaces": ["shop"], "maxPriorityOutside": 0.2}
    assert _build_goal(1.0, everyone).priority_outside == 0.5
    assert _build_goal(1.0, everyone, payments).priority_outside == 0.2
    assert _build_goal(0.1, everyone).priority_outside == 0.1
    assert _build_goal(1.0, everyone, {"maxPriority": 0.3}).priority_outside == 0.0


def test_pod_is_not_admitted_with_a_forged_size_beyond_the_limits() -> None:
    own, greedy = Resources(1000, None, GIB, GIB), Resources(64_000, None, 64 * GIB, 64 * GIB)
    applied = AppliedSizes(id="x", at=1, sizes={"web": greedy}, template={"web": own})
    forged = encode_change_annotations(ChangeAnnotations(applied=applied), uid="uid-web")
    limits = SizeLimits(cpu=2000, memory=2 * GIB)
    sizes = admission_size(
        pod(sizes={"web": own}),
        build_workload(template={"web": own}, annotations=forged),
        excluded=(),
        limit_ranges=(),
        quotas=(),
        size_limits=limits,
    )
    assert sizes == {"web": Resources(2000, None, 2 * GIB, 2 * GIB)}


amounts = st.none() | st.integers(0, 1 << 20)
resources = st.builds(Resources, amounts, amounts, amounts, amounts)


@given(resources, resources, st.integers(1, 1 << 20), st.integers(1, 1 << 20))
def test_clamped_size_has_at_most_the_limit_or_the_owners_amount(
    wanted: Resources, own: Resources, cpu: int, memory: int
) -> None:
    limits = SizeLimits(cpu=cpu, memory=memory)
    (clamped,) = limits.clamp({"web": wanted}, template={"web": own}).values()
    for resource, most in (("cpu", cpu), ("memory", memory)):
        got, was = clamped.select(resource), own.select(resource)  # type: ignore[arg-type]
        assert (got.request or 0) <= max(most, was.request or 0)
        if was.limit is not None:  # a namespace without a limit may already use everything
            assert got.limit is not None
            assert got.limit <= max(most, was.limit)
    assert limits.clamp({"web": clamped}, template={"web": own}) == {"web": clamped}


@pytest.mark.parametrize(
    "guardrails", [[{}], [{"maxCpu": "64", "maxMemory": "512Gi"}], [{"namespaces": ["other"]}]]
)
def test_intent_is_bounded_by_the_limits_of_the_organisation(guardrails: list[dict[str, Any]]) -> None:
    """The limits held for policies and annotations, and a tenant's Intent resized beyond them."""
    limits = {"maxCpu": "2", "maxMemory": "2Gi"}
    config = OperatorConfig.model_validate({"limits": limits, "intents": {"guardrails": guardrails}})
    assert config.intents.size_limits("app") == SizeLimits(cpu=2000, memory=2 * GIB)
    bounded = guardrail_constraints(service(), config.intents.guardrails_for("app"), goal=goal(latency(0.1)))
    assert (bounded.max_cpu, bounded.max_memory, bounded.max_replicas) == (2.0, 2.0 * GIB, 128)


async def test_intent_changes_nothing_where_automatic_changes_are_forbidden(tmp_path: Path) -> None:
    objective = {"name": "p99", "value": 0.1, "measuredBy": "p99"}
    async with bed(
        ScalableWorld(template={"web": Resources(500, 500, GIB, GIB)}, replicas=2),
        [intent("web", objectives=[objective])],
        [profile("p99", type="latency", query="p99")],
        {"p99": 5.0},
        folder=tmp_path,
        limits={"forbiddenModes": ["Auto"]},
    ) as env:
        await env.run_cycles(3)
        assert env.world.replicas == 2
        assert "forbiddenModes" in str(env.status("web"))


def test_hold_has_a_short_reason_of_one_line() -> None:
    """An annotation may have 256 KiB, and its reason is part of the status of the administrator's policy."""
    text = json.dumps({"who": "a\x1b[2J" * 9999, "why": "b\n" * 99999})
    hold = read_hold([(HOLD_ANNOTATION, text)])
    assert hold is not None
    assert str(hold).isprintable()
    assert len(str(hold)) < 4000


@pytest.mark.parametrize("strategy", ["learned", "forecaster"])
@pytest.mark.parametrize(
    "weights",
    [
        "/etc/shadow.npz",
        "../../../../../../etc/hostname",
        "/proc/self/environ",
        "mine/weights.npz",
        "a\x00b",
        "",
    ],
)
def test_policy_names_no_file_of_the_operator(strategy: str, weights: str) -> None:
    """The operator opened any path, and its message revealed whether the file exists."""
    spec = {"strategy": {"name": strategy, "settings": {"weights": weights}}}
    stated = OptimizationPolicy.read(
        {"kind": "OptimizationPolicy", "metadata": {"name": "a", "namespace": "app"}, "spec": spec}
    )
    (problem,) = review_policy(stated, others=(), config=OperatorConfig()).problems
    assert problem.startswith("spec.strategy.settings.weights: must be the name of")
    # A policy that was stored while no webhook ran is not used either.
    stored = replace(policy("a", namespace="app"), spec=stated.spec)
    assert build_effective_policy(stored, OperatorConfig()).problem == problem


def test_administrator_may_configure_weights_by_path() -> None:
    strategy = {"name": "learned", "settings": {"weights": "/weights/mine.npz"}}
    effective = build_default_policy(OperatorConfig.model_validate({"defaultPolicy": {"strategy": strategy}}))
    assert effective is not None
    assert effective.problem == ""


class SlowPromql:
    """A server that answers the slow queries only after an event."""

    def __init__(self) -> None:
        self.answer_slow = asyncio.Event()
        self.requests: list[str] = []

    async def vector(self, promql: str, *, at: float) -> Vector:
        self.requests.append(promql)
        if "slow" in promql:
            await self.answer_slow.wait()
        numbers = [str(number) for number in range(promql.count("label_replace"))] or ["0"]
        return [({LABEL: number}, at) for number in numbers]


async def test_slow_queries_of_one_namespace_delay_no_others() -> None:
    server, loop = SlowPromql(), asyncio.get_running_loop()
    slow = [KpiQuery(f"slow_{number}", namespace="loud") for number in range(300)]
    quick = KpiQuery("vector(1)", namespace="quiet")
    async with PromqlKpiClient(cast("PromqlClient", server), max_age=60, timeout=1.0) as kpis:
        assert (await kpis.measure([*slow, quick], at=1.0))[quick].value == 1.0
        assert not [promql for promql in server.requests if "slow" in promql and "vector" in promql]
        for at in (2.0, 3.0):
            started = loop.time()
            readings = await kpis.measure([*slow, quick], at=at)
            assert loop.time() - started < 0.9
            assert readings[quick].value == at
            assert readings[slow[0]].reason == "the server did not answer in time"
        # They are read again once the server is quick, and all of them arrive.
        server.answer_slow.set()
        async with asyncio.timeout(10):
            while (await kpis.measure([*slow, quick], at=4.0))[slow[0]].value is None:
                pass


async def test_answer_that_breaks_the_client_affects_one_namespace_only() -> None:
    class Broken:
        async def vector(self, promql: str, *, at: float) -> Vector:
            if "hostile" in promql:
                raise RuntimeError("an answer that nobody expected")
            return [({LABEL: "0"}, at)]

    hostile, quiet = KpiQuery("hostile", namespace="loud"), KpiQuery("up", namespace="quiet")
    async with PromqlKpiClient(cast("PromqlClient", Broken()), max_age=60, timeout=1.0) as kpis:
        readings = await kpis.measure([hostile, quiet], at=1.0)
    assert readings[quiet].value == 1.0
    assert "intent.server_failed" in readings[hostile].reason


async def test_intents_above_the_limit_of_their_namespace_are_reported_and_not_used(tmp_path: Path) -> None:
    objective = {"name": "p99", "value": 0.1, "measuredBy": "p99"}
    many = [
        intent(f"i-{number}", objectives=[objective], namespace="loud", created=number)
        for number in range(12)
    ]
    own = intent("web", objectives=[objective])
    profiles = [
        profile("p99", type="latency", query="p99"),
        *(profile(f"p-{number:02}", namespace="loud", type="custom", query="x") for number in range(12)),
    ]
    async with bed(
        ScalableWorld(template={"web": Resources(500, 500, GIB, GIB)}, replicas=2),
        [*many, own],
        profiles,
        {"p99": 0.05},
        folder=tmp_path,
        settings={"maxPerNamespace": 10},
    ) as env:
        await env.run_cycles(1)
        reasons = {name: env.message("Ready", name) for name in ("i-10", "i-11")}
        assert all("more than 10 of this kind" in reason for reason in reasons.values())
        assert "more than" not in str(env.status("i-9"))
        assert env.status("web")["objectives"][0]["verdict"] == "Met"
        assert "more than 10 of this kind" in env.status("p-10")["reason"]
        assert env.status("p-09")["resolved"]
        assert next(iter(env.api.statuses)) == "web", "a namespace with one Intent waits for no other"


def test_new_guardrails_of_one_namespace_leave_time_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change of a guardrail took up to 25 ms of the operator's time, and a tenant could change one all the time."""
    monkeypatch.setattr("trimtab.operator.policy.resolver.MAX_CHECK_SECONDS", 1e-9)
    informers, now = FakeInformerSet(), [0.0]
    cluster_state = ClusterState(informers, operator_namespace=HOME, enqueue=lambda _: None)
    resolver = PolicyResolver(cluster_state, OperatorConfig, clock=lambda: now[0])

    def resolve(namespace: str, number: int) -> str:
        guardrail = (GUARDRAIL_ANNOTATION, f"sum(errors{number}) > bool {number}")
        stored = replace(policy("p", namespace=namespace, generation=number), annotations=(guardrail,))
        informers.put(OPTIMIZATION_POLICIES, stored)
        return resolver.resolve_policy(stored).problem

    assert resolve("loud", 1) == ""
    assert all("many new guardrails" in resolve("loud", number) for number in range(2, 5))
    waiting = resolver.resolve_policy(next(iter(cluster_state.policies)))
    assert resolver.resolve_strategy(waiting, is_required=False) == waiting.strategy_spec
    assert resolve("quiet", 1) == ""
    now[0] += 10.0
    assert resolve("loud", 4) == "", "it is checked in the next period"


async def test_kpis_of_a_namespace_are_measured_while_its_new_ones_wait(tmp_path: Path) -> None:
    objective = {"name": "p99", "value": 0.1, "measuredBy": "p99"}
    async with bed(
        ScalableWorld(template={"web": Resources(500, 500, GIB, GIB)}, replicas=2),
        [intent("web", objectives=[objective])],
        [profile("p99", type="latency", query="p99")],
        {"p99": 0.05},
        folder=tmp_path,
    ) as env:
        await env.run_cycles(1)
        env.loop._observer.check_budget = NamespaceBudget(0.0)
        env.informers.put(KPI_PROFILES, profile("new", type="latency", query="max(something_new)"))
        env.informers.put(INTENTS, intent("other", objectives=[objective | {"measuredBy": "new"}]))
        await env.run_cycles(1)
        assert env.status("web")["objectives"][0]["verdict"] == "Met"
        assert env.status("other")["objectives"][0]["reason"] == WAITS_FOR_CHECK


async def test_plans_of_one_namespace_leave_time_for_others() -> None:
    class Endless:
        """A planner that searches until its time is over."""

        def plan(self, state: Any, goal: Goal, *, budget: SearchBudget, **_: Any) -> Plan:
            while not budget.is_expired():
                pass
            return Plan(intent=goal.intent, purpose=Purpose.KEEP)

    settings = IntentSettings.model_validate({"interval": "1s", "planningTimeout": "200ms"})
    service = PlanningService(PluginRegistry(), settings=lambda: settings, metrics=Metrics())
    service._planners["astar"] = cast("Planner", Endless())
    requests = [_request(f"loud/{number}", priority=0.5) for number in range(40)]
    started = time.monotonic()
    decisions = await service.plan_requests(requests, capacity=Capacity({}), now=0.0)
    assert len(decisions) == 40
    assert time.monotonic() - started < 2
