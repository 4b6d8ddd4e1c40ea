"""Measure a simulated world in place of a Prometheus: the KPIs of Intents, and guardrails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from trimtab.intents.kpi import query as quantities
from trimtab.intents.kpi.measurement import KpiReading, unknown_reading
from trimtab.intents.kpi.query import KpiQuery
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.operator.config.model import Guardrail


class SimulatedKpiClient:
    """Measures the KPIs and the usage of targets in the simulated world, as it is now."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    async def measure(self, queries: Iterable[KpiQuery], *, at: float) -> dict[KpiQuery, KpiReading]:
        del at
        return {query: self._measure(query) for query in queries}

    def _measure(self, query: KpiQuery) -> KpiReading:
        assert query.target is not None
        key = WorkloadKey(query.target.kind, query.namespace, query.target.name)
        found = self._world.workloads.get(key)
        if found is None:
            return unknown_reading(f"{key} does not exist")
        rows = [row for pod in found.pods.values() for row in pod.rows]
        containers = self._world.container_arrays.containers
        memory = [float(containers.memory[row]) for row in rows]
        match query.quantity:
            case "p99":
                value = float(self._world.latencies[found.number, -1])
            case quantities.LOAD if found.spec.service:
                value = float(self._world.load[found.number]) / found.spec.service.cpu_seconds
            case quantities.CPU:
                value = float(sum(containers.cpu[row] for row in rows))
            case quantities.CPU_PODS:
                value = float(len(found.pods))
            case quantities.MEMORY:
                value = max(memory, default=0.0)
            case quantities.MEMORY_MEDIAN:
                value = median(memory or [0.0])
            case _:
                return unknown_reading(f"{query.quantity} is not simulated")
        return KpiReading.from_value(value)


class SimulatedGuardrails:
    """Guardrails that are satisfied, whatever they query, while a service meets its latency objective."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    async def check_guardrails(
        self, workload: Workload, guardrails: Sequence[Guardrail], *, now: float
    ) -> Mapping[str, bool | None]:
        del now
        found = self._world.workloads[workload.key]
        service, slowest = found.spec.service, float(self._world.latencies[found.number, -1])
        holds = slowest <= service.latency_objective if service and slowest == slowest else None  # noqa: PLR0124 - NaN
        return {guardrail.name: holds for guardrail in guardrails}
