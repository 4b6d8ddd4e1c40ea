"""Run the production Intent controller on the fake cluster in simulated time.

The world is one Deployment shop/web with its kubelet and controller; the test sets the measured value of each query by
a word that it contains.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from actuation.world import KEY, LivePod, World, run
from trimtab.api.intent import IntentSpec
from trimtab.api.kpiprofile import KPIProfileSpec
from trimtab.intents.kpi.measurement import KpiReading, unknown_reading
from trimtab.intents.kpi.query import KpiQuery
from trimtab.kube.cache.informer import Scope
from trimtab.kube.cache.projection import Projection, R
from trimtab.kube.cache.store import Cache, Index
from trimtab.kube.kinds.custom import IntentRecord, KPIProfileRecord
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.capabilities import MEMORY_LIMIT_DECREASE_VERSION
from trimtab.kube.rest.object_client import ObjectClient
from trimtab.kube.rest.resources import DEPLOYMENTS, INTENTS, KPI_PROFILES, PODS, Resource
from trimtab.operator.audit import AuditRecorder
from trimtab.operator.cluster_state import FAILED_JOB_PODS
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.controller import IntentController
from trimtab.operator.intents.safe_sizes import SafeSize
from trimtab.operator.metrics import Metrics
from trimtab.operator.wiring import FixedConfig, Operator, Ports, build_operator
from trimtab.store import HistoryRecord, Store
from trimtab.testing import FakeInformerSet

Value = float | None | Callable[[float], float | None]


@dataclass
class ScriptedKpiClient:
    """Answers each query by the first word of `answers` that it contains; None is an empty answer."""

    answers: Mapping[str, Value]

    async def measure(self, queries: Iterable[KpiQuery], *, at: float) -> dict[KpiQuery, KpiReading]:
        return {query: self._read(query, at) for query in queries}

    def _read(self, query: KpiQuery, at: float) -> KpiReading:
        value = next((value for word, value in self.answers.items() if word in query.promql), None)
        value = value(at) if callable(value) else value
        return unknown_reading("the query returns nothing") if value is None else KpiReading.from_value(value)


class ScalableWorld(World):
    """A world whose Deployment can be scaled."""

    def _with_restarts(self, live: LivePod) -> Pod:
        """Return the pod with a restart for each container that ever ended."""
        seen = super()._seen(live)
        states = tuple(
            replace(each, restarts=1) if each.last_termination else each for each in seen.container_statuses
        )
        return replace(seen, container_statuses=states)

    async def scale(self, workload: Workload, replicas: int) -> Workload:
        self._check_version(workload)
        self.written.append(f"scale {replicas}")
        self.replicas = replicas
        while len(self.pods_by_name) < replicas:
            self.add_pod()
        while len(self.pods_by_name) > replicas:
            self.remove_pod()
        return self.workload


class LiveCache(Cache[R]):
    """A cache that reads the world at every call, so that it never lags."""

    def __init__(self, indexes: Mapping[str, Index[R]] | None, read: Callable[[], Sequence[R]]) -> None:
        super().__init__()
        self._functions = dict(indexes or {})
        self._read = read

    def __len__(self) -> int:
        return len(self._read())

    def __iter__(self) -> Iterator[R]:
        return iter(self._read())

    def get(self, name: str, namespace: str = "") -> R | None:
        return next((each for each in self.in_namespace(namespace) if each.name == name), None)

    def in_namespace(self, namespace: str) -> list[R]:
        return [each for each in self._read() if each.namespace == namespace]

    def find(self, index: str, value: Hashable) -> list[R]:
        return [each for each in self._read() if self._functions[index](each) == value]

    def read_index(self, index: str) -> Mapping[Hashable, Collection[R]]:
        return LiveIndex(self._read, self._functions[index])


class LiveIndex(Mapping[Hashable, Collection[R]]):
    """An index that reads the world at every call."""

    def __init__(self, read: Callable[[], Sequence[R]], function: Index[R]) -> None:
        self._read, self._function = read, function

    def __getitem__(self, value: Hashable) -> Collection[R]:
        if found := [each for each in self._read() if self._function(each) == value]:
            return found
        raise KeyError(value)

    def __iter__(self) -> Iterator[Hashable]:
        return iter({value for each in self._read() if (value := self._function(each)) is not None})

    def __len__(self) -> int:
        return len(list(iter(self)))


class WorldInformers(FakeInformerSet):
    """Informers that show the Deployment of a world and its pods as they are; a test puts all other records."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._live: dict[Resource, Callable[[], Sequence[Any]]] = {
            DEPLOYMENTS: lambda: [run(world.get_workload(KEY))],
            PODS: lambda: run(world.list_pods()),
        }

    def watch_resource(
        self,
        resource: Resource,
        projection: Projection[R],
        *,
        scope: Scope | None = None,
        indexes: Mapping[str, Index[R]] | None = None,
        optional: bool = False,
    ) -> Cache[R]:
        if resource in self._live and scope != FAILED_JOB_PODS:
            return LiveCache(indexes, self._live[resource])
        return super().watch_resource(resource, projection, scope=scope, indexes=indexes, optional=optional)


