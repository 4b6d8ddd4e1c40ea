"""The gauges of requests, recommendations and their costs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from actuation.builders import pod
from harness.builders.records import workload
from lab.simulator.scenes import GIB, flat, scene, sized
from lab.simulator.scenes import workload as simulated
from trimtab.actuation.resources import to_manifest
from trimtab.api.optimizationpolicy import OptimizationPolicySpec, PolicyMode, WorkloadState
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.kube.rest.resources import CRON_JOBS
from trimtab.lab.simulator.simulation import Simulation
from trimtab.operator.config.model import PriceSettings
from trimtab.operator.cost_gauges import CostGauges
from trimtab.operator.metrics import Metrics
from trimtab.operator.node_prices import NodePrices
from trimtab.operator.paid_pods import count_paid_pods_of_view, mean_requests
from trimtab.operator.policy.status import WorkloadOutcome
from trimtab.operator.savings import SavingsLedger
from trimtab.operator.views import PolicyView, WorkloadView
from trimtab.recommender.cohort import LatestUsage
from trimtab.scan.pricing import ResourcePrices
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.recommendation import Recommendation
from trimtab.sizing.tracking.evidence_tracker import EvidenceTracker, EvidenceTrackerSettings
from trimtab.store import HistoryRecord
from trimtab.web.backends.live import LiveBackend
from trimtab.web.views.rows import build_row

NOW = 1_800_000_000.0
SPEC = OptimizationPolicySpec()
POLICY = PolicyView(name="trimtab-system/all", spec=SPEC, rules=PolicyRules.from_spec(SPEC), source="")
APP = Container("app", "main", Resources(1000, None, 2 * 2**30, None))
SIDECAR = Container("proxy", "sidecar", Resources(500, None, 2**30, None))
SETUP = Container("setup", "init", Resources(4000, None, 2**30, None))
SMALLER = Recommendation("app", Resources(250, None, 2**30, None), ())
HELD = Recommendation("proxy", Resources(1, None, 1, None), (), "too few samples")


def values(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.labels["namespace"], sample.labels["kind"]): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"trimtab_{name}"
    }


def view(namespace: str, *, policy: PolicyView | None = POLICY, pods: int = 2) -> WorkloadView:
    return WorkloadView(
        workload=workload("web", namespace=namespace),
        pods=tuple(f"web-{number}" for number in range(pods)),
        containers=(SETUP, APP, SIDECAR),
        policy=policy,
        outcome=WorkloadOutcome(WorkloadState.RECOMMENDED, recommendations=(SMALLER, HELD)),
    )


def test_cost_gauges_show_requests_recommendations_and_what_both_cost() -> None:
    metrics = Metrics()
    gauges = CostGauges(metrics, NodePrices(PriceSettings))
    prices = PriceSettings(cpu=0.04, memory=0.01, discount=0.5)
    gauges.update([view("shop"), view("shop", pods=1), view("bank", policy=None)], prices, now=NOW)
    assert values(metrics, "cpu_cores") == {("shop", "requested"): 4.5, ("shop", "recommended"): 2.25}
    assert values(metrics, "memory_bytes") == {
        ("shop", "requested"): 9 * 2**30,
        ("shop", "recommended"): 6 * 2**30,
    }
    assert values(metrics, "cost_per_month") == {
        ("shop", "requested"): pytest.approx(730 * 0.5 * (4.5 * 0.04 + 9 * 0.01)),
        ("shop", "recommended"): pytest.approx(730 * 0.5 * (2.25 * 0.04 + 6 * 0.01)),
    }


def test_cost_is_that_of_what_the_pods_request() -> None:
    """Scan, status and dashboard count one canary of four, which has a quarter of the CPU and half of the memory."""
    app = Container("app", "main", Resources(1000, None, 2 * 2**30, None))
    sizes = [SMALLER.target, app.resources, app.resources, app.resources]
    pods = [pod(f"web-{number}", sizes={"app": size}) for number, size in enumerate(sizes)]
    assert mean_requests([app], []) == mean_requests([app], pods[1:]) == (app,)
    (mean,) = mean_requests([app], pods)
    assert mean.resources == Resources(812, None, 7 * 2**28, None)
    changing = replace(view("shop", pods=4), containers=(app,), requested=(mean,))
    metrics = Metrics()
    CostGauges(metrics, NodePrices(PriceSettings)).update([changing], PriceSettings(), now=NOW)
    assert values(metrics, "cpu_cores") == {("shop", "requested"): 3.248, ("shop", "recommended"): 1.0}
    prices = ResourcePrices()
    row = build_row(changing, {}, prices=prices, now=NOW)
    assert row.cost == pytest.approx(4 * prices.price_requests(mean.resources))
    assert row.cost - row.saving == pytest.approx(4 * prices.price_requests(SMALLER.target))


def test_cost_gauges_name_the_policies_whose_cost_has_changed() -> None:
    gauges, other = CostGauges(Metrics(), NodePrices(PriceSettings)), replace(POLICY, name="shop/other")
    views = [view("shop"), view("bank", policy=other)]
    assert gauges.update(views, PriceSettings(), now=NOW) == {POLICY.name, other.name}
    assert gauges.update(views, PriceSettings(), now=NOW) == set()
    assert gauges.update([view("shop", pods=3), views[1]], PriceSettings(), now=NOW) == {POLICY.name}
    cost = gauges.monthly_cost(other.name)
    assert cost == {"requested": 87.8, "recommended": 47.0, "currency": "$"}
    assert gauges.update(views[:1], PriceSettings(), now=NOW) == {POLICY.name, other.name}
    assert gauges.monthly_cost(other.name) is None


@pytest.mark.parametrize("pods", [0, 1], ids=["between two runs", "while it runs"])
@pytest.mark.parametrize("parallelism", [1, 10])
def test_cost_of_a_cron_job_is_that_of_the_time_in_which_it_runs(parallelism: int, pods: int) -> None:
    gauges = CostGauges(Metrics(), NodePrices(PriceSettings))
    evidence = Evidence(total_run_seconds=3600.0, first_sample_at=NOW - 86400, last_sample_at=NOW - 1800)
    nightly = replace(
        view("shop", pods=parallelism * pods),
        workload=workload("nightly", resource=CRON_JOBS, parallelism=parallelism),
        evidence={"app": evidence},
    )
    gauges.update([nightly], PriceSettings(), now=NOW)
    always = CostGauges(Metrics(), NodePrices(PriceSettings))
    always.update([view("shop", pods=1)], PriceSettings(), now=NOW)
    part, whole = gauges.monthly_cost(POLICY.name), always.monthly_cost(POLICY.name)
    assert part is not None
    assert whole is not None
    assert part["requested"] == pytest.approx(parallelism * whole["requested"] / 24, rel=0.01)


def test_a_monthly_job_pays_for_its_share_of_all_months() -> None:
    """The run time began again with each run, the time that it was divided by did not."""
    tracker, row = EvidenceTracker(1, EvidenceTrackerSettings()), np.array([0])
    for hour in range(360 * 24):
        if hour % 720 < 24:
            used = np.array([0.5])
            tracker.observe(NOW + hour * 3600, used, used * 1e9, sample_seconds=3600.0)
    (evidence,) = tracker.collect_evidence(NOW + 360 * 86400, row, is_long_running=[False])
    monthly = replace(
        view("shop", pods=0), workload=workload("m", resource=CRON_JOBS), evidence={"app": evidence}
    )
    assert count_paid_pods_of_view(monthly, now=NOW + 360 * 86400) == pytest.approx(1 / 30)


def test_cost_gauges_omit_a_cost_that_is_no_number() -> None:
    metrics = Metrics()
    gauges = CostGauges(metrics, NodePrices(PriceSettings))
    evidence = Evidence(total_run_seconds=math.inf, first_sample_at=NOW - 86400, last_sample_at=NOW - 1800)
    broken = replace(view("shop"), workload=workload("job", resource=CRON_JOBS), evidence={"app": evidence})
    other = replace(POLICY, name="shop/other")
    assert gauges.update([broken, view("bank", policy=other)], PriceSettings(), now=NOW) == {other.name}
    assert gauges.monthly_cost(POLICY.name) is None
    assert {namespace for namespace, _ in values(metrics, "cost_per_month")} == {"bank"}


def test_cost_gauges_forget_what_is_gone() -> None:
    metrics = Metrics()
    gauges = CostGauges(metrics, NodePrices(PriceSettings))
    gauges.update([view("shop"), view("bank")], PriceSettings(), now=NOW)
    gauges.update([view("bank")], PriceSettings(), now=NOW)
    assert {namespace for namespace, _ in values(metrics, "cpu_cores")} == {"bank"}
    gauges.clear()
    assert not values(metrics, "cpu_cores")


def test_cost_gauges_keep_the_series_that_are_set_again_and_remove_those_of_a_former_session() -> None:
    metrics = Metrics()
    CostGauges(metrics, NodePrices(PriceSettings)).update([view("bank")], PriceSettings(), now=NOW)
    gauges = CostGauges(metrics, NodePrices(PriceSettings))
    assert not values(metrics, "cpu_cores")
    gauges.update([view("shop")], PriceSettings(), now=NOW)
    series = metrics.cpu_cores.labels("shop", POLICY.name, "requested")
    gauges.update([view("shop", pods=3)], PriceSettings(), now=NOW)
    assert metrics.cpu_cores.labels("shop", POLICY.name, "requested") is series
    assert values(metrics, "cpu_cores")["shop", "requested"] == 4.5
    gauges.clear()
    gauges.update([view("shop", pods=3)], PriceSettings(), now=NOW)
    assert values(metrics, "cpu_cores")["shop", "requested"] == 4.5


async def test_operator_exports_what_its_recommendations_can_save() -> None:
    world = scene([simulated("web", sized(2000, GIB), replicas=3)], flat((0.3, 1e8)))
    async with Simulation(world, policies={"p": OptimizationPolicySpec()}) as simulation:
        await simulation.run(3 * 3600)
        cost = values(simulation.metrics, "cost_per_month")
        requested, recommended = (
            sum(value for (_, kind), value in cost.items() if kind == wanted)
            for wanted in ("requested", "recommended")
        )
        status = simulation._objects.statuses["OptimizationPolicy", simulation.config.namespace, "p"]
    assert requested > 0
    assert 0 < recommended <= requested
    said = status["monthlyCost"]
    assert said == {
        "requested": pytest.approx(requested, rel=0.01),
        "recommended": pytest.approx(recommended, rel=0.01),
        "currency": "$",
    }


USED = LatestUsage(cpu=0.1, memory=2**28)


def applied(number: int = 1) -> HistoryRecord:
    """The container `app` had twice its CPU."""
    before, after = (Resources(cpu, None, 2 * 2**30, None) for cpu in (2000, 1000))
    return HistoryRecord(
        timestamp=NOW,
        cluster="c",
        namespace="shop",
        kind="Deployment",
        name="web",
        what="applied",
        before={"app": to_manifest(before)},
        after={"app": to_manifest(after)},
        who="policy",
        why="",
        id=number,
    )


def test_cost_gauges_show_usage_and_savings_by_policy() -> None:
    metrics, ledger = Metrics(), SavingsLedger()
    ledger.record(applied())
    gauges = CostGauges(metrics, NodePrices(PriceSettings), ledger)
    prices = PriceSettings(cpu=0.04, memory=0.0)
    views = [view("shop"), view("bank")]
    gauges.update(views, prices, now=NOW, usage=lambda _: USED)
    assert values(metrics, "cpu_cores")["shop", "used"] == pytest.approx(0.4)
    assert values(metrics, "cost_per_month")["shop", "used"] == pytest.approx(730 * 0.04 * 0.4)
    assert values(metrics, "savings_per_month") == {
        ("shop", "possible"): pytest.approx(730 * 0.04 * 1.5),
        ("shop", "realised"): pytest.approx(730 * 0.04 * 2.0),
        ("bank", "possible"): pytest.approx(730 * 0.04 * 1.5),
        ("bank", "realised"): 0.0,
    }
    gauges.update(views, prices, now=NOW + 3600.0)
    labels = {"namespace": "shop", "policy": POLICY.name}
    assert metrics.registry.get_sample_value("trimtab_savings", labels) == pytest.approx(0.08)
    assert gauges.savings.total == pytest.approx(0.08)
    assert gauges.savings.per_month == pytest.approx(730 * 0.04 * 2.0)
    assert ("shop", "used") not in values(metrics, "cpu_cores"), "usage is unknown now"
    assert (gauges.monthly_cost(POLICY.name) or {})["saved"] == pytest.approx(58.4)
    gauges.update([], prices, now=NOW + 7200.0)
    assert values(metrics, "savings_per_month") == {}
    assert metrics.registry.get_sample_value("trimtab_savings", labels) is None


@pytest.mark.parametrize(("workloads", "named"), [(0, set()), (1, {"bank"}), (10, {"bank", "shop"})])
def test_cost_gauges_of_workloads_are_those_of_the_most_expensive_as_many_as_configured(
    workloads: int, named: set[str]
) -> None:
    metrics = Metrics()
    gauges = CostGauges(metrics, NodePrices(PriceSettings))
    gauges.update([view("shop"), view("bank", pods=3)], PriceSettings(workloads=workloads), now=NOW)
    assert {namespace for namespace, _ in values(metrics, "workload_cost_per_month")} == named
    assert {namespace for namespace, _ in values(metrics, "workload_savings_per_month")} == named
    gauges.clear()
    assert values(metrics, "workload_cost_per_month") == {}


async def test_operator_exports_dashboard_shows_and_status_has_the_same_savings() -> None:
    world = scene([simulated("web", sized(2000, GIB), replicas=2)], flat((0.3, 1e8)))
    spec = OptimizationPolicySpec(mode=PolicyMode.AUTO)
    async with Simulation(world, policies={"p": spec}) as simulation:
        await simulation.run(5.5 * 3600)
        await simulation.controllers.recorder.flush()  # a task of its own in the operator
        await simulation.run(900)
        savings = values(simulation.metrics, "savings_per_month")["default", "realised"]
        possible = values(simulation.metrics, "savings_per_month")["default", "possible"]
        board = LiveBackend(
            lambda: simulation.controllers.views,
            name="test",
            clock=lambda: simulation.world.control_time,
        )
        await board.refresh()
        overview = await board.overview()
        summary = simulation.controllers.views.savings()
        status = simulation._objects.statuses["OptimizationPolicy", simulation.config.namespace, "p"]
    assert savings > 0
    assert summary.per_month == pytest.approx(savings)
    assert summary.total > 0
    assert overview.money.to_save == pytest.approx(possible)
    assert overview.money.saved == pytest.approx(savings)
    assert overview.money.saved_in_total == pytest.approx(summary.total)
    assert overview.savings
    assert overview.savings.curves[0].values == (overview.money.saved_in_total,)
    assert status["monthlyCost"]["saved"] == float(f"{savings:.3g}")
