"""The other side: serves an actuator or a planner that is written in Python as a plugin, and keeps it registered.

with serving(ActuatorService(mine, perform=do_it), name="mine", register_at="127.0.0.1:9444") as plugin:
    plugin.wait()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
import structlog

from trimtab.intents.action import Deed
from trimtab.intents.actuator import Actuator, actuator
from trimtab.intents.effects.fit import LEARNED, recalled
from trimtab.intents.effects.model import Effects
from trimtab.intents.objective import Goal
from trimtab.intents.planner import Budget, Planner
from trimtab.intents.plugins.codec import (
    deed_message,
    deed_of,
    goal_of,
    limits_of,
    plain,
    plan_message,
    state_of,
    target_of,
)
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.protocol import (
    CANDIDATES,
    INFO,
    OBSERVE,
    PERFORM,
    PLAN,
    REGISTER,
    VERSION,
    Call,
    Stream,
    Tls,
    describe,
    dial,
    listen,
)
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.store import Effect

log = structlog.get_logger(__name__)

RETRY = 2.0

Answers = Sequence[tuple[Call[Any, Any] | Stream[Any, Any], Callable[[Any], Any]]]


class Service(Protocol):
    """What a plugin serves."""

    @property
    def type(self) -> pb.PluginType: ...

    @property
    def group(self) -> str: ...

    def answers(self) -> Answers: ...


@dataclass(frozen=True)
class ActuatorService:
    """An actuator, and who does what it proposes: given the deed and the workload, it says why not, or nothing."""

    actuator: Actuator
    perform: Callable[[Deed, WorkloadKey], str]
    type: pb.PluginType = pb.PLUGIN_TYPE_ACTUATOR

    @property
    def group(self) -> str:
        return self.actuator.group

    def answers(self) -> Answers:
        return (
            (CANDIDATES, self._candidates),
            (PERFORM, self._perform),
            (OBSERVE, lambda _: pb.Observed()),
        )

    def _candidates(self, asked: pb.CandidatesRequest) -> Sequence[pb.Deed]:
        found = self.actuator.candidates(
            state_of(asked.state), goal=goal_of(asked.goal), effects=Effects(), limits=limits_of(asked.limits)
        )
        return [deed_message(deed) for deed in found]

    def _perform(self, asked: pb.PerformRequest) -> pb.Performed:
        before = state_of(asked.state)
        return pb.Performed(refused=self.perform(deed_of(asked.deed, before=before), target_of(asked.target)))


@dataclass(frozen=True)
class PlannerService:
    """A planner."""

    planner: Planner
    type: pb.PluginType = pb.PLUGIN_TYPE_PLANNER
    group: str = ""
    _actuators: dict[bytes, Actuator] = field(default_factory=dict)

    def answers(self) -> Answers:
        return ((PLAN, self._plan),)

    def _plan(self, asked: pb.PlanRequest) -> pb.Planned:
        goal = goal_of(asked.goal)
        plan = self.planner.plan(
            state_of(asked.state),
            goal,
            actuators=[self._actuator(each) for each in asked.actuators],
            effects=_effects(goal, asked.effects),
            limits=limits_of(asked.limits),
            now=asked.now,
            budget=Budget(states=asked.states or Budget().states),
        )
        return plan_message(plan)

    def _actuator(self, asked: pb.ActuatorSettings) -> Actuator:
        key = asked.SerializeToString(deterministic=True)
        if key not in self._actuators:
            self._actuators[key] = actuator(asked.name, **plain(asked.settings))
        return self._actuators[key]


@dataclass(frozen=True)
class Serving:
    """A plugin that listens."""

    endpoint: str
    registered: threading.Event
    """Set once an operator knows it."""
    _server: grpc.Server

    def wait(self) -> None:
        self._server.wait_for_termination()


@contextmanager
def serving(
    service: Service,
    *,
    name: str,
    address: str = "127.0.0.1:0",
    endpoint: str | None = None,
    register_at: str | None = None,
    tls: Tls | None = None,
) -> Iterator[Serving]:
    """Listen, and register with an operator for as long as this lasts; `endpoint` is what it is told to dial."""
    info = pb.PluginInfo(type=service.type, name=name, versions=[VERSION], group=service.group)
    server, port = listen(address, tls, [(INFO, lambda _: info), *service.answers()])
    info.endpoint = endpoint or f"{address.rpartition(':')[0]}:{port}"
    served = Serving(info.endpoint, threading.Event(), server)
    ended = threading.Event()
    registering = threading.Thread(
        target=_register, args=(info, register_at, tls, served.registered, ended), daemon=True
    )
    if register_at is not None:
        registering.start()
    try:
        yield served
    finally:
        ended.set()
        server.stop(grace=0.2).wait()
        if register_at is not None:
            registering.join()


def _register(
    info: pb.PluginInfo,
    register_at: str,
    tls: Tls | None,
    registered: threading.Event,
    ended: threading.Event,
) -> None:
    """Again and again, since another operator may lead by now; dialled anew, since certificates are renewed."""
    while not ended.is_set():
        try:
            with dial(register_at, tls) as channel:
                again = REGISTER.of(channel, info, timeout=5.0).again
            registered.set()
        except (grpc.RpcError, OSError) as error:
            log.warning("plugin.not_registered", error=describe(error))
            again = RETRY
        ended.wait(max(RETRY, again))


def _effects(goal: Goal, said: Sequence[pb.Effect]) -> Effects:
    profiles = {each.name: each.measured_by or each.name for each in goal.objectives}
    kept = [
        Effect(
            name=goal.intent,
            group=each.group or LEARNED,
            profile_name=profiles[each.objective],
            data=plain(each.data),
            timestamp=0.0,
        )
        for each in said
        if each.objective in profiles
    ]
    effects, troubles = recalled(goal, kept)
    for trouble in troubles:
        log.warning("plugin.effect_unread", trouble=trouble)
    return effects
