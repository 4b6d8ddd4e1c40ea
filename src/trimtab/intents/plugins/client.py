"""Actuator and planner plugins as the core sees them.

A late or invalid answer counts as no proposal. If a planner plugin fails, the built-in planner makes the plan.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from trimtab.intents.actuator import Actuator, IntentAction
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal
from trimtab.intents.planner import Plan, Planner, SearchBudget
from trimtab.intents.plugins.codec import (
    MAX_TEXT_LENGTH,
    InvalidMessageError,
    action_from_message,
    action_to_message,
    constraints_to_message,
    effects_to_messages,
    goal_to_message,
    plan_from_message,
    state_to_message,
    target_to_message,
)
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.protocol import CANDIDATES, OBSERVE, PERFORM, PLAN
from trimtab.intents.plugins.registry import RegisteredPlugin
from trimtab.intents.state import TargetState
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.plugins import Settings
from trimtab.printable import shorten

if TYPE_CHECKING:
    import grpc

MAX_CANDIDATES = 10
CALL_TIMEOUT = 1.0
"""The seconds that a plugin has for an answer while a plan is made."""
EXECUTE_TIMEOUT = 30.0
"""The seconds that a plugin has to execute an action."""
BUDGET_EXHAUSTED = "the plugin used up its time for this cycle"


class TimeBudget:
    """The total time that a plugin may delay the plans of one cycle, because many timely answers can add up to too
    much.
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self._left = seconds

    @property
    def is_exhausted(self) -> bool:
        return self._left <= 0

    @contextmanager
    def spend(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._left -= time.monotonic() - began


class RemoteActuator:
    """An actuator that is a plugin."""

    settings_type: ClassVar[type[Settings]] = Settings
    diminishing = False
    disruption = 0.0

    def __init__(
        self,
        plugin: RegisteredPlugin,
        *,
        timeout: float = CALL_TIMEOUT,
        time_budget: TimeBudget | None = None,
    ) -> None:
        self._plugin = plugin
        self._timeout = timeout
        self._time_budget = time_budget or TimeBudget()
        self.name = plugin.info.name
        self.group = plugin.info.group or plugin.info.name

    def candidates(
        self,
        state: TargetState,
        *,
        goal: Goal,
        effects: EffectModels,  # noqa: ARG002 - a plugin has its own
        limits: PlanConstraints,
    ) -> Sequence[IntentAction]:
        if self._time_budget.is_exhausted:
            return ()
        request = pb.CandidatesRequest(
            state=state_to_message(state),
            goal=goal_to_message(goal),
            constraints=constraints_to_message(limits),
        )

        def ask(channel: grpc.Channel) -> list[IntentAction]:
            answers = CANDIDATES.invoke(channel, request, timeout=self._timeout)
            actions = [
                # A plugin may stream without end, which would hold up the cycle of all Intents.
                action_from_message(message, before=state)
                for message in islice(answers, MAX_CANDIDATES)
            ]
            # Under the plugin's own name: an action in the name of another actuator would be executed by that one.
            return [msgspec.structs.replace(action, actuator=self.name) for action in actions]

        try:
            with self._time_budget.spend():
                return self._plugin.call(ask) or ()
        except InvalidMessageError as error:
            self._plugin.mark_failed(str(error))
            return ()

    def execute(self, action: IntentAction, *, target: WorkloadKey, state: TargetState) -> str:
        """Execute the action by the plugin; return the reason if it was not executed."""
        request = pb.PerformRequest(
            action=action_to_message(action), target=target_to_message(target), state=state_to_message(state)
        )
        answer = self._plugin.call(lambda channel: PERFORM.invoke(channel, request, timeout=EXECUTE_TIMEOUT))
        if answer is None:
            return f"plugin {self.name}: {self._plugin.last_error}"
        return shorten(answer.blocked_reason, MAX_TEXT_LENGTH)

    def observe(self, state: TargetState, *, goal: Goal, target: WorkloadKey) -> None:
        """Pass the current state to the plugin, so that it can learn."""
        request = pb.ObserveRequest(
            state=state_to_message(state), goal=goal_to_message(goal), target=target_to_message(target)
        )
        self._plugin.call(lambda channel: OBSERVE.invoke(channel, request, timeout=self._timeout))


class RemotePlanner:
    """A planner that is a plugin, with a fallback planner."""

    settings_type: ClassVar[type[Settings]] = Settings

    def __init__(
        self,
        plugin: RegisteredPlugin,
        fallback: Planner,
        *,
        settings: Mapping[str, Mapping[str, Any]],
        timeout: float = CALL_TIMEOUT,
        time_budget: TimeBudget | None = None,
    ) -> None:
        self._plugin = plugin
        self._fallback = fallback
        self._settings = settings
        self._timeout = timeout
        self._time_budget = time_budget or TimeBudget()

    def plan(
        self,
        state: TargetState,
        goal: Goal,
        *,
        actuators: Sequence[Actuator],
        effects: EffectModels,
        limits: PlanConstraints,
        now: float,
        budget: SearchBudget | None = None,
    ) -> Plan:
        budget = budget or SearchBudget()
        request = pb.PlanRequest(
            state=state_to_message(state),
            goal=goal_to_message(goal),
            constraints=constraints_to_message(limits),
            effects=effects_to_messages(effects),
            now=now,
            max_states=budget.max_states,
        )
        for each in actuators:
            entry = request.actuators.add(name=each.name)
            entry.settings.update(dict(self._settings.get(each.name, {})))
        problem = BUDGET_EXHAUSTED
        if not self._time_budget.is_exhausted:
            try:
                if (answer := self._request_plan(request)) is not None:
                    plan = plan_from_message(answer, goal=goal, before=state)
                    check_plan(plan, state, actuators=actuators, limits=limits, now=now)
                    return plan
            except InvalidMessageError as error:
                self._plugin.mark_failed(str(error))
            problem = self._plugin.last_error
        plan = self._fallback.plan(
            state, goal, actuators=actuators, effects=effects, limits=limits, now=now, budget=budget
        )
        why = f"planner {self._plugin.info.name} returned no usable plan: {problem}"
        return msgspec.structs.replace(plan, why=(*plan.why, why))

    def _request_plan(self, request: pb.PlanRequest) -> pb.PlanResponse | None:
        with self._time_budget.spend():
            return self._plugin.call(lambda channel: PLAN.invoke(channel, request, timeout=self._timeout))


def check_plan(
    plan: Plan, state: TargetState, *, actuators: Sequence[Actuator], limits: PlanConstraints, now: float
) -> None:
    """Check that a plugin's plan may be executed; raise InvalidMessageError with the reason if not."""
    groups = {each.name: each.group for each in actuators}
    used_groups: set[str] = set()
    if plan.actions and None in state.objectives.values():
        raise InvalidMessageError("the plan has actions although an objective is unknown")
    for action in plan.actions:
        if action.actuator not in groups or not limits.allows(action.actuator, now=now):
            raise InvalidMessageError(f"actuator {action.actuator} is not allowed now")
        if groups[action.actuator] in used_groups:
            raise InvalidMessageError(f"the plan has two actions of the group {groups[action.actuator]}")
        used_groups.add(groups[action.actuator])
        if violation := limits.find_violation(state, action.after):
            raise InvalidMessageError(violation)