class CurrentFeatures:
    """The features of a cluster of a current version."""

    can_resize_in_place = True
    version = MEMORY_LIMIT_DECREASE_VERSION

    async def detect(self) -> None:
        """Know them already."""


@dataclass
class FixedSafeSizes:
    """Answers that the same is safe for every workload."""

    answer: SafeSize = field(default_factory=lambda: SafeSize(0.0, ""))

    async def get_safe_size(
        self, workload: Workload, pods: Sequence[Pod], main: str, *, now: float
    ) -> SafeSize:
        return self.answer


@dataclass
class StatusSink:
    """Keeps the last status that was written of each object."""

    statuses: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def apply(self, resource: object, body: dict[str, Any], **_: object) -> None:
        self.statuses[body["metadata"]["name"]] = body["status"]


@dataclass
class EventSink:
    events: list[tuple[str, str, str]] = field(default_factory=list)

    def record(self, about: object, *, type: str, reason: str, message: str, action: str) -> None:  # noqa: A002 - its name in the API
        self.events.append((type, reason, message))


@dataclass
class IntentTestBed:
    """The loop and everything that a test looks at."""

    loop: IntentController
    world: ScalableWorld
    operator: Operator
    informers: WorldInformers
    api: StatusSink
    events: EventSink
    metrics: Metrics
    safe_sizes: FixedSafeSizes
    recorder: AuditRecorder
    store: Store

    async def run_cycles(self, count: int, *, seconds: int = 15) -> None:
        for _ in range(count):
            await self.loop.run_once(float(self.world.now))
            self.world.pass_time(seconds)

    async def history(self) -> list[HistoryRecord]:
        """Return the history of the workload, oldest first."""
        await self.recorder.flush()
        return list(reversed(await self.store.history.find()))

    def status(self, name: str = "web") -> dict[str, Any]:
        return self.api.statuses[name]

    def conditions(self, name: str = "web") -> dict[str, str]:
        return {each["type"]: each["status"] for each in self.status(name)["conditions"]}

    def message(self, condition: str, name: str = "web") -> str:
        return next(
            str(each["message"]) for each in self.status(name)["conditions"] if each["type"] == condition
        )

    @property
    def cpu_limits(self) -> set[int | None]:
        return {each.cpu_limit for live in self.world.pods_by_name.values() for each in live.applied.values()}

    @property
    def memory_limits(self) -> set[int | None]:
        return {
            each.memory_limit for live in self.world.pods_by_name.values() for each in live.applied.values()
        }


def intent(
    name: str = "web",
    *,
    objectives: Sequence[Mapping[str, Any]],
    namespace: str = "shop",
    target: str = "web",
    uid: str = "",
    created: int = 0,
    **spec: Any,
) -> IntentRecord:
    made = IntentSpec.model_validate({"targetRef": {"name": target}, "objectives": list(objectives), **spec})
    return IntentRecord(namespace, name, uid or f"uid-{name}", 1, 1, created, made, "", b"{}")


def profile(name: str, *, namespace: str = "shop", **spec: Any) -> KPIProfileRecord:
    return KPIProfileRecord(
        namespace, name, f"uid-{name}", 1, 1, 0, KPIProfileSpec.model_validate(spec), "", b"{}"
    )


@asynccontextmanager
async def bed(
    world: ScalableWorld,
    intents: list[IntentRecord],
    profiles: list[KPIProfileRecord],
    answers: Mapping[str, Value],
    *,
    folder: Path,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> AsyncIterator[IntentTestBed]:
    """Build the production operator over a world; `more` is the rest of its configuration."""
    config = OperatorConfig.model_validate({"intents": settings or {}, **more})
    informers = WorldInformers(world)
    api, events, metrics, safe_sizes = StatusSink(), EventSink(), Metrics(), FixedSafeSizes()
    async with Store.open(folder / "store.db") as store:
        operator = build_operator(
            Ports(
                informers=informers,
                objects=cast("ObjectClient", api),
                cluster=lambda _: world,
                features=CurrentFeatures(),
                events=events,
                sources={},
                store=store,
                config=FixedConfig(config),
                metrics=metrics,
                kpis=ScriptedKpiClient(answers),
                safe_sizes=safe_sizes,
            )
        )
        for found in profiles:
            informers.put(KPI_PROFILES, found)
        for wanted in intents:
            informers.put(INTENTS, wanted)
        controllers = operator.build_controllers(may_write=lambda: True, enqueue=lambda _: None)
        yield IntentTestBed(
            controllers.intent_controller,
            world,
            operator,
            informers,
            api,
            events,
            metrics,
            safe_sizes,
            controllers.recorder,
            store,
        )
        await controllers.effect_learner.flush()
