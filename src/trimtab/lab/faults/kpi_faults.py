"""Faults of the servers that measure KPIs and guardrails: they do not answer, or what they answer is wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence

from trimtab.intents.kpi.client import KpiClient
from trimtab.intents.kpi.measurement import KpiReading, unknown_reading
from trimtab.intents.kpi.query import KpiQuery
from trimtab.kube.kinds.workloads import Workload
from trimtab.lab.faults.gate import ProcessGate
from trimtab.lab.faults.plan import FaultDetails, FaultInjector, FaultKind
from trimtab.operator.config.model import Guardrail

_CHANGES = ("annotate", "resize")
_AWAY, _WRONG, _FROZEN = "kpi-away", "kpi-wrong", "kpi-frozen"
_BROKEN, _UNKNOWN = "guardrail-broken", "guardrail-unknown"
_FACTORS = (0.0, 0.01, 100.0, -1.0, math.nan, math.inf)


def _draw_share(rng: random.Random, world: object) -> FaultDetails:
    del world
    # The place of the factor, because JSON has no NaN, and each plan can be stored.
    return FaultDetails(share=rng.choice([0.2, 1.0]), amount=float(rng.randrange(len(_FACTORS))))


KINDS = (
    FaultKind(name=_AWAY, sentence="The server that measures KPIs does not answer.", draw=_draw_share),
    FaultKind(
        name=_WRONG,
        sentence="KPIs are 0, a hundred times too low or too high, negative, infinite or NaN.",
        draw=_draw_share,
    ),
    FaultKind(name=_BROKEN, sentence="The guardrails do not hold.", calls=_CHANGES),
    FaultKind(name=_UNKNOWN, sentence="The guardrails cannot be evaluated.", calls=_CHANGES),
    FaultKind(name=_FROZEN, sentence="KPIs repeat the last value before the fault.", draw=_draw_share),
)


class FaultyGuardrails:
    """Implements `GuardrailChecker` for one process: all hold, unless a fault breaks them."""

    def __init__(self, injector: FaultInjector, gate: ProcessGate) -> None:
        self._injector = injector
        self._gate = gate

    async def check_guardrails(
        self, workload: Workload, guardrails: Sequence[Guardrail], *, now: float
    ) -> Mapping[str, bool | None]:
        del now
        self._gate.pass_through("guardrails")
        holds: bool | None = True
        for kind, answer in ((_UNKNOWN, None), (_BROKEN, False)):
            if guardrails and (fault := self._injector.hit(kind)):
                self._injector.record(fault, str(workload.key))
                holds = answer
        return {guardrail.name: holds for guardrail in guardrails}


class FaultyKpis:
    """Implements `KpiClient` for one process."""

    def __init__(self, inner: KpiClient, injector: FaultInjector, gate: ProcessGate) -> None:
        self._inner = inner
        self._injector = injector
        self._gate = gate
        self._last: dict[KpiQuery, KpiReading] = {}

    async def measure(self, queries: Iterable[KpiQuery], *, at: float) -> Mapping[KpiQuery, KpiReading]:
        self._gate.pass_through("measure")
        readings = await self._inner.measure(queries, at=at)
        self._gate.pass_through("measure")
        return {query: self._spoil(query, reading) for query, reading in readings.items()}

    def _spoil(self, query: KpiQuery, reading: KpiReading) -> KpiReading:
        hit, record = self._injector.hit, self._injector.record
        if fault := hit(_AWAY):
            record(fault, query.quantity)
            return unknown_reading("the server did not answer within 10 s")
        if (fault := hit(_WRONG)) and reading.value is not None:
            record(fault, query.quantity)
            return KpiReading.from_value(reading.value * _FACTORS[int(fault.amount)])
        if (fault := hit(_FROZEN)) and query in self._last:
            record(fault, query.quantity)
            return self._last[query]
        self._last[query] = reading
        return reading
