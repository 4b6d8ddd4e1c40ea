"""Who plans for a namespace, and with what: planners and actuators by the configuration, and plugins.

A plan is made in a thread: neither a long search nor a plugin that hangs keeps the loop from anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import structlog

from trimtab.errors import TrimtabError
from trimtab.intents.actuator import Actuator, actuator
from trimtab.intents.arbitration import Claim, Ruling, arbitrate
from trimtab.intents.capacity import Room
from trimtab.intents.constraints import Limits
from trimtab.intents.plan import Plan, Purpose
from trimtab.intents.planner import PLANNERS, Budget, Planner, planner
from trimtab.intents.plugins.client import Allowance, RemoteActuator, RemotePlanner
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.registry import Registry
from trimtab.operator.config.intents import IntentSettings
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
            RemoteActuator(known, patience=patience, allowance=self._allowance())
            for known in self._registry.present(pb.PLUGIN_TYPE_ACTUATOR)
        ]
        return {each.name: each for each in found if each.name not in self._settings().actuators}

    async def plans(self, claims: Sequence[Claim], *, room: Room, now: float) -> dict[str, Ruling]:
        """A plan for each intent, with who has to wait; together they take no more than there is."""
        self._adopt()
        actuators = [*self._actuators, *self.plugins().values()]
        wanted = {claim.goal.namespace: self._settings().planner_of(claim.goal.namespace) for claim in claims}
        planners = {name: self._planner(name) for name in set(wanted.values())}

        def make(claim: Claim, limits: Limits) -> Plan:
            planner_, name = planners[wanted[claim.goal.namespace]]
            with self._metrics.intent_planning.labels(name).time():
                return self._make(planner_, claim, limits, actuators, now)

        return await asyncio.to_thread(arbitrate, claims, room=room, make=make, now=now)

    def name_of(self, namespace: str) -> str:
        """Who plans for a namespace."""
        return self._planner(self._settings().planner_of(namespace))[1]

    def _make(
        self, planner_: Planner, claim: Claim, limits: Limits, actuators: Sequence[Actuator], now: float
    ) -> Plan:
        deadline = time.monotonic() + self._settings().planning.seconds
        budget = Budget(states=self._settings().states, expired=lambda: time.monotonic() > deadline)
        try:
            return planner_.plan(
                claim.state,
                claim.goal,
                actuators=actuators,
                effects=claim.effects,
                limits=limits,
                now=now,
                budget=budget,
            )
        except Exception as error:  # one intent that cannot be planned for is no reason to plan for none
            self._metrics.intent_errors.labels(type(error).__name__).inc()
            log.exception("intent.not_planned", intent=claim.goal.intent)
            why = f"no plan could be made: {error}"
            return Plan(intent=claim.goal.intent, purpose=Purpose.KEEP, why=(why,))

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
            allowance=self._allowance(),
        )
        return remote, name

    def _allowance(self) -> Allowance:
        """As long as a turn is to be: whoever is planned for when it is used up is planned for without the plugin."""
        return Allowance(self._settings().interval.seconds)

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
