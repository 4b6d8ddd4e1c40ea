"""The Intent part of a leader session: build the controller and run it until the session ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Never

from trimtab.actuation.executor import ChangeExecutor
from trimtab.actuation.port import ClusterPort
from trimtab.actuation.rate_limiter import DisruptionLimiter
from trimtab.intents.kpi.client import PromqlKpiClient
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.registry import CHECK_INTERVAL, PluginRegistry
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.rest.object_client import ObjectClient
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.config.reloader import ConfigReloader
from trimtab.operator.intents.controller import IntentController
from trimtab.operator.intents.effect_learner import EffectLearner
from trimtab.operator.intents.executor import PlanExecutor
from trimtab.operator.intents.intent_index import IntentIndex
from trimtab.operator.intents.observer import IntentObserver
from trimtab.operator.intents.planning import PlanningService
from trimtab.operator.intents.safe_sizes import SafeSizeProvider
from trimtab.operator.intents.status_writer import IntentStatusWriter
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.status_writer import EventSink
from trimtab.operator.state import IntentOperatorState
from trimtab.store import Store
from trimtab.usage.source import PromqlClient

_PLUGIN_TYPES = {pb.PLUGIN_TYPE_ACTUATOR: "actuator", pb.PLUGIN_TYPE_PLANNER: "planner"}


class IntentSession:
    """The Intent controller of one leader session; `run` may be called once."""

    def __init__(
        self,
        *,
        client: ObjectClient,
        cluster: ClusterPort,
        cluster_state: ClusterState,
        intent_index: IntentIndex,
        safe_sizes: SafeSizeProvider,
        registry: PluginRegistry,
        events: EventSink,
        promql: PromqlClient | None,
        store: Store,
        cluster_name: str,
        config: ConfigReloader,
        metrics: Metrics,
        limiter: DisruptionLimiter,
        may_write: Callable[[], bool],
        can_resize_in_place: Callable[[], bool],
        memory_limits_fixed: Callable[[Iterable[Pod]], bool],
    ) -> None:
        def settings() -> IntentSettings:
            return config.current.intents

        self._registry = registry
        self._metrics = metrics
        self._kpis = PromqlKpiClient(
            promql, max_age=settings().max_sample_age.seconds, timeout=settings().timeout.seconds
        )
        self.state = IntentOperatorState(
            index=intent_index,
            observer=IntentObserver(cluster_state, intent_index, self._kpis, settings=settings),
            effect_learner=EffectLearner(store, cluster=cluster_name, settings=settings),
        )
        self.controller = IntentController(
            cluster_state=cluster_state,
            intent_index=intent_index,
            observer=self.state.observer,
            planning_service=PlanningService(registry, settings=settings, metrics=metrics),
            safe_sizes=safe_sizes,
            executor=PlanExecutor(
                cluster,
                ChangeExecutor(cluster, may_write=may_write, limiter=limiter),
                may_write=may_write,
                can_resize_in_place=can_resize_in_place,
                memory_limits_fixed=memory_limits_fixed,
                observation_period=lambda: settings().cool_down.seconds / 2,
            ),
            effect_learner=self.state.effect_learner,
            status_writer=IntentStatusWriter(client, events, may_write=may_write),
            config=lambda: config.current,
            can_resize_in_place=can_resize_in_place,
            metrics=metrics,
        )

    async def run(self) -> Never:
        async with self._kpis, asyncio.TaskGroup() as group:
            group.create_task(self._check_plugins())
            group.create_task(self.state.effect_learner.run())
            await self.controller.run()
        raise AssertionError("unreachable")

    async def _check_plugins(self) -> Never:
        while True:
            await asyncio.to_thread(self._registry.check, time.monotonic())
            counts: dict[tuple[str, str], int] = {}
            for known in self._registry.list_all():
                labels = _PLUGIN_TYPES.get(known.info.type, "other"), "no" if known.last_error else "yes"
                counts[labels] = counts.get(labels, 0) + 1
            self._metrics.intent_plugins.clear()
            for (type_, answers), count in counts.items():
                self._metrics.intent_plugins.labels(type_, answers).set(count)
            await asyncio.sleep(CHECK_INTERVAL)
