"""Test prices, risks, severities, fail conditions and usage totals."""

from pathlib import Path

import numpy as np
import pytest

from harness.builders.records import workload
from scan.scans import NOW, container, scan_result, workload_finding
from sizing.containers import killed
from trimtab.api.quantity import MIB
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.kube.rest.resources import CRON_JOBS, STATEFUL_SETS
from trimtab.scan.fail_conditions import FailCondition
from trimtab.scan.pricing import ResourcePrices, format_money, read_prices
from trimtab.scan.risk import Risk, Severity, assess_risks, rate_severity
from trimtab.scan.usage_model import UsageAccumulator, UsageTotals
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.usage import PodContainer, Usage


def test_resource_prices_default_to_opencost() -> None:
    month = ResourcePrices().price_requests(Resources(1000, None, 1024 * MIB, None))
    assert month == pytest.approx(730 * (0.031611 + 0.004237))


def test_read_prices_prefers_option_to_file(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("cpu: 0.05\ncurrency: €\n")
    prices = read_prices(file, memory=0.01)
    assert (prices.cpu, prices.memory, prices.currency) == (0.05, 0.01, "€")


@pytest.mark.parametrize(
    "text",
    [
        "- 1",
        "cpu: [",
        "cpu: cheap",
        "gpu: 1",
        "cpu: .nan",
        "cpu: 1.0e+300",
        "1: 2",
        "currency: '[/]'",
        "currency: <b>",
    ],
)
def test_read_prices_rejects_invalid_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "prices").write_text(text)
    with pytest.raises(TrimtabError, match="price"):
        read_prices(tmp_path / "prices")


def found(current: Resources, evidence: Evidence, consumed: UsageTotals) -> tuple[Risk, ...]:
    return assess_risks(Container("app", "main", current), evidence, consumed, rules=PolicyRules(), now=NOW)


def test_assess_risks_reports_oom_peak_at_limit_and_throttling() -> None:
    capped = Resources(100, 200, 64 * MIB, 128 * MIB)
    well = Evidence(samples=9, throttled_share=0.01)
    assert found(capped, well, UsageTotals(memory_peak=100 * MIB)) == ()
    assert found(capped, well, UsageTotals(memory_peak=125 * MIB)) == ("OOM",)
    assert found(Resources(), Evidence(kills=(killed(NOW - 60, 2),)), UsageTotals()) == ("OOM",)
    assert found(capped, Evidence(throttled_share=0.3), UsageTotals()) == ("throttling",)


def test_assess_risks_reports_throttling_at_the_cpu_limit_where_nobody_counts_periods() -> None:
    capped, at_limit = Resources(100, 200, 64 * MIB, None), UsageTotals(cpu_peak=199.0)
    assert found(capped, Evidence(), at_limit) == ("throttling",)
    assert found(capped, Evidence(), UsageTotals(cpu_peak=150.0)) == ()
    assert found(Resources(100, None, 64 * MIB, None), Evidence(), at_limit) == ()
    assert found(capped, Evidence(throttled_share=0.0), at_limit) == ()  # counted, and there was none


def test_assess_risks_reports_oom_until_memory_was_raised() -> None:
    dead = Evidence(kills=(killed(NOW - 7 * 86400, 128 * MIB),))
    assert found(Resources(100, 200, 128 * MIB, 128 * MIB), dead, UsageTotals()) == ("OOM",)
    assert found(Resources(100, 200, 256 * MIB, 256 * MIB), dead, UsageTotals()) == ()
    over = Evidence(kills=(killed(NOW - 9 * 86400, 128 * MIB),))
    assert found(Resources(100, 200, 128 * MIB, 128 * MIB), over, UsageTotals()) == ()


def test_rate_severity_orders_risk_before_cost_before_missing_requests() -> None:
    much, some, less = (Resources(cpu, None, 64 * MIB, None) for cpu in (1000, 100, 80))
    ranked = [
        rate_severity(("OOM",), some, much, instances=1, is_missing_requests=False),
        rate_severity((), much, some, instances=3, is_missing_requests=False),
        rate_severity((), some, much, instances=1, is_missing_requests=True),
        rate_severity((), some, less, instances=1, is_missing_requests=False),
        rate_severity((), some, some, instances=1, is_missing_requests=False),
    ]
    assert ranked == [Severity.CRITICAL, Severity.HIGH, Severity.MEDIUM, Severity.LOW, Severity.NONE]


def test_scan_result_waste_counts_replicas_and_ignores_missing_requests() -> None:
    small, large = Resources(100, None, 0, None), Resources(300, None, 0, None)
    found = scan_result(
        workload_finding("wide", container(current=large, recommended=small, pods=5), pods=5),
        workload_finding("narrow", container(current=small, recommended=large)),
    )
    assert (found.cpu.requested, found.cpu.wasted, found.cpu.missing) == (1600, 1000, 200)
    assert found.wasted == pytest.approx(ResourcePrices().price_cpu(1000))


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("waste", True),
        ("waste>30%", True),
        ("waste>90%", False),
        ("waste>=300", True),
        ("waste > 319", False),
        ("risk", True),
        ("risk>2", False),
        ("oom>=1", True),
        ("throttling>1", False),
        ("UNSET", True),
    ],
)
def test_fail_condition_finds_violation(text: str, broken: bool) -> None:  # noqa: FBT001 - a table of answers
    assert bool(FailCondition.parse(text).find_violation([scan_result()])) is broken


def test_fail_condition_counts_container_with_two_risks_once() -> None:
    size = Resources(100, 200, 64 * MIB, 128 * MIB)
    both = container(current=size, recommended=size, memory=128 * MIB, throttled=0.5)
    found = scan_result(workload_finding("web", both))
    assert (found.count_at_risk("OOM"), found.count_at_risk("throttling")) == (1, 1)
    assert FailCondition.parse("risk>=1").find_violation([found])
    assert not FailCondition.parse("risk>1").find_violation([found])


