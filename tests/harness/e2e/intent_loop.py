"""Run the production Intent controller on the fake cluster in simulated time.

The world is one Deployment shop/web with its kubelet and controller; the test sets the measured value of each query by
a word that it contains.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from actuation.world import KEY, LivePod, World, run
from trimtab.actuation.executor import ChangeExecutor
from trimtab.api.intent import IntentSpec
from trimtab.api.kpiprofile import KPIProfileSpec
from trimtab.intents.kpi.measurement import KpiReading, unknown_reading
from trimtab.intents.kpi.query import KpiQuery
from trimtab.intents.plugins.registry import PluginRegistry
from trimtab.kube.kinds.custom import IntentRecord, KPIProfileRecord, ProfileKey
from trimtab.kube.kinds.hpas import HorizontalPodAutoscaler
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.controller import IntentController
from trimtab.operator.intents.effect_learner import EffectLearner
from trimtab.operator.intents.executor import PlanExecutor
from trimtab.operator.intent_index import IntentIndex, _is_active, _precedence
from trimtab.operator.intents.observer import IntentObserver
from trimtab.operator.intents.planning import PlanningService
from trimtab.operator.intents.safe_sizes import SafeSize
from trimtab.operator.intents.status_writer import IntentStatusWriter
from trimtab.operator.metrics import Metrics
from trimtab.operator.views import IntentViews
from trimtab.store import Store

Value = float | None | Callable[[float], float | None]


@dataclass
class FakeKpiClient:
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

    def _seen(self, live: LivePod) -> Pod:
        """Return the pod with a restart for each container that ever ended."""
        seen = super()._seen(live)
        states = tuple(
            replace(each, restarts=1) if each.last_termination else each for each in seen.container_statuses
        )
        return replace(seen, container_statuses=states)

    async def scale(self, workload: Workload, replicas: int) -> None:
        self.written.append(f"scale {replicas}")
        self.replicas = replicas
        while len(self.pods_by_name) < replicas:
            self.add_pod()
        while len(self.pods_by_name) > replicas:
            self.remove_pod()
        self.version += 1


@dataclass
class WorldCatalog:
    """The cluster's caches, read from the world."""

    world: World
    hpas: list[HorizontalPodAutoscaler] = field(default_factory=list)
    nodes: Sequence[Any] = ()
    quotas: Sequence[Any] = ()

    def list_workloads(self) -> Iterable[Workload]:
        return [run(self.world.get_workload(KEY))]

    def get(self, key: WorkloadKey) -> Workload | None:
        return run(self.world.get_workload(KEY)) if key == KEY else None

    def list_pods(self, workload: Workload) -> Sequence[Pod]:
        return run(self.world.list_pods(workload)) if workload.key == KEY else ()

    @property
    def pods(self) -> Sequence[Pod]:
        return run(self.world.list_pods())

    def list_hpas(self, workload: Workload) -> list[HorizontalPodAutoscaler]:
        return self.hpas

    def active_vpa(self, key: WorkloadKey) -> str:
        return ""

    def unsynced_reason(self, resource: object) -> str:
        return ""


@dataclass
class ListedIntents:
    """Intents and profiles by name, as the cache of the operator has them."""

    intents: list[IntentRecord]
    profiles: list[KPIProfileRecord]

    def controlling_intent(self, target: WorkloadKey) -> IntentRecord | None:
        return min(
            (each for each in self.intents if _is_active(each) and each.target == target),
            key=_precedence,
            default=None,
        )

    def get_profile(self, key: ProfileKey) -> KPIProfileRecord | None:
        return next((each for each in self.profiles if each.key == key), None)


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
class Bed:
    """The loop and everything that a test looks at."""

    loop: IntentController
    world: ScalableWorld
    catalog: WorldCatalog
    listed: ListedIntents
    api: StatusSink
    events: EventSink
    metrics: Metrics
    safe_sizes: FixedSafeSizes

    async def turns(self, count: int, *, seconds: int = 15) -> None:
        for _ in range(count):
            await self.loop.run_once(float(self.world.now))
            self.world.pass_time(seconds)

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
) -> AsyncIterator[Bed]:
    """Put the production loop together over a world; `more` is the rest of the operator's configuration."""
    config = OperatorConfig.model_validate({"intents": settings or {}, **more})
    catalog, listed = WorldCatalog(world), ListedIntents(intents, profiles)
    api, events, metrics, safe_sizes = StatusSink(), EventSink(), Metrics(), FixedSafeSizes()
    the_catalog, the_roll = cast("ClusterState", catalog), cast("IntentIndex", listed)
    async with Store.open(folder / "store.db") as store:
        lessons = EffectLearner(store, cluster="prod", settings=lambda: config.intents)
        loop = IntentController(
            cluster_state=the_catalog,
            intent_index=the_roll,
            observer=IntentObserver(
                the_catalog, the_roll, FakeKpiClient(answers), settings=lambda: config.intents
            ),
            planning_service=PlanningService(
                PluginRegistry(), settings=lambda: config.intents, metrics=metrics
            ),
            safe_sizes=safe_sizes,
            executor=PlanExecutor(
                world,
                ChangeExecutor(world, may_write=lambda: True),
                may_write=lambda: True,
                can_resize_in_place=lambda: True,
                observation_period=lambda: config.intents.cool_down.seconds / 2,
            ),
            effect_learner=lessons,
            status_writer=IntentStatusWriter(cast("Any", api), events, may_write=lambda: True),
            views=IntentViews(),
            config=lambda: config,
            can_resize_in_place=lambda: True,
            metrics=metrics,
        )
        yield Bed(loop, world, catalog, listed, api, events, metrics, safe_sizes)
        await lessons.flush()
