"""Objects beside workloads: drawn worlds have Intents and autoscalers, and faults create, edit and delete them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from trimtab.intents.kpi.measurement import KpiReading
from trimtab.intents.kpi.query import KpiQuery
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import HPAS, INTENTS, KPI_PROFILES, VPAS
from trimtab.lab.faults.companions import Companions, HpaDraw, IntentDraw, VpaDraw
from trimtab.lab.faults.gate import ProcessGate
from trimtab.lab.faults.kpi_faults import FaultyKpis
from trimtab.lab.faults.plan import Fault, FaultInjector, FaultPlan
from trimtab.lab.faults.trace import RunTrace
from trimtab.lab.faults.worlds import draw_world

WEB = WorkloadKey("Deployment", "shop", "web")


def test_companions_are_objects_that_the_operator_reads() -> None:
    companions = Companions(
        intents=(IntentDraw(name="fast", target=WEB, objectives={"p99": 0.1}),),
        vpas=(VpaDraw(target=WEB, updates_pods=True),),
        hpas=(HpaDraw(target=WEB, cpu=60),),
    )
    built = list(companions.build(["shop"]))
    (intent,), (vpa,), (hpa,) = [
        [record for each, record in built if each == resource] for resource in (INTENTS, VPAS, HPAS)
    ]
    assert intent.target == WEB
    assert vpa.updates_pods
    assert hpa.target.name == "web"
    profiles = {record.name for each, record in built if each == KPI_PROFILES}
    assert {each.measured_by for each in intent.spec.objectives} <= profiles


def test_worlds_have_objects_of_all_kinds() -> None:
    drawn = [draw_world(seed).companions for seed in range(40)]
    for field in Companions.__struct_fields__:
        count = sum(bool(getattr(each, field)) for each in drawn)
        assert 2 < count < 30, field


class _Latency:
    """A server whose latency rises with each measurement."""

    def __init__(self) -> None:
        self.value = 0.0

    async def measure(self, queries: Iterable[KpiQuery], *, at: float) -> dict[KpiQuery, KpiReading]:
        del at
        self.value += 1.0
        return {query: KpiReading.from_value(self.value) for query in queries}


@pytest.mark.parametrize(
    ("kind", "amount", "during"),
    [
        ("kpi-away", 0.0, None),
        ("kpi-wrong", 2.0, 200.0),
        ("kpi-wrong", 4.0, None),
        ("kpi-frozen", 0.0, 1.0),
    ],
)
async def test_faulty_kpis_are_wrong_only_while_the_fault_lasts(
    kind: str, amount: float, during: float | None
) -> None:
    now = [0.0]
    plan = FaultPlan(faults=(Fault(kind=kind, start=10.0, end=20.0, amount=amount, seed=1),))
    injector = FaultInjector(plan, elapsed=lambda: now[0], trace=RunTrace(lambda: now[0]))
    kpis, query = FaultyKpis(_Latency(), injector, ProcessGate("operator-1")), KpiQuery("up")
    found = []
    for now[0] in (0.0, 15.0, 25.0):
        found.append((await kpis.measure([query], at=now[0]))[query].value)
    assert found == [1.0, during, 3.0]
    assert injector.counts == {kind: 1}
