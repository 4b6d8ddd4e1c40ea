"""Run the production Intent controller on the simulated cluster of the demo.

The KPI is the simulated latency of a service. In place of a Prometheus, `_SimulatedKpiClient` measures the simulated
world.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import msgspec

from trimtab.actuation.executor import ChangeExecutor
from trimtab.api.intent import IntentSpec, ObjectiveSpec, TargetRef
from trimtab.api.kpiprofile import KPIProfileSpec, KPIType
from trimtab.intents.kpi import query as quantities
from trimtab.intents.kpi.measurement import KpiReading, unknown_reading
from trimtab.intents.kpi.query import KpiQuery
from trimtab.intents.plugins.registry import PluginRegistry
from trimtab.kube.kinds.custom import IntentRecord, KPIProfileRecord
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import INTENTS, KPI_PROFILES
from trimtab.lab.simulator.simulation import Simulation
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.controller import IntentController
from trimtab.operator.intents.effect_learner import EffectLearner
from trimtab.operator.intents.executor import PlanExecutor
from trimtab.operator.intents.intent_index import IntentIndex
from trimtab.operator.intents.observer import IntentObserver
from trimtab.operator.intents.planning import PlanningService
from trimtab.operator.intents.status_writer import IntentStatusWriter
from trimtab.operator.policy.status_writer import NullEventSink
from trimtab.operator.state import IntentOperatorState

LATENCY = 'simulated_seconds_p99{namespace="$namespace",container="$name"}'
LOAD = 'simulated_requests{namespace="$namespace",container="$name"}'


class SimulatedIntents:
    """One Intent for one service; call `run_once` once a cycle."""

    def __init__(self, simulation: Simulation, *, service: WorkloadKey, seconds: float) -> None:
        config = OperatorConfig(
            intents=IntentSettings.model_validate(
                {
                    "coolDown": "20m",
                    "releaseAfter": "24h",
                    "learningInterval": "1h",
                    "stale": "15m",
                    "guardrails": [{"maxReplicas": 8, "explore": True}],
                }
            )
        )

        def settings() -> IntentSettings:
            return config.intents

        self._simulation = simulation
        index = IntentIndex(self._simulation.informers)
        self._simulation.informers.put(KPI_PROFILES, _build_profile(service.namespace))
        self._intent = _build_intent(service, seconds)
        self._simulation.informers.put(INTENTS, self._intent)
        kpis = _SimulatedKpiClient(simulation.world)
        store, objects = simulation.operator_state.store, simulation.operator_state.objects
        self.state = IntentOperatorState(
            index=index,
            observer=IntentObserver(simulation.cluster_state, index, kpis, settings=settings),
            effect_learner=EffectLearner(
                store, cluster=simulation.operator_state.cluster_name, settings=settings
            ),
        )
        self._controller = IntentController(
            cluster_state=simulation.cluster_state,
            intent_index=index,
            observer=self.state.observer,
            planning_service=PlanningService(PluginRegistry(), settings=settings, metrics=simulation.metrics),
            safe_sizes=simulation.safe_sizes,
            executor=PlanExecutor(
                simulation.cluster,
                ChangeExecutor(simulation.cluster, may_write=lambda: True),
                may_write=lambda: True,
                can_resize_in_place=lambda: True,
                observation_period=lambda: settings().cool_down.seconds / 2,
            ),
            effect_learner=self.state.effect_learner,
            status_writer=IntentStatusWriter(objects, NullEventSink(), may_write=lambda: True),
            config=lambda: config,
            can_resize_in_place=lambda: True,
            metrics=simulation.metrics,
        )

    async def run_once(self) -> None:
        await self._controller.run_once(self._simulation.world.control_time)
        await self.state.effect_learner.flush()
        self._simulation.informers.sync()
        found = await self._simulation.operator_state.objects.get(
            INTENTS, self._intent.name, namespace=self._intent.namespace
        )
        self._intent = msgspec.structs.replace(
            self._intent, status=msgspec.json.encode(found["status"]), version=self._intent.version + 1
        )
        self._simulation.informers.put(INTENTS, self._intent)


class _SimulatedKpiClient:
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


def _build_profile(namespace: str) -> KPIProfileRecord:
    return KPIProfileRecord(
        namespace=namespace,
        name="p99",
        uid="kpi-p99",
        version=1,
        generation=1,
        spec=KPIProfileSpec(type=KPIType.LATENCY, query=LATENCY, props={"load": LOAD}),
        problem="",
        status=b"{}",
    )


def _build_intent(service: WorkloadKey, seconds: float) -> IntentRecord:
    return IntentRecord(
        namespace=service.namespace,
        name=f"{service.name}-fast",
        uid=f"intent-{service.name}",
        version=1,
        generation=1,
        created=0,
        spec=IntentSpec(
            target_ref=TargetRef(name=service.name),
            priority=0.9,
            objectives=(ObjectiveSpec(name="p99", value=seconds, measured_by="p99", tolerance=0.1),),
        ),
        problem="",
        status=b"{}",
    )
