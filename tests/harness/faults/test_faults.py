from harness.faults import faults
from harness.faults.faults import Asked, FaultPlan

LIST = Asked("GET", "/api/v1/pods", {})
WATCH = Asked("GET", "/api/v1/pods", {"watch": "1"})


def test_fault_plan_gives_the_same_request_the_same_fault() -> None:
    rates = {faults.status(500): 0.3, faults.cut(after=9): 0.3, faults.delay(2): 0.3}
    alone, busy = FaultPlan(rates, seed=7), FaultPlan(rates, seed=7)
    expected = [alone.pick(WATCH) for _ in range(50)]
    met = []
    for number in range(50):
        busy.pick(Asked("GET", f"/api/v1/nodes/{number}", {}))
        met.append(busy.pick(WATCH))
    assert met == expected
    assert len(set(met)) > 10


def test_fault_plan_differs_by_seed() -> None:
    rates = {faults.status(500): 0.5}
    one, other = FaultPlan(rates, seed=1), FaultPlan(rates, seed=2)
    assert [one.pick(LIST) for _ in range(50)] != [other.pick(LIST) for _ in range(50)]


def test_faults_come_about_as_often_as_their_rate_says() -> None:
    plan = FaultPlan({faults.status(429): 0.1, faults.drop(): 0.2}, seed=3)
    picked = [plan.pick(LIST) for _ in range(10_000)]
    assert 900 < picked.count(faults.status(429)) < 1_100
    assert 1_900 < picked.count(faults.drop()) < 2_100


def test_fault_plan_applies_watch_faults_only_to_watches() -> None:
    plan = FaultPlan({faults.cut(): 0.5, faults.gone_event(): 0.5}, seed=5)
    assert [plan.pick(LIST) for _ in range(20)] == [None] * 20
    assert None not in [plan.pick(WATCH) for _ in range(20)]