@pytest.mark.parametrize("text", ["", "waste<3", "risk>30%", "waste>much", "luck>1"])
def test_fail_condition_rejects_invalid_text(text: str) -> None:
    with pytest.raises(TrimtabError, match="--fail-on"):
        FailCondition.parse(text)


def test_usage_accumulator_averages_since_first_sample_without_source_gaps() -> None:
    owners = PodOwnerIndex([workload("db", resource=STATEFUL_SETS)])
    pods = tuple(PodContainer("shop", f"db-{number}", "app") for number in range(2))
    nan = np.nan
    consumption = UsageAccumulator(now=1000.0)
    first = np.array([[nan, nan], [0.5, nan]])
    second = np.array([[0.5, 1.0], [nan, nan]])
    everyone = (*pods, PodContainer("shop", "stranger", "app"))
    for start, cpu, others in ((0.0, first, [0.1, 0.1]), (120.0, second, [0.1, nan])):
        grid = np.column_stack([cpu, others])
        consumption.observe_usage(Usage(everyone, start, 60.0, grid, grid * MIB), owners)
    found = consumption.get(WorkloadContainer("shop", "StatefulSet", "db", "app"))
    assert found == pytest.approx(UsageTotals(1000.0, 1.0 * MIB, 1.5, 1000.0, 1.0 * MIB))
    assert consumption.get(WorkloadContainer("shop", "StatefulSet", "other", "app")) == UsageTotals()


def test_usage_accumulator_counts_idle_time_between_job_runs() -> None:
    owners = PodOwnerIndex([workload("nightly", resource=CRON_JOBS)])
    runs = tuple(PodContainer("shop", f"nightly-2900000{number}-bcdfg", "app") for number in range(2))
    rows = np.full((11, 2), np.nan)
    rows[1:3, 0] = rows[6:8, 1] = 0.5
    consumption = UsageAccumulator(now=9 * 60.0)  # so that the last row is still to come
    for part in (slice(0, 5), slice(5, 11)):
        grid = rows[part]
        consumption.observe_usage(Usage(runs, part.start * 60.0, 60.0, grid, grid * MIB), owners)
    found = consumption.get(WorkloadContainer("shop", "CronJob", "nightly", "app"))
    assert (found.pods, found.cpu) == pytest.approx((4 / 9, 500 * 4 / 9))


def test_usage_accumulator_counts_idle_time_before_first_cron_job_run() -> None:
    owners = PodOwnerIndex([workload("monthly", resource=CRON_JOBS), workload("db", resource=STATEFUL_SETS)])
    everyone = (PodContainer("shop", "db-0", "app"), PodContainer("shop", "monthly-29000000-bcdfg", "app"))
    grid = np.full((10, 2), np.nan)
    grid[2:, 0] = 0.1  # the source has no samples before
    grid[9, 1] = 0.5
    consumption = UsageAccumulator(now=1000.0)
    for part in (slice(0, 5), slice(5, 10)):
        consumption.observe_usage(
            Usage(everyone, part.start * 60.0, 60.0, grid[part], grid[part] * MIB), owners
        )
    name = WorkloadContainer("shop", "CronJob", "monthly", "app")
    assert consumption.get(name, idle_since=-1e6).pods == 1 / 8
    assert consumption.get(name, idle_since=360.0).pods == 1 / 4
    assert consumption.get(name).pods == 1.0


def test_usage_accumulator_counts_idle_time_of_only_cron_job() -> None:
    owners = PodOwnerIndex([workload("monthly", resource=CRON_JOBS)])
    grid = np.full((10, 1), np.nan)
    grid[9] = 0.5
    name = WorkloadContainer("shop", "CronJob", "monthly", "app")
    pods = []
    for knew in (False, True):
        consumption = UsageAccumulator(now=1000.0)
        if knew:
            consumption.mark_known_from_start()
        run = (PodContainer("shop", "monthly-29000000-bcdfg", "app"),)
        consumption.observe_usage(Usage(run, 0.0, 60.0, grid, grid * MIB), owners)
        pods.append(consumption.get(name, idle_since=-1e6).pods)
    assert pods == [1.0, 1 / 10]


def test_usage_accumulator_fills_missing_cpu_at_ends_of_run() -> None:
    owners = PodOwnerIndex([workload("db", resource=STATEFUL_SETS)])
    cpu = np.array([[np.nan], [0.5], [0.7], [np.nan]])
    usage = Usage((PodContainer("shop", "db-0", "app"),), 0.0, 60.0, cpu, np.full((4, 1), 1.0 * MIB))
    consumption = UsageAccumulator(now=1000.0)
    consumption.observe_usage(usage, owners)
    found = consumption.get(WorkloadContainer("shop", "StatefulSet", "db", "app"))
    assert found == pytest.approx(UsageTotals(600.0, 1.0 * MIB, 1.0, 700.0, 1.0 * MIB))


def test_format_money_shows_cents_below_100() -> None:
    assert [format_money(amount) for amount in (0.5, 99.994, 1234.5, -3)] == [
        "$0.50",
        "$99.99",
        "$1,234",
        "-$3.00",
    ]


def test_rate_severity_is_independent_of_currency() -> None:
    current, recommended = Resources(100, None, 128 * MIB, None), Resources(80, None, 96 * MIB, None)
    found = {
        container(
            current=current,
            recommended=recommended,
            prices=ResourcePrices(cpu=0.03 * rate, memory=0.004 * rate),
        ).severity
        for rate in (0.0, 1.0, 155.0, 16000.0)
    }
    assert found == {Severity.LOW}
