"""Fault plans: faults that begin with a call of the operator, and plans that have all kinds."""

from __future__ import annotations

import msgspec
import pytest

from trimtab.lab.faults.catalog import FAULT_KINDS, draw_faults
from trimtab.lab.faults.plan import DEALT_PER_SEED, Fault, FaultInjector, FaultPlan
from trimtab.lab.faults.runner import FaultCase, draw_case
from trimtab.lab.faults.trace import RunTrace


def make_injector(*faults: Fault, now: list[float]) -> FaultInjector:
    return FaultInjector(FaultPlan(faults=faults), elapsed=lambda: now[0], trace=RunTrace(lambda: now[0]))


def test_fault_begins_with_its_call_and_ends_in_its_window() -> None:
    now = [0.0]
    fault = Fault(kind="k", start=100.0, end=500.0, call="resize", nth=2, lasts=300.0, seed=1)
    injector, begun = make_injector(fault, now=now), list[Fault]()
    injector.subscribe(begun.append)
    for now[0] in (50.0, 60.0, 150.0):  # two calls before the window do not count
        injector.count_call("resize")
    injector.count_call("annotate")
    assert injector.hit("k") is None
    assert injector.timed_plan().faults == ()
    now[0] = 300.0
    injector.count_call("resize")
    assert begun == [fault]
    assert injector.hit("k") is fault
    assert injector.period(fault) == (300.0, 500.0)
    (timed,) = injector.timed_plan().faults
    assert (timed.start, timed.end, timed.call) == (300.0, 500.0, "")
    now[0] = 500.0
    assert injector.hit("k") is None


def test_fault_of_a_workload_begins_with_a_call_about_it() -> None:
    now, web = [1.0], "Deployment shop/web"
    fault = Fault(kind="k", start=0.0, end=500.0, target=web, call="resize", lasts=300.0, seed=1)
    injector = make_injector(fault, now=now)
    injector.count_call("resize", "Deployment shop/web-2 pod web-2-1")
    assert injector.hit("k", web) is None
    injector.count_call("resize", f"{web} pod web-1")
    assert injector.hit("k", web) is fault


def test_fault_without_its_call_begins_at_the_latest_time() -> None:
    now = [1.0]
    fault = Fault(kind="k", start=0.0, end=500.0, call="resize", lasts=50.0, latest=200.0, seed=1)
    injector = make_injector(fault, now=now)
    injector.count_call("lease")
    assert injector.hit("k") is None
    now[0] = 210.0
    injector.count_call("lease")
    assert injector.period(fault) == (210.0, 260.0)


@pytest.mark.parametrize("seed", range(30))
def test_case_is_the_same_after_it_was_stored(seed: int) -> None:
    """A factor of infinity or NaN would be stored as null."""
    case = draw_case(seed, "heavy")
    assert msgspec.json.decode(msgspec.json.encode(case), type=FaultCase) == case


def test_fault_with_a_time_is_known_to_listeners_at_once() -> None:
    fault, begun = Fault(kind="k", start=1.0, end=2.0, seed=1), list[Fault]()
    make_injector(fault, now=[0.0]).subscribe(begun.append)
    assert begun == [fault]


def test_consecutive_seeds_have_every_kind_of_fault() -> None:
    world = draw_case(0, "heavy").world
    deck = sum(max(1, round(2 * kind.weight)) for kind in FAULT_KINDS)
    seeds = range(2 * deck // 5)  # of each seed, at least five faults are dealt
    drawn = {
        fault.kind for seed in seeds for fault in draw_faults(world, seed=seed, intensity="heavy").faults
    }
    assert drawn == {kind.name for kind in FAULT_KINDS}
    assert DEALT_PER_SEED > 5


@pytest.mark.parametrize("seed", range(5))
def test_plans_end_before_demand_is_stationary(seed: int) -> None:
    case = draw_case(seed, "heavy")
    assert all(fault.start < fault.end for fault in case.plan.faults)
    assert case.plan.end < case.world.calm_at + 24 * 3600
