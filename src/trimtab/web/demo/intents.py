"""An intent in the demo: the production loop of intents on the simulated cluster, a turn a step.

Its KPI is what the simulator says of a service's slowest requests. Where production asks a Prometheus, here `_Teller`
answers the same questions from the simulated world.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median

import msgspec

from trimtab.actuation.executor import Actuator
from trimtab.api.intent import IntentSpec, Objective, TargetRef
from trimtab.api.kpiprofile import KPIProfileSpec, KPIType
from trimtab.intents.kpi.client import LABEL, Vector
from trimtab.intents.plugins.registry import Registry
from trimtab.kube.kinds.custom import Intent, KPIProfile
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import INTENTS, KPI_PROFILES
from trimtab.lab.simulator.simulation import Stage
from trimtab.lab.simulator.world import World
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.controller import IntentLoop
from trimtab.operator.intents.effect_learner import Lessons
from trimtab.operator.intents.endpoints import Endpoints
from trimtab.operator.intents.executor import Performer
from trimtab.operator.intents.intent_index import Roll
from trimtab.operator.intents.observer import Observer
from trimtab.operator.intents.planning import Planning
from trimtab.operator.intents.status_writer import Telling
from trimtab.operator.policy.status_writer import Silence
from trimtab.operator.state import IntentDesk

LATENCY = 'simulated_seconds_p99{namespace="$namespace",container="$name"}'
LOAD = 'simulated_requests{namespace="$namespace",container="$name"}'
_PART = re.compile(rf'label_replace\(\n(.*?)\n, "{LABEL}", "([^"]*)"', re.DOTALL)
_NAME = re.compile(r'namespace="([^"]*)".*?container="([^"]*)"', re.DOTALL)


class SimulatedIntents:
    """One intent about one service; `turn` once a step."""

    def __init__(self, stage: Stage, *, service: WorkloadKey, seconds: float) -> None:
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

        self._stage = stage
        roll = Roll(self._stage.following)
        self._stage.following.put(KPI_PROFILES, _profile(service.namespace))
        self._intent = _intent(service, seconds)
        self._stage.following.put(INTENTS, self._intent)
        endpoints = Endpoints(_Teller(stage.world), stale=900.0, patience=10.0)
        store, objects = stage.desk.store, stage.desk.objects
        self.desk = IntentDesk(
            roll=roll,
            observer=Observer(stage.catalog, roll, endpoints, settings=settings),
            lessons=Lessons(store, cluster=stage.desk.name, settings=settings),
        )
        self._loop = IntentLoop(
            catalog=stage.catalog,
            roll=roll,
            observer=self.desk.observer,
            planning=Planning(Registry(), settings=settings, metrics=stage.metrics),
            safe_sizes=stage.safe_sizes,
            performer=Performer(
                stage.cluster,
                Actuator(stage.cluster, may_write=lambda: True),
                may_write=lambda: True,
                resizes_in_place=lambda: True,
                watched=lambda: settings().cool_down.seconds / 2,
            ),
            lessons=self.desk.lessons,
            telling=Telling(objects, Silence(), may_write=lambda: True),
            config=lambda: config,
            resizes_in_place=lambda: True,
            metrics=stage.metrics,
        )

    async def turn(self) -> None:
        await self._loop.turn(self._stage.world.time)
        await self.desk.lessons.flush()
        self._stage.following.refresh()
        found = await self._stage.desk.objects.get(
            INTENTS, self._intent.name, namespace=self._intent.namespace
        )
        self._intent = msgspec.structs.replace(
            self._intent, status=msgspec.json.encode(found["status"]), version=self._intent.version + 1
        )
        self._stage.following.put(INTENTS, self._intent)


class _Teller:
    """Answers what the loop asks, as PromQL that it writes itself, from the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def vector(self, promql: str, *, at: float) -> Vector:
        del at  # of now alone
        return [({LABEL: mark}, value) for mark, value in self._answers(promql)]

    def _answers(self, promql: str) -> Iterator[tuple[str, float]]:
        for query, mark in _PART.findall(promql):
            if mark.endswith(" age"):
                yield mark, 0.0
            elif (value := self._value(query)) is not None:
                yield mark, value

    def _value(self, query: str) -> float | None:  # noqa: PLR0911 - one return a query
        named = _NAME.search(query)
        found = self._world.workloads.get(WorkloadKey("Deployment", *named.groups())) if named else None
        if found is None:
            return None
        rows = [row for pod in found.pods.values() for row in pod.rows]
        containers = self._world.rows.containers
        if "simulated_seconds_p99" in query:
            return float(self._world.times[found.number, -1])
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


def _profile(namespace: str) -> KPIProfile:
    return KPIProfile(
        namespace=namespace,
        name="p99",
        uid="kpi-p99",
        version=1,
        generation=1,
        spec=KPIProfileSpec(type=KPIType.LATENCY, query=LATENCY, props={"load": LOAD}),
        problem="",
        status=b"{}",
    )


def _intent(service: WorkloadKey, seconds: float) -> Intent:
    return Intent(
        namespace=service.namespace,
        name=f"{service.name}-fast",
        uid=f"intent-{service.name}",
        version=1,
        generation=1,
        created=0,
        spec=IntentSpec(
            target_ref=TargetRef(name=service.name),
            priority=0.9,
            objectives=(Objective(name="p99", value=seconds, measured_by="p99", tolerance=0.1),),
        ),
        problem="",
        status=b"{}",
    )
