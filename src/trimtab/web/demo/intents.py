"""Run the production Intent controller on the simulated cluster of the demo.

The KPI is the simulated latency of a service. In place of a Prometheus, `_SimulatedPromqlClient` answers the same queries
from the simulated world.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median

import msgspec

from trimtab.actuation.executor import ChangeExecutor
from trimtab.api.intent import IntentSpec, ObjectiveSpec, TargetRef
from trimtab.api.kpiprofile import KPIProfileSpec, KPIType
from trimtab.intents.kpi.client import LABEL
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
from trimtab.operator.intents.endpoints import KpiEndpoints
from trimtab.operator.intents.executor import PlanExecutor
from trimtab.operator.intents.intent_index import IntentIndex
from trimtab.operator.intents.observer import IntentObserver
from trimtab.operator.intents.planning import PlanningService
from trimtab.operator.intents.status_writer import IntentStatusWriter
from trimtab.operator.policy.status_writer import NullEventSink
from trimtab.operator.state import IntentOperatorState
from trimtab.usage.source import Vector

LATENCY = 'simulated_seconds_p99{namespace="$namespace",container="$name"}'
LOAD = 'simulated_requests{namespace="$namespace",container="$name"}'
_QUERY_PART = re.compile(rf'label_replace\(\n(.*?)\n, "{LABEL}", "([^"]*)"', re.DOTALL)
_NAME = re.compile(r'namespace="([^"]*)".*?container="([^"]*)"', re.DOTALL)


class SimulatedIntents:
    """One Intent for one service; call `run_once` once a cycle."""

    def __init__(self, simulation: Simulation, *, service: WorkloadKey, seconds: float) -> None:
        config = OperatorConfig(
            intents=IntentSettings.model_validate(
                {
                    "coolDown": "20m",
                    "releaseAfter": "24h",
                    "learnEvery": "1h",
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
        endpoints = KpiEndpoints(_SimulatedPromqlClient(simulation.world), max_age=900.0, timeout=10.0)
        store, objects = simulation.operator_state.store, simulation.operator_state.objects
        self.state = IntentOperatorState(
            index=index,
            observer=IntentObserver(simulation.cluster_state, index, endpoints, settings=settings),
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


class _SimulatedPromqlClient:
    """Answers the PromQL queries of the controller from the simulated world."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    async def vector(self, promql: str, *, at: float) -> Vector:
        del at  # only the current state is known
        return [({LABEL: label}, value) for label, value in self._answer_queries(promql)]

    def _answer_queries(self, promql: str) -> Iterator[tuple[str, float]]:
        for query, label in _QUERY_PART.findall(promql):
            if label.endswith(" age"):
                yield label, 0.0
            elif (value := self._read_value(query)) is not None:
                yield label, value

    def _read_value(self, query: str) -> float | None:  # noqa: PLR0911 - one return a query
        named = _NAME.search(query)
        found = self._world.workloads.get(WorkloadKey("Deployment", *named.groups())) if named else None
        if found is None:
            return None
        rows = [row for pod in found.pods.values() for row in pod.rows]
        containers = self._world.container_arrays.containers
        if "simulated_seconds_p99" in query:
            return float(self._world.latencies[found.number, -1])
        if "simulated_requests" in query and (service := found.spec.service):
            return float(self._world.load[found.number]) / service.cpu_seconds
        if query.startswith("count("):
            return float(len(found.pods))
        if "cpu_usage" in query:
            return float(sum(containers.cpu[row] for row in rows))
        if "memory_working_set" in query and "quantile" in query:
            return float(median([containers.memory[row] for row in rows] or [0.0]))
        if "memory_working_set" in query:
            return float(max((containers.memory[row] for row in rows), default=0.0))
        return None


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
