"""The planners and actuators of each namespace, from the configuration and from plugins.

Plans are made in a thread, so that neither a long search nor a hanging plugin blocks the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import structlog

from trimtab.errors import TrimtabError
from trimtab.intents.actuator import Actuator, actuator
from trimtab.intents.arbitration import PlanDecision, PlanRequest, arbitrate
from trimtab.intents.capacity import Capacity
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.planner import PLANNERS, Plan, Planner, Purpose, SearchBudget, create_planner
from trimtab.intents.plugins.client import RemoteActuator, RemotePlanner, TimeBudget
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.registry import PluginRegistry
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.metrics import Metrics

log = structlog.get_logger(__name__)

DEFAULT_PLANNER = "astar"
MAX_SHARE_OF_NAMESPACE = 0.1
"""The share of the interval in which the plans of one namespace are searched; later ones take the first that is found."""


class PlanningService:
    """The service that makes plans with the current configuration."""

    def __init__(
        self, registry: PluginRegistry, *, settings: Callable[[], IntentSettings], metrics: Metrics
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._metrics = metrics
        self._loaded_settings: IntentSettings | None = None
        self._actuators: list[Actuator] = []
        self._planners: dict[str, Planner] = {}

    def plugin_actuators(self) -> dict[str, RemoteActuator]:
        """Return the available actuator plugins; a plugin cannot replace a built-in actuator."""
        timeout = self._settings().plugins.timeout.seconds
        found = [
            RemoteActuator(known, timeout=timeout, time_budget=self._create_time_budget())
            for known in self._registry.list_available(pb.PLUGIN_TYPE_ACTUATOR)
        ]
        # A built-in actuator is bound by its guards; a plugin of the same name would act without them.
        return {each.name: each for each in found if each.name not in self._settings().actuators}

    async def plan_requests(
        self, requests: Sequence[PlanRequest], *, capacity: Capacity, now: float
    ) -> dict[str, PlanDecision]:
        """Plan for each Intent, so that all plans together fit the capacity."""
        self._reload_actuators()
        actuators = [*self._actuators, *self.plugin_actuators().values()]
        wanted = {
            request.goal.namespace: self._settings().planner_for(request.goal.namespace)
            for request in requests
        }
        planners = {name: self._resolve_planner(name) for name in set(wanted.values())}
        spent: defaultdict[str, float] = defaultdict(float)

        def make(request: PlanRequest, limits: PlanConstraints) -> Plan:
            namespace = request.goal.namespace
            planner_, name = planners[wanted[namespace]]
            # Plans are made one after the other: those of one namespace must not use up the cycle of all.
            left = self._settings().interval.seconds * MAX_SHARE_OF_NAMESPACE - spent[namespace]
            started = time.monotonic()
            try:
                with self._metrics.intent_planning_duration.labels(name).time():
                    return self._make_plan(planner_, request, limits, actuators, now, left)
            finally:
                spent[namespace] += time.monotonic() - started

        # In a thread: a search may take seconds, during which the Lease must be renewed and webhooks
        # answered.
        return await asyncio.to_thread(arbitrate, requests, capacity=capacity, make=make, now=now)

    def planner_name(self, namespace: str) -> str:
        """Return the name of the planner of a namespace."""
        return self._resolve_planner(self._settings().planner_for(namespace))[1]

    def _make_plan(
        self,
        planner_: Planner,
        request: PlanRequest,
        limits: PlanConstraints,
        actuators: Sequence[Actuator],
        now: float,
        left: float,
    ) -> Plan:
        deadline = time.monotonic() + min(left, self._settings().planning_timeout.seconds)
        budget = SearchBudget(
            max_states=self._settings().max_states, is_expired=lambda: time.monotonic() > deadline
        )
        try:
            return planner_.plan(
                request.state,
                request.goal,
                actuators=actuators,
                effects=request.effects,
                limits=limits,
                now=now,
                budget=budget,
            )
        except Exception as error:  # an error in one Intent's plan must not block the others
            self._metrics.intent_errors.labels(type(error).__name__).inc()
            log.exception("intent.planning_failed", intent=request.goal.intent)
            why = f"no plan could be made: {error}"
            return Plan(intent=request.goal.intent, purpose=Purpose.KEEP, why=(why,))

    def _resolve_planner(self, name: str) -> tuple[Planner, str]:
        if name in PLANNERS.names():
            return self._built_in_planner(name), name
        known = self._registry.get(pb.PLUGIN_TYPE_PLANNER, name)
        # A planner plugin that is gone must not leave its Intents without plans.
        if known is None:
            return self._built_in_planner(DEFAULT_PLANNER), DEFAULT_PLANNER
        settings = self._settings()
        remote = RemotePlanner(
            known,
            self._built_in_planner(DEFAULT_PLANNER),
            settings=settings.actuators,
            timeout=settings.plugins.timeout.seconds,
            time_budget=self._create_time_budget(),
        )
        return remote, name

    def _create_time_budget(self) -> TimeBudget:
        """Create a budget of one interval; when it is used up, the remaining Intents are planned without the
        plugin.
        """
        return TimeBudget(self._settings().interval.seconds)

    def _built_in_planner(self, name: str) -> Planner:
        if name not in self._planners:
            self._planners[name] = create_planner(name)
        return self._planners[name]

    def _reload_actuators(self) -> None:
        settings = self._settings()
        # Compared by identity: only a reload of the configuration makes new settings.
        if settings is self._loaded_settings:
            return
        self._loaded_settings = settings
        self._actuators = []
        for name, given in settings.actuators.items():
            try:
                self._actuators.append(actuator(name, **given))
            # One actuator with wrong settings must not take the others away from every Intent.
            except TrimtabError as error:
                log.warning("intent.actuator_unavailable", actuator=name, error=str(error))
