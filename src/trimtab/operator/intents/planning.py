"""Who plans for a namespace, and with what: planners and actuators by the configuration, and plugins.

A plan is made in a thread: neither a long search nor a plugin that hangs keeps the loop from anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from trimtab.errors import TrimtabError
from trimtab.intents.actuator import Actuator, actuator
from trimtab.intents.effects.model import Effects
from trimtab.intents.limits import Limits
from trimtab.intents.objective import Goal
from trimtab.intents.plan import Plan
from trimtab.intents.planner import PLANNERS, Budget, Planner, planner
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.registry import Registry
from trimtab.intents.plugins.remote import RemoteActuator, RemotePlanner
from trimtab.intents.state import State
from trimtab.operator.intents.settings import IntentSettings
from trimtab.operator.metrics import Metrics

log = structlog.get_logger(__name__)

BUILT_IN = "astar"


class Planning:
    """Makes plans as the configuration says at the time."""

    def __init__(
        self, registry: Registry, *, settings: Callable[[], IntentSettings], metrics: Metrics
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._metrics = metrics
        self._made_for: IntentSettings | None = None
        self._actuators: list[Actuator] = []
        self._planners: dict[str, Planner] = {}

    def plugins(self) -> dict[str, RemoteActuator]:
        """The actuators that are plugins and answer; one cannot take the name of one that is built in."""
        patience = self._settings().plugins.timeout.seconds
        found = [
            RemoteActuator(known, patience=patience)
            for known in self._registry.present(pb.PLUGIN_TYPE_ACTUATOR)
        ]
        return {each.name: each for each in found if each.name not in self._settings().actuators}

    async def plan(
        self, state: State, goal: Goal, *, effects: Effects, limits: Limits, now: float
    ) -> tuple[Plan, str]:
        """The plan for one intent, and who made it."""
        self._adopt()
        settings = self._settings()
        name = settings.planner_of(goal.namespace)
        chosen, name = self._planner(name)
        actuators = [*self._actuators, *self.plugins().values()]
        deadline = time.monotonic() + settings.planning.seconds
        budget = Budget(states=settings.states, expired=lambda: time.monotonic() > deadline)

        def search() -> Plan:
            return chosen.plan(
                state, goal, actuators=actuators, effects=effects, limits=limits, now=now, budget=budget
            )

        with self._metrics.intent_planning.labels(name).time():
            return await asyncio.to_thread(search), name

    def _planner(self, name: str) -> tuple[Planner, str]:
        if name in PLANNERS.names():
            return self._built_in(name), name
        known = self._registry.get(pb.PLUGIN_TYPE_PLANNER, name)
        if known is None:
            return self._built_in(BUILT_IN), BUILT_IN
        settings = self._settings()
        remote = RemotePlanner(
            known,
            self._built_in(BUILT_IN),
            settings=settings.actuators,
            patience=settings.plugins.timeout.seconds,
        )
        return remote, name

    def _built_in(self, name: str) -> Planner:
        if name not in self._planners:
            self._planners[name] = planner(name)
        return self._planners[name]

    def _adopt(self) -> None:
        settings = self._settings()
        if settings is self._made_for:
            return
        self._made_for = settings
        self._actuators = []
        for name, given in settings.actuators.items():
            try:
                self._actuators.append(actuator(name, **given))
            except TrimtabError as error:
                log.warning("intent.no_actuator", actuator=name, error=str(error))
