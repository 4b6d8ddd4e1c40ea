"""An actuator and a planner that are plugins, as the core sees them: like any other.

What a plugin does not answer in time, or answers with nonsense, is as if it had nothing to propose. A planner plugin
that fails so leaves the plan to the planner that is built in.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, ClassVar

import grpc
import msgspec

from trimtab.intents.action import Deed
from trimtab.intents.actuator import Actuator
from trimtab.intents.constraints import Limits
from trimtab.intents.effects.model import Effects
from trimtab.intents.objective import Goal
from trimtab.intents.plan import Plan
from trimtab.intents.planner import Budget, Planner
from trimtab.intents.plugins.codec import (
    NonsenseError,
    deed_message,
    deed_of,
    effects_messages,
    goal_message,
    limits_message,
    plan_of,
    state_message,
    target_message,
)
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.protocol import CANDIDATES, OBSERVE, PERFORM, PLAN
from trimtab.intents.plugins.registry import Known
from trimtab.intents.state import State
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.plugins import Settings

MOST_CANDIDATES = 10
PATIENCE = 1.0
"""Seconds that a plugin has for an answer while a plan is made,"""
PERFORMING = 30.0
"""and to do something."""
TOO_SLOW = "its answers take too long for all plans of a turn"


class Allowance:
    """How long a plugin may keep all plans of a turn waiting: each answer may come in time, and all of them too late."""

    def __init__(self, seconds: float = math.inf) -> None:
        self._left = seconds

    @property
    def used_up(self) -> bool:
        return self._left <= 0

    @contextmanager
    def taken(self) -> Iterator[None]:
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
        self, known: Known, *, patience: float = PATIENCE, allowance: Allowance | None = None
    ) -> None:
        self._known = known
        self._patience = patience
        self._allowance = allowance or Allowance()
        self.name = known.info.name
        self.group = known.info.group or known.info.name

    def candidates(self, state: State, *, goal: Goal, effects: Effects, limits: Limits) -> Sequence[Deed]:  # noqa: ARG002 - a plugin has its own
        if self._allowance.used_up:
            return ()
        request = pb.CandidatesRequest(
            state=state_message(state), goal=goal_message(goal), limits=limits_message(limits)
        )

        def ask(channel: grpc.Channel) -> list[Deed]:
            answers = CANDIDATES.of(channel, request, timeout=self._patience)
            deeds = [deed_of(said, before=state) for said in islice(answers, MOST_CANDIDATES)]
            return [msgspec.structs.replace(deed, actuator=self.name) for deed in deeds]

        try:
            with self._allowance.taken():
                return self._known.asked(ask) or ()
        except NonsenseError as error:
            self._known.failed(str(error))
            return ()

    def perform(self, deed: Deed, *, target: WorkloadKey, state: State) -> str:
        """Have it done; why it was not, or nothing."""
        request = pb.PerformRequest(
            deed=deed_message(deed), target=target_message(target), state=state_message(state)
        )
        answer = self._known.asked(lambda channel: PERFORM.of(channel, request, timeout=PERFORMING))
        return f"plugin {self.name}: {self._known.trouble}" if answer is None else answer.refused

    def observe(self, state: State, *, goal: Goal, target: WorkloadKey) -> None:
        """Let it learn from what is so now."""
        request = pb.ObserveRequest(
            state=state_message(state), goal=goal_message(goal), target=target_message(target)
        )
        self._known.asked(lambda channel: OBSERVE.of(channel, request, timeout=self._patience))


class RemotePlanner:
    """A planner that is a plugin, and the one that stands in for it."""

    settings_type: ClassVar[type[Settings]] = Settings

    def __init__(
        self,
        known: Known,
        otherwise: Planner,
        *,
        settings: Mapping[str, Mapping[str, Any]],
        patience: float = PATIENCE,
        allowance: Allowance | None = None,
    ) -> None:
        self._known = known
        self._otherwise = otherwise
        self._settings = settings
        self._patience = patience
        self._allowance = allowance or Allowance()

    def plan(
        self,
        state: State,
        goal: Goal,
        *,
        actuators: Sequence[Actuator],
        effects: Effects,
        limits: Limits,
        now: float,
        budget: Budget | None = None,
    ) -> Plan:
        budget = budget or Budget()
        request = pb.PlanRequest(
            state=state_message(state),
            goal=goal_message(goal),
            limits=limits_message(limits),
            effects=effects_messages(effects),
            now=now,
            states=budget.states,
        )
        for each in actuators:
            entry = request.actuators.add(name=each.name)
            entry.settings.update(dict(self._settings.get(each.name, {})))
        trouble = TOO_SLOW
        if not self._allowance.used_up:
            try:
                if (answer := self._asked(request)) is not None:
                    plan = plan_of(answer, goal=goal, before=state)
                    check(plan, state, actuators=actuators, limits=limits, now=now)
                    return plan
            except NonsenseError as error:
                self._known.failed(str(error))
            trouble = self._known.trouble
        plan = self._otherwise.plan(
            state, goal, actuators=actuators, effects=effects, limits=limits, now=now, budget=budget
        )
        why = f"planner {self._known.info.name} gave no answer to go by: {trouble}"
        return msgspec.structs.replace(plan, why=(*plan.why, why))

    def _asked(self, request: pb.PlanRequest) -> pb.Planned | None:
        with self._allowance.taken():
            return self._known.asked(lambda channel: PLAN.of(channel, request, timeout=self._patience))


def check(plan: Plan, state: State, *, actuators: Sequence[Actuator], limits: Limits, now: float) -> None:
    """Whether a plan of somebody else's may be carried out; NonsenseError says why not."""
    groups = {each.name: each.group for each in actuators}
    turned: set[str] = set()
    if plan.deeds and None in state.objectives.values():
        raise NonsenseError("it would act though an objective is unknown")
    for deed in plan.deeds:
        if deed.actuator not in groups or not limits.allows(deed.actuator, now=now):
            raise NonsenseError(f"{deed.actuator} may not be used")
        if groups[deed.actuator] in turned:
            raise NonsenseError(f"it has two deeds of the group {groups[deed.actuator]}")
        turned.add(groups[deed.actuator])
        if breach := limits.breach(state, deed.after):
            raise NonsenseError(breach)
