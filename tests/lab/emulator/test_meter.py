"""The meter of a stress pod by cAdvisor's counters, and the log of a run."""

import math

import pytest

from trimtab.lab.emulator.meter import Counters, diff_counters, parse_counters
from trimtab.lab.emulator.run_log import PeriodRecord, RunLog

MIB = 2.0**20
LABELS = 'container="burner",id="/kubepods/x",image="i",name="n",namespace="lab",pod="a-1"'
TEXT = f"""# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{{container="",cpu="total",namespace="lab",pod="a-1"}} 99 1700000000000
container_cpu_usage_seconds_total{{cpu="total",{LABELS}}} 12.5 1700000000500
container_cpu_usage_seconds_total{{cpu="total",{LABELS}}} 3.5 1690000000000
container_memory_working_set_bytes{{{LABELS}}} 3.3554432e+07 1700000000400
container_cpu_cfs_periods_total{{{LABELS}}} 200 1700000000500
container_cpu_cfs_throttled_periods_total{{{LABELS}}} 50 1700000000500
container_cpu_usage_seconds_total{{cpu="total",{LABELS.replace("lab", "other")}}} 7 1700000000500
"""


def test_meter_finds_the_latest_counters_of_its_pods() -> None:
    assert parse_counters(TEXT, "lab") == {"a-1": Counters(1700000000.5, 12.5, 32 * MIB, 200.0, 50.0)}
    assert parse_counters(TEXT, "nobody") == {}


def test_meter_reports_the_time_between_two_readings() -> None:
    before = Counters(at=100.0, cpu=10.0, memory=1.0, periods=100.0, throttled=10.0)
    used = diff_counters(before, Counters(at=110.0, cpu=15.0, memory=2.0, periods=200.0, throttled=60.0))
    assert used == (0.5, 2.0, 0.5)


def test_meter_reports_no_cpu_right_after_a_restart() -> None:
    used = diff_counters(Counters(at=100.0, cpu=10.0), Counters(at=110.0, cpu=1.0, memory=3.0))
    assert math.isnan(used.cpu)
    assert used.memory == 3.0
    assert math.isnan(diff_counters(None, None).memory)


def test_meter_journal_sums_demand_usage_requests_and_harm() -> None:
    def entry(period: int, *, wanted: float, used: float, killed: bool = False) -> PeriodRecord:
        return PeriodRecord(period, "a", wanted, 10 * MIB, used, 5 * MIB, 0.5, 20 * MIB, 0.25, killed)

    rows = [entry(0, wanted=0.4, used=0.4), entry(1, wanted=0.8, used=0.5, killed=True)]
    summary = RunLog([*rows, entry(2, wanted=0.1, used=math.nan)]).summary()
    assert summary["periods"] == 3
    assert summary["cpu_unserved"] == pytest.approx(0.3 / 1.2)
    assert summary["cpu_slack"] == pytest.approx(0.1 / 1.0)
    assert summary["memory_slack"] == pytest.approx(0.75)
    assert summary["throttled"] == 0.25
    assert summary["ooms"] == 1
    assert math.isnan(RunLog().summary()["cpu_slack"])
