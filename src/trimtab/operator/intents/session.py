"""The intents' part of a leader's term: joins the parts of the loop, and runs it until the term is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, Never

from trimtab.actuation.executor import Actuator
from trimtab.actuation.port import Cluster
from trimtab.actuation.rate_limiter import Pacer
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.registry import CHECK, Registry
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.rest.object_client import Objects
from trimtab.operator.cluster_state import Catalog
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.config.reloader import LiveConfig
from trimtab.operator.intents.controller import IntentLoop
from trimtab.operator.intents.effect_learner import Lessons
from trimtab.operator.intents.endpoints import Endpoints
from trimtab.operator.intents.executor import Performer
from trimtab.operator.intents.intent_index import Roll
from trimtab.operator.intents.observer import Observer
from trimtab.operator.intents.planning import Planning
from trimtab.operator.intents.safe_sizes import SafeSizes
from trimtab.operator.intents.status_writer import Telling
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.status_writer import Voice
from trimtab.operator.state import IntentDesk
from trimtab.store import Store
from trimtab.usage.prometheus.source import Prometheus
from trimtab.usage.source import Source

_TYPES = {pb.PLUGIN_TYPE_ACTUATOR: "actuator", pb.PLUGIN_TYPE_PLANNER: "planner"}


class IntentTerm:
    """Made anew for each term, and `run` once."""

    def __init__(
        self,
        *,
        client: Objects,
        cluster: Cluster,
        catalog: Catalog,
        roll: Roll,
        safe_sizes: SafeSizes,
        registry: Registry,
        events: Voice,
        usage: Source[Any],
        store: Store,
        name: str,
        config: LiveConfig,
        metrics: Metrics,
        pacer: Pacer,
        may_write: Callable[[], bool],
        resizes_in_place: Callable[[], bool],
        memory_limits_stay: Callable[[Iterable[Pod]], bool],
    ) -> None:
        def settings() -> IntentSettings:
            return config.current.intents

        self._registry = registry
        self._metrics = metrics
        self._endpoints = Endpoints(
            usage if isinstance(usage, Prometheus) else None,
            stale=settings().stale.seconds,
            patience=settings().timeout.seconds,
        )
        self.desk = IntentDesk(
            roll=roll,
            observer=Observer(catalog, roll, self._endpoints, settings=settings),
            lessons=Lessons(store, cluster=name, settings=settings),
        )
        self.loop = IntentLoop(
            catalog=catalog,
            roll=roll,
            observer=self.desk.observer,
            planning=Planning(registry, settings=settings, metrics=metrics),
            safe_sizes=safe_sizes,
            performer=Performer(
                cluster,
                Actuator(cluster, may_write=may_write, pacer=pacer),
                may_write=may_write,
                resizes_in_place=resizes_in_place,
                memory_limits_stay=memory_limits_stay,
                watched=lambda: settings().cool_down.seconds / 2,
            ),
            lessons=self.desk.lessons,
            telling=Telling(client, events, may_write=may_write),
            config=lambda: config.current,
            resizes_in_place=resizes_in_place,
            metrics=metrics,
        )

    async def run(self) -> Never:
        async with self._endpoints, asyncio.TaskGroup() as group:
            group.create_task(self._look_after_plugins())
            group.create_task(self.desk.lessons.run())
            await self.loop.run()
        raise AssertionError("unreachable")

    async def _look_after_plugins(self) -> Never:
        while True:
            await asyncio.to_thread(self._registry.check, time.monotonic())
            counts: dict[tuple[str, str], int] = {}
            for known in self._registry.all():
                place = _TYPES.get(known.info.type, "other"), "no" if known.trouble else "yes"
                counts[place] = counts.get(place, 0) + 1
            self._metrics.intent_plugins.clear()
            for (type_, answers), count in counts.items():
                self._metrics.intent_plugins.labels(type_, answers).set(count)
            await asyncio.sleep(CHECK)
